"""Checks of arguments: each returns the value, or raises an error with a remedy."""

from __future__ import annotations

import math
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST_STEPS = 1_000_000  # of a horizon
MOST_NUMBERS = 10**8  # of a table that is kept in memory: 0.8 GB
MOST_NUMBERED = 1_000_000  # states, actions or clusters known only by number; each gets a name
MOST_WHOLE = 2**63 - 1  # that files keep
MOST_EPISODES = 10**12  # that can be asked for
MOST_BITS = 256  # of a number that a message shows
MOST_PSEUDO_COUNT = 1e12
MOST_REWARD = 1e100  # the square of a return has to be a number, too
REWARDS = f"a finite number from {-MOST_REWARD:g} to {MOST_REWARD:g}"
ROW_TOLERANCE = 1e-6  # a row that misses 1 by at most this is scaled; more is an error
SCALED = 1e-14  # a row whose sum is off by less has been scaled to one


def check_whole(value: Any, name: str, least: int, what: str, most: int = MOST_WHOLE) -> int:
    """Return an integer from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} {value!r}: give {what}, at least {least}")
    if value > most:
        bits = int(value).bit_length()
        shown = value if bits <= MOST_BITS else f"of {bits:,} bits"
        raise ValueError(f"{name} {shown}: give {what}, at most {most}")
    return int(value)


def check_horizon(horizon: Any) -> int:
    """Return a horizon of at least one step, and not absurdly many."""
    steps = check_whole(horizon, "horizon", 1, "a whole number of steps")
    if steps > MOST_STEPS:
        raise ValueError(f"horizon {steps}: give at most {MOST_STEPS:,} steps")
    return steps


def check_room(shape: Sequence[int], what: str) -> None:
    """Refuse a table that is too large, before memory runs out."""
    numbers = math.prod(shape)
    if numbers > MOST_NUMBERS:
        raise ValueError(
            f"{what} are {numbers:,} numbers, more than the {MOST_NUMBERS:,} that are kept at "
            "once; lower the horizon, or give fewer episodes or states at once"
        )


def check_pseudo_count(value: float, name: str) -> float:
    """Return a number of cases that is added to those of a log."""
    if not 0 <= value <= MOST_PSEUDO_COUNT:
        raise ValueError(
            f"{name} {value}: give a number of cases, 0 or more and at most "
            f"{MOST_PSEUDO_COUNT:g}, which would drown out any log"
        )
    return float(value)


def find_absurd(rewards: ArrayLike) -> NDArray[np.int64]:
    """Return the positions of rewards that are not finite, or so large that sums overflow."""
    with np.errstate(invalid="ignore"):
        return np.flatnonzero(~(np.abs(np.asarray(rewards, dtype=np.float64)) <= MOST_REWARD))


def check_discount(discount: float) -> float:
    """Return a discount from 0 to 1."""
    if not 0 <= discount <= 1:
        raise ValueError(f"discount {discount}: give a number from 0 to 1")
    return float(discount)


def check_size(path: Path, most: int, what: str) -> None:
    """Refuse a file of more than `most` bytes, or one that may never end, before it is read."""
    status = path.stat()
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        raise ValueError(f"{path} is a device; give a file with {what}")
    size = status.st_size
    if size > most:
        raise ValueError(
            f"{path} has {size / 1e6:,.0f} MB, but {what} has at most {most / 1e6:,.0f} MB; check "
            "that it is the right file"
        )


def check_integers(values: ArrayLike, name: str) -> NDArray[np.int64]:
    """Return a one-dimensional array of integers."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}, expected one dimension")
    if array.dtype.kind not in "iu":
        whole = np.zeros(len(array), dtype=bool)
        if array.dtype.kind == "f":
            whole = np.isfinite(array) & (array == np.floor(array)) & (np.abs(array) < 2**53)
        elif array.dtype.kind == "O":
            whole = np.array([type(value) is int for value in array.tolist()], dtype=bool)
        if not whole.all():
            place = int(np.flatnonzero(~whole)[0])
            raise ValueError(
                f"{name} at {place} is {array.tolist()[place]!r}, expected a whole number"
            )
    return array.astype(np.int64)


def check_distributions(
    rows: ArrayLike, name: str, index: tuple[str, ...] = ("row",)
) -> NDArray[np.float64]:
    """Return distributions along the last axis, scaled to sum to one.

    `index` names the leading axes, for messages.
    """
    array = np.array(rows, dtype=np.float64)
    bad = ~np.isfinite(array) | (array < 0)
    if bad.any():
        *place, column = np.argwhere(bad)[0].tolist()
        raise ValueError(
            f"{name}: {_place(index, place)} has probability {array[(*place, column)]} at "
            f"{column}; give numbers from 0 to 1"
        )
    totals = array.sum(axis=-1)
    wrong = np.abs(totals - 1) > ROW_TOLERANCE
    if wrong.any():
        place = np.argwhere(wrong)[0].tolist()
        raise ValueError(
            f"{name}: {_place(index, place)} sums to {totals[tuple(place)]:.9g}, not to 1; "
            "divide each row by its sum if that is intended"
        )
    # rows that sum to one already stay as they are, so that checking twice changes nothing
    return array / np.where(np.abs(totals - 1) > SCALED, totals, 1.0)[..., None]


def check_policy(
    policy: ArrayLike, states: int, actions: int, name: str = "policy"
) -> NDArray[np.float64]:
    """Return a policy as an [S, A] array of floats."""
    array = np.asarray(policy, dtype=np.float64)
    if array.shape != (states, actions):
        raise ValueError(
            f"{name} has shape {array.shape}, expected ({states}, {actions}): "
            "one row per state, one column per action"
        )
    return check_distributions(array, name, ("state",))


def check_choice(value: Any, name: str, choices: Sequence[str]) -> str:
    """Return a value that is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} {value!r}: give one of {', '.join(map(repr, choices))}")
    return str(value)


def check_confidence(confidence: float) -> float:
    """Return a confidence between 0 and 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence}: give a number between 0 and 1, such as 0.95")
    return float(confidence)


def _place(index: tuple[str, ...], place: list[int]) -> str:
    return ", ".join(f"{name} {at}" for name, at in zip(index, place, strict=False)) or "the row"
