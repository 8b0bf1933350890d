"""The engine for factored models whose states cannot be enumerated: particles instead of states.

Each particle draws every variable from the row that the exact engine would use, so a share of
particles differs from the exact probability by chance alone. One particle depends only on the seed,
its episode's id and its number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from butfor import kernels
from butfor.checks import check_policy
from butfor.hidden.latent import LatentPosterior
from butfor.hidden.policies import Policy, as_array, policy_rows
from butfor.log.combinations import find_states, number_combinations
from butfor.log.episodes import Episodes
from butfor.mechanisms.gumbel_max import GumbelMax
from butfor.mechanisms.protocol import Compiled
from butfor.models.behavior import fit_behavior
from butfor.models.factored import FactoredModel
from butfor.models.predictor import Codes
from butfor.models.step_factored import FactoredSteps, Logged, Stream
from butfor.random import episode_keys
from butfor.replay.bounds import Bounds
from butfor.replay.changes import Changes
from butfor.replay.draws import Draws
from butfor.replay.factored import check_factored_log
from butfor.replay.outcomes import Found
from butfor.replay.steps import Steps
from butfor.threads import in_blocks
from butfor.types import Floats, Keys, Offsets, Progress

if TYPE_CHECKING:
    from butfor.replay.replay import Replay

MOST_TOGETHER = 1 << 16  # particles that take a step together


@dataclass(frozen=True, eq=False)
class Trajectories:
    """What K particles of each of n episodes did."""

    end: NDArray[np.int16]  # [n, K] outcome; O: none
    earned: Floats  # [n, K] discounted sum of rewards
    codes: NDArray[np.int16] | None  # [n, K, H + 1, J] of the states, -1 after the end
    action: NDArray[np.int32]  # [n, K, H], or nothing without `codes`
    reward: Floats  # [n, K, H], or nothing without `codes`

    @classmethod
    def empty(cls, episodes: int, count: int, horizon: int, variables: int) -> Trajectories:
        """Return room for particles; without states if there are no variables."""
        steps = horizon if variables else 0
        codes = np.full((episodes, count, horizon + 1, variables), -1, np.int16)
        return cls(
            np.empty((episodes, count), np.int16),
            np.zeros((episodes, count)),
            codes if variables else None,
            np.full((episodes, count, steps), -1, np.int32),
            np.zeros((episodes, count, steps)),
        )


class ParticleEngine:
    """Answers a `Replay` by sampling, where the states of its `FactoredModel` are too many."""

    hidden = False
    drawn = True  # outcomes are shares of draws

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.model: FactoredModel = replay.factored
        mechanism = replay.mechanism
        if not isinstance(mechanism, Compiled):
            raise ValueError(
                f"{mechanism!r}: particles need a mechanism that is built in; give it a method "
                "`coupling`, or use fewer variables"
            )
        self.moves = FactoredSteps(self.model, mechanism.coupling)
        self.action_coupling = GumbelMax().coupling(self.model.n_actions)

    @staticmethod
    def check(
        episodes: Episodes, model: Any, target: Policy, behavior: Policy | None
    ) -> tuple[Policy, Policy]:
        """Refuse a log, target or behavior that does not fit; return both policies.

        The behavior is [S, A] in the states of the log, since only what it did there matters.
        """
        check_factored_log(episodes, model)
        if len(episodes.outcomes) != len(model.outcomes):
            raise ValueError(
                f"the episodes have {len(episodes.outcomes)} outcomes, the model "
                f"{len(model.outcomes)}; fit the model to episodes of the same kind"
            )
        known = fit_behavior(episodes) if behavior is None else behavior
        known = state_table(known, episodes)
        table = state_table(target, episodes)
        return target if callable(target) else table, known

    @cached_property
    def logged(self) -> list[Logged]:
        """What the log shows of every factor."""
        log, replay = self.replay.log, self.replay
        if replay.action_noise == "shared":
            never = replay.behavior_table[log.state, log.action] <= 0
            if never.any():
                row = int(never.argmax())
                raise ValueError(
                    f"{log.place(row)} takes action {log.action[row]}, which the behavior policy "
                    "gives probability 0; leave behavior out to estimate it from the log"
                )
        return self.moves.observe(log)

    def outcomes(
        self,
        *,
        negligible: float,
        draws: int,
        seed: int,
        threads: int | None,
        progress: Progress | None,
    ) -> Found:
        """Shares of particles by outcome, their mean return and its standard error."""
        if negligible:
            raise ValueError("negligible: particles leave nothing out; leave it out")
        walked = self._walk(draws, seed, False, threads=threads, progress=progress)
        ends = np.arange(len(self.model.outcomes) + 1)
        probability = (walked.end[:, :, None] == ends).mean(axis=1)
        expected = walked.earned.mean(axis=1)
        error = np.full(len(expected), np.nan)
        if draws > 1:
            error = walked.earned.std(axis=1, ddof=1) / np.sqrt(draws)
        none = np.zeros(len(expected))
        return Found(probability, expected, none, none, error)

    def draws(
        self, count: int, seed: int, *, threads: int | None, progress: Progress | None
    ) -> Draws:
        """The particles themselves; their episodes know the states that they reach, too."""
        walked = self._walk(count, seed, True, threads=threads, progress=progress)
        assert walked.codes is not None
        log = self.replay.log
        steps = (walked.codes >= 0).all(axis=3)
        visited = walked.codes[steps]
        number = find_states(log.state_variables, log.combinations, visited)
        if log.combinations is not None:
            # new states follow those of the log, whose numbers stay
            fresh = number < 0
            table, place = number_combinations(log.state_variables, visited[fresh])
            number[fresh] = log.n_states + place
            log = replace(log, combinations=np.concatenate([log.combinations, table]))
        state = np.full(steps.shape, -1, np.int32)
        state[steps] = number
        # an outcome takes the place of the state in which the episode ended
        ended = np.nonzero(walked.end < len(log.outcomes))
        last = (walked.action[ended] >= 0).sum(axis=1)
        state[*ended, last] = log.n_states + walked.end[ended]
        return Draws(episodes=log, state=state, action=walked.action, reward=walked.reward)

    def _walk(
        self, count: int, seed: int, keep: bool, *, threads: int | None, progress: Progress | None
    ) -> Trajectories:
        """Let `count` particles of each episode live through it."""
        log, horizon = self.replay.log, self.replay.horizon
        kept = len(log.state_variables) if keep else 0
        found = Trajectories.empty(len(log), count, horizon, kept)
        keys, first, _ = episode_keys(seed, log.id, "counterfactual"), self._first, self.logged
        in_blocks(
            lambda start, stop: self._walk_block(start, stop, count, keys, first, found),
            len(log),
            threads=threads,
            progress=progress,
            largest=max(1, MOST_TOGETHER // count),
        )
        return found

    @cached_property
    def _first(self) -> Codes:
        return self.replay.log.codes(self.replay.log.first_state)

    def _walk_block(
        self, start: int, stop: int, count: int, keys: Keys, first: Codes, found: Trajectories
    ) -> None:
        """Walk all particles of episodes start .. stop - 1 together, step by step."""
        replay, log = self.replay, self.replay.log
        episode = np.repeat(np.arange(start, stop), count)
        draw = np.tile(np.arange(count), stop - start)
        codes = {name: code[episode] for name, code in first.items()}
        found.end[start:stop] = len(self.model.outcomes)
        for t in range(replay.horizon if replay.continuation else int(log.lengths.max())):
            step = np.where(t < log.lengths[episode], log.offsets[episode] + t, -1)
            if not replay.continuation and (step < 0).any():
                going = step >= 0
                episode, draw, step = episode[going], draw[going], step[going]
                codes = {name: code[going] for name, code in codes.items()}
            if len(episode) == 0:
                return
            stream = Stream(keys[episode], draw * kernels.DRAW_STRIDE + t * self.moves.numbers)
            action = self._act(codes, stream, step)
            after, end, reward = self.moves.draw(codes, action, stream, self.logged, step)
            found.earned[episode, draw] += replay.discount**t * reward
            found.end[episode, draw] = end
            if found.codes is not None:
                for place, name in enumerate(codes):
                    found.codes[episode, draw, t, place] = codes[name]
                    found.codes[episode, draw, t + 1, place] = after[name]
                found.action[episode, draw, t] = action
                found.reward[episode, draw, t] = reward
            going = end == len(self.model.outcomes)
            episode, draw = episode[going], draw[going]
            codes = {name: code[going] for name, code in after.items()}

    def _act(self, codes: Codes, stream: Stream, step: Offsets) -> NDArray[np.intp]:
        """Draw an action for each particle, given the one that was logged if noise is shared."""
        replay, log = self.replay, self.replay.log
        wanted = self._target_rows(np.stack(list(codes.values()), axis=1))
        factual, observed = np.full(len(step), -1), np.full(len(step), -1)
        used = np.empty(0, np.int64)
        if replay.action_noise == "shared":
            used, place = np.unique(step[step >= 0], return_inverse=True)
            factual[step >= 0] = place
            observed = np.where(step >= 0, log.action[step], -1)
        rows = np.concatenate([replay.behavior_table[log.state[used]], wanted])
        action = np.empty(len(step), np.intp)
        own = len(used) + np.arange(len(step))
        kernels.draw_levels(self.action_coupling, rows, own, factual, observed, *stream, 0, action)
        return action

    def _target_rows(self, codes: NDArray[np.int64]) -> Floats:
        """Return the target's distribution of actions in states given by codes, [m, A]."""
        log, target = self.replay.log, self.replay.target
        if callable(target):
            return policy_rows(target, codes, self.model.n_actions, "target")
        state = find_states(log.state_variables, log.combinations, codes)
        if (state < 0).any():
            names = (variable.name for variable in log.state_variables)
            levels = zip(names, codes[int((state < 0).argmax())].tolist(), strict=True)
            where = ", ".join(f"{name} {code}" for name, code in levels)
            raise ValueError(
                f"a counterfactual reaches a state that is not in the log ({where}), where the "
                "target has no row; give a function of level codes, [m, J] → [m, A]"
            )
        return np.asarray(self.replay.target_table[state])

    def unsupported(self, *, threads: int | None = None) -> Floats:
        """Zero, [n]: every row of a factored model is learned, none is made up."""
        return np.zeros(len(self.replay.log))

    def unsupported_in_model(self) -> Floats:
        """Zero, [n]: every row of a factored model is learned, none is made up."""
        return np.zeros(len(self.replay.log))

    def first_values(self) -> Floats:
        """Raise an error: not available with particles."""
        _refuse("values in the model")

    def state_values(self) -> Floats:
        """Raise an error: not available with particles."""
        _refuse("state values")

    def everything(
        self, *, threads: int | None, progress: Progress | None
    ) -> tuple[Floats, Floats, Steps, Floats]:
        """Raise an error: not available with particles."""
        _refuse("compute")

    def steps(self, *, probability: bool, threads: int | None, progress: Progress | None) -> Steps:
        """Raise an error: not available with particles."""
        _refuse("steps")

    def bounds(self, *, threads: int | None, progress: Progress | None) -> Bounds:
        """Raise an error: not available with particles."""
        _refuse("bounds")

    def contributions(self, *, threads: int | None) -> Floats:
        """Raise an error: not available with particles."""
        _refuse("contributions")

    def posterior(self) -> LatentPosterior:
        """Raise an error: nothing is hidden."""
        raise ValueError("posterior: the state of this model is observed; give a TabularPOMDP")

    def fewest_changes(
        self, changes: int, *, threads: int | None, progress: Progress | None
    ) -> Changes:
        """Raise an error: not available with particles."""
        _refuse("fewest_changes")


def _refuse(what: str) -> NoReturn:
    raise ValueError(
        f"{what}: not available where states cannot be enumerated, only `outcomes` and `draws` "
        "are; use fewer variables (hide) or levels"
    )


def state_table(policy: Policy, log: Episodes) -> Floats:
    """Return a policy as an array over the states of a log, [S, A]."""
    if not callable(policy):
        return check_policy(as_array(policy), log.n_states, log.n_actions, "policy")
    codes = np.stack(list(log.codes(np.arange(log.n_states)).values()), axis=1)
    return policy_rows(policy, codes.astype(np.int64), log.n_actions, "policy")
