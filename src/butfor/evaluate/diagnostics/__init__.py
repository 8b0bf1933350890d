"""Diagnostics before conclusions: whether this log can say anything about this policy."""

from butfor.evaluate.diagnostics.calibration import calibration_table
from butfor.evaluate.diagnostics.lights import worst_light
from butfor.evaluate.diagnostics.overlap import overlap_by_state
from butfor.evaluate.diagnostics.table import diagnose, diagnose_hidden

__all__ = ["calibration_table", "diagnose", "diagnose_hidden", "overlap_by_state", "worst_light"]
