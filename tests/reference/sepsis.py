"""The sepsis simulator, twice: as a function of its noise and as exact probabilities.

`step` moves one patient, given thirteen uniforms.  `next_state_distribution` pushes probabilities
through tables of the same rules and never calls `step`, so each checks the other.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from random import Random
from typing import NamedTuple

# ---------------------------------------------------------------------------------------------
# States and actions
# ---------------------------------------------------------------------------------------------


class Patient(NamedTuple):
    """The full state, in the order of its mixed-radix index, most significant first."""

    diabetes: int
    heart_rate: int
    blood_pressure: int
    oxygen: int
    glucose: int
    antibiotics: int
    vasopressors: int
    ventilation: int


LEVELS = Patient(2, 3, 3, 2, 5, 2, 2, 2)
STATES = 1440
ACTIONS = 8
HORIZON = 20
PREVALENCE = 0.2

LOW, NORMAL, HIGH = 0, 1, 2  # heart rate and blood pressure; oxygen has no HIGH
VERY_LOW_GLUCOSE, LOW_GLUCOSE, NORMAL_GLUCOSE, HIGH_GLUCOSE, VERY_HIGH_GLUCOSE = range(5)

NONE, DIED, DISCHARGED = -1, 0, 1

# The highest level to which glucose can fluctuate up without diabetes.  The published release has
# min(1, glucose + 1), so that there every upward move, even from the top, ends at the low level.
GLUCOSE_CEILING = {"icml2019": LOW_GLUCOSE, "corrected": VERY_HIGH_GLUCOSE}


def decode(state: int) -> Patient:
    """Return the levels of the eight variables of a state."""
    digits = []
    for levels in reversed(LEVELS):
        state, digit = divmod(state, levels)
        digits.append(digit)
    return Patient(*reversed(digits))


def encode(patient: Sequence[int]) -> int:
    """Return the index of a state from the levels of its eight variables."""
    state = 0
    for levels, digit in zip(LEVELS, patient, strict=True):
        state = state * levels + digit
    return state


def decode_action(action: int) -> tuple[int, int, int]:
    """Return the flags (antibiotics, ventilation, vasopressors) of an action."""
    return action // 4, action // 2 % 2, action % 2


def outcome(state: int) -> int:
    """Return whether the patient in this state has died (0), is discharged (1) or neither (-1)."""
    return outcome_of(decode(state))


def outcome_of(patient: Patient) -> int:
    """Return the outcome of a decoded state."""
    abnormal = (
        (patient.heart_rate != NORMAL)
        + (patient.blood_pressure != NORMAL)
        + (patient.oxygen != NORMAL)
        + (patient.glucose != NORMAL_GLUCOSE)
    )
    if abnormal >= 3:
        return DIED
    treated = patient.antibiotics or patient.vasopressors or patient.ventilation
    return DISCHARGED if abnormal == 0 and not treated else NONE


# ---------------------------------------------------------------------------------------------
# One step as a function of its noise
# ---------------------------------------------------------------------------------------------


class Noise(NamedTuple):
    """The thirteen uniforms of one step, in order; an event of probability p happens if u < p."""

    antibiotics_on_heart_rate: float
    antibiotics_on_blood_pressure: float
    antibiotics_withdrawn_heart_rate: float
    antibiotics_withdrawn_blood_pressure: float
    ventilation_on: float
    ventilation_withdrawn: float
    vasopressors_on_blood_pressure: float
    vasopressors_on_glucose: float
    vasopressors_withdrawn: float
    fluctuation_heart_rate: float
    fluctuation_blood_pressure: float
    fluctuation_oxygen: float
    fluctuation_glucose: float


def step(state: int, action: int, noise: Sequence[float], version: str) -> int:
    """Return the next state, given the thirteen uniforms of this step."""
    return encode(advance(decode(state), action, Noise(*noise), version))


def advance(before: Patient, action: int, noise: Noise, version: str) -> Patient:
    """Return the decoded state after one step; no vital sign looks at how another one moved."""
    antibiotics, ventilation, vasopressors = decode_action(action)
    return Patient(
        diabetes=before.diabetes,
        heart_rate=next_heart_rate(before, antibiotics, noise),
        blood_pressure=next_blood_pressure(before, antibiotics, vasopressors, noise),
        oxygen=next_oxygen(before, ventilation, noise),
        glucose=next_glucose(before, vasopressors, noise, version),
        antibiotics=antibiotics,
        vasopressors=vasopressors,
        ventilation=ventilation,
    )


def next_heart_rate(before: Patient, antibiotics: int, noise: Noise) -> int:
    """Return the next heart rate: antibiotics calm it, their withdrawal may raise it."""
    level = before.heart_rate
    if antibiotics:
        return NORMAL if level == HIGH and noise.antibiotics_on_heart_rate < 0.5 else level
    if before.antibiotics:
        raised = level == NORMAL and noise.antibiotics_withdrawn_heart_rate < 0.1
        return HIGH if raised else level
    return fluctuate(level, 0.1, HIGH, noise.fluctuation_heart_rate)


def next_blood_pressure(before: Patient, antibiotics: int, vasopressors: int, noise: Noise) -> int:
    """Return the next blood pressure: antibiotics act first, vasopressors on what they leave."""
    level = before.blood_pressure
    if antibiotics:
        if level == HIGH and noise.antibiotics_on_blood_pressure < 0.5:
            level = NORMAL
    elif before.antibiotics:
        if level == NORMAL and noise.antibiotics_withdrawn_blood_pressure < 0.1:
            level = HIGH
    elif not vasopressors and not before.vasopressors:
        return fluctuate(level, 0.1, HIGH, noise.fluctuation_blood_pressure)

    if vasopressors:
        return raise_blood_pressure(level, before.diabetes, noise.vasopressors_on_blood_pressure)
    if before.vasopressors:
        drops = noise.vasopressors_withdrawn < (0.05 if before.diabetes else 0.1)
        return max(LOW, level - 1) if drops else level
    return level


def raise_blood_pressure(level: int, diabetes: int, uniform: float) -> int:
    """Return the blood pressure under vasopressors, which may lift a diabetic by two levels."""
    if level == HIGH:
        return HIGH
    if not diabetes:
        return level + 1 if uniform < 0.7 else level
    if level == NORMAL:
        return HIGH if uniform < 0.9 else NORMAL
    if uniform < 0.5:
        return NORMAL
    return HIGH if uniform < 0.5 + 0.4 else LOW


def next_oxygen(before: Patient, ventilation: int, noise: Noise) -> int:
    """Return the next oxygen level: ventilation restores it, its withdrawal may lower it."""
    level = before.oxygen
    if ventilation:
        return NORMAL if noise.ventilation_on < 0.7 else level
    if before.ventilation:
        return LOW if noise.ventilation_withdrawn < 0.1 else level
    return fluctuate(level, 0.1, NORMAL, noise.fluctuation_oxygen)


def next_glucose(before: Patient, vasopressors: int, noise: Noise, version: str) -> int:
    """Return the next glucose level; while vasopressors run only they move it, in diabetics."""
    level = before.glucose
    if vasopressors:
        raised = before.diabetes and noise.vasopressors_on_glucose < 0.5
        return min(VERY_HIGH_GLUCOSE, level + 1) if raised else level
    if before.diabetes:
        return fluctuate(level, 0.3, VERY_HIGH_GLUCOSE, noise.fluctuation_glucose)
    return fluctuate(level, 0.1, GLUCOSE_CEILING[version], noise.fluctuation_glucose)


def fluctuate(level: int, chance: float, ceiling: int, uniform: float) -> int:
    """Return the level after a drift, one down or one up with this chance each."""
    if uniform < chance:
        return max(0, level - 1)
    if uniform < chance + chance:
        return min(ceiling, level + 1)
    return level


# ---------------------------------------------------------------------------------------------
# One step as exact probabilities
# ---------------------------------------------------------------------------------------------

# A table says, for each level, to which levels a variable may move and how likely.  What is left
# of the probability stays where it is.  Moves to the same level add up.
Table = Mapping[int, Sequence[tuple[int, float]]]

ANTIBIOTICS_ON: Table = {HIGH: [(NORMAL, 0.5)]}
ANTIBIOTICS_WITHDRAWN: Table = {NORMAL: [(HIGH, 0.1)]}
VENTILATION_ON: Table = {LOW: [(NORMAL, 0.7)]}
VENTILATION_WITHDRAWN: Table = {NORMAL: [(LOW, 0.1)]}
VASOPRESSORS_ON: Table = {LOW: [(NORMAL, 0.7)], NORMAL: [(HIGH, 0.7)]}
VASOPRESSORS_ON_DIABETIC: Table = {LOW: [(NORMAL, 0.5), (HIGH, 0.4)], NORMAL: [(HIGH, 0.9)]}
VASOPRESSORS_ON_DIABETIC_GLUCOSE: Table = {level: [(level + 1, 0.5)] for level in range(4)}
VASOPRESSORS_WITHDRAWN: Table = {NORMAL: [(LOW, 0.1)], HIGH: [(NORMAL, 0.1)]}
VASOPRESSORS_WITHDRAWN_DIABETIC: Table = {NORMAL: [(LOW, 0.05)], HIGH: [(NORMAL, 0.05)]}
FLUCTUATION_TWO_LEVELS: Table = {0: [(1, 0.1)], 1: [(0, 0.1)]}
FLUCTUATION_THREE_LEVELS: Table = {0: [(1, 0.1)], 1: [(0, 0.1), (2, 0.1)], 2: [(1, 0.1)]}
FLUCTUATION_GLUCOSE_DIABETIC: Table = {
    0: [(1, 0.3)],
    1: [(0, 0.3), (2, 0.3)],
    2: [(1, 0.3), (3, 0.3)],
    3: [(2, 0.3), (4, 0.3)],
    4: [(3, 0.3)],
}
FLUCTUATION_GLUCOSE: Mapping[str, Table] = {
    "corrected": {
        0: [(1, 0.1)],
        1: [(0, 0.1), (2, 0.1)],
        2: [(1, 0.1), (3, 0.1)],
        3: [(2, 0.1), (4, 0.1)],
        4: [(3, 0.1)],
    },
    "icml2019": {  # the move up always ends at level 1
        0: [(1, 0.1)],
        1: [(0, 0.1)],
        2: [(1, 0.1), (1, 0.1)],
        3: [(2, 0.1), (1, 0.1)],
        4: [(3, 0.1), (1, 0.1)],
    },
}


def next_state_distribution(state: int, action: int, version: str) -> dict[int, float]:
    """Return the exact probability of every possible next state."""
    before = decode(state)
    antibiotics, ventilation, vasopressors = decode_action(action)
    start = before._replace(
        antibiotics=antibiotics, vasopressors=vasopressors, ventilation=ventilation
    )
    distribution = {start: 1.0}
    for variable, table in rules_that_apply(before, action, version):
        distribution = push(distribution, variable, table)
    return {encode(patient): probability for patient, probability in distribution.items()}


def push(distribution: dict[Patient, float], variable: str, table: Table) -> dict[Patient, float]:
    """Return the distribution after one variable has moved by one table."""
    result: defaultdict[Patient, float] = defaultdict(float)
    for patient, probability in distribution.items():
        moves = table.get(getattr(patient, variable), [])
        for level, chance in moves:
            result[patient._replace(**{variable: level})] += probability * chance
        result[patient] += probability * (1 - sum(chance for _, chance in moves))
    return dict(result)


def rules_that_apply(before: Patient, action: int, version: str) -> list[tuple[str, Table]]:
    """Return the moves of one step as (variable, table), in the order in which they happen."""
    antibiotics, ventilation, vasopressors = decode_action(action)
    rules: list[tuple[str, Table]] = []
    if antibiotics:
        rules += [("heart_rate", ANTIBIOTICS_ON), ("blood_pressure", ANTIBIOTICS_ON)]
    elif before.antibiotics:
        rules += [("heart_rate", ANTIBIOTICS_WITHDRAWN), ("blood_pressure", ANTIBIOTICS_WITHDRAWN)]
    if ventilation:
        rules += [("oxygen", VENTILATION_ON)]
    elif before.ventilation:
        rules += [("oxygen", VENTILATION_WITHDRAWN)]
    rules += vasopressor_rules(before, vasopressors)

    settled = {variable for variable, _ in rules}
    if vasopressors:
        settled.add("glucose")  # also without diabetes, when vasopressors do not move it
    drifts = fluctuation_rules(before.diabetes, version)
    return rules + [(variable, table) for variable, table in drifts if variable not in settled]


def vasopressor_rules(before: Patient, vasopressors: int) -> list[tuple[str, Table]]:
    """Return what giving or withdrawing vasopressors does, with and without diabetes."""
    if vasopressors and before.diabetes:
        return [
            ("blood_pressure", VASOPRESSORS_ON_DIABETIC),
            ("glucose", VASOPRESSORS_ON_DIABETIC_GLUCOSE),
        ]
    if vasopressors:
        return [("blood_pressure", VASOPRESSORS_ON)]
    if before.vasopressors and before.diabetes:
        return [("blood_pressure", VASOPRESSORS_WITHDRAWN_DIABETIC)]
    if before.vasopressors:
        return [("blood_pressure", VASOPRESSORS_WITHDRAWN)]
    return []


def fluctuation_rules(diabetes: int, version: str) -> list[tuple[str, Table]]:
    """Return the drift of each vital sign that no treatment has settled."""
    return [
        ("heart_rate", FLUCTUATION_THREE_LEVELS),
        ("blood_pressure", FLUCTUATION_THREE_LEVELS),
        ("oxygen", FLUCTUATION_TWO_LEVELS),
        ("glucose", FLUCTUATION_GLUCOSE_DIABETIC if diabetes else FLUCTUATION_GLUCOSE[version]),
    ]


# ---------------------------------------------------------------------------------------------
# The first state, and whole episodes
# ---------------------------------------------------------------------------------------------

INITIAL_HEART_RATE = (0.25, 0.5, 0.25)
INITIAL_BLOOD_PRESSURE = (0.25, 0.5, 0.25)
INITIAL_OXYGEN = (0.2, 0.8)
INITIAL_GLUCOSE = (
    (0.05, 0.15, 0.6, 0.15, 0.05),  # without diabetes
    (0.01, 0.05, 0.15, 0.6, 0.19),  # with diabetes
)


def initial_distribution(prevalence: float = PREVALENCE) -> dict[int, float]:
    """Return the exact probability of every first state, given that it is not already an end."""
    weights = {}
    for vitals in product(*(range(levels) for levels in LEVELS[:5])):
        diabetes, heart_rate, blood_pressure, oxygen, glucose = vitals
        state = encode((*vitals, 0, 0, 0))
        if outcome(state) == NONE:
            weights[state] = (
                (prevalence if diabetes else 1 - prevalence)
                * INITIAL_HEART_RATE[heart_rate]
                * INITIAL_BLOOD_PRESSURE[blood_pressure]
                * INITIAL_OXYGEN[oxygen]
                * INITIAL_GLUCOSE[diabetes][glucose]
            )
    total = sum(weights.values())
    return {state: weight / total for state, weight in weights.items() if weight > 0}


def draw_initial(random: Random) -> Patient:
    """Draw a first state, again and again until it is not already an end."""
    while True:
        diabetes = int(random.random() < PREVALENCE)
        patient = Patient(
            diabetes=diabetes,
            heart_rate=draw(INITIAL_HEART_RATE, random),
            blood_pressure=draw(INITIAL_BLOOD_PRESSURE, random),
            oxygen=draw(INITIAL_OXYGEN, random),
            glucose=draw(INITIAL_GLUCOSE[diabetes], random),
            antibiotics=0,
            vasopressors=0,
            ventilation=0,
        )
        if outcome_of(patient) == NONE:
            return patient


def draw(probabilities: Sequence[float], random: Random) -> int:
    """Draw an index with these probabilities."""
    return random.choices(range(len(probabilities)), weights=probabilities)[0]


def simulate(
    policy: Sequence[Sequence[float]],
    episodes: int,
    random: Random,
    version: str,
    horizon: int = HORIZON,
) -> list[tuple[list[int], list[int], int]]:
    """Return (states with the final one, actions, outcome) of each new patient."""
    return [simulate_episode(policy, random, version, horizon) for _ in range(episodes)]


def simulate_episode(
    policy: Sequence[Sequence[float]], random: Random, version: str, horizon: int
) -> tuple[list[int], list[int], int]:
    """Follow one new patient until death, discharge or the horizon."""
    patient = draw_initial(random)
    states = [encode(patient)]
    actions: list[int] = []
    ending = NONE
    while ending == NONE and len(actions) < horizon:
        action = draw(policy[states[-1]], random)
        noise = Noise(*(random.random() for _ in Noise._fields))
        patient = advance(patient, action, noise, version)
        actions.append(action)
        states.append(encode(patient))
        ending = outcome_of(patient)
    return states, actions, ending
