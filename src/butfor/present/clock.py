"""How readers count time: in steps, or in the unit of the study file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from butfor.audit.meta import Meta
from butfor.evaluate.wording import plural


@dataclass(frozen=True)
class Clock:
    """Names the steps of an episode: "step 4", or "hour 24" if a step takes six hours."""

    unit: str = "step"
    length: float = 1.0  # of a step, in units

    @property
    def units(self) -> str:
        """What several units are called."""
        return plural(self.unit)

    def time(self, step: int) -> int | float:
        """Return when a step is, in units since the first one."""
        passed = round(step * self.length, 6)
        return int(passed) if passed == int(passed) else passed

    def at(self, step: int) -> str:
        """Return when a step is: "hour 24"."""
        return f"{self.unit} {self.time(step)}"

    def lasting(self, steps: int) -> str:
        """Return how long so many steps take: "24 hours"."""
        time = self.time(steps)
        return f"{time} {self.unit if time == 1 else self.units}"

    def retell(self, text: str) -> str:
        """Return a text that counts in steps with their times instead."""
        if self == STEPS:
            return text

        def at(found: re.Match[str]) -> str:
            words = self.at(int(found[2]))
            return words[:1].upper() + words[1:] if found[1] == "S" else words

        text = re.sub(r"\b([Ss])tep (\d+)( \(counted from 0\))?", at, text)
        return re.sub(r"\b(\d+) steps?\b", lambda found: self.lasting(int(found[1])), text)


STEPS = Clock()


def clock_of(meta: Meta) -> Clock:
    """Return how readers of an audit count time."""
    if meta.time_step is not None and "time" in meta.words:
        return Clock(meta.words["time"], meta.time_step)
    return Clock(meta.words.get("step", "step"))
