"""The report: an audit as one HTML file that makes no requests."""

from butfor.present.report.write import write_report

__all__ = ["write_report"]
