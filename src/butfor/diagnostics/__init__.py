"""Diagnostics before conclusions: whether this log can say anything about this policy."""

from butfor.diagnostics.calibration import calibration_table
from butfor.diagnostics.lights import worst_light
from butfor.diagnostics.overlap import overlap_by_state
from butfor.diagnostics.table import diagnose, diagnose_hidden

__all__ = ["calibration_table", "diagnose", "diagnose_hidden", "overlap_by_state", "worst_light"]
