"""How often printed intervals hold the true value: `python -m verification.coverage`.

Nothing is hidden. Three designs: enough patients, many, and few whose treatment overlaps little
with the policy; one state variable (a tabular model) or three (a factored one). The policy is
given, or learned from each log.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

import butfor as bf
from butfor.models.factored import END, Factor, FactoredModel, Rewards
from butfor.models.simulate import simulate_model
from butfor.models.simulate_factored import simulate_factored

HORIZON = 6
OUTCOMES = (bf.Outcome("well", 1.0), bf.Outcome("ill", -1.0, bad=True))
KINDS = ("tabular", "factored")
ANOTHER = 1_000_000  # added to the seed of a log: another one of the same world
VARIABLES = (
    bf.Variable("pulse", ("low", "normal", "high")),
    bf.Variable("sugar", ("normal", "high")),
    bf.Variable("fever", ("no", "yes")),
)


@dataclass(frozen=True, eq=False)
class Design:
    """A world, the policy that treats its patients, and the one that is evaluated."""

    name: str
    kind: str
    patients: int
    world: bf.TabularMDP | FactoredModel
    behavior: np.ndarray  # [S, A]
    target: np.ndarray | None  # [S, A]; None: learned from each log
    elsewhere: bool = False  # or from another log of the same world, which butfor knows

    def simulate(self, seed: int) -> bf.Episodes:
        """Return a log of the design."""
        if isinstance(self.world, FactoredModel):
            sizes = [len(v.levels) for v in VARIABLES]

            def act(codes):
                return self.behavior[np.ravel_multi_index(codes.T, sizes)]

            return simulate_factored(self.world, act, self.patients, horizon=HORIZON, seed=seed)
        return simulate_model(self.world, self.behavior, self.patients, horizon=HORIZON, seed=seed)

    def learn(self, log: bf.Episodes):
        """Learn a model and a policy from a log."""
        model = bf.fit_factored(log) if self.kind == "factored" else bf.fit_mdp(log)
        return model, bf.policy_iteration(model)


def elsewhere(kind: str) -> Design:
    """Return the design in which each policy is planned on another log than it is judged on."""
    (design,) = (one for one in designs(kind, learned=True) if one.patients == 300)
    return replace(design, name=f"planned elsewhere, n = {design.patients}", elsewhere=True)


def designs(kind: str, *, learned: bool = False) -> list[Design]:
    """Return the three designs."""
    sizes = {"n = 100": 100, "n = 1000": 1000, "low overlap, n = 200": 200}
    if learned:
        sizes = {f"learned, n = {n}": n for n in (100, 300, 1000)}
    found = []
    for name, patients in sizes.items():
        low = name.startswith("low")
        actions = 3 if low else 2
        generator = np.random.default_rng([KINDS.index(kind), low])
        make = factored_world if kind == "factored" else tabular_world
        world = make(generator, actions)
        states = world.n_states
        chosen = np.eye(actions)[generator.integers(actions, size=states)]
        behavior = np.where(chosen > 0, 0.12, 0.44) if low else _mild(generator, states, actions)
        target = chosen if low else _mild(generator, states, actions)
        found.append(Design(name, kind, patients, world, behavior, None if learned else target))
    return found


def tabular_world(generator: np.random.Generator, actions: int, states: int = 6) -> bf.TabularMDP:
    """Return a random world in which severity decides how a stay ends."""
    rows = np.zeros((states, actions, states + 2))
    severity = generator.uniform(size=states)
    for state in range(states):
        following = generator.choice(states, 3, replace=False)
        for action in range(actions):
            ends = 0.2 * generator.uniform(0.3, 1.7)
            well = np.clip(1 - severity[state] + 0.3 * generator.normal(), 0.05, 0.95)
            rows[state, action, following] = (1 - ends) * generator.dirichlet(np.ones(3))
            rows[state, action, states:] = ends * well, ends * (1 - well)
    return bf.TabularMDP.from_arrays(rows, outcomes=OUTCOMES)


def factored_world(generator: np.random.Generator, actions: int) -> FactoredModel:
    """Return a random world of three vital signs that move by themselves and by treatment."""

    def given(variable, parents, table):
        return Factor(variable, parents, table, np.zeros(table.shape), "given")

    def rows(*shape):
        return generator.dirichlet(np.ones(shape[-1]), shape[:-1])

    ends = np.zeros((3, 2, actions, 3))
    for place in np.ndindex(3, 2, actions):
        chance, well = 0.2 * generator.uniform(0.3, 1.7), generator.uniform(0.1, 0.9)
        ends[place] = chance * well, chance * (1 - well), 1 - chance
    dose = bf.Variable("dose", tuple(str(level) for level in range(actions)))
    return FactoredModel(
        VARIABLES,
        (dose,),
        OUTCOMES,
        (
            given("pulse", ("pulse", "action.dose"), rows(3, actions, 3)),
            given("sugar", ("sugar", "action.dose"), rows(2, actions, 2)),
            given("fever", ("fever", "pulse"), rows(2, 3, 2)),
            given(END, ("next.pulse", "next.sugar", "action.dose"), ends),
        ),
        Rewards((), np.array([1.0, -1.0, 0.0])),
        generator.dirichlet(np.ones(12)),
        np.zeros((12, actions), np.int64),
    )


def _mild(generator: np.random.Generator, states: int, actions: int) -> np.ndarray:
    return 0.1 + (1 - 0.1 * actions) * generator.dirichlet(np.full(actions, 3.0), states)


def printed(
    design: Design, logs: int, *, estimators: Sequence[str] | None = None
) -> Iterator[dict[str, object]]:
    """Yield, for each log and each estimate, whether an interval was printed and was right."""
    behavior = bf.policy_value(design.world, design.behavior, horizon=HORIZON)
    for seed in range(logs):
        replay, table = estimated(design, seed, estimators)
        true = true_value(design, replay)
        found = [
            (row.estimator, behavior if row.estimator == "Observed" else true, row.low, row.high)
            for row in table.itertuples()
        ]
        these = table[table["estimator"] == "CF"][["low_these", "high_these"]]
        if len(these) and design.target is not None:
            asked = replay.ask(model=design.world, behavior=replay.behavior)
            value = asked.outcomes().expected_return.mean()
            found.append(("CF, these patients", value, *these.iloc[0]))
        for estimator, value, low, high in found:
            yield {
                "model": design.kind,
                "design": design.name,
                "estimator": estimator,
                "printed": np.isfinite(low),
                "held": low <= value <= high,
                "width": high - low,
            }


def estimated(
    design: Design, seed: int, estimators: Sequence[str] | None = None
) -> tuple[bf.Replay, pd.DataFrame]:
    """Return the question that a log of the design asks, and the table of estimates."""
    log = design.simulate(seed)
    learn = None if design.elsewhere or design.target is not None else design.learn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, plan = design.learn(log)
        if design.elsewhere:
            _, plan = design.learn(design.simulate(ANOTHER + seed))
        target = plan if design.target is None else design.target
        replay = bf.Replay(log, model, target, horizon=HORIZON)
        table = bf.estimate_values(replay, estimators=estimators, learn=learn, seed=seed)
    return replay, table


def true_value(design: Design, replay: bf.Replay) -> float:
    """Return the value of the policy in question in the world that made the log."""
    return bf.policy_value(design.world, replay.target, horizon=HORIZON)


def coverage(rows: Iterable[dict[str, object]]) -> pd.DataFrame:
    """Return how many printed intervals hold the true value, their share and its standard error."""
    table = pd.DataFrame(rows).groupby(["model", "design", "estimator"], sort=False)
    found = table.agg(
        logs=("printed", "size"),
        printed=("printed", "sum"),
        held=("held", "sum"),  # an interval that was not printed holds nothing
        width=("width", "median"),
    )
    found["coverage"] = found["held"] / found["printed"]
    found["error"] = (found["coverage"] * (1 - found["coverage"]) / found["printed"]) ** 0.5
    return found


def main() -> None:
    """Print the table of all designs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=500)
    parser.add_argument("--kind", choices=KINDS, action="append")
    chosen = parser.parse_args()
    for kind in chosen.kind or KINDS:
        for learned in (False, True):
            for design in designs(kind, learned=learned):
                print(coverage(printed(design, chosen.logs)).round(3).to_string(), flush=True)
        print(coverage(printed(elsewhere(kind), chosen.logs)).round(3).to_string(), flush=True)


if __name__ == "__main__":
    main()
