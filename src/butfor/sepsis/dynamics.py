"""The exact dynamics of the sepsis environment: states, a step from explicit noise, the model.

There are 1440 full states, numbered in mixed radix over `STATES`, most significant first. Logs may
show the 720 states without diabetes, or the 144 without diabetes and glucose. An action says which
of three treatments are given from now on.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike, NDArray

from butfor import kernels
from butfor.checks import check_choice, check_policy, check_whole
from butfor.hidden.model import TabularPOMDP
from butfor.log.variables import Outcome, Variable, project, unravel
from butfor.models.mdp import TabularMDP
from butfor.models.planning import policy_iteration
from butfor.models.policies import soften
from butfor.random import check_seed
from butfor.types import Floats, Integers

THREE, SWITCH = ("low", "normal", "high"), ("off", "on")
STATES = (
    Variable("diabetes", ("no", "yes"), static=True),
    Variable("heart rate", THREE, normal=("normal",)),
    Variable("blood pressure", THREE, normal=("normal",)),
    Variable("oxygen", THREE[:2], normal=("normal",)),
    Variable("glucose", ("very low", "low", "normal", "high", "very high"), normal=("normal",)),
    Variable("antibiotics", SWITCH),
    Variable("vasopressors", SWITCH),
    Variable("ventilation", SWITCH),
)
ACTIONS = tuple(Variable(n, SWITCH) for n in ("antibiotics", "ventilation", "vasopressors"))
VITAL_SIGNS = ("heart rate", "blood pressure", "oxygen", "glucose")
OUTCOMES = (Outcome("died", -1.0, bad=True), Outcome("discharged", 1.0))
VERSIONS = ("corrected", "icml2019")
SIZES = tuple(len(variable.levels) for variable in STATES)
N_STATES, N_ACTIONS = 1440, 8

# Distributions in the first state; glucose without and with diabetes
THREE_AT_FIRST, OXYGEN_AT_FIRST = (0.25, 0.5, 0.25), (0.2, 0.8)
GLUCOSE_AT_FIRST = ((0.05, 0.15, 0.6, 0.15, 0.05), (0.01, 0.05, 0.15, 0.6, 0.19))

# The vital sign that each of the thirteen uniforms of a step decides, and its thresholds
NOISE: tuple[tuple[str, tuple[float, ...]], ...] = (
    ("heart rate", (0.5,)),  # antibiotics on
    ("blood pressure", (0.5,)),
    ("heart rate", (0.1,)),  # antibiotics withdrawn
    ("blood pressure", (0.1,)),
    ("oxygen", (0.7,)),  # ventilation on
    ("oxygen", (0.1,)),  # ventilation withdrawn
    ("blood pressure", (0.5, 0.7, 0.9)),  # vasopressors on
    ("glucose", (0.5,)),
    ("blood pressure", (0.05, 0.1)),  # vasopressors withdrawn
    ("heart rate", (0.1, 0.2)),  # fluctuation
    ("blood pressure", (0.1, 0.2)),
    ("oxygen", (0.1, 0.2)),
    ("glucose", (0.1, 0.2, 0.3, 0.6)),
)


def step(
    state: ArrayLike, action: ArrayLike, noise: ArrayLike, *, version: str = "corrected"
) -> Integers:
    """Return the next full state as a function of the state, the action and thirteen uniforms.

    Replaying the same noise under other actions is the simulator's own counterfactual. Give one
    state, one action and [13], or m of each and [m, 13].
    """
    corrected = check_version(version)
    states, actions, uniforms = np.asarray(state), np.asarray(action), np.asarray(noise, float)
    if uniforms.shape[-1:] != (kernels.NOISE_SIZE,):
        raise ValueError(f"noise has shape {uniforms.shape}, expected 13 uniforms per step")
    for name, values, size in (("state", states, N_STATES), ("action", actions, N_ACTIONS)):
        if values.dtype.kind not in "iu" or ((values < 0) | (values >= size)).any():
            raise ValueError(f"{name} {values[()]!r} is outside 0..{size - 1}")
    if not ((uniforms >= 0) & (uniforms < 1)).all():
        raise ValueError("noise must lie in [0, 1)")
    shape = np.broadcast_shapes(states.shape, actions.shape, uniforms.shape[:-1])
    flat = [np.broadcast_to(x, shape).astype(np.int32).reshape(-1) for x in (states, actions)]
    drawn = np.broadcast_to(uniforms, (*shape, kernels.NOISE_SIZE)).reshape(-1, kernels.NOISE_SIZE)
    result = kernels.sepsis_steps(*flat, np.ascontiguousarray(drawn), corrected)
    return np.asarray(result).reshape(shape)[()]


@cache
def outcome_of() -> Integers:
    """Return the outcome of each full state: -1 none, 0 died, 1 discharged, [1440]."""
    levels = unravel(STATES, np.arange(N_STATES))
    signs = [variable for variable in STATES if variable.name in VITAL_SIGNS]
    abnormal = sum((levels[v.name] != v.levels.index("normal")).astype(int) for v in signs)
    treated = sum(levels[variable.name] for variable in ACTIONS)
    outcome = np.where(abnormal >= 3, 0, np.where((abnormal == 0) & (treated == 0), 1, -1))
    return _frozen(outcome.astype(np.int32))


def initial_distribution(prevalence: float = 0.2) -> Floats:
    """Return the distribution of the first full state, [1440].

    Nobody starts dead, discharged or under treatment. `prevalence` is that of diabetes before
    excluding those who would start at an end.
    """
    check_prevalence(prevalence)
    signs = (THREE_AT_FIRST, THREE_AT_FIRST, OXYGEN_AT_FIRST, GLUCOSE_AT_FIRST)
    joint = np.einsum("d,h,b,o,dg->dhbog", [1 - prevalence, prevalence], *signs)
    full = np.zeros(SIZES)
    full[..., 0, 0, 0] = joint
    distribution = np.where(outcome_of() < 0, full.reshape(-1), 0.0)
    return np.asarray(distribution / distribution.sum())


@cache
def vital_tables(version: str) -> dict[str, Floats]:
    """Return the distribution of each vital sign's next level, each [1440 * 8, levels].

    Given state and action, the four vital signs move independently, each by its own uniforms, so
    the distribution follows from one `step` in each cell between the thresholds.
    """
    corrected = check_version(version)
    state, action = np.indices((N_STATES, N_ACTIONS), dtype=np.int32).reshape(2, -1)
    # one array for all cells, since new memory takes longest; that of other signs does not matter
    noise = np.full((len(state), kernels.NOISE_SIZE), 0.5)
    tables = {}
    for name in VITAL_SIGNS:
        position = [variable.name for variable in STATES].index(name)
        table = np.zeros((len(state), SIZES[position]))
        mine = [index for index, (sign, _) in enumerate(NOISE) if sign == name]
        for cells in itertools.product(*(_cells(NOISE[index][1]) for index in mine)):
            noise[:, mine] = [middle for middle, _ in cells]
            reached = kernels.sepsis_steps(state, action, noise, corrected)
            level = np.unravel_index(reached, SIZES)[position]
            table[np.arange(len(state)), level] += np.prod([width for _, width in cells])
        tables[name] = _frozen(table)
    return tables


@cache
def _transition_rows(version: str) -> sparse.csr_array:
    """Return the exact sparse matrix [1440 * 8, 1440], in which ends are ordinary states."""
    state, action = np.indices((N_STATES, N_ACTIONS), dtype=np.int32).reshape(2, -1)
    tables = vital_tables(version)
    vitals = np.einsum("rh,rb,ro,rg->rhbog", *(tables[name] for name in VITAL_SIGNS))
    row, *levels = np.nonzero(vitals)
    antibiotics, ventilation, vasopressors = np.unravel_index(action[row], (2, 2, 2))
    column = np.ravel_multi_index(
        (state[row] // 720, *levels, antibiotics, vasopressors, ventilation), SIZES
    )
    shape = (N_STATES * N_ACTIONS, N_STATES)
    return sparse.csr_array((vitals[(row, *levels)], (row, column)), shape)


def transition_tensor(version: str = "corrected") -> Floats:
    """Return the exact probabilities, [2, 8, 720, 720]: diabetes, action, state, next state.

    Ends are ordinary states here. This is for inspection; planning uses `model`, which is sparse.
    """
    rows = _transition_rows(version).tocoo()
    tensor = np.zeros((2, N_ACTIONS, 720, 720))
    state, action = np.divmod(rows.row, N_ACTIONS)
    tensor[state // 720, action, state % 720, rows.col % 720] = rows.data
    return tensor


def model(
    version: str = "corrected", *, absorbing: bool = True, prevalence: float = 0.2
) -> TabularMDP:
    """Return the true model on the 1440 full states, with death and discharge as outcomes.

    With `absorbing=False` there are no outcomes: ends are ordinary states, whose reward is earned
    on every visit (as in the planner of the published code).
    """
    rows, ends, initial = _transition_rows(version), outcome_of(), initial_distribution(prevalence)
    if not absorbing:
        arrival = np.array([outcome.reward for outcome in OUTCOMES] + [0.0])[ends]
        return TabularMDP.from_arrays(rows, actions=N_ACTIONS, reward=arrival, initial=initial)
    return TabularMDP.from_arrays(
        sparse.hstack([rows, sparse.csr_array((N_STATES * N_ACTIONS, 2))]),
        actions=N_ACTIONS,
        outcomes=OUTCOMES,
        absorbing={int(state): int(ends[state]) for state in np.flatnonzero(ends >= 0)},
        initial=initial,
    )


def seen_variables(hidden: Sequence[str]) -> list[Variable]:
    """Return the state variables that are not hidden, of which there must be one."""
    names = [variable.name for variable in STATES]
    hidden = (hidden,) if isinstance(hidden, str) else tuple(hidden)
    for name in hidden:
        if name not in names:
            raise ValueError(f"no variable {name!r} to hide; there are {', '.join(names)}")
    if set(names) <= set(hidden):
        raise ValueError("hidden: every variable is hidden; leave at least one observed")
    return [variable for variable in STATES if variable.name not in hidden]


def pomdp(
    version: str = "corrected",
    *,
    hidden: Sequence[str] = ("diabetes", "glucose"),
    prevalence: float = 0.2,
    labels: ArrayLike | None = None,
) -> TabularPOMDP:
    """Return the true model with these variables hidden; the clinician may have seen them.

    Its logs are those of `simulate(...).hide(*hidden)`. `labels` [1440] are as for
    `TabularPOMDP.from_arrays`, for instance `Episodes.state_labels`.
    """
    seen = seen_variables(hidden)
    return TabularPOMDP.from_arrays(
        _transition_rows(version),
        project(STATES, *(variable.name for variable in seen)),
        initial=initial_distribution(prevalence),
        outcome=outcome_of(),
        outcomes=OUTCOMES,
        labels=labels,
        states=STATES,
        observations=seen,
        actions=ACTIONS,
    )


@cache
def behavior_policy(
    version: str = "corrected",
    *,
    absorbing: bool = False,
    epsilon: float = 0.05,
    tensor_draws: int | None = None,
    seed: int = 0,
) -> Floats:
    """Return the policy of the paper's physician, who knows the full state, [1440, 8].

    It is found by policy iteration at discount .99 and takes another action with probability
    `epsilon`. As in the published code, ends are not absorbing for this planner unless `absorbing`
    is set. The published planner used probabilities estimated from 10,000 draws per state and
    action: `tensor_draws`, with `seed`.
    """
    known = model(version, absorbing=absorbing)
    if tensor_draws is not None:
        check_whole(tensor_draws, "tensor_draws", 1, "a whole number")
        known = resample_rows(known, tensor_draws, np.random.default_rng(check_seed(seed)))
    return _frozen(soften(policy_iteration(known, discount=0.99).table, epsilon))


def resample_rows(known: TabularMDP, draws: int, generator: np.random.Generator) -> TabularMDP:
    """Return the model with each row re-estimated from this many draws."""
    size = np.diff(known.start)
    place = np.arange(len(known.probability)) - known.start[known.entry_row]
    table = np.zeros((len(size), size.max()))
    table[known.entry_row, place] = known.probability
    counts = generator.multinomial(draws, table)[known.entry_row, place]
    seen = counts > 0
    kept = np.bincount(known.entry_row[seen], minlength=len(size))
    return replace(
        known,
        start=np.concatenate([[0], np.cumsum(kept)]),
        next_state=known.next_state[seen],
        probability=counts[seen] / draws,
        reward=known.reward[seen],
    )


def full_policy(policy: ArrayLike) -> Floats:
    """Extend a policy on 720 states (no diabetes) or 144 (no glucose either) to the full 1440."""
    array = np.asarray(policy, dtype=np.float64)
    hidden = {1440: [], 720: ["diabetes"], 144: ["diabetes", "glucose"]}
    if array.ndim != 2 or array.shape[0] not in hidden:
        raise ValueError(
            f"policy has shape {array.shape}, expected (1440, 8) on full states, (720, 8) without "
            "diabetes or (144, 8) without diabetes and glucose"
        )
    array = check_policy(array, array.shape[0], N_ACTIONS)
    seen = seen_variables(hidden[len(array)])
    return array[project(STATES, *(variable.name for variable in seen))]


def _cells(points: tuple[float, ...]) -> list[tuple[float, float]]:
    """Return the middle and width of each cell of [0, 1] between the points."""
    edges = (0.0, *points, 1.0)
    return [((low + high) / 2, high - low) for low, high in itertools.pairwise(edges)]


def check_prevalence(prevalence: float) -> None:
    """Refuse a prevalence that is not a probability."""
    if not 0 <= prevalence <= 1:
        raise ValueError(f"prevalence {prevalence}: give a probability, from 0 to 1")


def check_version(version: str) -> bool:
    """Return whether this is the corrected version; refuse unknown ones."""
    return check_choice(version, "version", VERSIONS) == "corrected"


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array
