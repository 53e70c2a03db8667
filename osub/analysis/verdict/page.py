"""What the verdict adds to the HTML page."""

from __future__ import annotations

from collections.abc import Sequence

from osub.analysis.pages.content import Block, Grid, Section
from osub.analysis.verdict.gains import COLUMNS, gain_rows
from osub.records import Run

MOST_JOBS = 20


def gains_section(compared: Sequence[tuple[Run, Run]]) -> Section:
    """Return the section on pairs of settings: which jobs gained and lost most."""
    blocks = [
        Block(
            f"{other.info.label} against {reference.info.label}",
            f"At most {MOST_JOBS // 2} jobs that were done sooner after their submission than under the "
            f"reference, the greatest gain first, and at most {MOST_JOBS // 2} that were done later.",
            grid=Grid(groups=(), columns=COLUMNS, rows=gain_rows(reference, other, MOST_JOBS), texts=2),
        )
        for reference, other in compared
    ]
    return Section("gains", "Who gained, who lost", blocks)
