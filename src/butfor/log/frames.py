"""A data frame in which a row is a decision, as the arrays that Episodes are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.log.variables import check_distinct
from butfor.types import Floats


@dataclass(frozen=True)
class Column:
    """A column as codes into labels; -1 where it is empty."""

    codes: NDArray[np.int64]
    labels: tuple[str, ...]


class Rows:
    """The rows of a frame, sorted by episode and time; messages name rows of the frame as given."""

    def __init__(self, frame: pd.DataFrame, episode: str, time: str | None, others: list[str]):
        for name in [episode, *([] if time is None else [time]), *others]:
            if name not in frame.columns:
                columns = ", ".join(repr(column) for column in frame.columns)
                raise ValueError(
                    f"the frame has no column {name!r}; it has {columns}. Name the right one, or "
                    "give None for a time, reward or outcome that it does not have"
                )
        if len(frame) == 0:
            raise ValueError("the frame has no rows; give at least one decision")
        for name in [episode, *([] if time is None else [time])]:
            empty = frame[name].isna().to_numpy()
            if empty.any():
                raise ValueError(f"row {int(empty.argmax())}: no {name}; fill or drop the row")
        codes, ids = pd.factorize(frame[episode])
        times = [] if time is None else [pd.factorize(frame[time], sort=True)[0]]
        self.order = np.lexsort([*times, codes])
        self.table = frame.iloc[self.order].reset_index(drop=True)
        self.episode = codes[self.order]
        self.ids = np.asarray(ids)
        self.last = np.append(self.episode[1:] != self.episode[:-1], True)

    def place(self, row: int) -> str:
        """Say where a sorted row stands in the frame, and in which episode."""
        return f"row {self.order[row]} (episode {self.ids[self.episode[row]]})"

    def refuse(self, wrong: NDArray[np.bool_], problem: str) -> None:
        """Raise an error that names the first wrong row, if any is."""
        if wrong.any():
            raise ValueError(f"{self.place(int(wrong.argmax()))}: {problem}")

    def column(self, name: str, labels: Sequence[Any] | None, plural: str) -> Column:
        """Code a column by the labels given, or by those that it has, sorted."""
        values = _whole(self.table[name])
        levels = _sorted(values.dropna().unique(), plural) if labels is None else list(labels)
        check_distinct(levels, plural)
        codes = pd.Index(levels, dtype=object).get_indexer(pd.Index(values, dtype=object))
        lost = (codes < 0) & values.notna().to_numpy()
        if lost.any():
            shown = ", ".join(repr(_plain(level)) for level in levels[:8])
            value = _plain(values[int(lost.argmax())])
            self.refuse(lost, f"{value!r} is not among the {plural} given ({shown}); list it too")
        return Column(codes.astype(np.int64), tuple(str(level) for level in levels))

    def numbers(self, name: str) -> Floats:
        """Return a column of numbers, nan where it is empty."""
        values = pd.to_numeric(self.table[name], errors="coerce")
        wrong = values.isna().to_numpy() & self.table[name].notna().to_numpy()
        if wrong.any():
            shown = self.table[name][int(wrong.argmax())]
            self.refuse(wrong, f"{name} {_plain(shown)!r} is not a number; fill or drop it")
        array = values.to_numpy(dtype=np.float64, na_value=np.nan)
        if np.isinf(array).any():
            shown = array[int(np.isinf(array).argmax())]
            self.refuse(np.isinf(array), f"{name} {shown} is not a number; fill or drop it")
        return array


def read_frame(
    frame: pd.DataFrame,
    *,
    episode: str,
    time: str | None,
    state: str,
    action: str,
    reward: str | None,
    outcome: str | None,
    states: Sequence[Any] | None,
    actions: Sequence[Any] | None,
    outcomes: Sequence[Any] | None,
) -> tuple[dict[str, Any], Column, Column, Column]:
    """Return arrays for `Episodes.from_arrays`, and the state, action and outcome columns."""
    others = [name for name in (state, action, reward, outcome) if name is not None]
    rows = Rows(frame, episode, time, others)
    decided = rows.table[action].notna().to_numpy()
    rows.refuse(
        ~decided & ~rows.last,
        f"no {action}; only the last row of an episode, which gives the final state, may be "
        "without one",
    )
    rows.refuse(rows.table[state].isna().to_numpy(), f"no {state}; fill or drop the row")
    state_column = rows.column(state, states, "states")
    action_column = rows.column(action, actions, "actions")
    end_column = Column(np.full(len(decided), -1), ())
    if outcome is not None:
        end_column = rows.column(outcome, outcomes, "outcomes")
        early = (end_column.codes >= 0) & ~rows.last
        if early.any():
            shown = _plain(rows.table[outcome][int(early.argmax())])
            rows.refuse(
                early, f"outcome {shown!r} before the last row; an episode ends with its outcome"
            )

    kept = decided & ~(rows.last & (end_column.codes < 0))
    lengths = np.bincount(rows.episode[kept], minlength=len(rows.ids))
    if (lengths == 0).any():
        raise ValueError(
            f"episode {rows.ids[int((lengths == 0).argmax())]}: no transition (one decision, with "
            "neither a final state nor an outcome after it); drop the episode"
        )
    following = np.append(state_column.codes[1:], -1)
    following[rows.last] = -1
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    arrays = {
        "state": state_column.codes[kept],
        "action": action_column.codes[kept],
        "next_state": following[kept],
        "offsets": offsets,
        "outcome": end_column.codes[rows.last],
        "id": rows.ids,
        "reward": None,
    }
    if reward is not None:
        earned = rows.numbers(reward)
        rows.refuse(np.isnan(earned) & kept, f"no {reward}; fill or drop it")
        final = rows.last & ~decided  # what a final row earns belongs to the transition before it
        arrays["reward"] = earned[kept]
        arrays["reward"][offsets[1:][rows.episode[final]] - 1] += np.nan_to_num(earned[final])
    return arrays, state_column, action_column, end_column


def _whole(values: pd.Series[Any]) -> pd.Series[Any]:
    """Undo what a missing cell does to whole numbers: 1.0 is 1 again."""
    if values.dtype.kind == "f" and (values.dropna() % 1 == 0).all():
        return values.astype("Int64").astype(object).where(values.notna(), None)
    return values.astype(object)


def _sorted(labels: NDArray[Any], plural: str) -> list[Any]:
    try:
        return sorted(labels)
    except TypeError:
        kinds = {type(label).__name__: _plain(label) for label in labels}
        shown = ", ".join(f"{value!r}" for value in kinds.values())
        raise ValueError(
            f"{plural} of several kinds ({shown}) have no order; list them with {plural}=[...]"
        ) from None


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
