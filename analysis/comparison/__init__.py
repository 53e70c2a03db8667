"""Runs of one trace against each other, as a whole and job by job."""

from __future__ import annotations

from analysis.comparison.compared_runs import Compared, compared
from analysis.comparison.comparison_tables import RunErrors, error_tables, job_table, run_errors
