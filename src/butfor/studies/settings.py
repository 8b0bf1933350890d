"""What the experiments of all studies share: settings, constants, and how a target is learned."""

from __future__ import annotations

from dataclasses import dataclass

from butfor import sepsis
from butfor.checks import check_choice, check_whole
from butfor.log.episodes import Episodes
from butfor.models.fit import fit_mdp
from butfor.models.mdp import TabularMDP
from butfor.models.planning import policy_iteration
from butfor.models.policies import TERMINALS
from butfor.random import check_seed
from butfor.types import Floats

HIDDEN = ("glucose", "diabetes")  # the physician sees them, the log does not show them
HORIZON = 20
DISCOUNT = 0.99  # for planning
LEAST_EPISODES = 10


@dataclass(frozen=True)
class StudySettings:
    """The options of every study; each study has its own defaults and may add options."""

    repeats: int = 10  # fresh logs
    seed: int = 0
    simulator: str = "corrected"
    terminal: str = "visits"  # how episode ends are counted

    def __post_init__(self) -> None:
        check_whole(self.repeats, "repeats", 2, "a whole number")
        check_seed(self.seed)
        check_choice(self.simulator, "simulator", sepsis.VERSIONS)
        check_choice(self.terminal, "terminal", TERMINALS)

    @property
    def steps(self) -> int:
        """Number of times that a run reports progress."""
        return self.repeats

    def base_seed(self, repeat: int, parts: int = 1) -> int:
        """First of `parts` seeds of one repeat; repeats and studies with other seeds share none."""
        return (self.seed * 1_000_003 + repeat) * parts


@dataclass(frozen=True)
class LogSettings(StudySettings):
    """The options of a study whose logs all have one size."""

    episodes: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self.episodes, "episodes", LEAST_EPISODES, "a whole number")


def learn(log: Episodes, terminal: str) -> tuple[TabularMDP, Floats]:
    """Learn the model from a log and plan the target on it."""
    model = fit_mdp(log, terminal=terminal)
    return model, policy_iteration(model, discount=DISCOUNT)
