"""The thesis's chapters 5 and 6: data sets, cases, and what is reported of them."""

from __future__ import annotations

from simulator.experiments.thesis.case_runs import run_all
from simulator.experiments.thesis.layout_survey import SHARES, survey, survey_tables
from simulator.experiments.thesis.thesis_charts import figures_5, figures_6
from simulator.experiments.thesis.thesis_datasets import (
    DATA_SETS,
    in_blocks,
    with_interactive_jobs,
    with_patterns,
)
from simulator.experiments.thesis.thesis_run import Rules, about_trace, facts_of, kit_study, study_of

__all__ = [
    "DATA_SETS",
    "SHARES",
    "Rules",
    "about_trace",
    "facts_of",
    "figures_5",
    "figures_6",
    "in_blocks",
    "kit_study",
    "run_all",
    "study_of",
    "survey",
    "survey_tables",
    "with_interactive_jobs",
    "with_patterns",
]
