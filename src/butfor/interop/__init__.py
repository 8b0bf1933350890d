"""Models, logs and policies from other libraries."""

from typing import TYPE_CHECKING, NoReturn

from butfor.interop.gym import episodes_from_minari, model_from_gym
from butfor.interop.icu_sepsis import IcuSepsis, load_icu_sepsis, sample_hospital_log
from butfor.interop.predictions import (
    behavior_from_predict,
    rows_from_predict,
    target_from_predict,
)
from butfor.interop.targets import target_from_function, target_from_table

__all__ = [
    "IcuSepsis",
    "behavior_from_predict",
    "episodes_from_minari",
    "load_icu_sepsis",
    "model_from_gym",
    "rows_from_predict",
    "sample_hospital_log",
    "target_from_function",
    "target_from_predict",
    "target_from_table",
]

GONE = (
    "butfor.interop.{name} is gone: .pomdp and .mdp files are no longer read; make the model from "
    "arrays: TabularPOMDP.from_arrays, or TabularMDP.from_arrays if its states are observed"
)

if not TYPE_CHECKING:  # to type checkers these names do not exist

    def __getattr__(name: str) -> NoReturn:
        """Say what to use instead of a name that is gone."""
        if name in ("PomdpFile", "read_pomdp_file"):
            # not an AttributeError: `from butfor.interop import ...` would not show its message
            raise ImportError(GONE.format(name=name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
