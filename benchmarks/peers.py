"""The same work by other libraries, each in the environment that `make peers` makes for them.

They do not install beside butfor, whose versions are newer, so they run in processes of their own
on arrays in a file. Results are compared before times are.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import butfor as bf
from benchmarks.measurement import Measurement, core_seconds
from butfor.models.planning import state_values
from butfor.models.simulate import simulate_model

PYTHON = Path("build/peers/bin/python")
RUNS = 3
AGREE = 1e-6
DISCOUNT = 0.99
QUESTIONS = 20

# each sets `work`, whose CPU time is measured; the file of arrays is `given`
TIMED = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
given = np.load(sys.argv[1], allow_pickle=False)
{code}
found, seconds = work(), []
for _ in range({runs}):
    start = time.process_time()
    work()
    seconds.append(time.process_time() - start)
print(json.dumps([min(seconds), found]))
"""

PLANNING = """
from mdptoolbox.mdp import PolicyIteration
def work():
    solved = PolicyIteration(given["transition"], given["reward"], float(given["discount"]))
    solved.run()
    return list(map(int, solved.policy))
"""

ONE_STEP = """
from obp.ope import InverseProbabilityWeighting, SelfNormalizedInverseProbabilityWeighting
kinds = InverseProbabilityWeighting(), SelfNormalizedInverseProbabilityWeighting()
def work():
    return [
        float(
            kind.estimate_policy_value(
                reward=given["reward"],
                action=given["action"],
                action_dist=given["chosen"][:, :, None],
                pscore=given["taken"],
                position=np.zeros(len(given["action"]), int),
            )
        )
        for kind in kinds
    ]
"""

TRAJECTORIES = """
from scope_rl.ope.discrete import (
    PerDecisionImportanceSampling,
    SelfNormalizedPDIS,
    SelfNormalizedTIS,
    TrajectoryWiseImportanceSampling,
)
kinds = (
    TrajectoryWiseImportanceSampling(),
    SelfNormalizedTIS(),
    PerDecisionImportanceSampling(),
    SelfNormalizedPDIS(),
)
def work():
    return [
        float(
            kind.estimate_policy_value(
                step_per_trajectory=int(given["steps"]),
                action=given["action"],
                reward=given["reward"],
                pscore=given["taken"],
                evaluation_policy_action_dist=given["chosen"],
                gamma=float(given["discount"]),
            )
        )
        for kind in kinds
    ]
"""

CPDS = """
from pgmpy.readwrite import BIFReader
network = BIFReader(str(given["path"])).get_model()
def work():
    cpds = map(network.get_cpds, network.nodes)
    return [[cpd.variables, cpd.state_names, cpd.get_values().tolist()] for cpd in cpds]
"""

NETWORK = """
from pgmpy.inference import VariableElimination
from pgmpy.readwrite import BIFReader
network = BIFReader(str(given["path"])).get_model()
asked = json.loads(str(given["questions"]))
def work():
    found = []
    for name, level, evidence in asked:
        answer = VariableElimination(network).query([name], evidence=evidence, show_progress=False)
        found.append(float(answer.get_value(**{name: level})))
    return found
"""


def ask(code: str, **given: object) -> tuple[float, list[Any]] | str:
    """Return the CPU seconds and results of another library; or why there are none."""
    if not PYTHON.exists():
        return "not installed: make peers"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "given.npz"
        np.savez(path, **given)
        command = [str(PYTHON), "-c", TIMED.format(code=code, runs=RUNS), str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return f"does not run: {done.stderr.strip().splitlines()[-1]}"
    seconds, found = json.loads(done.stdout.splitlines()[-1])
    return seconds, found


def compare(
    work: str,
    mine: Callable[[], list[float]],
    code: str,
    judge: Callable[[list[float]], list[float]] = list,
    **given: object,
) -> Measurement:
    """Time both; `judge` makes the other's results comparable with ours."""
    seconds, told = core_seconds(RUNS, mine), ask(code, **given)
    if isinstance(told, str):
        return Measurement(work, seconds, "", note=told)
    other, found = told
    apart = float(np.abs(np.subtract(judge(found), mine())).max())
    note = f"theirs: {other:.3f} s; results differ by at most {apart:.0e}"
    return Measurement(work, seconds, "the same", other / seconds, note, apart < AGREE)


def measure_toolbox() -> Measurement:
    """Policy iteration on the simulator's own model."""
    model = bf.sepsis.model()
    size, actions = model.n_states + len(model.outcomes), model.n_actions
    transition, reward = np.zeros((actions, size, size)), np.zeros((size, actions))
    state, action = np.divmod(model.entry_row, actions)
    transition[action, state, model.next_state] = model.probability
    np.add.at(reward, (state, action), model.probability * model.reward)
    transition[:, range(model.n_states, size), range(model.n_states, size)] = 1.0

    def value(policy: list[float]) -> list[float]:
        table = np.eye(actions)[np.array(policy[: model.n_states], int)]
        return list(state_values(model, table, discount=DISCOUNT))

    def mine() -> list[float]:
        return list(
            state_values(model, bf.policy_iteration(model, discount=DISCOUNT), discount=DISCOUNT)
        )

    given = {"transition": transition, "reward": reward, "discount": DISCOUNT}
    return compare(
        "policy iteration, 1440 states, against pymdptoolbox, CPU time",
        mine,
        PLANNING,
        value,
        **given,
    )


def measure_weights(
    episodes: int, steps: int, names: list[str], peer: str, code: str
) -> Measurement:
    """Importance sampling of episodes of equal length."""
    generator = np.random.default_rng(0)
    states, actions = 50, 5
    model = bf.TabularMDP.from_arrays(
        generator.dirichlet(np.full(states, 0.2), (states, actions)),
        reward=generator.normal(size=(states, actions)),
    )
    behavior, target = generator.dirichlet(np.full(actions, 5.0), (2, states))
    log = simulate_model(model, behavior, episodes, horizon=steps)
    replay = bf.Replay(log, model, target, behavior=behavior, discount=DISCOUNT)

    def mine() -> list[float]:
        found = bf.estimate_values(replay, estimators=names, resamples=1)
        return found.set_index("estimator")["value"][names].tolist()

    work = (
        f"{', '.join(names)}, with intervals, of {episodes:,} episodes of {steps} steps, against "
        f"{peer}, without; CPU time"
    )
    return compare(
        work,
        mine,
        code,
        steps=steps,
        action=log.action,
        reward=log.reward,
        taken=behavior[log.state, log.action],
        chosen=target[log.state],
        discount=DISCOUNT,
    )


def read_network(path: Path) -> bf.graph.DiscreteSCM | str:
    """Return a network that pgmpy reads; or why there is none."""
    told = ask(CPDS, path=str(path))
    if isinstance(told, str):
        return told
    cpds = {
        variables[0]: SimpleNamespace(
            variables=variables, state_names=names, get_values=lambda values=values: values
        )
        for variables, names, values in told[1]
    }
    return bf.graph.DiscreteSCM.from_pgmpy(SimpleNamespace(nodes=cpds, get_cpds=cpds.get))


def measure_network() -> Measurement:
    """Questions about a hospital alarm network, which pgmpy brings along."""
    work = f"{QUESTIONS} questions to alarm.bif, 37 variables, against pgmpy, CPU time"
    found = list(PYTHON.parents[1].glob("lib/*/site-packages/pgmpy/**/alarm.bif.gz"))
    if not found:
        return Measurement(work, None, "", note="not installed: make peers")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "alarm.bif"
        path.write_bytes(gzip.decompress(found[0].read_bytes()))
        scm = read_network(path)
        if isinstance(scm, str):
            return Measurement(work, None, "", note=scm)
        generator, questions = np.random.default_rng(0), []
        for _, row in scm.sample(QUESTIONS, seed=0).iterrows():
            name, *known = generator.permutation(row.index)[:4]
            questions.append((str(name), str(row[name]), {str(k): str(row[k]) for k in known}))

        def mine() -> list[float]:
            return [
                float(scm.distribution({name: level}, evidence=evidence, method="exact"))
                for name, level, evidence in questions
            ]

        given = {"path": str(path), "questions": json.dumps(questions)}
        return compare(work, mine, NETWORK, **given)


def measure_peers() -> list[Measurement]:
    """Every library that is installed."""
    return [
        measure_toolbox(),
        measure_weights(100_000, 1, ["IS", "WIS"], "obp", ONE_STEP),
        measure_weights(5_000, 20, ["IS", "WIS", "PDIS", "PDWIS"], "scope-rl", TRAJECTORIES),
        measure_network(),
    ]
