"""A ward with thirty variables whose truth is known: its model, its patients, their noise.

Six organs are well, strained or failing; each has four signs that are absent or present, the last
of which is a marker. Two drugs, each for three organs, help an organ without its marker and harm
one that has it; both have side effects. Nobody dies or goes home but through the organs. Physicians
see everything and treat by how ill the organs are, whatever the markers say.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from butfor.hidden.policies import StatePolicy, policy_rows
from butfor.log.combinations import number_combinations
from butfor.log.episodes import Episodes
from butfor.log.variables import Outcome, Variable
from butfor.models.factored import ACTION, END, NEXT, Factor, FactoredModel, Rewards
from butfor.random import check_seed
from butfor.types import Floats

HORIZON = 12
ORGANS = 6
SIGNS = 4  # of each organ; the last is its marker
LEVELS = ("well", "strained", "failing")
DRUGS = ("drug A", "drug B")  # for the first and for the last three organs
OUTCOMES = (Outcome("died", -1.0, bad=True), Outcome("home", 1.0))
STATES = tuple(
    variable
    for organ in range(1, ORGANS + 1)
    for variable in (
        Variable(f"organ {organ}", LEVELS),
        *(Variable(f"sign {organ}.{sign}", ("no", "yes")) for sign in range(1, SIGNS + 1)),
    )
)
ACTIONS = tuple(Variable(drug, ("off", "on")) for drug in DRUGS)
MOST_LEVELS = len(LEVELS)  # of any variable, and of the end
Codes = NDArray[np.int64]  # [m, J] level codes of states


def organ_levels(codes: Codes) -> Codes:
    """Return the levels of the organs, [m, 6]."""
    return codes[:, :: SIGNS + 1]


def markers(codes: Codes) -> Codes:
    """Return the markers of the organs, [m, 6]."""
    return codes[:, SIGNS :: SIGNS + 1]


def make_policy(drug_a: Floats, drug_b: Floats) -> Floats:
    """Return the chances of the four actions from those of each drug [m], [m, 4]."""
    both = [(1 - a) * (1 - b) for a in (drug_a, 1 - drug_a) for b in (drug_b, 1 - drug_b)]
    return np.stack(both, axis=1)


def physicians(codes: Codes) -> Floats:
    """Return how the physicians treat, [m, A]: more the more of a drug's organs are ill."""
    ill = (organ_levels(codes) > 0).reshape(len(codes), 2, -1).sum(axis=2)
    return make_policy(*(0.15 + 0.2 * ill.T))


def fixed_rule(codes: Codes) -> Floats:
    """Return a policy that depends on no log, [m, A].

    A drug is given while at least two of its organs are ill and at most one has its marker.
    """
    ill = (organ_levels(codes) > 0).reshape(len(codes), 2, -1).sum(axis=2)
    marked = markers(codes).reshape(len(codes), 2, -1).sum(axis=2)
    return make_policy(*((ill >= 2) & (marked <= 1)).T.astype(np.float64))


@cache
def factors() -> tuple[Factor, ...]:
    """Return the true distributions: of each variable, and of the end."""
    found = []
    for organ in range(ORGANS):
        found.append(_organ(organ))
        found += [_sign(organ, sign) for sign in range(SIGNS)]
    return (*found, _end())


def _organ(organ: int) -> Factor:
    """An organ follows its level, two of its signs, and its drug, which the marker turns around."""
    name = STATES[organ * (SIGNS + 1)].name
    signs = [_name_of_sign(organ, sign) for sign in (0, 1, SIGNS - 1)]
    parents = (name, *signs, _drug_of(organ))
    level, first, second, marker, drug = np.indices((MOST_LEVELS, 2, 2, 2, 2))
    push = -1.6 + 1.5 * level + 0.7 * (first + second) + drug * np.where(marker, 1.5, -2.0)
    return _factor(name, parents, [0 * push, push, 2 * push - 1.0])


def _sign(organ: int, sign: int) -> Factor:
    """A sign tends to stay, and follows another organ's sign, its own organ and a side effect."""
    name = _name_of_sign(organ, sign)
    if sign == SIGNS - 1:
        (stays,) = np.indices((2,))
        return _factor(name, (name,), [0 * stays, -3.0 + 6.0 * stays])
    follows = _name_of_sign((organ + 1 + sign) % ORGANS, sign)
    # drugs burden organs that they are not for
    drug = [_drug_of((organ + ORGANS // 2) % ORGANS)] if sign < 2 else []
    parents = (name, follows, STATES[organ * (SIGNS + 1)].name, *drug)
    stays, next_to, level, *given = np.indices([2, 2, MOST_LEVELS, 2][: len(parents)])
    push = -1.8 + 2.4 * stays + 0.9 * next_to + 0.5 * level + 0.9 * sum(given)
    return _factor(name, parents, [0 * push, push])


def _end() -> Factor:
    """The end follows the load, the sum of the levels of the organs that were reached."""
    parents = tuple(NEXT + variable.name for variable in STATES[:: SIGNS + 1])
    load = np.indices((MOST_LEVELS,) * ORGANS).sum(axis=0)
    return _factor(END, parents, [-6.0 + 0.6 * load, 0.6 - 0.8 * load, 0.0 * load])


def _factor(variable: str, parents: tuple[str, ...], logits: list[Any]) -> Factor:
    table = softmax(np.stack(logits, axis=-1), axis=-1)
    return Factor(variable, parents, table, np.zeros_like(table), "given")


def _name_of_sign(organ: int, sign: int) -> str:
    return STATES[organ * (SIGNS + 1) + 1 + sign].name


def _drug_of(organ: int) -> str:
    return ACTION + DRUGS[organ // (ORGANS // 2)]


def true_model(first: Codes) -> FactoredModel:
    """Return the true model, in which patients arrive in these states."""
    combinations, number = number_combinations(STATES, first)
    share = np.bincount(number) / len(first)
    rewards = np.array([*(outcome.reward for outcome in OUTCOMES), 0.0])
    counts = np.zeros((len(combinations), 2 ** len(ACTIONS)), np.int64)
    return FactoredModel(
        STATES, ACTIONS, OUTCOMES, factors(), Rewards((), rewards), share, counts, combinations
    )


def first_states(patients: int, seed: int) -> Codes:
    """Return the states in which the patients of a seed arrive, [n, J]."""
    generator = np.random.default_rng([check_seed(seed), HORIZON])
    codes = (generator.random((patients, len(STATES))) < 0.4).astype(np.int64)
    codes[:, :: SIGNS + 1] = generator.choice(MOST_LEVELS, (patients, ORGANS), p=[0.3, 0.5, 0.2])
    return codes


def take_step(now: Codes, action: Codes, noise: NDArray[np.float32]) -> tuple[Codes, Codes]:
    """Return the states reached [m, J] and the ends [m] with Gumbel noise [m, J + 1, levels]."""
    codes = {variable.name: now[:, place] for place, variable in enumerate(STATES)}
    for place, variable in enumerate(ACTIONS):
        codes[ACTION + variable.name] = action >> (len(ACTIONS) - 1 - place) & 1
    for place, factor in enumerate(factors()):
        raced = np.log(factor.rows(codes)) + noise[:, place, : factor.levels]
        codes[NEXT + factor.variable] = raced.argmax(axis=1)
    return np.stack([codes[NEXT + variable.name] for variable in STATES], axis=1), codes[NEXT + END]


def simulate(policy: StatePolicy, patients: int, *, seed: int) -> Episodes:
    """Simulate a log in which each variable of each step has its own Gumbel noise.

    Noise belongs to patient, step and variable: the same seed and number of patients with another
    policy is what would truly have become of the same patients.
    """
    now = first_states(patients, seed)
    going, outcome, rows = np.arange(patients), np.full(patients, -1), []
    for t in range(HORIZON):
        generator = np.random.default_rng([seed, t])
        size = patients, len(STATES) + 1, MOST_LEVELS
        noise = generator.gumbel(size=size).astype(np.float32)[going]
        chosen = generator.random(patients)[going]
        chances = policy_rows(policy, now, 2 ** len(ACTIONS), "policy")
        action = (chances.cumsum(axis=1)[:, :-1] <= chosen[:, None]).sum(axis=1)
        after, end = take_step(now, action, noise)
        rows.append((going, now, action, after))
        alive = end == len(OUTCOMES)
        outcome[going[~alive]] = end[~alive]
        going, now = going[alive], after[alive]
        if len(going) == 0:
            break
    episode, state, taken, reached = (np.concatenate(part) for part in zip(*rows, strict=True))
    order = np.argsort(episode, kind="stable")
    return Episodes.from_codes(
        state[order],
        taken[order],
        reached[order],
        offsets=np.append(0, np.cumsum(np.bincount(episode, minlength=patients))),
        outcome=outcome,
        outcomes=OUTCOMES,
        states=STATES,
        actions=ACTIONS,
        horizon=HORIZON,
    )
