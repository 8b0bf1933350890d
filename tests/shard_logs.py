"""Logs in shards, and audits of them, that several test files share."""

from functools import cache

import pyarrow.parquet as pq

from butfor import sepsis
from butfor.audit.settings import AuditSettings
from butfor.log.write import write_episodes

EPISODES = 150
# the bounds of a few episodes only, and no rehearsal: together they take longer than all the rest
FEW = AuditSettings(flags=5, review_size=12, intervals=20, rehearsal=False)
SUMMARY = (
    *("--detail", "summary", "--flags", "5", "--review-size", "12"),
    *("--intervals", "20", "--no-rehearsal"),
)
TABLES = (
    "estimates",
    "diagnostics",
    "episodes",
    "decomposition",
    "steps",
    "draws",
    "courses",
    "course_steps",
)


@cache
def simulate_patients(episodes=EPISODES):
    """Simulate a log whose glucose and diabetes no model sees."""
    physician = sepsis.behavior_policy("corrected")
    full = sepsis.simulate(physician, episodes, seed=3, version="corrected")
    return full.hide("glucose", "diabetes")


@cache
def simulate_few(episodes=60):
    """Simulate a log that is audited fast: few patients, and only two variables of their state."""
    return simulate_patients(episodes).hide("oxygen", "blood pressure")


def write_shards(log, folder, groups):
    folder.mkdir()
    for number, group in enumerate(groups):
        path = folder / f"part-{number:03d}.parquet"
        write_episodes(log.select(group), path, folder.parent / "study.toml")
    return folder


def check_same(folder, other):
    for name in TABLES:
        ours, theirs = (part / f"{name}.parquet" for part in (folder, other))
        assert ours.read_bytes() == theirs.read_bytes(), name
    assert (folder / "model.npz").read_bytes() == (other / "model.npz").read_bytes()


def rewrite(path, change):
    pq.write_table(change(pq.read_table(path)), path)
