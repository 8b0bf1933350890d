"""Types shared by all packages."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int32]
Floats = NDArray[np.float64]
Offsets = NDArray[np.int64]
Keys = NDArray[np.uint64]  # of random numbers, one per episode
Progress = Callable[[int, int], None]  # (done, total)
