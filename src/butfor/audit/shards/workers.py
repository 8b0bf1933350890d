"""Who works on shards: threads of this program, or a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

import butfor
from butfor.audit.shards.log import Shard
from butfor.checks import check_whole

AHEAD = 2  # shards that wait for each thread of a cluster

Work = Callable[..., Any]  # (shard, threads=..., and what all shards share) -> what it gives
Done = tuple[Shard, Any]  # a shard with what it gave, or the exception that it ended in


class Workers(Protocol):
    """Runs a function on every shard, in any order."""

    def run(self, work: Work, shards: Sequence[Shard], shared: Mapping[str, Any]) -> Iterator[Done]:
        """Give each shard with what came of it; a mistake in its file is given, not raised."""

    def close(self) -> None:
        """Let go of all that was started."""


@dataclass(frozen=True)
class Threads:
    """Threads of this program; as many as there are cores by default."""

    count: int | None = None

    def run(self, work: Work, shards: Sequence[Shard], shared: Mapping[str, Any]) -> Iterator[Done]:
        """Work on as many shards at a time as there are threads; one shard gets them all."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        given = (cores or 1) if self.count is None else self.count
        threads = check_whole(given, "threads", 1, "a whole number")
        at_once = max(1, min(threads, len(shards)))
        waiting = list(reversed(shards))
        running: dict[Future[Any], Shard] = {}
        with ThreadPoolExecutor(at_once) as pool:
            try:
                while waiting or running:
                    while waiting and len(running) < at_once:
                        shard = waiting.pop()
                        future = pool.submit(work, shard, threads=threads // at_once, **shared)
                        running[future] = shard
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        yield running.pop(future), _outcome(future)
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def close(self) -> None:
        """Threads end by themselves."""


class Cluster:
    """A Dask cluster that is there already, or one of `workers` processes on this machine."""

    def __init__(self, address: str | None = None, *, workers: int | None = None) -> None:
        try:
            import distributed  # noqa: PLC0415  an optional extra, and slow to load
        except ImportError:
            raise ValueError(
                "Dask is not installed; install butfor with it: pip install 'butfor[dask]'"
            ) from None
        self._dask = distributed
        self._own = None
        if address is None:
            count = check_whole(workers, "workers", 1, "a whole number")
            self._own = distributed.LocalCluster(
                n_workers=count,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                host="127.0.0.1",
            )
        try:
            self.client = distributed.Client(self._own or address, timeout="10s")
            self.client.wait_for_workers(1, timeout=60)
        except (OSError, TimeoutError, TypeError) as error:
            raise ValueError(
                f"the Dask cluster {address or 'on this machine'} cannot be reached or has no "
                f"workers ({error or type(error).__name__}); see whether it is up"
            ) from None
        self._check_versions()

    def run(self, work: Work, shards: Sequence[Shard], shared: Mapping[str, Any]) -> Iterator[Done]:
        """Send shards to the cluster, not many more than it works on at a time.

        Dask does those of lost workers again. What shards share is sent as work of its own, so that
        this too can be done again.
        """
        sent = self.client.submit(dict, shared, pure=False)
        waiting = list(reversed(shards))
        running: dict[str, Shard] = {}
        done = self._dask.as_completed()

        def send() -> None:
            shard = waiting.pop()
            future = self.client.submit(_work, work, shard, sent, pure=False)
            running[future.key] = shard
            done.add(future)

        for _ in range(min(self._threads() * AHEAD, len(waiting))):
            send()
        for future in done:
            shard = running.pop(future.key)
            if future.cancelled():
                raise ValueError("the Dask cluster was lost; when it is up again, use --resume")
            error = future.exception()
            if isinstance(error, ImportError):
                raise ValueError(
                    f"a worker of the cluster cannot load what it needs ({error}); install the "
                    "same butfor everywhere"
                )
            if isinstance(error, FileNotFoundError) and Path(shard.path).exists():
                raise FileNotFoundError(
                    f"{shard.path}: a worker of the cluster cannot find it; every worker must see "
                    "the files under the same path"
                )
            if isinstance(error, self._dask.KilledWorker):
                raise ValueError(
                    f"{shard.path}: its workers were lost again and again, which happens where "
                    "they have too little memory; give them more, or write smaller files"
                )
            yield shard, _outcome(future)
            future.release()
            if waiting:
                send()

    def close(self) -> None:
        """Leave the cluster; end it if it was started here."""
        self.client.close()
        if self._own is not None:
            self._own.close()

    def _threads(self) -> int:
        return sum(self.client.nthreads().values())

    def _check_versions(self) -> None:
        """Refuse a cluster with another butfor: results would not be the same."""
        try:
            found = {"the scheduler": self.client.run_on_scheduler(version, "butfor")}
        except PackageNotFoundError:
            found = {"the scheduler": "none"}
        told = self.client.run(version, "butfor", on_error="return")
        found |= {f"the worker {address}": known for address, known in told.items()}
        for who, known in found.items():
            if known != butfor.__version__:
                self.close()
                raise ValueError(
                    f"{who} has butfor {known}, here it is {butfor.__version__}; install the same "
                    "version everywhere"
                )


def _work(work: Work, shard: Shard, shared: Mapping[str, Any]) -> Any:
    return work(shard, threads=1, **shared)


def _outcome(future: Any) -> Any:
    """What a shard gave, or the mistake that was found in it."""
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, ValueError | OSError):
        return error
    raise error
