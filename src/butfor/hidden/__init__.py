"""Models with a hidden state: their policies, what a record tells of the state, learning."""

from butfor.hidden.cells import pomdp_value
from butfor.hidden.factors import Factored
from butfor.hidden.latent import LatentPosterior, latent_posterior
from butfor.hidden.learn import BehaviorFit, PomdpFit, fit_latent_behavior, fit_pomdp
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.policies import BeliefPolicy, FiniteController, LatentPolicy, simulate_pomdp

__all__ = [
    "BehaviorFit",
    "BeliefPolicy",
    "Factored",
    "FiniteController",
    "LatentPolicy",
    "LatentPosterior",
    "PomdpFit",
    "TabularPOMDP",
    "fit_latent_behavior",
    "fit_pomdp",
    "latent_posterior",
    "pomdp_value",
    "simulate_pomdp",
]
