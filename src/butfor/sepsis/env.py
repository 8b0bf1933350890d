"""The sepsis simulator as a Gymnasium environment: `gymnasium.make("butfor/Sepsis-v0")`.

It is registered by `import butfor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from butfor.kernels import NOISE_SIZE
from butfor.log.variables import project, unravel
from butfor.sepsis.dynamics import (
    N_ACTIONS,
    N_STATES,
    OUTCOMES,
    STATES,
    check_version,
    initial_distribution,
    outcome_of,
    seen_variables,
    step,
)


class SepsisEnv(gymnasium.Env[np.int64, np.int64]):
    """A septic patient. Observation and action are indices, as in `butfor.sepsis`.

    Parameters
    ----------
    hidden : names of state variables
        Variables that the observation omits; `info["levels"]` contains all of them.
    prevalence : float
        Share of patients with diabetes.
    version : "corrected" or "icml2019"
        The latter keeps the glucose rule of the published release.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012

    def __init__(
        self,
        hidden: Sequence[str] = (),
        prevalence: float = 0.2,
        version: str = "corrected",
        render_mode: str | None = None,
    ) -> None:
        seen = seen_variables(hidden)
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode {render_mode!r}: give 'ansi' or None")
        check_version(version)
        self.version = version
        self.render_mode = render_mode
        self._initial = initial_distribution(prevalence)
        self._observed = project(STATES, *(variable.name for variable in seen))
        self._state: int | None = None
        self.observation_space = Discrete(int(self._observed.max()) + 1)
        self.action_space = Discrete(N_ACTIONS)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """Admit a patient; `options={"state": s}` starts from that full state."""
        super().reset(seed=seed)
        if options and "state" in options:
            start = int(options["state"])
            if not 0 <= start < N_STATES or outcome_of()[start] >= 0:
                raise ValueError(
                    f"state {start} is not one of the {N_STATES} states, or is already an end"
                )
        else:
            start = int(self.np_random.choice(N_STATES, p=self._initial))
        self._state = start
        return self._observation(), self._info()

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """Give treatments for one step; death or discharge ends the episode."""
        if self._state is None or outcome_of()[self._state] >= 0:
            raise gymnasium.error.ResetNeeded("call reset() before step(): the episode has ended")
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r} is outside 0..{N_ACTIONS - 1}")
        noise = self.np_random.random(NOISE_SIZE)
        self._state = int(step(self._state, int(action), noise, version=self.version))
        end = outcome_of()[self._state]
        reward = OUTCOMES[end].reward if end >= 0 else 0.0
        return self._observation(), reward, bool(end >= 0), False, self._info()

    def render(self) -> str | None:
        """Return the patient's levels as a line of text."""
        if self.render_mode is None or self._state is None:
            return None
        return ", ".join(f"{name} {level}" for name, level in self._info()["levels"].items())

    def _observation(self) -> np.int64:
        return np.int64(self._observed[self._state])

    def _info(self) -> dict[str, Any]:
        assert self._state is not None
        codes = unravel(STATES, np.array(self._state))
        end = outcome_of()[self._state]
        return {
            "state": self._state,
            "levels": {v.name: v.levels[codes[v.name]] for v in STATES},
            "outcome": OUTCOMES[end].name if end >= 0 else None,
        }
