"""Ten kinds of audit, whose first screens are read: by tests, and as pictures by people.

    python -m tests.first_screens FOLDER

writes their reports.
"""

from __future__ import annotations

import sys
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

import butfor as bf
from butfor.audit.learning import tabular_learner
from butfor.audit.shards.run import audit_shards
from butfor.audit.shards.workers import Threads
from butfor.models.policies import action_counts
from butfor.present.report import write_report
from butfor.review.plan import run_id
from tests.audits import hidden_audit
from tests.confounded import simulate_stays
from tests.shard_logs import simulate_patients, write_shards

STAYS = 6000
MORE_DRUG = np.repeat([[0.45, 0.55], [0.25, 0.75], [0.15, 0.85]], 2, axis=0)  # which helps
LESS_DRUG = np.repeat([[0.85, 0.15], [0.75, 0.25], [0.6, 0.4]], 2, axis=0)
QUICK = {"flags": 6, "review_size": 24, "draws": 2, "resamples": 50}


def _audit(target, *, stays=STAYS):
    log = simulate_stays(stays, 0, confounded=False)
    record = {"words": {"episode": "stay"}, "target": "a rule from the ward"}
    return bf.run_audit(log, bf.fit_mdp(log), target, record=record, **QUICK)


def clearly_better():
    """More of a drug that helps, in a log with plenty of both and nothing unrecorded."""
    return _audit(MORE_DRUG)


def clearly_worse():
    """Less of it."""
    return _audit(LESS_DRUG)


def contradicting():
    """A policy learned from a few patients of whom two variables were not recorded."""
    log = simulate_patients(300)
    learn = tabular_learner(discount=0.99)
    record = {"words": {"episode": "patient"}, "target": "learned from this log"}
    return bf.run_audit(log, *learn(log), learn=learn, record=record, **QUICK)


def thin_data():
    """The better rule, on forty stays."""
    return _audit(MORE_DRUG, stays=40)


def one_step():
    """Visitors who are shown one of three pages and click or do not."""
    rng = np.random.default_rng(1)
    page, segment = rng.integers(3, size=4000), rng.integers(2, size=4000)
    click = rng.random(4000) < np.array([[0.02, 0.05, 0.03], [0.04, 0.02, 0.09]])[segment, page]
    log = bf.Episodes.from_arrays(
        segment,
        page,
        segment,
        offsets=np.arange(4001),
        outcome=np.where(click, 1, 0),
        outcomes=[bf.Outcome("no click", 0.0), bf.Outcome("click", 1.0)],
        states=[bf.Variable("segment", ("new", "known"))],
        actions=[bf.Variable("page", ("A", "B", "C"))],
        horizon=1,
    )
    best = np.array([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    record = {"words": {"episode": "visit"}, "target": "the page that did best"}
    return bf.run_audit(log, bf.fit_mdp(log), best, record=record, **QUICK)


def hidden_state():
    """A model that infers what was not recorded."""
    return hidden_audit()


def in_shards():
    """A policy learned from a log in files."""
    log = simulate_patients()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_shards(log, folder / "log", np.array_split(np.arange(len(log)), 3))
        out = folder / "audit"
        audit_shards(folder / "log", folder / "study.toml", out, workers=Threads(1))
        return bf.Audit.load(out)


def no_outcome():
    """Machines that earn something in each step and never end."""
    rng = np.random.default_rng(2)
    care, wear = rng.integers(2, size=(300, 8)), np.zeros((300, 9), dtype=np.int64)
    for step in range(8):
        wear[:, step + 1] = np.clip(wear[:, step] + 1 - 2 * care[:, step], 0, 2)
    wear, after = wear[:, :-1], wear[:, 1:]
    earned = 2.0 - wear - 0.5 * care
    log = bf.Episodes.from_arrays(
        wear.ravel(),
        care.ravel(),
        after.ravel(),
        reward=earned.ravel(),
        offsets=np.arange(0, wear.size + 1, 8),
        states=[bf.Variable("wear", ("none", "some", "much"))],
        actions=[bf.Variable("service", ("no", "yes"))],
        horizon=8,
    )
    record = {"words": {"episode": "machine"}, "target": "service when worn"}
    rule = np.array([[0.8, 0.2], [0.4, 0.6], [0.2, 0.8]])
    return bf.run_audit(log, bf.fit_mdp(log), rule, record=record, **QUICK)


def nothing_differs():
    """A policy that is what was done."""
    log = simulate_stays(400, 0, confounded=False)
    usual = action_counts(log) / action_counts(log).sum(axis=1, keepdims=True)
    record = {"words": {"episode": "stay"}, "target": "as usual"}
    return bf.run_audit(log, bf.fit_mdp(log), usual, record=record, **QUICK)


def reviewed():
    """The better rule, of which experts expect what they know of the drug: that it harms."""
    return clearly_better()


def answers(audit):
    """Return what two experts expect who think that under the policy nearly everybody would die."""
    table = audit.episodes
    cases = np.repeat(table.index[(table["rank"] > 0) | table["control"]], 2)
    died = 10 - np.arange(len(cases)) // 2 % 2
    frame = pd.DataFrame(
        {
            "run_id": run_id(audit),
            "episode_id": table.loc[cases, "id"].to_numpy(),
            "reviewer": np.where(np.arange(len(cases)) % 2, "Reviewer 1", "Reviewer 2"),
            "verdict": "",
            "answer_id": np.arange(1, len(cases) + 1),
            "answers_needed": 2,
            "answer_seconds": 40.0,
            "chance_died": died,
            "chance_went home": 10 - died,
            f"chance_{audit.meta.none}": 0,
        }
    )
    return bf.expert_value(audit, frame, interval="fixed")


KINDS = {
    "clearly better": clearly_better,
    "clearly worse": clearly_worse,
    "contradicting estimates": contradicting,
    "thin data": thin_data,
    "one-step log": one_step,
    "hidden state": hidden_state,
    "shards": in_shards,
    "no outcome": no_outcome,
    "reviewed": reviewed,
    "nothing differs": nothing_differs,
}


@cache
def screen(kind):
    """Return an audit of a kind, and what experts say about it, if they do."""
    audit = KINDS[kind]()
    return audit, answers(audit) if kind == "reviewed" else None


if __name__ == "__main__":
    goal = Path(sys.argv[1])
    goal.mkdir(parents=True, exist_ok=True)
    for number, kind in enumerate(KINDS, start=1):
        audit, experts = screen(kind)
        path = goal / f"{number:02d}-{kind.replace(' ', '-')}.html"
        print(write_report(audit, path, experts=experts, overwrite=True))
