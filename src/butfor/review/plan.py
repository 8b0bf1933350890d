"""Which stays are reviewed and in which order, chosen by seeds so that it can be reproduced."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from butfor.audit.audit import Audit
from butfor.checks import check_whole
from butfor.random import check_seed, episode_keys
from butfor.types import Keys

# parameters that audits of earlier versions do not have
ADDED = ("censored", "censoring", "by_row")


@dataclass(frozen=True)
class ReviewSettings:
    """How a run is reviewed; stored with the run."""

    needed: int = 2  # verdicts per stay
    control_share: float = 0.2  # of unflagged stays, if the audit has no sampling design
    repeat_share: float = 0.05  # share of a reviewer's stays that come back once
    repeat_minutes: float = 10.0  # from a verdict to when its stay may come back
    claim_minutes: float = 30.0  # while others are offered another stay than the one opened
    first_impression: bool = False  # whether one is required before the verdict
    verdicts_only: bool = False  # do not ask for chances, so there is no experts' estimate
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole(self.needed, "needed", 1, "a number of verdicts")
        check_seed(self.seed)
        for name in ("control_share", "repeat_share"):
            if not 0 <= getattr(self, name) <= 0.5:
                raise ValueError(f"{name} {getattr(self, name)}: give a number from 0 to 0.5")
        for name in ("repeat_minutes", "claim_minutes"):
            minutes = getattr(self, name)
            if not (math.isfinite(minutes) and minutes >= 0):
                raise ValueError(f"{name} {minutes}: give a finite number of at least 0")


@dataclass(frozen=True)
class PlannedStay:
    """A stay chosen for review."""

    episode: str
    control: bool
    steps: int


def run_id(audit: Audit) -> str:
    """Return the digest of an audit's inputs, parameters and sampling design: that of its run."""
    made_of = audit.meta.model_dump(include={"digest", "parameters", "design"})
    for part, name in ((made_of, "design"), *((made_of["parameters"], n) for n in ADDED)):
        if not part[name]:  # so that runs of earlier versions keep their name
            del part[name]
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()


def plan_stays(audit: Audit, settings: ReviewSettings, secret: str = "") -> list[PlannedStay]:
    """Return all flagged stays by rank, followed by the controls.

    Controls are those that the audit drew at random by strata, each with a known probability. An
    audit of an earlier version has no such design: there `control_share` decides how many of the
    controls that it chose are reviewed, or of all unflagged stays if it chose none, and the secret
    of the run which of them: otherwise reviewers, who know ids and source, could compute it.
    """
    table = audit.episodes
    name = table["id"].map(str).to_numpy(dtype=object)
    if len(set(name)) < len(name):
        raise ValueError("two episodes have the same id when written as text; make the ids unique")
    steps = table["length"].to_numpy()
    rank = table["rank"].to_numpy()
    flagged = np.flatnonzero(rank > 0)
    flagged = flagged[np.argsort(rank[flagged], kind="stable")]
    own = table["control"].to_numpy(dtype=bool) if "control" in table else rank <= 0
    others = np.flatnonzero(own & (rank <= 0))
    count, share = len(others), settings.control_share
    if audit.meta.design is None:
        count = min(math.ceil(len(flagged) * share / (1 - share)), count)
    purpose = f"review controls {secret}" if secret else "review controls"
    controls = others[_order(settings.seed, name[others].tolist(), purpose)[:count]]
    return [
        PlannedStay(str(name[i]), control, int(steps[i]))
        for control, rows in ((False, flagged), (True, controls))
        for i in rows
    ]


def asked_outcomes(audit: Audit, settings: ReviewSettings) -> tuple[str, ...]:
    """Return the outcomes whose chances reviewers are asked for; none: only verdicts are wanted.

    Without a sampling design answers cannot be generalized to the log, and without outcomes there
    is nothing to ask.
    """
    if settings.verdicts_only or audit.meta.design is None or not audit.meta.outcomes:
        return ()
    return tuple(audit.meta.outcome_names)


def reviewer_seed(seed: int, run: str, reviewer: str, secret: str = "") -> int:
    """Return the seed of a reviewer's order.

    Whoever knew it could compute which stays come back. The secret of the run keeps reviewers, who
    know the rest, from that; runs of earlier versions have none.
    """
    known = [seed, run, reviewer, *([secret] if secret else [])]
    digest = hashlib.sha256(json.dumps(known).encode()).digest()
    if not secret:
        return int.from_bytes(digest[:6], "little")
    # as long as a seed may be: a graphics card tries 48 bits against one place in hours
    return int.from_bytes(digest[:8], "little") >> 1


def place_number(seed: int, position: int) -> int:
    """Return a number for a place in a queue that does not reveal its position."""
    digest = hashlib.sha256(f"place {seed} {position}".encode()).digest()
    return int.from_bytes(digest[:6], "little")


def reviewer_order(
    episodes: Sequence[str], seed: int, *, repeat_share: float
) -> list[tuple[str, bool]]:
    """Return the stays in a reviewer's order, each with whether it is a repeat.

    Stays from the first half may come back, each at least half the queue later.
    """
    n, half = len(episodes), len(episodes) // 2
    order = [episodes[i] for i in _order(seed, episodes, "review order")]
    places = [(float(place), episode, False) for place, episode in enumerate(order)]
    back = _order(seed, order[:half], "review repeats")[: round(n * repeat_share)]
    keys = _keys(seed, order[:half], "review places")
    for first in sorted(back.tolist()):
        slot = first + half + int(keys[first] % np.uint64(n - first - half))
        places.append((slot + 0.5, order[first], True))
    places.sort(key=lambda place: place[0])
    return [(episode, repeat) for _, episode, repeat in places]


def _order(seed: int, names: Sequence[str], purpose: str) -> np.ndarray:
    return np.argsort(_keys(seed, names, purpose), kind="stable")


def _keys(seed: int, names: Sequence[str], purpose: str) -> Keys:
    return episode_keys(seed, np.array(names, dtype=object), purpose)
