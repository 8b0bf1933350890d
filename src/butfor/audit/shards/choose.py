"""Choosing whom to review among the episodes of all shards, by looks at columns of their parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from butfor.audit.meta import SamplingDesign
from butfor.audit.sampling import (
    BINS,
    THIRDS,
    Others,
    cells_of,
    draw_controls,
    find_thirds,
    size_bins,
)
from butfor.audit.shards.coded import decode_log
from butfor.audit.shards.parts import Part
from butfor.audit.shards.setting import Setting
from butfor.audit.shards.stitch import join_by_id
from butfor.audit.show import Shown, show
from butfor.log.episodes import Episodes, rows_of
from butfor.replay.outcomes import find_flags, round_sizes
from butfor.threads import in_order
from butfor.types import Floats, Keys

COLUMNS = ("id", "difference", "differs", "order")


@dataclass(frozen=True, eq=False)
class Look:
    """What decides who is reviewed, of the episodes of one shard."""

    id: NDArray[Any]  # [n]
    outcome: NDArray[np.int64]  # [n] observed; the last one is none
    differs: NDArray[np.bool_]  # [n] whether the most likely outcome is another
    sizes: Floats  # [n] of differences
    order: Keys  # [n] of drawing
    place: NDArray[np.int64]  # [n] numbers of the episodes in all shards


@dataclass(frozen=True, eq=False)
class Chosen:
    """The episodes to review and the random sample: a table with one row each, and their log."""

    table: Any  # a pyarrow Table with at least one row, by id; its rank and control decide
    log: Episodes
    design: SamplingDesign
    drawn: int  # size of the sample

    def show(self, setting: Setting, draws: int) -> Shown:
        """Compute their details; the table has the ids."""
        rank = self.table.column("rank").to_numpy()
        control = self.table.column("control").to_numpy(zero_copy_only=False)
        replay = setting.question.ask(episodes=self.log, counts=setting.model.counts)
        everyone = np.arange(len(rank))
        found = show(replay.compute(), rank, control, everyone, draws=draws, seed=setting.seed)
        found.table.insert(0, "id", self.log.id)
        return Shown(found.table, found.drawn)


def choose(
    parts: Sequence[Part],
    like: Episodes,
    *,
    flags: int,
    size: int,
    sample: int,
    seed: int,
    spread: float,
) -> Chosen:
    """Choose the episodes to review, and a random sample of this size from all of them.

    `like` is a log with the variables of all shards, `spread` the standard deviation of returns.
    """
    names = like.outcome_names
    sizes = np.zeros(BINS, dtype=np.int64)
    most, starts = [], [0]
    for look in _looks(parts, len(names)):
        np.add.at(sizes, size_bins(look.sizes), 1)
        most.append(_flag(look, flags, spread))
        starts.append(starts[-1] + len(look.id))
    flagged = _rank(pd.concat(most), flags)
    cuts = find_thirds(sizes)
    cells = THIRDS * len(names)
    none = np.empty(0, dtype=np.int64)
    others = Others(np.zeros(cells, dtype=np.int64), none, none, none.astype(np.uint64))
    everyone = Others(np.zeros(1, dtype=np.int64), none, none, none.astype(np.uint64))
    for look in _looks(parts, len(names)):
        mine = np.flatnonzero(~np.isin(look.place, flagged["place"]))
        cell = cells_of(look.outcome, look.sizes, cuts)[mine]
        counts = np.bincount(cell, minlength=cells)
        others = others.join(Others(counts, look.place[mine], cell, look.order[mine])).keep(size)
        cell, counts = np.zeros_like(look.place), np.array([len(look.place)])
        everyone = everyone.join(Others(counts, look.place, cell, look.order)).keep(sample)
    by_outcome = np.bincount(flagged["outcome"].astype(np.int64), minlength=len(names))
    design, drawn = draw_controls(others, by_outcome, names=names, cuts=cuts, size=size, seed=seed)
    reviewed = np.concatenate([flagged["place"].to_numpy(dtype=np.int64), drawn])
    # a question needs an episode, even if none is to be reviewed and none was drawn
    sampled = np.setdiff1d(everyone.place if len(everyone.place) else [0], reviewed)
    places = np.concatenate([reviewed, sampled])
    rank = np.zeros(len(places), dtype=np.int64)
    rank[: len(flagged)] = np.arange(1, len(flagged) + 1)
    control = np.isin(places, drawn)
    table, steps = _take(parts, starts, places, {"rank": rank, "control": control})
    return Chosen(table, decode_log(table, steps, like), design, len(everyone.place))


def _looks(parts: Sequence[Part], outcomes: int) -> Iterator[Look]:
    """Look at the columns of one shard after another, which are read a few ahead."""
    before = 0

    def read(number: int) -> tuple[Any, Any]:
        part = parts[number]
        return part.table("episodes", *COLUMNS).all(), part.table("log", "outcome").all()

    for table, log in in_order(read, range(len(parts))):
        column = {
            name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names
        }
        yield Look(
            id=column["id"],
            outcome=log.column("outcome").to_numpy().astype(np.int64) % outcomes,
            differs=column["differs"],
            sizes=round_sizes(column["difference"]),
            order=column["order"],
            place=np.arange(before, before + len(table)),
        )
        before += len(table)


def _flag(look: Look, flags: int, spread: float) -> pd.DataFrame:
    """Return the episodes of one shard that may be flagged, at most `flags`."""
    found, differs, sizes = find_flags(look.differs, look.sizes, spread)
    mine = found[np.lexsort([-sizes, ~differs])][:flags]
    return pd.DataFrame(
        {
            "id": look.id[mine],
            "size": look.sizes[mine],
            "differs": look.differs[mine],
            "place": look.place[mine],
            "outcome": look.outcome[mine],
        }
    )


def _rank(found: pd.DataFrame, flags: int) -> pd.DataFrame:
    """Return the flagged episodes of all shards, by rank; see `rank_flags`."""
    by_id = found.sort_values("id", kind="stable")
    by_size = by_id.sort_values("size", ascending=False, kind="stable")
    return by_size.sort_values("differs", ascending=False, kind="stable").iloc[:flags]


def _take(
    parts: Sequence[Part],
    starts: Sequence[int],
    places: NDArray[np.int64],
    columns: dict[str, Any],
) -> tuple[Any, Any]:
    """Take episodes with more columns, and their steps, out of the parts, by id.

    Part i has the episodes from place starts[i] on, up to starts[i + 1] - 1.
    """
    owner = np.searchsorted(starts, places, side="right") - 1  # the part of each episode
    owners = np.unique(owner).tolist()

    def take(number: int) -> tuple[Any, Any]:
        mine = np.flatnonzero(owner == owners[number])
        mine = mine[np.argsort(places[mine])]
        rows, part = places[mine] - starts[owners[number]], parts[owners[number]]
        episodes, steps = part.table("log").all(), part.logged()
        lengths = episodes.column("length").to_numpy() + 1
        taken = episodes.take(pa.array(rows))
        for name, values in columns.items():
            taken = taken.append_column(name, pa.array(values[mine]))
        at = rows_of(np.cumsum(lengths) - lengths, lengths, rows)
        return taken, steps.take(pa.array(at))

    return join_by_id(list(in_order(take, range(len(owners)))))
