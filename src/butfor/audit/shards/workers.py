"""Workers: threads of this process or a Dask cluster, which process shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

import butfor
from butfor.audit.shards.log import Shard
from butfor.checks import check_whole
from butfor.threads import count_threads

MOST_PROCESSES = 1000  # of a cluster on this machine
AHEAD = 2  # shards for each thread, one of which waits until the other is done

Work = Callable[..., Any]  # (shard, threads=..., shared arguments) -> result
Done = tuple[Shard, Any]  # a shard with its result, or with the exception that it raised


class Workers(Protocol):
    """Runs a function on every shard, in any order."""

    def run(self, work: Work, shards: Sequence[Shard], shared: Mapping[str, Any]) -> Iterator[Done]:
        """Yield each shard with its result; an error about its file is yielded, not raised."""

    def close(self) -> None:
        """Release all resources."""


@dataclass(frozen=True)
class Threads:
    """Threads of this process; by default one for each core."""

    count: int | None = None

    def run(self, work: Work, shards: Sequence[Shard], shared: Mapping[str, Any]) -> Iterator[Done]:
        """Process one shard per thread at a time; if there are fewer shards, they share threads."""
        threads = count_threads(self.count)
        at_once = max(1, min(threads, len(shards)))
        waiting = list(reversed(shards))
        running: dict[Future[Any], Shard] = {}
        with ThreadPoolExecutor(at_once) as pool:

            def start() -> None:
                while waiting and len(running) < at_once * AHEAD:
                    shard = waiting.pop()
                    future = pool.submit(work, shard, threads=threads // at_once, **shared)
                    running[future] = shard

            try:
                start()
                while running:
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        shard = running.pop(future)
                        start()
                        yield shard, _outcome(future)
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def close(self) -> None:
        """Nothing to release: threads end by themselves."""


class Cluster:
    """A running Dask cluster, or a new one of `workers` processes on this machine."""

    def __init__(self, address: str | None = None, *, workers: int | None = None) -> None:
        try:
            import distributed  # noqa: PLC0415  an optional extra, and slow to load
        except ImportError:
            raise ValueError(
                "Dask is not installed; install it with pip install 'butfor[dask]'"
            ) from None
        self._dask = distributed
        self._own = None
        if address is None:
            count = check_whole(workers, "workers", 1, "a number of processes", MOST_PROCESSES)
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
                f"workers ({error or type(error).__name__}); check that it is running"
            ) from None
        self._check_versions()

    def run(self, work: Work, shards: Sequence[Shard], shared: Mapping[str, Any]) -> Iterator[Done]:
        """Send shards to the cluster, only a few more than it can process at a time.

        Dask repeats the shards of lost workers. The shared arguments are sent as a task, so that
        Dask can restore them too.
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
                raise ValueError(
                    "the connection to the Dask cluster was lost; restart it, and run again with "
                    "--resume"
                )
            error = future.exception()
            if isinstance(error, ImportError):
                raise ValueError(
                    f"a worker of the cluster cannot import what it needs ({error}); install the "
                    "same version of butfor everywhere"
                )
            if isinstance(error, FileNotFoundError) and Path(shard.path).exists():
                raise FileNotFoundError(
                    f"{shard.path}: a worker of the cluster cannot find this file; every worker "
                    "needs the files at the same path"
                )
            if isinstance(error, self._dask.KilledWorker):
                raise ValueError(
                    f"{shard.path}: its workers were lost repeatedly, usually for lack of memory; "
                    "give them more, or write smaller files"
                )
            yield shard, _outcome(future)
            future.release()
            if waiting:
                send()

    def close(self) -> None:
        """Disconnect from the cluster; stop it if it was started here."""
        self.client.close()
        if self._own is not None:
            self._own.close()

    def _threads(self) -> int:
        return sum(self.client.nthreads().values())

    def _check_versions(self) -> None:
        """Refuse a cluster with another version of butfor: results could differ."""
        try:
            found = {"the scheduler": self.client.run_on_scheduler(version, "butfor")}
        except PackageNotFoundError:
            found = {"the scheduler": "none"}
        versions = self.client.run(version, "butfor", on_error="return")
        found |= {f"the worker {address}": known for address, known in versions.items()}
        for who, known in found.items():
            if known != butfor.__version__:
                self.close()
                raise ValueError(
                    f"{who} has butfor {known}, but this is {butfor.__version__}; install the same "
                    "version everywhere"
                )


def _work(work: Work, shard: Shard, shared: Mapping[str, Any]) -> Any:
    return work(shard, threads=1, **shared)


def _outcome(future: Any) -> Any:
    """Return the result of a shard, or the error about its file."""
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, ValueError | OSError):
        return error
    raise error
