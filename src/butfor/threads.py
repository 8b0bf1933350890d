"""Work split over threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

from butfor.checks import check_whole
from butfor.types import Progress

MOST_THREADS = 1000  # that can be asked for

Item = TypeVar("Item")
Result = TypeVar("Result")


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return available or 1


def count_threads(threads: int | None) -> int:
    """Return how many threads to use: as many as were asked for, by default one per core."""
    if threads is None:
        return count_cores()
    return check_whole(threads, "threads", 1, "a whole number", MOST_THREADS)


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
    workers = count_threads(threads)
    # several blocks per thread, because some take longer; more if there is progress to report
    parts = 8 * workers if progress is not None else 4 * workers if workers > 1 else 1
    size = max(smallest, min(largest, -(-count // parts)))
    blocks = [(start, min(start + size, count)) for start in range(0, count, size)]
    workers = min(workers, len(blocks))
    if workers <= 1:  # the caller's own thread: another would only be waited for
        for start, stop in blocks:
            work(start, stop)
            if progress is not None:
                progress(stop, count)
        return
    waiting = deque(blocks)
    finished: SimpleQueue[int] = SimpleQueue()  # sizes of blocks; 0 when a thread ends

    def work_on() -> None:
        try:
            while waiting:
                try:
                    start, stop = waiting.popleft()
                except IndexError:  # another thread took the last one
                    break
                work(start, stop)
                if progress is not None:  # else nobody is woken up for a block
                    finished.put(stop - start)
        except BaseException:
            waiting.clear()  # running blocks finish, no new ones start
            raise
        finally:
            finished.put(0)

    others = workers - (progress is None)  # the caller's own thread works, too, or reports
    with ThreadPoolExecutor(others) as pool:
        running = [pool.submit(work_on) for _ in range(others)]
        try:
            if progress is None:
                work_on()
            else:
                _report(finished, workers, count, progress)
            for thread in running:
                thread.result()
        except BaseException:
            waiting.clear()
            raise


def _report(finished: SimpleQueue[int], workers: int, count: int, progress: Progress) -> None:
    """Report blocks as they are finished, until all threads have ended."""
    done = 0
    while workers:
        size = finished.get()
        done += size
        if size:
            progress(done, count)
        else:
            workers -= 1


def in_order(
    work: Callable[[Item], Result], items: Iterable[Item], *, threads: int | None = None
) -> Iterator[Result]:
    """Yield `work` of each item, in their order, computed in one thread per core, a few ahead."""
    workers = count_threads(threads)
    with ThreadPoolExecutor(workers) as pool:
        ahead: deque[Future[Result]] = deque()
        try:
            for item in items:
                ahead.append(pool.submit(work, item))
                if len(ahead) > workers:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
