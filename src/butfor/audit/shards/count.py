"""The first pass: counts of each shard, which add up to those of the whole log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.audit.drawing import log_digest
from butfor.audit.exact import NARROW, ExactSums
from butfor.audit.shards.coded import LOG, code_episodes, code_steps
from butfor.audit.shards.log import Shard, read_shard
from butfor.audit.shards.packed import Arrays, pack_table
from butfor.evaluate.past_counts import count_past
from butfor.log.episodes import Episodes
from butfor.log.read import NothingLeft, Reading, group_variables
from butfor.log.sections import Study
from butfor.log.variables import count_levels
from butfor.random import shard_keys
from butfor.types import Floats, Keys, Offsets

# First bits of the parts of a packed transition: half, state, action; the rest is the next state
# plus one, 0 if it is unknown.
HALF, STATE, ACTION = 62, 38, 24
MOST_STATES, MOST_ACTIONS = 1 << 23, 1 << 14
NUMBERS = ("episodes", "steps", "longest", "states", "actions")
ENTRIES = ("past", "folded")  # pairs of which the first number is one of the transitions
PAIRS = (*ENTRIES, "starts", "stops")
ARRAYS = ("keys", "end", "number", "low", "high", "first", "ends", "digest")
FOLDS = 50  # of episodes, by a hash of their ids, to learn models from some of them


class PairCounts(NamedTuple):
    """How often pairs of numbers occurred; the pairs increase."""

    first: NDArray[np.int64]  # [M]
    second: NDArray[np.int64]  # [M]
    number: NDArray[np.int64]  # [M]


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts of one shard or of several.

    Each episode is in one of two halves, by a hash of its id, for calibration, and in one of 50
    folds, for models of some of the episodes.
    """

    episodes: int
    steps: int
    longest: int
    states: int  # number given by the study, or that in use
    actions: int
    keys: Offsets  # [E] transitions, packed; increasing together with their ends
    end: Offsets  # [E] outcome; O: none
    number: NDArray[np.int64]  # [E] number of times each was logged
    reward: ExactSums  # [E, 2] rewards, and their squares
    low: Floats  # [E] lowest reward
    high: Floats  # [E] highest reward
    past: PairCounts  # one of the E transitions, and what preceded it: see `previous_levels`
    folded: PairCounts  # one of the E transitions, and the fold in which it was logged
    starts: PairCounts  # a state in which episodes start, and their fold
    stops: PairCounts  # a state in which episodes stop without an outcome, and after how many steps
    first: NDArray[np.int64]  # [2, states] episodes that start in each state, by half
    ends: NDArray[np.int64]  # [O] episodes with each outcome
    last_reward: ExactSums  # [O + 1, 1] rewards of their last steps; the last row is 0
    complete: frozenset[str]  # side columns that have a level in every row
    wanted: ExactSums  # [states, actions] sums of what the log's own policy does; or of size 0
    done: Mapping[str, int]  # how problems were handled, and how often
    digest: Keys  # [2] of all that was read, in any order

    def arrays(self) -> Arrays:
        """Return the fields as arrays, to be stored."""
        return {name: getattr(self, name) for name in ARRAYS} | {
            **{name: np.stack(getattr(self, name)) for name in PAIRS},
            "numbers": np.array([int(getattr(self, name)) for name in NUMBERS]),
            "reward": self.reward.limbs,
            "last_reward": self.last_reward.limbs,
            "wanted": self.wanted.limbs,
            "complete": np.array(sorted(self.complete), dtype=str),
            "done": np.array(list(self.done), dtype=str),
            "times": np.array(list(self.done.values()), dtype=np.int64),
        }

    @classmethod
    def from_arrays(cls, stored: Mapping[str, NDArray[Any]]) -> Counts:
        """Undo `arrays`."""
        given: dict[str, Any] = dict(zip(NUMBERS, stored["numbers"].tolist(), strict=True))
        given |= {name: stored[name] for name in ARRAYS}
        given |= {name: PairCounts(*stored[name]) for name in PAIRS}
        return cls(
            **given,
            reward=ExactSums(stored["reward"]),
            last_reward=ExactSums(stored["last_reward"]),
            wanted=ExactSums(stored["wanted"]),
            complete=frozenset(stored["complete"].tolist()),
            done=dict(zip(stored["done"].tolist(), stored["times"].tolist(), strict=True)),
        )

    def add(self, *others: Counts) -> Counts:
        """Return the counts of all together."""
        parts = (self, *others)
        keys, end, place = distinct(
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.end for part in parts]),
        )
        places = np.split(place, np.cumsum([len(part.keys) for part in parts])[:-1])
        number = np.zeros(len(keys), dtype=np.int64)
        reward = ExactSums(np.zeros((NARROW, len(keys), 2), dtype=np.int64))
        low, high = np.full(len(keys), np.inf), np.full(len(keys), -np.inf)
        states = max(part.states for part in parts)
        first = np.zeros((2, states), dtype=np.int64)
        for counts, at in zip(parts, places, strict=True):
            number[at] += counts.number
            reward.limbs[:, at] += counts.reward.limbs
            low[at] = np.minimum(low[at], counts.low)
            high[at] = np.maximum(high[at], counts.high)
            first[:, : counts.states] += counts.first
        pairs = {name: [getattr(part, name) for part in parts] for name in PAIRS}
        for name in ENTRIES:
            given = zip(pairs[name], places, strict=True)
            pairs[name] = [found._replace(first=at[found.first]) for found, at in given]
        return Counts(
            episodes=sum(part.episodes for part in parts),
            steps=sum(part.steps for part in parts),
            longest=max(part.longest for part in parts),
            states=states,
            actions=max(part.actions for part in parts),
            keys=keys,
            end=end,
            number=number,
            reward=reward,
            low=low,
            high=high,
            **{name: add_counts(found) for name, found in pairs.items()},
            first=first,
            ends=np.sum([part.ends for part in parts], axis=0),
            last_reward=ExactSums(np.sum([part.last_reward.limbs for part in parts], axis=0)),
            complete=frozenset.intersection(*(part.complete for part in parts)),
            wanted=_add_wanted([part.wanted for part in parts]),
            done={
                words: sum(part.done.get(words, 0) for part in parts)
                for words in sorted(set().union(*(part.done for part in parts)))
            },
            digest=np.sum([part.digest for part in parts], axis=0, dtype=np.uint64),  # mod 2^64
        )


@dataclass(frozen=True, eq=False)
class Counted:
    """The results of the first pass over a shard."""

    counts: Counts
    tables: Mapping[str, Any]  # packed: its log, see `coded`; empty without usable episodes


def count_shard(
    shard: Shard, study: Study, seed: int, types: Mapping[str, Any], threads: int = 1
) -> Counted:
    """Count the transitions of a shard; `types` are those of side columns."""
    reading = read_shard(shard, study)
    if isinstance(reading, NothingLeft):
        return Counted(count_nothing(study, reading.done), dict.fromkeys(LOG, b""))
    log = reading.episodes
    tables = zip(LOG, (code_episodes(log), code_steps(log, types)), strict=True)
    packed = {name: pack_table(table) for name, table in tables}
    return Counted(_count_log(reading, seed), packed)


def _count_log(reading: Reading, seed: int) -> Counts:
    log = reading.episodes
    if log.combinations is not None:
        raise ValueError(
            f"{count_levels(log.state_variables):,} possible states: summary detail needs states "
            "that can be enumerated; use --detail full, or fewer variables or levels"
        )
    if log.n_states > MOST_STATES or log.n_actions > MOST_ACTIONS:
        raise ValueError(
            f"{count_levels(log.state_variables):,} states and {log.n_actions:,} actions: summary "
            f"detail allows up to {MOST_STATES:,} and {MOST_ACTIONS:,}; use fewer levels"
        )
    keys = shard_keys(log.unit, seed)
    half = half_of(log, keys)
    outcomes = len(log.outcomes)
    ended = np.flatnonzero(log.outcome >= 0)
    last = log.offsets[1:][ended] - 1
    end = np.full(len(log.state), outcomes)
    end[last] = log.outcome[ended]
    packed = (
        (np.repeat(half, log.lengths) << HALF)
        | (log.state.astype(np.int64) << STATE)
        | (log.action.astype(np.int64) << ACTION)
        | (log.next_state.astype(np.int64) + 1)
    )
    keys_found, end, place = distinct(packed, end)
    size = len(keys_found)
    reward, last_reward = ExactSums.make(size, 2), ExactSums.make(outcomes + 1, 1)
    reward.add(place, np.stack([log.reward, log.reward**2], axis=1))
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, place, log.reward)
    np.maximum.at(high, place, log.reward)
    first = np.zeros((2, log.n_states), dtype=np.int64)
    np.add.at(first, (half, log.first_state), 1)
    fold = fold_of(keys)
    stopped = log.outcome < 0
    last_reward.add(log.outcome[ended].astype(np.int64), log.reward[last][:, None])
    return Counts(
        episodes=len(log),
        steps=len(log.state),
        longest=int(log.lengths.max()),
        states=log.n_states,
        actions=log.n_actions,
        keys=keys_found,
        end=end,
        number=np.bincount(place, minlength=size),
        reward=reward,
        low=low,
        high=high,
        past=PairCounts(*count_past(log, place)),
        folded=count_pairs(place, np.repeat(fold, log.lengths)),
        starts=count_pairs(log.first_state, fold),
        stops=count_pairs(log.next_state[log.offsets[1:] - 1][stopped], log.lengths[stopped]),
        first=first,
        ends=np.bincount(log.outcome[ended], minlength=outcomes),
        last_reward=last_reward,
        complete=frozenset(variable.name for variable in log.side_variables),
        wanted=_count_wanted(log),
        done=dict(sorted(reading.done.items())),
        digest=log_digest(log, seed, keys if log.subject is None else None),
    )


def _count_wanted(log: Episodes) -> ExactSums:
    """Add up what the log's own policy does by state, [S, A]; nothing if it has none."""
    if log.target_probability is None:
        return ExactSums(np.zeros((NARROW, 0, 0), dtype=np.int64))
    sums = ExactSums.make(log.n_states, log.n_actions)
    sums.add(log.state, log.target_probability)
    return sums


def _add_wanted(parts: Sequence[ExactSums]) -> ExactSums:
    """Return the sums of all, which may have seen different numbers of states and actions."""
    sizes = np.max([part.limbs.shape for part in parts], axis=0)
    sums = ExactSums(np.zeros(sizes, dtype=np.int64))
    for part in parts:
        _, states, actions = part.limbs.shape
        sums.limbs[:, :states, :actions] += part.limbs
    return sums


def count_nothing(study: Study, done: Mapping[str, int]) -> Counts:
    """Return the counts of a shard without usable episodes, or of no shard."""
    sizes = {}
    for group in ("state", "action"):
        ready = getattr(study.columns, f"{group}s") or 1
        sizes[group] = count_levels(group_variables(study, group, ready))
    nothing, number = np.empty(0), np.empty(0, dtype=np.int64)
    outcomes = len(study.outcome)
    return Counts(
        episodes=0,
        steps=0,
        longest=0,
        states=sizes["state"],
        actions=sizes["action"],
        keys=number,
        end=number,
        number=number,
        reward=ExactSums(np.zeros((NARROW, 0, 2), dtype=np.int64)),
        low=nothing,
        high=nothing,
        **dict.fromkeys(PAIRS, PairCounts(number, number, number)),
        first=np.zeros((2, sizes["state"]), dtype=np.int64),
        ends=np.zeros(outcomes, dtype=np.int64),
        last_reward=ExactSums.make(outcomes + 1, 1),
        complete=frozenset(section.name or column for column, section in study.side.items()),
        wanted=ExactSums(np.zeros((NARROW, 0, 0), dtype=np.int64)),
        done=dict(sorted(done.items())),
        digest=np.zeros(2, dtype=np.uint64),
    )


def distinct(keys: Offsets, end: Offsets) -> tuple[Offsets, Offsets, Offsets]:
    """Return the distinct pairs of key and end, in order, and the place of each one given.

    Neither is negative.
    """
    width = int(end.max(initial=0)) + 1
    if int(keys.max(initial=0)) < 2**62 // width:
        found, place = _number(keys * width + end)
        return (*np.divmod(found, width), place)
    known, code = _number(keys)
    found, place = _number(code * width + end)
    one, other = np.divmod(found, width)
    return known[one], other, place


def _number(keys: Offsets) -> tuple[Offsets, Offsets]:
    """Return the distinct keys, in order, and the place of each one given."""
    # by hashing, so that only what is distinct is sorted
    code, known = pd.factorize(keys)
    order = np.argsort(known)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return known[order], rank[code]


def add_counts(parts: Sequence[PairCounts]) -> PairCounts:
    """Return the counts of all."""
    first, second, number = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    kept, with_it, place = distinct(first, second)
    total = np.zeros(len(kept), dtype=np.int64)
    np.add.at(total, place, number)
    return PairCounts(kept, with_it, total)


def count_pairs(first: NDArray[Any], second: NDArray[Any]) -> PairCounts:
    """Count the distinct pairs of two numbers."""
    kept, with_it, place = distinct(first.astype(np.int64), second.astype(np.int64))
    return PairCounts(kept, with_it, np.bincount(place, minlength=len(kept)))


def fold_of(keys: Keys) -> NDArray[np.int64]:
    """Return the fold of each episode."""
    return (keys % np.uint64(FOLDS)).astype(np.int64)


def half_of(log: Episodes, keys: Keys) -> NDArray[np.int64]:
    """Return the half, 0 or 1, of each episode: as given, or at random."""
    return log.half if log.half is not None else (keys >> np.uint64(63)).astype(np.int64)
