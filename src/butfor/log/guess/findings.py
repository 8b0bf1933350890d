"""What was found out about the columns of a log: the role of each, and why."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from butfor.log.guess.profile import Profile, Rows
from butfor.log.guess.words import rank, sounds
from butfor.log.sources import Log

CHECK = "CHECK THIS:"
LEFT_OUT = "left out"


@dataclass(frozen=True)
class Finding:
    """What a column was taken for, and why."""

    column: str
    role: str
    why: str


@dataclass
class Roles:
    """The columns of a log by role; those in `left` have none yet."""

    log: Log
    left: dict[str, Profile]
    rows: Rows
    found: dict[str, Finding] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)  # [columns] of the study, by key
    action: dict[str, dict[str, Any]] = field(default_factory=dict)  # sections by column
    profiles: dict[str, Profile] = field(default_factory=dict)  # of all columns
    notes: list[str] = field(default_factory=list)
    rising: bool = False  # whether the outcome is no until the last row
    worth: dict[str, float] = field(default_factory=dict)  # of the words in the reward column
    targets: dict[str, str] = field(default_factory=dict)  # columns of a policy by action column

    def take(self, name: str, role: str, why: str) -> None:
        """Give a column its role."""
        self.left.pop(name)
        self.found[name] = Finding(name, role, why)

    def fill(self, key: str, name: str, why: str) -> None:
        """Name a column in [columns]."""
        self.columns[key] = name
        self.take(name, key, why)

    def named(self, role: str, among: dict[str, Profile]) -> list[str]:
        """Return the columns whose names have a word of a role, the most telling first."""
        ranks = {name: rank(name, role) for name in among}
        return sorted((n for n in among if ranks[n] is not None), key=lambda n: ranks[n] or 0)

    def explain(self, name: str, why: str) -> None:
        """Add to why a column was taken for what it is."""
        found = self.found[name]
        self.found[name] = replace(found, why=f"{found.why}; {why}")

    @property
    def followed_up(self) -> bool:
        """Whether a column is a time of follow-up, as tables of survival times have it."""
        return any(sounds(name, "followup") for name in self.profiles)

    @property
    def single(self) -> bool:
        """Whether each episode is one row, as in the log of a bandit."""
        return len(self.rows.earlier) == 0
