"""The sepsis simulator of Oberst & Sontag (2019): exact dynamics, compiled simulation.

There are two versions. `icml2019` is as published: there, the glucose of a patient without diabetes
can never rise above "low" by chance. `corrected`, the default, lets it rise.

`butfor.sepsis.env` wraps it as a Gymnasium environment, `butfor/Sepsis-v0`.
"""

from butfor.sepsis.dynamics import (
    ACTIONS,
    OUTCOMES,
    STATES,
    VERSIONS,
    VITAL_SIGNS,
    behavior_policy,
    full_policy,
    initial_distribution,
    model,
    outcome_of,
    pomdp,
    step,
    transition_tensor,
)
from butfor.sepsis.factored import factored, factored_model
from butfor.sepsis.simulate import own_counterfactuals, simulate, simulation_noise

__all__ = [
    "ACTIONS",
    "OUTCOMES",
    "STATES",
    "VERSIONS",
    "VITAL_SIGNS",
    "behavior_policy",
    "factored",
    "factored_model",
    "full_policy",
    "initial_distribution",
    "model",
    "outcome_of",
    "own_counterfactuals",
    "pomdp",
    "simulate",
    "simulation_noise",
    "step",
    "transition_tensor",
]
