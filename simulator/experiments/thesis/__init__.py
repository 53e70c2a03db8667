"""The thesis's chapters 5 and 6: data sets, cases, and what is reported of them."""

from __future__ import annotations

from simulator.experiments.thesis.chapters import Chapter, chapter_5, chapter_6
from simulator.experiments.thesis.thesis_datasets import DATA_SETS

__all__ = ["DATA_SETS", "Chapter", "chapter_5", "chapter_6"]
