"""The checked inputs of counterfactuals with a hidden state, in the form that kernels take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor import kernels
from butfor.hidden.cells import as_matrix, make_cells
from butfor.hidden.model import TabularPOMDP, as_rows, check_pomdp
from butfor.hidden.policies import (
    BeliefPolicy,
    FiniteController,
    LatentPolicy,
    Policy,
    check_finite_policy,
    check_hidden_policy,
    history_rows,
)
from butfor.log.episodes import Episodes
from butfor.mechanisms.gumbel_max import GumbelMax
from butfor.mechanisms.protocol import Compiled, Mechanism
from butfor.models.policies import estimate_behavior
from butfor.threads import in_blocks
from butfor.types import Progress


@dataclass(frozen=True, eq=False)
class PairChain:
    """Both worlds of each episode as one chain of pairs, checked and in the form kernels take."""

    episodes: Episodes
    model: TabularPOMDP
    horizon: int
    pairs: kernels.Pairs

    def part(self, chosen: NDArray[np.int64]) -> PairChain:
        """Return the chain of a selection of its episodes."""
        log = self.episodes.select(chosen)
        behavior = self.pairs.behavior
        if behavior.kind == kernels.STEP:
            table = as_matrix(behavior.rows, self.model.n_actions)
            behavior = behavior._replace(rows=as_rows(table[self.episodes.rows_of(chosen)]))
        arrays = log_arrays(log)._replace(left=self.pairs.log.left[chosen])
        pairs = self.pairs._replace(log=arrays, behavior=behavior)
        return replace(self, episodes=log, pairs=pairs)

    def run(
        self,
        kernel: Callable[..., int],
        *given: Any,
        walking: bool = False,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Run a kernel that takes these arguments on all episodes; refuse impossible ones."""

        def work(first: int, last: int) -> None:
            space = kernels.make_pair_work(self.pairs, walking)
            impossible = kernel(first, last, self.pairs, space, *given)
            refuse_impossible(impossible, self.episodes, self.model, self.pairs.behavior)

        in_blocks(work, len(self.episodes), threads=threads, progress=progress)


def prepare_pairs(
    episodes: Episodes,
    model: TabularPOMDP,
    target: Policy,
    *,
    behavior: Policy | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    beyond: NDArray[np.int64] | None = None,
) -> PairChain:
    """Return the inputs of counterfactuals with a hidden state as kernels take them.

    Log, horizon, mechanism and action noise have been checked. `beyond` [n] is the number of steps
    after each observed end; by default up to the horizon.
    """
    steps = episodes.horizon if horizon is None else horizon
    log = episodes.truncate(steps)
    known = behavior_arrays(log, model, behavior)
    shared = action_noise == "shared"
    if shared:
        _check_actions(log, known)
    chosen = GumbelMax() if mechanism is None else mechanism
    if not isinstance(chosen, Compiled):
        raise ValueError(
            f"{chosen!r}: a model with a hidden state needs a mechanism with a method `coupling`; "
            "give one of GumbelMax(), InverseCDF(), MaximalCoupling(), Independent()"
        )
    pairs = kernels.Pairs(
        log=log_arrays(log, steps - log.lengths if beyond is None else beyond),
        hidden=model.arrays,
        behavior=known,
        target=make_cells(model, check_finite_policy(target, *model.sizes, "target")),
        coupling=chosen.coupling(int(model.dynamics.labels.max()) + 1),
        showing=chosen.coupling(model.n_observations),
        shared=shared,
        certain=model.shows is not None,
    )
    return PairChain(log, model, steps, pairs)


def check_log(episodes: Episodes, model: TabularPOMDP) -> None:
    """Refuse a log whose observations, actions or outcomes differ from the model's."""
    check_pomdp(model)
    given = (episodes.n_states, episodes.n_actions, len(episodes.outcomes))
    expected = (*model.sizes[1:], len(model.outcomes))
    if given != expected:
        raise ValueError(
            f"the log has {given[0]} observations, {given[1]} actions and {given[2]} outcomes, the "
            f"model {expected[0]}, {expected[1]} and {expected[2]}; the states of the log must be "
            "the model's observations"
        )
    names = [[outcome.name for outcome in known.outcomes] for known in (episodes, model)]
    if names[0] != names[1]:
        raise ValueError(
            f"the outcomes of the log are {', '.join(names[0])}, those of the model "
            f"{', '.join(names[1])}; list both in the same order"
        )


def log_arrays(log: Episodes, beyond: NDArray[np.int64] | None = None) -> kernels.Log:
    """Return a log as kernels take it; `beyond` [n] steps follow each end, by default none."""
    left = np.zeros(len(log), np.int64) if beyond is None else beyond
    begins, ends = log.offsets[:-1], log.offsets[1:]
    columns = log.state, log.action, log.next_state, log.reward, log.outcome
    return kernels.Log(begins, ends, left, *columns)


def behavior_arrays(
    log: Episodes, model: TabularPOMDP, behavior: Policy | None
) -> kernels.Behavior:
    """Return the behavior policy as kernels take it; None: estimated by observation.

    Actions are evidence of the hidden state only if the behavior saw it.
    """
    given = estimate_behavior(log) if behavior is None else behavior
    known = check_hidden_policy(given, *model.sizes, "behavior")
    if isinstance(known, LatentPolicy):
        return kernels.Behavior(kernels.sparse_rows(known.table), kernels.LATENT)
    if isinstance(known, FiniteController | BeliefPolicy):
        return kernels.Behavior(kernels.sparse_rows(history_rows(log, model, known)), kernels.STEP)
    return kernels.Behavior(kernels.sparse_rows(known), kernels.SEEN)


def _check_actions(log: Episodes, behavior: kernels.Behavior) -> None:
    """Refuse logged actions that a behavior on the observations never takes."""
    if behavior.kind == kernels.LATENT:
        return
    row = log.state if behavior.kind == kernels.SEEN else np.arange(len(log.state))
    table = as_matrix(behavior.rows, log.n_actions)
    never = np.asarray(table[row, log.action]).reshape(-1) == 0
    if never.any():
        step = int(never.argmax())
        raise ValueError(
            f"{log.place(step)} takes action {log.action[step]}, which the behavior policy gives "
            "probability 0; leave behavior out to estimate it from the log"
        )


def refuse_impossible(
    episode: int, log: Episodes, model: TabularPOMDP, behavior: kernels.Behavior
) -> None:
    """Raise an error naming the step at which an episode is impossible; -1 means none is."""
    if episode < 0:
        return
    arrays = log_arrays(log)
    trace = kernels.make_trace(model.arrays, arrays)
    kernels.trace_back(model.arrays, behavior, trace, arrays, episode)
    start, stop = int(log.offsets[episode]), int(log.offsets[episode + 1])
    impossible = trace.size[: stop - start + 1] == 0
    if not impossible.any():
        raise ValueError(
            f"episode {log.id[episode]}: its probability is too small for floating point; check "
            "that the model and the log belong together"
        )
    step = int(impossible.argmax())
    seen = int(log.state[start + step] if start + step < stop else log.next_state[stop - 1])
    what = f"observation {seen}"
    if start + step == stop and log.outcome[episode] >= 0:
        what = f"outcome {log.outcomes[log.outcome[episode]].name!r} with " + what
    elif start + step < stop and behavior.kind == kernels.LATENT:
        what += f" and action {log.action[start + step]} of a behavior that sees the state"
    before = f" after action {log.action[start + step - 1]}" if step else ""
    reward = ""
    if step and model.reward_seen:
        reward = f" and reward {log.reward[start + step - 1]:g}"
    raise ValueError(
        f"episode {log.id[episode]}, step {step}: the model gives {what}{before}{reward} "
        "probability 0 given the steps before; check that the model, the behavior and the log "
        "belong together"
        + ("; if logged rewards are not the model's, use reward_seen=False" if reward else "")
    )
