"""Models, logs and policies from other libraries and formats."""

from butfor.interop.gym import episodes_from_minari, model_from_gym
from butfor.interop.icu_sepsis import IcuSepsis, load_icu_sepsis, sample_hospital_log
from butfor.interop.pomdp_file import PomdpFile, read_pomdp_file
from butfor.interop.predictions import (
    behavior_from_predict,
    rows_from_predict,
    target_from_predict,
)
from butfor.interop.targets import target_from_function, target_from_table

__all__ = [
    "IcuSepsis",
    "PomdpFile",
    "behavior_from_predict",
    "episodes_from_minari",
    "load_icu_sepsis",
    "model_from_gym",
    "read_pomdp_file",
    "rows_from_predict",
    "sample_hospital_log",
    "target_from_function",
    "target_from_predict",
    "target_from_table",
]
