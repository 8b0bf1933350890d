"""A second process, for work that would otherwise wait for the interpreter lock."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import active_children, get_context, parent_process

from butfor.threads import count_cores


@contextmanager
def second_process() -> Iterator[Executor]:
    """Yield an executor with one process, which ends with the block or with this process.

    On a machine with one core, or where processes cannot share semaphores, it has a thread instead.
    """
    before = active_children()
    executor = _executor()
    try:
        yield executor
    except BrokenProcessPool:
        raise OSError("the second process was killed; is there enough memory?") from None
    finally:
        for process in active_children():
            if process not in before:  # ours, which has nothing left to do that anyone waits for
                process.terminate()
        executor.shutdown(cancel_futures=True)


def _executor() -> Executor:
    if count_cores() > 1:
        # raised where semaphores are missing or forbidden, as in some containers
        with suppress(ImportError, NotImplementedError, OSError):
            executor = ProcessPoolExecutor(1, get_context("spawn"), initializer=_follow)
            with _control_c_blocked():  # which the process inherits: Ctrl-C is for the first alone
                executor.submit(os.getpid)  # starts it
            return executor
    return ThreadPoolExecutor(1)


@contextmanager
def _control_c_blocked() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _follow() -> None:
    """End when the first process ends, in whatever way."""
    threading.Thread(target=_end_with_first, daemon=True).start()


def _end_with_first() -> None:
    first = parent_process()
    if first is not None:
        first.join()
        os._exit(1)
