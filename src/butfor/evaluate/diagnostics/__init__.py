"""Checks before conclusions: whether this log can say anything about this policy."""

from butfor.evaluate.diagnostics.calibration import calibration_table
from butfor.evaluate.diagnostics.lights import worst_light
from butfor.evaluate.diagnostics.overlap import overlap_by_state
from butfor.evaluate.diagnostics.table import diagnose

__all__ = ["calibration_table", "diagnose", "overlap_by_state", "worst_light"]
