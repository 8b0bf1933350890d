"""The posterior of the hidden state given a log: marginals by step, paths, evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor import kernels
from butfor.checks import check_whole
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.pairs import behavior_arrays, check_log, log_arrays, refuse_impossible
from butfor.hidden.policies import Policy
from butfor.log.episodes import Episodes
from butfor.log.variables import project
from butfor.models.mdp import total_by
from butfor.printed import Printed
from butfor.random import episode_keys
from butfor.threads import in_blocks
from butfor.types import Floats, Integers, Keys, Offsets, Progress


@dataclass(frozen=True, eq=False, repr=False)
class LatentPosterior(Printed):
    """The posterior of the hidden state at each step of n episodes, given all observations.

    A row is a step of an episode or its end: episode i has the rows offsets[i] + i up to
    offsets[i + 1] + i, of which the last is its end.
    """

    episodes: Episodes
    model: TabularPOMDP
    behavior: kernels.Behavior
    log_evidence: Floats  # [n] logarithm of the probability of the observations
    start: Offsets  # [N + n + 1] first entry of each row
    state: Integers  # [E] possible hidden states
    probability: Floats  # [E]

    def of(self, episode: int) -> Floats:
        """Return the probability of each hidden state at each step, [length + 1, H]."""
        if not 0 <= episode < len(self.episodes):
            raise ValueError(f"episode {episode} is outside 0..{len(self.episodes) - 1}")
        first = int(self.episodes.offsets[episode]) + episode
        last = int(self.episodes.offsets[episode + 1]) + episode + 1
        entries = slice(self.start[first], self.start[last])
        row = np.repeat(np.arange(last - first), np.diff(self.start[first : last + 1]))
        table = np.zeros((last - first, self.model.n_states))
        table[row, self.state[entries]] = self.probability[entries]
        return table

    @property
    def row_of_entry(self) -> Offsets:
        """Row of each entry, [E]."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    @property
    def rows(self) -> tuple[Offsets, Offsets]:
        """Episode and step of each row, [N + n] each."""
        length = self.episodes.lengths + 1
        episode = np.repeat(np.arange(len(self.episodes)), length)
        first = np.cumsum(length) - length
        return episode, np.arange(len(episode)) - first[episode]

    def marginal(self, name: str) -> Floats:
        """Return the probability of each level of a hidden variable, by row, [N + n, levels]."""
        level = project(self.model.state_variables, name)
        table = np.zeros((len(self.start) - 1, int(level.max()) + 1))
        np.add.at(table, (self.row_of_entry, level[self.state]), self.probability)
        return table

    @property
    def entropy(self) -> Floats:
        """Entropy of the hidden state in bits, by row, [N + n]."""
        bits = -self.probability * np.log2(self.probability)
        return total_by(self.row_of_entry, bits, len(self.start) - 1).clip(0.0)

    def frame(self, names: Sequence[str] | None = None) -> pd.DataFrame:
        """Return one row per episode, step, variable and possible level.

        Columns: `id, step, variable, level, probability`. The variables are by default the model's
        `hidden_variables`.
        """
        levels = {variable.name: variable.levels for variable in self.model.state_variables}
        if names is None:
            names = [variable.name for variable in self.model.hidden_variables]
        episode, step = self.rows
        parts = []
        for name in names:
            table = self.marginal(name)
            row, level = np.nonzero(table)
            given = {
                "id": self.episodes.id[episode[row]],
                "step": step[row],
                "variable": name,
                "level": np.array(levels[name], dtype=object)[level],
                "probability": table[row, level],
            }
            parts.append(pd.DataFrame(given))
        columns = ["id", "step", "variable", "level", "probability"]
        empty = pd.DataFrame(columns=columns, dtype=float)
        return pd.concat(parts, ignore_index=True) if parts else empty

    @property
    def transitions(self) -> tuple[Offsets, NDArray[np.int64], Floats]:
        """Episode, row h A + a and probability of each possible logged transition."""
        episode, step = self.rows
        entry_row = self.row_of_entry
        inside = step[entry_row] < self.episodes.lengths[episode[entry_row]]
        row = entry_row[inside]
        action = self.episodes.action[self.episodes.offsets[episode[row]] + step[row]]
        pair = self.state[inside].astype(np.int64) * self.model.n_actions + action
        return episode[row], pair, self.probability[inside]

    def pair_counts(self) -> Floats:
        """Return the expected logged transitions of each hidden state and action, [H, A]."""
        _, pair, probability = self.transitions
        shape = self.model.n_states, self.model.n_actions
        return total_by(pair, probability, shape[0] * shape[1]).reshape(shape)

    def sample(self, draws: int = 1, seed: int = 0, *, threads: int | None = None) -> Integers:
        """Draw hidden paths, [n, draws, longest + 1]; -1 after an episode's end."""
        check_whole(draws, "draws", 1, "a whole number")
        keys = episode_keys(seed, self.episodes.id, "hidden path")
        return draw_paths(self.episodes, self.model, self.behavior, keys, draws, threads)


def latent_posterior(
    episodes: Episodes,
    model: TabularPOMDP,
    *,
    behavior: Policy | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> LatentPosterior:
    """Compute the posterior of the hidden state at each step of each episode.

    Parameters
    ----------
    behavior : optional
        The policy that made the log. If it saw the hidden state (`LatentPolicy`), each action is
        evidence of it. If it saw no more than the log shows (an array, a controller, a policy on
        beliefs), or is not given, actions carry no information.

    Notes
    -----
    An episode that is impossible under the model raises an error that names the step.
    """
    check_log(episodes, model)
    known = behavior_arrays(episodes, model, behavior)
    return trace_posterior(episodes, model, known, threads=threads, progress=progress)


def trace_posterior(
    episodes: Episodes,
    model: TabularPOMDP,
    behavior: kernels.Behavior,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> LatentPosterior:
    """Compute the posterior from checked inputs; see `latent_posterior`."""
    evidence = np.zeros(len(episodes))
    start = np.zeros(len(episodes.state) + len(episodes) + 1, np.int64)

    def trace(*given: Any, progress: Progress | None = None) -> None:
        _run(
            kernels.trace_latent,
            episodes,
            model,
            behavior,
            evidence,
            start,
            *given,
            threads=threads,
            progress=progress,
        )

    trace(np.empty(0, np.int32), np.empty(0), False)  # count the states of each row
    np.cumsum(start, out=start)
    state, probability = np.empty(start[-1], np.int32), np.empty(start[-1])
    trace(state, probability, True, progress=progress)
    return LatentPosterior(episodes, model, behavior, evidence, start, state, probability)


def draw_paths(
    episodes: Episodes,
    model: TabularPOMDP,
    behavior: kernels.Behavior,
    keys: Keys,
    draws: int,
    threads: int | None,
) -> Integers:
    """Draw hidden paths given the episodes, [n, draws, longest + 1]; -1 after an end."""
    path = np.full((len(episodes), draws, int(episodes.lengths.max()) + 1), -1, np.int32)
    _run(kernels.draw_paths, episodes, model, behavior, keys, path, threads=threads)
    return path


def _run(
    kernel: Callable[..., int],
    episodes: Episodes,
    model: TabularPOMDP,
    behavior: kernels.Behavior,
    *given: Any,
    threads: int | None,
    progress: Progress | None = None,
) -> None:
    """Run a kernel that takes these arguments on all episodes; refuse impossible ones."""
    log = log_arrays(episodes)

    def work(first: int, last: int) -> None:
        trace = kernels.make_trace(model.arrays, log)
        impossible = kernel(first, last, model.arrays, behavior, log, trace, *given)
        refuse_impossible(impossible, episodes, model, behavior)

    in_blocks(work, len(episodes), threads=threads, progress=progress)
