"""The engine for factored models whose states cannot be enumerated: particles instead of states.

Each particle draws every variable from the row that the exact engine would use, so a share of
particles differs from the exact probability by chance alone. One particle depends only on the seed,
its episode's id and its number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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
from butfor.models.factored import NEXT, FactoredModel
from butfor.models.learners import Codes
from butfor.models.row_policy import check_rows
from butfor.models.step_factored import FactoredSteps, Moved, Starts, Stream, Walk, model_walk
from butfor.random import episode_keys, scramble
from butfor.replay.bounds import Bounds
from butfor.replay.changes import Changes
from butfor.replay.draws import Draws
from butfor.replay.factored import check_factored_log
from butfor.replay.outcomes import DRAWS, Found
from butfor.replay.particle_steps import StepSums, course_sums
from butfor.replay.steps import Steps
from butfor.replay.values import Values
from butfor.types import Floats, Keys, Offsets, Progress

if TYPE_CHECKING:
    from butfor.replay.replay import Replay

VALUE_DRAWS = 50  # particles behind the model's value of one logged step


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

        A function stays one, because particles reach states that are not in the log.
        """
        check_factored_log(episodes, model)
        _check_final_states(episodes, model)
        if len(episodes.outcomes) != len(model.outcomes):
            raise ValueError(
                f"the episodes have {len(episodes.outcomes)} outcomes, the model "
                f"{len(model.outcomes)}; fit the model to episodes of the same kind"
            )
        known = fit_behavior(episodes) if behavior is None else behavior
        tables = state_table(target, episodes), state_table(known, episodes)
        return target if callable(target) else tables[0], known if callable(known) else tables[1]

    @cached_property
    def walk(self) -> Walk:
        """How particles walk along the logged episodes."""
        log, replay = self.replay.log, self.replay
        if replay.action_noise == "shared":
            never = replay.behavior_table[log.state, log.action] <= 0
            if never.any():
                row = int(never.argmax())
                raise ValueError(
                    f"{log.place(row)} takes action {log.action[row]}, which the behavior policy "
                    "gives probability 0; leave behavior out to estimate it from the log"
                )
        return Walk(self.moves, self._act, self.moves.observe(log))

    @cached_property
    def alone(self) -> Walk:
        """How particles walk through the model alone."""
        return model_walk(self.model, self._target_rows)

    def outcomes(
        self,
        *,
        draws: int,
        seed: int,
        threads: int | None,
        progress: Progress | None,
    ) -> Found:
        """Shares of particles by outcome, their mean return and its standard error."""
        end, earned = self.walk.returns(
            self._episodes(seed), draws, self.replay.discount, threads=threads, progress=progress
        )
        return self._found(end, earned)

    def everything(self, *, threads: int | None, progress: Progress | None) -> tuple[Found, Steps]:
        """Outcomes and steps from the same particles."""
        sums = StepSums(self.replay, self.model)
        end, earned = self.walk.returns(
            self._episodes(self.replay.seed),
            DRAWS,
            self.replay.discount,
            threads=threads,
            progress=progress,
            note=sums.note,
        )
        return self._found(end, earned), sums.steps()

    def steps(self, *, probability: bool, threads: int | None, progress: Progress | None) -> Steps:
        """Follow the particles step by step."""
        if probability:
            _refuse("the probability of every state")
        return self.everything(threads=threads, progress=progress)[1]

    def courses(self) -> Floats:
        """Shares of particles by level and step, and by outcome so far, [n, H + 1, levels + O]."""
        place, note = course_sums(self.replay.log, self._first, self.replay.horizon)
        self.walk.run(self._episodes(self.replay.seed), DRAWS, note)
        return place

    def draws(
        self, count: int, seed: int, *, threads: int | None, progress: Progress | None
    ) -> Draws:
        """The particles themselves; their episodes know the states that they reach, too."""
        log, horizon = self.replay.log, self.replay.horizon
        names = [variable.name for variable in log.state_variables]
        codes = np.full((len(log), count, horizon + 1, len(names)), -1, np.int16)
        action = np.full((len(log), count, horizon), -1, np.int32)
        reward = np.zeros((len(log), count, horizon))

        def note(moved: Moved) -> None:
            at = moved.group, moved.draw, moved.t
            after = moved.group, moved.draw, moved.t + 1
            for place, name in enumerate(names):
                codes[(*at, place)] = moved.codes[name]
                codes[(*after, place)] = moved.codes[NEXT + name]
            action[at], reward[at] = moved.action, moved.reward

        end, _ = self.walk.returns(
            self._episodes(seed), count, 1.0, threads=threads, progress=progress, note=note
        )
        steps = (codes >= 0).all(axis=3)
        visited = codes[steps]
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
        ended = np.nonzero(end < len(log.outcomes))
        last = (action[ended] >= 0).sum(axis=1)
        state[*ended, last] = log.n_states + end[ended]
        return Draws(episodes=log, state=state, action=action, reward=reward)

    def contributions(self, *, threads: int | None) -> Floats:
        """How much each observed step adds to its episode's difference, [N]."""
        log, replay = self.replay.log, self.replay
        # what remains of an episode after each of its steps is an episode too
        rest = np.repeat(log.offsets[1:], log.lengths) - np.arange(len(log.state))
        starts = Starts(
            log.codes(log.state),
            rest + np.repeat(replay.steps_beyond, log.lengths),
            self._step_keys("contributions"),
            np.arange(len(log.state)),
            rest,
        )
        here = self.walk.returns(starts, DRAWS, replay.discount, threads=threads)[1].mean(axis=1)
        following = np.append(here[1:], 0.0)
        goes_on = replay.steps_beyond > 0
        following[log.offsets[1:] - 1] = np.where(goes_on, self._final_values(), 0.0)
        return np.asarray(
            replay.discount**log.elapsed
            * (here - log.reward - log.step_discounts(replay.discount) * following)
        )

    def first_values(self) -> Floats:
        """Expected return of the target in the model, from each episode's first state, [n]."""
        return np.asarray(self._first_returns.mean(axis=1))

    def sampling_errors(self) -> tuple[float, float]:
        """Standard errors of the mean value in the model and of the mean counterfactual return."""
        returns = self._first_returns
        in_model = returns.std(axis=1, ddof=1) / returns.shape[1] ** 0.5
        of_episodes = self.replay.outcomes().return_error
        assert of_episodes is not None
        one, other = (float(np.sqrt((e**2).sum())) / len(e) for e in (in_model, of_episodes))
        return one, other

    def logged_values(self) -> Values:
        """Values of the target in the model at the logged steps, as means over particles.

        They are unbiased, and their noise is independent of what was logged.
        """
        log, discount = self.replay.log, self.replay.discount
        left, codes = self.replay.horizon - log.time, log.codes(log.state)
        found = []
        first = None  # what a policy on more than the state does, which is certain of it
        if self.replay.by_row:
            first = check_rows(log).argmax(axis=1)
        for purpose, action in (("value", first), ("action value", log.action.astype(np.intp))):
            starts = Starts.unlogged(codes, left, self._step_keys(purpose), action)
            found.append(self.alone.returns(starts, VALUE_DRAWS, discount)[1].mean(axis=1))
        return Values(found[0], found[1], self._final_values())

    def share_in_model(self, holds: Callable[[Moved], NDArray[np.bool_]]) -> float:
        """Share of the target's steps in the model at which something holds."""
        found: list[tuple[int, int]] = []

        def note(moved: Moved) -> None:
            mask = holds(moved)
            found.append((int(mask.sum()), len(mask)))

        self.alone.run(self._alone_starts, VALUE_DRAWS, note)
        return sum(some for some, _ in found) / sum(steps for _, steps in found)

    @cached_property
    def _first_returns(self) -> Floats:
        """Returns of particles in the model alone from each first state, [n, DRAWS]."""
        return self.alone.returns(self._alone_starts, DRAWS, self.replay.discount)[1]

    @cached_property
    def _alone_starts(self) -> Starts:
        log, replay = self.replay.log, self.replay
        keys = episode_keys(replay.seed, log.id, "model")
        return Starts.unlogged(self._first, np.full(len(log), replay.horizon), keys)

    def _final_values(self) -> Floats:
        """Value in the model of where each episode stopped without an outcome, else 0, [n]."""
        log, replay = self.replay.log, self.replay
        final = log.next_state[log.offsets[1:] - 1]
        stopped = np.flatnonzero((log.outcome < 0) & (final >= 0))
        values = np.zeros(len(log))
        keys = episode_keys(replay.seed, log.id, "final value")[stopped]
        left = (replay.horizon - log.lengths)[stopped]
        if len(stopped):
            starts = Starts.unlogged(log.codes(final[stopped]), left, keys)
            earned = self.alone.returns(starts, DRAWS, replay.discount)[1]
            values[stopped] = earned.mean(axis=1)
        return values

    def _found(self, end: NDArray[np.int16], earned: Floats) -> Found:
        """Return shares of particles by outcome, and the mean of their returns."""
        ends = np.arange(len(self.model.outcomes) + 1)
        count = earned.shape[1]
        error = np.full(len(earned), np.nan)
        if count > 1:
            error = earned.std(axis=1, ddof=1) / np.sqrt(count)
        none = np.zeros(len(earned))
        return Found((end[:, :, None] == ends).mean(axis=1), earned.mean(axis=1), none, error)

    @cached_property
    def _first(self) -> Codes:
        return self.replay.log.codes(self.replay.log.first_state)

    def _episodes(self, seed: int) -> Starts:
        """Return the starts of the counterfactuals, one per episode."""
        log, replay = self.replay.log, self.replay
        steps = log.lengths + replay.steps_beyond
        keys = episode_keys(seed, log.id, "counterfactual")
        return Starts(self._first, steps, keys, log.offsets[:-1], log.lengths)

    def _step_keys(self, purpose: str) -> Keys:
        """Return a key for each logged step, [N]."""
        log = self.replay.log
        keys = np.repeat(episode_keys(self.replay.seed, log.id, purpose), log.lengths)
        return scramble(keys + log.time.astype(np.uint64))

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
        unused = np.ones(len(step))
        kernels.draw_levels(
            self.action_coupling, rows, own, factual, observed, *stream, 0, action, unused
        )
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

    def bounds(self, *, threads: int | None, progress: Progress | None) -> Bounds:
        """Raise an error: not available with particles."""
        _refuse("bounds")

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
        f"{what}: not available where states cannot be enumerated; use fewer variables (hide) or "
        "levels"
    )


def state_table(policy: Policy, log: Episodes) -> Floats:
    """Return a policy as an array over the states of a log, [S, A]."""
    if not callable(policy):
        return check_policy(as_array(policy), log.n_states, log.n_actions, "policy")
    codes = np.stack(list(log.codes(np.arange(log.n_states)).values()), axis=1)
    return policy_rows(policy, codes.astype(np.int64), log.n_actions, "policy")


def _check_final_states(episodes: Episodes, model: FactoredModel) -> None:
    """Refuse unknown final states on which the end depends."""
    unknown = np.flatnonzero(episodes.next_state < 0)
    parents = [parent for parent in model.end.parents if parent.startswith(NEXT)]
    if len(unknown) and parents:
        raise ValueError(
            f"{episodes.place(int(unknown[0]))}: the final state was not logged, but the end "
            f"depends on {', '.join(map(repr, parents))}; fit the model without next-step "
            "parents of the end, or log the final states"
        )
