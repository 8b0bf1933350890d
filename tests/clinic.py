"""A small clinic with a hidden state, and logs of it."""

from __future__ import annotations

from typing import Any

import numpy as np

import butfor as bf

STATES = (
    bf.Variable("kind", ("plain", "frail"), static=True),
    bf.Variable("sugar", ("low", "normal", "high")),
    bf.Variable("pulse", ("slow", "normal", "fast")),
    bf.Variable("drug", ("off", "on")),
)
ACTIONS = (bf.Variable("diet", ("none", "strict")), bf.Variable("drug", ("off", "on")))
OUTCOMES = (bf.Outcome("died", -1.0, bad=True), bf.Outcome("home", 1.0))
NEAR = np.array([[0.6, 0.4, 0.0], [0.3, 0.4, 0.3], [0.0, 0.4, 0.6]])  # one level at most


def clinic_end(levels: dict[str, Any]) -> Any:
    """Who has both signs off at one time dies; who has neither, and no drug, goes home."""
    off = (levels["sugar"] != 1).astype(int) + (levels["pulse"] != 1)
    return np.where(
        (off == 2) & (levels["drug"] == 1), 0, np.where((off == 0) & (levels["drug"] == 0), 1, -1)
    )


def clinic(seed: int = 0, **changes: Any) -> bf.hidden.Factored:
    """Random tables: sugar depends on kind and diet, pulse on sugar and drug."""
    rng = np.random.default_rng(seed)

    def near(*shape):
        rows = rng.dirichlet(np.full(3, 3.0), size=shape) * (NEAR > 0)
        return rows / rows.sum(axis=-1, keepdims=True)

    given: dict[str, Any] = {
        "states": STATES,
        "moves": {
            "sugar": (("kind", "sugar", "action:diet"), np.moveaxis(near(2, 2, 3), 1, 2)),
            "pulse": (
                ("pulse", "sugar", "drug", "action:drug"),
                np.moveaxis(near(3, 2, 2, 3), 3, 0),
            ),
            "drug": "action:drug",
        },
        "actions": ACTIONS,
        "hidden": ("kind", "sugar"),
        "initial": {
            "kind": ((), [0.6, 0.4]),
            "sugar": (("kind",), rng.dirichlet(np.full(3, 3.0), size=2)),
            "pulse": ((), rng.dirichlet(np.full(3, 3.0))),
            "drug": ((), [1.0, 0.0]),
        },
        "outcome": clinic_end,
        "outcomes": OUTCOMES,
    }
    return bf.hidden.Factored.from_tables(**{**given, **changes})


def clinician(model: bf.hidden.TabularPOMDP, seed: int = 0) -> np.ndarray:
    """A policy that sees the hidden state, [H, A]."""
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(model.n_actions, 0.7), size=model.n_states)


def simulate(
    model: bf.hidden.TabularPOMDP,
    behavior: np.ndarray,
    count: int,
    *,
    seed: int = 0,
    horizon: int = 4,
) -> bf.Episodes:
    """Simulate what is seen of a model under a policy on hidden states [H, A]."""
    rng = np.random.default_rng(seed)
    emission = model.emission.toarray()
    rows: list[tuple[int, int, int, float]] = []
    offsets, outcome = [0], []

    def see(h):
        return int(rng.choice(model.n_observations, p=emission[h])) if emission[h].any() else -1

    for _ in range(count):
        h = int(rng.choice(model.n_states, p=model.initial))
        seen = see(h)
        for _ in range(horizon):
            a = int(rng.choice(model.n_actions, p=behavior[h]))
            entries = np.arange(*model.dynamics.start[h * model.n_actions + a :][:2])
            e = rng.choice(entries, p=model.dynamics.probability[entries])
            h = int(model.dynamics.next_state[e])
            following = see(h)
            rows.append((seen, a, following, float(model.dynamics.reward[e])))
            seen = following
            if model.outcome[h] >= 0:
                break
        offsets.append(len(rows))
        outcome.append(int(model.outcome[h]))
    state, action, next_state, reward = (list(column) for column in zip(*rows, strict=True))
    return bf.Episodes.from_arrays(
        state,
        action,
        next_state,
        reward=reward,
        offsets=offsets,
        states=model.observation_variables,
        actions=model.action_variables,
        outcome=outcome,
        outcomes=model.outcomes,
        horizon=horizon,
    )
