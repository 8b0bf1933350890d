"""Small audits shared by tests of pages: sepsis, another domain, and hostile texts."""

import json
from functools import cache

import numpy as np
import pandas as pd

import butfor as bf
from butfor import Outcome, Variable

HOSTILE = "</script><script>alert('x')</script><img src=x onerror=alert(1)> \"'&amp;{{7*7}} 日本語‮"


@cache
def sepsis_audit(episodes=300, **options):
    """An audit of simulated patients whose glucose and diabetes the model never saw."""
    log = _patients(episodes)
    model = bf.fit_mdp(log)
    given = {"flags": 12, "draws": 3, "resamples": 20} | options
    record = {"words": {"episode": "stay"}}
    return bf.run_audit(log, model, bf.policy_iteration(model).table, record=record, **given)


@cache
def hidden_audit(episodes=40, **options):
    """An audit of the same patients with the true model, which infers glucose and diabetes."""
    log = _patients(episodes)
    target = bf.policy_iteration(bf.fit_mdp(log)).table
    behavior = bf.hidden.LatentPolicy(bf.sepsis.behavior_policy("icml2019"))
    given = {"flags": 12, "review_size": 24, "draws": 3, "resamples": 20, "behavior": behavior}
    given |= options
    record = {"words": {"episode": "stay"}}
    return bf.run_audit(log, bf.sepsis.pomdp("icml2019"), target, record=record, **given)


def unseal(folder):
    """Take the checksums out of a saved audit, so that other checks find what is wrong with it."""
    path = folder / "meta.json"
    meta = json.loads(path.read_text())
    del meta["files"], meta["sha256"]
    path.write_text(json.dumps(meta))
    return folder


def _patients(episodes):
    return bf.sepsis.simulate(
        bf.sepsis.behavior_policy("icml2019"), episodes, version="icml2019", seed=4
    ).hide("glucose", "diabetes")


def trade_audit(
    *,
    noun="delivery",
    state=("traffic", "weather"),
    action="route",
    outcomes=("late", "on time"),
    text="gate closed",
    ids=None,
    episodes=80,
    horizon=45,
    target="the new rule",
    **options,
):
    """An audit of deliveries: one treatment with three levels, which is not a state variable."""
    rng = np.random.default_rng(3)
    variables = (
        Variable(state[0], ("jam", "slow", "free"), normal=("free",)),
        Variable(state[1], ("rain", "dry")),
        Variable("van", ("old", "new"), static=True),
    )
    lengths = rng.integers(1, 9, size=episodes)
    count = int(lengths.sum())
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    van = np.repeat(rng.integers(2, size=episodes), lengths)
    place = rng.integers(6, size=count)
    after = np.append(place[1:], 0)  # the place in the next row, except for last rows
    after[offsets[1:] - 1] = rng.integers(6, size=episodes)
    action_taken = rng.integers(3, size=count)
    ended = np.where(
        rng.random(episodes) < 0.8, (action_taken[offsets[1:] - 1] > 0).astype(int), -1
    )
    side = pd.DataFrame(
        {
            "notes": [f"{text} {row % 5}" if row % 3 else None for row in range(count + episodes)],
            "load in kg": np.round(rng.random(count + episodes) * 100, 1),
        }
    )
    log = bf.Episodes.from_arrays(
        place * 2 + van,
        action_taken,
        after * 2 + van,
        offsets=offsets,
        outcome=ended,
        outcomes=[Outcome(outcomes[0], -5.0, bad=True), Outcome(outcomes[1], 20.0)],
        states=variables,
        actions=[Variable(action, ("north", "bridge", "south"))],
        id=[f"D-{i:03d}" for i in range(episodes)] if ids is None else ids(episodes),
        horizon=horizon,
        side=side,
    )
    model = bf.fit_mdp(log, unseen=outcomes[0])
    policy = bf.soften(bf.policy_iteration(model, discount=0.9).table, 0.1)
    given = {"flags": 10, "draws": 2, "resamples": 20} | options
    record = {"words": {"episode": noun}, "target": target, "warnings": [f"read with care: {text}"]}
    return bf.run_audit(log, model, policy, record=record, **given)


def hostile_audit():
    """An audit in which every text tries to be markup."""
    return trade_audit(
        noun=f"n{HOSTILE}",
        state=(f"s{HOSTILE}", "w" * 300),
        action=f"a{HOSTILE}",
        outcomes=(f"late {HOSTILE}", f"on time {HOSTILE}"),
        text=HOSTILE,
        ids=lambda count: [f"{HOSTILE}/{i}%20#" for i in range(count)],
        target=HOSTILE,
    )
