"""Diagnostics: whether a log and a model can support conclusions about a policy."""

from butfor.evaluate.diagnostics.calibration import calibration_table
from butfor.evaluate.diagnostics.lights import worst_light
from butfor.evaluate.diagnostics.overlap import overlap_by_state
from butfor.evaluate.diagnostics.table import diagnose

__all__ = ["calibration_table", "diagnose", "overlap_by_state", "worst_light"]
