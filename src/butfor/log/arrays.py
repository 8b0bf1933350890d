"""Checks of the arrays that Episodes are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from butfor.checks import REWARDS, check_integers, find_absurd
from butfor.log.variables import check_distinct
from butfor.types import Floats, Integers, Offsets


def check_numbers(values: ArrayLike, name: str) -> Integers:
    """Return whole numbers that fit into 32 bits."""
    whole = check_integers(values, name)
    limit = np.iinfo(np.int32).max
    outside = (whole > limit) | (whole < -limit)  # not `abs`: that of -2^63 is -2^63
    if outside.any():
        place = int(outside.argmax())
        raise ValueError(f"{name} at {place} is {whole[place]}, too large; relabel from 0")
    return whole.astype(np.int32)


def check_code_rows(values: ArrayLike, variables: int, name: str) -> NDArray[np.int64]:
    """Return level codes [N, J] of whole numbers."""
    rows = np.asarray(values)
    if rows.ndim != 2 or rows.shape[1] != variables:
        raise ValueError(
            f"{name} has shape {rows.shape}, expected one dimension, or (rows, {variables}): one "
            "column per variable"
        )
    return check_integers(rows.reshape(-1), name).reshape(rows.shape)


def check_offsets(offsets: Offsets, rows: int) -> None:
    """Refuse offsets that do not divide the rows into episodes with steps."""
    if len(offsets) < 2:
        raise ValueError("no episodes: offsets need at least two entries, 0 and the number of rows")
    if offsets[0] != 0 or offsets[-1] != rows:
        raise ValueError(
            f"offsets run from {offsets[0]} to {offsets[-1]}, expected 0 to {rows}, the rows given"
        )
    lengths = np.diff(offsets)
    if (lengths <= 0).any():
        episode = int(np.flatnonzero(lengths <= 0)[0])
        raise ValueError(
            f"the episode at position {episode} has {lengths[episode]} steps; "
            "drop episodes without steps"
        )


def check_ids(ids: NDArray[Any]) -> None:
    """Refuse names of episodes that are not distinct or not of one type."""
    check_distinct(ids.tolist(), "id")
    if ids.dtype != object:
        return
    types = {type(identifier).__name__ for identifier in ids.tolist()}
    if len(types) > 1:
        raise ValueError(f"id: of several types ({', '.join(sorted(types))}); give one type")


def check_ends(ends: Integers, ids: NDArray[Any], outcomes: int) -> None:
    """Refuse outcomes that are not listed."""
    wrong = (ends < -1) | (ends >= outcomes)
    if wrong.any():
        episode = int(np.flatnonzero(wrong)[0])
        known = f"outcomes=[...] lists 0..{outcomes - 1}" if outcomes else "outcomes=[...] is empty"
        raise ValueError(
            f"episode {ids[episode]}: outcome {ends[episode]}, but {known}; list it there, "
            "or give -1 for none"
        )


def check_rewards(reward: Floats | None, offsets: Offsets, ids: NDArray[Any]) -> None:
    """Refuse rewards that are not finite, or absurdly large."""
    wrong = find_absurd([] if reward is None else reward)
    if reward is not None and len(wrong):
        row = int(wrong[0])
        finite = np.isfinite(reward[row])
        what = f"too large; give {REWARDS}" if finite else "not finite; fill or drop it"
        raise ValueError(
            f"row {row} ({place_of(row, offsets, ids)}): reward {reward[row]} is {what}"
        )


def check_level_numbers(
    numbers: pd.DataFrame, names: Sequence[str], known: NDArray[np.bool_]
) -> pd.DataFrame:
    """Return the numbers behind the levels of some of these variables, finite where known [m]."""
    for name in numbers.columns:
        if name not in names:
            raise ValueError(
                f"numbers: no state variable {name!r}; there are {', '.join(map(repr, names))}"
            )
    if len(numbers) != len(known):
        raise ValueError(
            f"numbers has {len(numbers)} rows, expected {len(known)}: one per transition, then one "
            "for the final state of each episode"
        )
    values = numbers.astype(np.float64).reset_index(drop=True)
    for name, column in values.items():
        wrong = known & ~np.isfinite(column.to_numpy())
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                f"numbers, row {row}: {name!r} is {column[row]}; give a finite number wherever the "
                "state is known"
            )
    return values


def check_taken(given: ArrayLike, rows: int, place: Callable[[int], str]) -> Floats:
    """Return the probabilities of the logged actions, each above 0 and at most 1, [N]."""
    probability = np.asarray(given, dtype=np.float64)
    if probability.shape != (rows,):
        raise ValueError(
            f"behavior_probability has shape {probability.shape}, expected ({rows},): one per "
            "logged decision"
        )
    wrong = ~((probability > 0) & (probability <= 1))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"behavior_probability of row {row} ({place(row)}) is {probability[row]}; the "
            "probability of what was done must be above 0 and at most 1"
        )
    return probability


def place_of(row: int, offsets: Offsets, ids: NDArray[Any]) -> str:
    """Name a row by its episode and step, for messages."""
    episode = int(np.searchsorted(offsets, row, side="right")) - 1
    return f"episode {ids[episode]}, step {row - offsets[episode]}"


def digest_arrays(arrays: Iterable[NDArray[Any]]) -> str:
    """Return a digest of arrays of numbers, 16 hexadecimal digits."""
    digest = blake2b(digest_size=8)
    for array in arrays:
        digest.update(f"{array.dtype.str} {len(array)} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
