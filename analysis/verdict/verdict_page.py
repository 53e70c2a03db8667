"""What the verdict adds to the HTML page."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.pages import PageBlock, PageTable, Section, TableCell, Tone
from analysis.tables import ABSENT
from analysis.verdict.paired_differences import QuantityDifference
from analysis.verdict.verdict import SettingFinding, Verdict
from analysis.verdict.verdict_in_terminal import GAIN_COLUMNS as COLUMNS
from analysis.verdict.verdict_in_terminal import gain_rows
from foundation.records import Run
from foundation.units import counted, number

MOST_JOBS = 20
_MEASURES = {
    "wait_s": "wait, mean [s]",
    "turnaround_s": "from submission to end, mean [s]",
    "degradation": "degradation, mean",
    "slowdown_osub": "S_OSub, mean",
    "bounded_slowdown": "bounded slowdown, mean",
}
_COLUMNS = ("mean over the jobs", "reference", "other", "change", "95% interval")


def differences_section(verdict: Verdict) -> Section | None:
    """Return the figures behind the verdict, with their intervals; None where it finds nothing."""
    blocks = [
        PageBlock(
            f"{finding.other} against {finding.reference}",
            _evidence_of(finding),
            grid=PageTable(
                columns=_COLUMNS, rows=_difference_rows(finding), texts=1, heads=True, tools=False
            ),
        )
        for finding in verdict.findings
    ]
    return Section("differences", "Differences, with intervals", blocks, abreast=480) if blocks else None


def _evidence_of(finding: SettingFinding) -> str:
    """Return the evidence of the differences, in a sentence."""
    one, two = finding.runs
    jobs = f"Over {counted(finding.jobs, 'job')} that completed in"
    if finding.evidence == "repeats":
        return f"{jobs} all of {one} and {two} runs; intervals over runs."
    batches = {"jobs": " in batches of consecutive jobs", "blocks": " in blocks that repeat"}
    return f"{jobs} both{batches.get(finding.evidence, '')}."


def _difference_rows(finding: SettingFinding) -> list[list[str | TableCell]]:
    rows: list[list[str | TableCell]] = []
    for name, name_of in _MEASURES.items():
        found = finding.differences.get(name)
        if found is not None:
            low, high = found.change.low, found.change.high
            interval = ABSENT if low is None or high is None else f"{_signed(low)} to {_signed(high)}"
            rows.append(
                [
                    name_of,
                    number(found.reference),
                    number(found.other),
                    TableCell(_signed(found.change.mean), tone=_tone(found)),
                    interval,
                ]
            )
    return rows


def _signed(value: float) -> str:
    return ("+" if value > 0 else "-" if value < 0 else "") + number(abs(value))


def _tone(found: QuantityDifference) -> Tone:
    """Return the tone of a change: of all of these, less is better."""
    return "" if found.way is None else "good" if found.way < 0 else "bad"


def gains_section(compared: Sequence[tuple[Run, Run]]) -> Section:
    """Return the section on pairs of settings: which jobs gained and lost most."""
    blocks = [
        PageBlock(
            f"{other.info.label} against {reference.info.label}",
            f"At most {MOST_JOBS // 2} jobs that were done sooner after their submission than under the "
            f"reference, the greatest gain first, and at most {MOST_JOBS // 2} that were done later.",
            grid=PageTable(columns=COLUMNS, rows=gain_rows(reference, other, MOST_JOBS), texts=2),
        )
        for reference, other in compared
    ]
    return Section("gains", "Who gained, who lost", blocks)
