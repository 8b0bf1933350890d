"""Discrete structural causal models on any acyclic graph; necessity and sufficiency."""

from butfor.graph.causation import (
    conditional_effect,
    probability_of_necessity,
    probability_of_necessity_and_sufficiency,
    probability_of_sufficiency,
)
from butfor.graph.scm import DiscreteSCM

__all__ = [
    "DiscreteSCM",
    "conditional_effect",
    "probability_of_necessity",
    "probability_of_necessity_and_sufficiency",
    "probability_of_sufficiency",
]
