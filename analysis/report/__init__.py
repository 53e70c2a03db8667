"""The report: one HTML page of one or several runs."""

from __future__ import annotations

from analysis.report.run_report import write_report

__all__ = ["write_report"]
