"""The report: an audit as one HTML file that asks nothing of the network."""

from butfor.present.report.write import write_report

__all__ = ["write_report"]
