"""Types shared by all packages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int32]
Floats = NDArray[np.float64]
Offsets = NDArray[np.int64]
Keys = NDArray[np.uint64]  # of random numbers, one per episode
Progress = Callable[[int, int], None]  # (done, total)


@runtime_checkable
class Stages(Protocol):
    """A progress function that also wants to know the stage that its numbers are about."""

    def enter(self, stage: str) -> None:
        """Begin a stage, named in the words of a reader."""

    def __call__(self, done: int, total: int) -> None:
        """Report how much of the stage is done."""


def enter_stage(progress: Progress | None, stage: str) -> None:
    """Tell a progress function the stage that begins, if it wants to know."""
    if isinstance(progress, Stages):
        progress.enter(stage)
