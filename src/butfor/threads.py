"""Work split over threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

from butfor.checks import check_whole
from butfor.types import Progress

Result = TypeVar("Result")


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return available or 1


def in_blocks(
    work: Callable[[int, int], None],
    count: int,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    largest: int = 4096,
    smallest: int = 1,
) -> None:
    """Call `work(start, stop)` on blocks of 0 .. count - 1 in several threads.

    Each call must write to its own part of the output and release the interpreter lock, as kernels
    do. Blocks of fewer than `smallest` would take longer to set up than to work on.
    """
    given = count_cores() if threads is None else threads
    workers = check_whole(given, "threads", 1, "a whole number")
    # one thread without progress has nobody to share with or to report to
    parts = 1 if workers == 1 and progress is None else 8 * workers
    size = max(smallest, min(largest, -(-count // parts)))
    blocks = [(start, min(start + size, count)) for start in range(0, count, size)]
    done = 0
    if min(workers, len(blocks)) <= 1:  # the caller's own thread: another would only be waited for
        for start, stop in blocks:
            work(start, stop)
            if progress is not None:
                progress(stop, count)
        return
    with ThreadPoolExecutor(workers) as pool:
        sizes = {pool.submit(work, start, stop): stop - start for start, stop in blocks}
        try:
            for future in as_completed(sizes):
                future.result()
                done += sizes[future]
                if progress is not None:
                    progress(done, count)
        except BaseException:
            pool.shutdown(
                wait=True, cancel_futures=True
            )  # running blocks finish, no new ones start
            raise


def in_order(work: Callable[[int], Result], count: int) -> Iterator[Result]:
    """Yield `work(0)`, `work(1)`, … in order, computed in one thread per core, a few ahead."""
    threads = count_cores()
    with ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[Result]] = deque()
        try:
            for number in range(count):
                ahead.append(pool.submit(work, number))
                if len(ahead) > threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
