"""Replay: one question about a log, checked once; results are computed on demand and kept."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from butfor.checks import check_choice, check_discount, check_horizon, check_whole
from butfor.hidden.latent import LatentPosterior
from butfor.hidden.model import TabularPOMDP, check_pomdp
from butfor.hidden.policies import Policy
from butfor.log.episodes import Episodes
from butfor.mechanisms.gumbel_max import GumbelMax, counterfactual_distribution
from butfor.mechanisms.protocol import Mechanism, check_mechanism
from butfor.models.factored import AnyFactor, FactoredModel, tabular
from butfor.models.mdp import TabularMDP
from butfor.models.plan import Plan
from butfor.models.policies import check_counts, estimate_behavior, join_steps
from butfor.models.row_policy import RowPolicy, check_rows
from butfor.printed import Printed
from butfor.random import check_seed
from butfor.replay.bounds import Bounds
from butfor.replay.changes import Changes
from butfor.replay.draws import Draws
from butfor.replay.engine import (
    Engine,
    Model,
    check_durations,
    check_factored,
    check_question,
    engine_of,
    known_cases,
    noise_of,
    step_cases,
)
from butfor.replay.outcomes import DRAWS, Counterfactuals, Found
from butfor.replay.particles import ParticleEngine, state_table
from butfor.replay.steps import Steps
from butfor.replay.usual import CENSORED, Usual, check_hazard, usual_course, usual_steps
from butfor.types import Floats, Progress

ACTION_NOISES = ("shared", "fresh")
Answer = TypeVar("Answer")


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Replay(Printed):
    """The question what would have happened to each logged episode under the target policy.

    Parameters
    ----------
    episodes
        The log.
    model
        A `TabularMDP`, a `FactoredModel`, or a `TabularPOMDP` if the state is hidden.
    target : [S, A]
        The policy to evaluate. With a `TabularPOMDP`: [Z, A] on the last observation, or a
        `FiniteController` or `LatentPolicy`. With a `FactoredModel`: also a function of level
        codes, [m, J] → [m, A], which is needed where states cannot be enumerated. A `RowPolicy`
        depends on more than the state, and is known in each row of the log. An array [T, S, A]
        differs from step to step, if the log counts them (`Episodes.with_step`). A `Plan` that
        episodes of the log taught is known to be flattered (`learned_here`); an array counts as
        fixed before this log was seen, as far as butfor can know.
    behavior : [S, A], optional
        The policy that produced the log; estimated from the log by default. It matters if the
        target is stochastic and the action noise is shared, and if it depended on a hidden state
        (`LatentPolicy`), about which its actions are then informative.
    behavior_probability : [N], optional
        The probability with which each logged action was taken; by default the log's own
        (`Episodes.behavior_probability`). It enters importance weights instead of `behavior`.
    mechanism
        The assumed mechanism of transitions; `GumbelMax()` by default. Shared action noise is
        always Gumbel-Max noise.
    action_noise : "shared" or "fresh"
        Shared: the noise behind the observed action belongs to the patient, so a target equal to
        the behavior reproduces every episode. Fresh: actions are drawn independently.
    horizon : optional
        Number of steps to consider; that of the log by default. Longer episodes are cut there.
    discount
        Factor by which the rewards of each later step count less; if the states of the log have
        durations, those of each later unit of time.
    continuation
        Whether a counterfactual that has no outcome at the observed end continues by the model
        alone up to the horizon. If not, it stops after as many steps as were observed.
    censored : "continue" or "cut"
        What a counterfactual is compared with if its episode stops before the horizon without an
        outcome: with what the model expects of the behavior policy from where it stopped, or with
        what was observed, in which case the counterfactual stops after as many steps.
    hazard : [S], optional
        Probability of being lost in each state, as `censoring_hazard` estimates it. Weights then
        make up for the episodes that were lost.
    counts : [S, A], optional
        Number of logged transitions of each pair of state and action, including those of these
        episodes; by default those of these episodes. For part of a log give those of all of it.
    noise : "variables" or "state", optional
        With a `FactoredModel`, what shares its noise between both worlds: each variable, by default
        (a further assumption: the noises of variables are independent), or the next state as a
        whole, as with any other model.
    seed
        Of results that are sampled because they cannot be enumerated.

    Notes
    -----
    The results are causal if the model is right, the state (including a hidden one) contains
    everything that influenced both the actions and the course, and transitions follow the
    mechanism. None of these assumptions can be verified from the data.
    """

    episodes: Episodes  # as given
    log: Episodes  # cut at the horizon
    model: Model
    target: Policy
    plan: Plan | None = field(repr=False)  # the target, if it knows where it comes from
    by_row: bool  # weights use what the target does in each row, not in its state
    behavior: Policy
    behavior_given: bool  # False: estimated from the log
    mechanism: Mechanism
    action_noise: str
    horizon: int
    discount: float
    continuation: bool
    censored: str  # "continue" or "cut"
    hazard: Floats | None  # [S]
    counts: NDArray[np.int64]  # [S, A]
    noise: str
    seed: int
    _kept: dict[Any, Any] = field(repr=False)
    _lasting: dict[str, Any] | None = field(repr=False)  # see `share`

    def __init__(
        self,
        episodes: Episodes,
        model: Model,
        target: Policy | RowPolicy | Plan,
        *,
        behavior: Policy | None = None,
        behavior_probability: ArrayLike | None = None,
        mechanism: Mechanism | None = None,
        action_noise: str = "shared",
        horizon: int | None = None,
        discount: float = 1.0,
        continuation: bool = True,
        censored: str = "continue",
        hazard: ArrayLike | None = None,
        counts: ArrayLike | None = None,
        noise: str | None = None,
        seed: int = 0,
    ) -> None:
        belongs = noise_of(model, noise)
        engine = engine_of(model, belongs, episodes)
        check_choice(action_noise, "action_noise", ACTION_NOISES)
        chosen = GumbelMax() if mechanism is None else check_mechanism(mechanism)
        if behavior_probability is not None:
            if engine.hidden:
                raise ValueError(
                    "behavior_probability: not available for a model with a hidden state; leave it "
                    "out"
                )
            episodes = episodes.with_behavior_probability(behavior_probability)
        plan = target if isinstance(target, Plan) else None
        if plan is not None:
            target = plan.policy
        by_row = isinstance(target, RowPolicy)
        if isinstance(target, RowPolicy):
            if engine.hidden:
                raise ValueError(
                    "a RowPolicy needs states that are observed; give another kind of target"
                )
            check_rows(episodes)
            target = target.table if target.learned is None else target.learned
        policy, known = check_question(
            episodes, model, belongs, join_steps(target, episodes), join_steps(behavior, episodes)
        )
        steps = episodes.horizon if horizon is None else check_horizon(horizon)
        check_durations(episodes, model, steps)
        checked: dict[str, Any] = {
            "episodes": episodes,
            "log": episodes.truncate(steps),
            "model": model,
            "target": policy,
            "plan": plan,
            "by_row": by_row,
            "behavior": known,
            "behavior_given": behavior is not None,
            "mechanism": chosen,
            "action_noise": action_noise,
            "horizon": steps,
            "discount": check_discount(discount),
            "continuation": bool(continuation),
            "censored": check_choice(censored, "censored", CENSORED),
            "hazard": None if hazard is None else check_hazard(hazard, episodes),
            "counts": check_counts(counts, episodes, engine.hidden),
            "noise": belongs,
            "seed": check_seed(seed),
            "_kept": {},
            "_lasting": None,
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.log)

    def _title(self) -> str:
        return f"Replay of {len(self):,} episodes"

    def _facts(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "target": self.target if self.plan is None else self.plan,
            "behavior": self.behavior if self.behavior_given else "estimated from the log",
            "mechanism": self.mechanism,
            "action noise": self.action_noise,
            "noise": self.noise,
            "horizon": self.horizon,
            "discount": self.discount,
            "answers": ".outcomes(), .steps(), .draws(), .bounds(), .fewest_changes()",
        }

    # the question

    @cached_property
    def learned_here(self) -> bool:
        """Whether the target is a plan that episodes of this log taught, which flatters it."""
        return self.plan is not None and self.plan.meets(self.episodes)

    @cached_property
    def engine(self) -> Engine:
        """The engine that computes the results for this kind of model."""
        # of a copy, which shares the results: in a circle, neither would be freed until Python
        # looks for circles, which it does not do because arrays are large
        return engine_of(self.model, self.noise, self.episodes)(copy(self))

    @property
    def hidden(self) -> bool:
        """Whether the state is hidden."""
        return engine_of(self.model, self.noise, self.episodes).hidden

    @property
    def sampled(self) -> bool:
        """Whether states are too many to be enumerated, so that results are shares of draws."""
        return engine_of(self.model, self.noise, self.episodes) is ParticleEngine

    @property
    def particles(self) -> ParticleEngine:
        """The engine of results that are sampled."""
        if not isinstance(self.engine, ParticleEngine):
            raise ValueError("the states of this model are enumerated, not sampled")
        return self.engine

    @property
    def mdp(self) -> TabularMDP:
        """The transition rows of the model, whose state must be observed."""
        return tabular(self.model)

    @property
    def factored(self) -> FactoredModel:
        """The model, which must be factored."""
        return check_factored(self.model)

    @property
    def learned(self) -> TabularMDP | FactoredModel:
        """The model, whose state must be observed."""
        return self.factored if self.factors else self.mdp

    def known_cases(self, decisions: NDArray[np.int64]) -> Floats:
        """Number of similar past cases behind each state and action, [S, A].

        `decisions` [S, A] are those of the log, which count if the model was not learned from it.
        """
        known = known_cases(self.model)
        return known if self.factors else np.maximum(known, decisions)

    def step_cases(self) -> NDArray[np.int64]:
        """Number of similar past cases of each logged step, without its own episode, [N]."""
        return step_cases(self.model, self.log, self.counts)

    @property
    def factors(self) -> tuple[AnyFactor, ...]:
        """The factors of the model; none if it is not factored."""
        return self.model.factors if isinstance(self.model, FactoredModel) else ()

    @property
    def pomdp(self) -> TabularPOMDP:
        """The model, whose state must be hidden."""
        return check_pomdp(self.model)

    @property
    def terminal(self) -> str:
        """How the model counts ends."""
        return "visits" if self.hidden else self.learned.terminal

    @cached_property
    def target_table(self) -> Floats:
        """The target as an array [S, A]; a policy with memory or on hidden states is refused."""
        if callable(self.target):
            return state_table(self.target, self.episodes)
        if not isinstance(self.target, np.ndarray):
            raise ValueError(
                "only a policy on the last observation is accepted here, not a "
                f"{type(self.target).__name__}; Replay.outcomes and Replay.draws accept any policy"
            )
        return self.target

    def taken(self) -> Floats:
        """Probability with which the target takes the logged action of each step, [N]."""
        log = self.log
        if self.by_row:
            return check_rows(log)[np.arange(len(log.state)), log.action]
        return np.asarray(self.target_table[log.state, log.action])

    @cached_property
    def behavior_table(self) -> Floats:
        """The behavior given the observed state, [S, A]."""
        if isinstance(self.behavior, np.ndarray):
            return self.behavior
        if callable(self.behavior):
            return state_table(self.behavior, self.episodes)
        return estimate_behavior(self.episodes)

    @cached_property
    def stopped(self) -> NDArray[np.bool_]:
        """Whether each episode is censored: without an outcome before the horizon, [n]."""
        return (self.log.outcome < 0) & (self.log.lengths < self.horizon)

    @cached_property
    def steps_beyond(self) -> NDArray[np.int64]:
        """Most steps of each counterfactual after the observed end of its episode, [n]."""
        left = np.asarray(self.horizon - self.log.lengths)
        cut = self.stopped if self.censored == "cut" else np.zeros_like(self.stopped)
        return np.where(cut | (not self.continuation), 0, left)

    @property
    def continues(self) -> NDArray[np.bool_]:
        """Whether the model continues the record of each episode, to compare with it, [n]."""
        return self.stopped & (self.steps_beyond > 0)

    @property
    def observed_return(self) -> Floats:
        """Discounted sum of the recorded rewards of each episode, [n]."""
        return self.log.returns(self.discount)

    @property
    def usual_return(self) -> Floats:
        """Return that each counterfactual is compared with, [n]; see `usual_course`."""
        return self.usual.expected_return

    @cached_property
    def usual(self) -> Usual:
        """What each counterfactual is compared with."""
        return usual_course(self)

    @cached_property
    def usual_steps(self) -> Floats:
        """Expected number of steps of what each counterfactual is compared with, [n]."""
        return usual_steps(self)

    def ask(
        self,
        *,
        episodes: Episodes | None = None,
        model: Model | None = None,
        target: Policy | RowPolicy | None = None,
        behavior: Policy | None = None,
        action_noise: str | None = None,
        counts: ArrayLike | None = None,
        seed: int | None = None,
    ) -> Replay:
        """Return the same question about another log, model or target, or with another seed.

        A behavior that was given is kept; one that was estimated is estimated from the new log.
        """
        kept = self.behavior if self.behavior_given else None
        own: Any = self.target if self.plan is None else self.plan
        if self.by_row:
            own = RowPolicy(self.target_table, own if callable(own) else None)
        if episodes is None and counts is None and not self.hidden:
            counts = self.counts
        asked = Replay(
            self.episodes if episodes is None else episodes,
            self.model if model is None else model,
            own if target is None else target,
            behavior=kept if behavior is None else behavior,
            mechanism=self.mechanism,
            action_noise=self.action_noise if action_noise is None else action_noise,
            horizon=self.horizon,
            discount=self.discount,
            continuation=self.continuation,
            censored=self.censored,
            hazard=self.hazard,
            counts=counts,
            # of another kind of model: what is usual for it
            noise=self.noise if model is None or type(model) is type(self.model) else None,
            seed=self.seed if seed is None else seed,
        )
        changed = (model, target, action_noise, None if behavior is self.behavior else behavior)
        if all(one is None for one in changed) and np.array_equal(asked.counts, self.counts):
            object.__setattr__(asked, "_lasting", self._lasting)
        return asked

    def share(self, lasting: dict[str, Any]) -> Replay:
        """Take what does not depend on the log from here, and put it here; return self.

        That is the values of the target in the model, and the working space of kernels, with the
        rows that it caches: give it to questions that differ in their logs only.
        """
        object.__setattr__(self, "_lasting", lasting)
        return self

    def once_for_all(self, key: str, compute: Callable[[], Answer]) -> Answer:
        """Compute what does not depend on the log, or take what was found for another log."""
        if self._lasting is None:
            return compute()
        if key not in self._lasting:
            self._lasting[key] = compute()
        return self._lasting[key]

    def pin_behavior(self) -> Replay:
        """Return the same question, with an estimated behavior treated as given."""
        pinned = copy(self)  # shares the results
        object.__setattr__(pinned, "behavior_given", True)
        return pinned

    def part(self, chosen: ArrayLike) -> Replay:
        """Return the same question about the episodes at these positions of the log.

        Behavior and counts stay those of the whole log.
        """
        return self.ask(
            episodes=self.episodes.select(np.asarray(chosen)),
            behavior=self.behavior,
            counts=None if self.hidden else self.counts,
        )

    # the results

    def outcomes(
        self,
        *,
        draws: int = DRAWS,
        seed: int | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Counterfactuals:
        """Compute the exact distribution of each episode's outcome under the target policy.

        Parameters
        ----------
        draws, seed
            Only for a factored model whose states cannot be enumerated: probabilities are shares of
            this many draws. The result has their standard errors. The seed is by default that of
            the question.
        threads, progress
            Number of threads; a function called with (episodes done, total).
        """
        number = check_whole(draws, "draws", 1, "a whole number") if self.engine.drawn else None
        chosen = self.seed if seed is None else seed

        def compute() -> Counterfactuals:
            found = self.engine.outcomes(
                draws=draws, seed=chosen, threads=threads, progress=progress
            )
            if found.unsupported is not None:
                self._kept[("support",)] = found.unsupported
            return self._outcomes(found, number)

        return self._once(("outcomes", (number, chosen) if number else None), compute)

    def steps(
        self,
        *,
        probability: bool = False,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Steps:
        """Follow each counterfactual step by step: where it is, and what evidence that rests on.

        Let m_t(s, a) be the probability that the counterfactual has no outcome before step t, is in
        s and takes a. The influence at t is sum m_t TV(K_t(.|s, a), P(.|s, a)) / sum m_t: the most
        by which the observed step changes the probability of any event there. It is 0 past the
        observed end, and 0 where the model is deterministic.

        Parameters
        ----------
        probability : bool
            Whether to keep the probability of every state at every step: n H S numbers.

        Notes
        -----
        Influence is about transitions; shared action noise determines where the mass goes and is
        not itself counted. Where the counterfactual takes the observed action in the observed
        state, the influence is 1 - P(observed). Zero means that the counterfactual is the model's
        simulation, whoever the patient was, not that this simulation is right.

        With a factored model, similar past cases are the logged transitions that share the parents
        of a variable, the fewest over the variables and the end that were learned from a log. For
        parents in the next state it is their mean over the next states of the counterfactual.

        Where states cannot be enumerated, all of this is about 200 draws: similar past cases are
        those of each draw's own next state, and influence compares rows of the next state and the
        end together.

        With a hidden state, similar past cases are the expected counts of a hidden state and action
        under the posterior of these episodes.
        """
        return self._once(
            ("steps", probability),
            lambda: self.engine.steps(probability=probability, threads=threads, progress=progress),
        )

    def courses(self) -> Floats:
        """Follow each variable of the counterfactuals step by step, [n, H + 1, levels + O].

        The joint probability of each level of each state variable and no outcome yet, and that of
        each outcome so far.
        """
        return self._once(("courses",), self.engine.courses)

    def support(self, *, threads: int | None = None) -> Floats:
        """Probability that each episode's counterfactual ever uses a pair never seen, [n].

        What follows such a pair is a rule of the model, not data.
        """
        return self._once(("support",), lambda: self.engine.unsupported(threads=threads))

    def compute(self, *, threads: int | None = None, progress: Progress | None = None) -> Replay:
        """Compute outcomes, steps and support together, in one pass if possible; return self."""
        if ("steps", False) not in self._kept:
            found, steps = self.engine.everything(threads=threads, progress=progress)
            number = DRAWS if self.engine.drawn else None
            self._kept[("outcomes", (number, self.seed) if number else None)] = self._outcomes(
                found, number
            )
            self._kept[("steps", False)] = steps
            self._kept[("support",)] = found.unsupported
        return self

    def bounds(self, *, threads: int | None = None, progress: Progress | None = None) -> Bounds:
        """Bound each episode's expected return and outcome probabilities over every mechanism.

        Counterfactuals are not identified: mechanisms that no data can distinguish disagree about
        them. At each step, given the observed transition, the next state can have any distribution
        that some coupling of the two rows allows. The worst and the best of these are combined
        backwards into bounds for the episode. Where state and action are the observed ones, and
        past the observed end, all mechanisms agree.

        Notes
        -----
        The bounds are about the mechanism only. They assume that the model is right and that its
        states contain everything that mattered: a narrow bound in a wrong model is wrong. Shared
        action noise is always Gumbel-Max noise and is not bounded.

        With noise per variable, each row of each variable is bounded separately, from the last
        variable to the first: conservative even for a single step (`tight` is False).

        With a hidden state, each row of each pair of hidden states of both worlds is bounded
        separately and averaged over the hidden paths that the record allows: conservative, too.
        """
        return self._once(
            ("bounds",), lambda: self.engine.bounds(threads=threads, progress=progress)
        )

    def draws(
        self,
        draws: int = 5,
        *,
        seed: int = 0,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Draws:
        """Draw trajectories that each episode could have taken under the target policy.

        They come from the same chain as `outcomes`, with one uniform number per decision, and
        depend only on the seed and the episode's id, not on threads or other episodes. Up to the
        first action that differs, every draw is the observed episode. With a hidden state, each
        draw has its own hidden path.
        """
        check_whole(draws, "draws", 1, "a whole number")
        return self.engine.draws(draws, seed, threads=threads, progress=progress)

    def contributions(self, *, threads: int | None = None) -> Floats:
        """Contribution of each observed step to its episode's difference, [N].

        With V_t the counterfactual value under the target from step t on, step t contributes
        discount^t (V_t(s_t) - r_t - discount V_{t+1}(s_{t+1})): what the target would have gained
        by taking over here instead of one step later. The contributions of an episode add up to its
        difference, except for what the model adds after the observed end. With durations, discounts
        have the power of the time that passed.
        """
        return self._once(("contributions",), lambda: self.engine.contributions(threads=threads))

    def actions(self) -> Floats:
        """Distribution of the target's action in the logged state of each step, [N, A].

        With shared action noise it is the counterfactual given the action taken; with fresh noise
        it is the target's own row.
        """

        def compute() -> Floats:
            table, place = self._actions()
            return np.asarray(table[place])

        return self._once(("actions",), compute)

    def repeats(self) -> Floats:
        """Probability that the target repeats each logged action, [N]; see `actions`."""

        def compute() -> Floats:
            table, place = self._actions()
            taken = np.zeros(len(table), dtype=np.int64)
            taken[place] = self.log.action
            return np.asarray(table[np.arange(len(table)), taken][place])

        return self._once(("repeats",), compute)

    def _actions(self) -> tuple[Floats, NDArray[np.int64]]:
        """Return the distinct rows of `actions`, and which of them each step has, [N]."""
        pair = self.log.state.astype(np.int64) * self.log.n_actions + self.log.action
        place, known = pd.factorize(pair)
        state, taken = np.divmod(known, self.log.n_actions)
        if self.action_noise == "fresh":
            return np.asarray(self.target_table[state]), place
        table = counterfactual_distribution(
            self.behavior_table[state], self.target_table[state], taken
        )
        return np.asarray(table), place

    def posterior(self) -> LatentPosterior:
        """Distribution of the hidden state at each step, given the whole record."""
        return self._once(("posterior",), self.engine.posterior)

    def fewest_changes(
        self,
        changes: int = 3,
        *,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Changes:
        """Find the k actions that, if changed, would have raised each expected return most.

        For k = 0, 1, …, `changes`; exact, by dynamic programming over time, state and changes left,
        V_t(s, c) = max(keep: E[r + V_{t+1}(x, c)], change: max_a E[r + V_{t+1}(x, c - 1)]), where
        the next state x has its counterfactual distribution given the observed transition. An
        action that is not changed is the observed one, whatever the state; the horizon is the
        observed length. The target is not used.

        Notes
        -----
        The search picks the best of many actions in a learned model, so it exploits errors of the
        model as well as real effects: a gain that rests on few similar cases is a reason to read
        the chart, not to assign blame. Pairs of state and action never seen follow the model's rule
        for them.
        """
        check_whole(changes, "changes", 0, "a whole number")
        return self.engine.fewest_changes(changes, threads=threads, progress=progress)

    def compute_as(self, other: Replay, course: NDArray[np.int64]) -> Replay:
        """Use outcomes and support of an exact question about twins (`find_twins`); return self.

        Episode `course[i]` of the other question has the course of episode i.
        """
        told, support = other.outcomes(), other.support()[course]
        found = Found(told.probability[course], told.expected_return[course], support)
        self._kept[("outcomes", None)] = self._outcomes(found, None)
        self._kept[("support",)] = support
        return self

    def keep(self, outcomes: Counterfactuals) -> Replay:
        """Use outcomes that were already computed for the same question; return self."""
        same = len(outcomes.episodes) == len(self) and (outcomes.episodes.id == self.log.id).all()
        if not same:
            raise ValueError(
                f"the counterfactuals are of {len(outcomes.episodes)} episodes that differ from "
                f"the {len(self)} given; compute them for these episodes"
            )
        if (outcomes.horizon, outcomes.discount) != (self.horizon, self.discount):
            raise ValueError(
                f"the counterfactuals have horizon {outcomes.horizon} and discount "
                f"{outcomes.discount}, not {self.horizon} and {self.discount}; compute them with "
                "the same horizon and discount"
            )
        if outcomes.draws is not None:
            raise ValueError("the counterfactuals are shares of draws; give exact ones")
        self._kept[("outcomes", None)] = outcomes
        return self

    def _outcomes(self, found: Found, draws: int | None) -> Counterfactuals:
        return Counterfactuals(
            episodes=self.log,
            probability=found.probability,
            expected_return=found.expected_return,
            observed_return=self.observed_return,
            usual_return=self.usual_return,
            usual_outcome=self.usual.outcome,
            horizon=self.horizon,
            discount=self.discount,
            action_noise=self.action_noise,
            mechanism=self.mechanism,
            draws=draws,
            return_error=found.return_error,
        )

    def _once(self, key: tuple[Any, ...], compute: Callable[[], Answer]) -> Answer:
        if key not in self._kept:
            self._kept[key] = compute()
        return self._kept[key]


def as_replay(
    question: Replay | Episodes,
    model: Model | None,
    target: Policy | RowPolicy | None,
    *,
    behavior: Policy | None = None,
    behavior_probability: ArrayLike | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    discount: float = 1.0,
    censored: str = "continue",
    hazard: ArrayLike | None = None,
) -> Replay:
    """Return a Replay as it is, or make one of a log, a model and a target."""
    if not isinstance(question, Replay):
        if model is None or target is None:
            raise ValueError("give either a Replay, or a log with its model and the target")
        return Replay(
            question,
            model,
            target,
            behavior=behavior,
            behavior_probability=behavior_probability,
            mechanism=mechanism,
            action_noise=action_noise,
            horizon=horizon,
            discount=discount,
            censored=censored,
            hazard=hazard,
        )
    given = {
        "model": model,
        "target": target,
        "behavior": behavior,
        "behavior_probability": behavior_probability,
        "mechanism": mechanism,
        "action_noise": None if action_noise == "shared" else action_noise,
        "horizon": horizon,
        "discount": None if discount == 1.0 else discount,
        "censored": None if censored == "continue" else censored,
        "hazard": hazard,
    }
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} is part of the question; give it to Replay(...) instead")
    return question


def refuse_hidden(replay: Replay, **given: object) -> None:
    """Refuse arguments that have no meaning with a hidden state."""
    for name, value in given.items():
        if replay.hidden and value is not None and value is not False:
            raise ValueError(f"{name}: not available for a model with a hidden state; leave it out")
