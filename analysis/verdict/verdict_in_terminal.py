"""The verdict in a terminal, before every table; and which jobs a setting helped most and harmed most."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from analysis.metrics import stretches, with_derived
from analysis.tables import ABSENT
from analysis.verdict.verdict import SettingFinding, Verdict
from foundation.records import Run
from foundation.units import durations, number

GAIN_COLUMNS = (
    "job",
    "kind",
    "cores",
    "done after",
    "other",
    "change",
    "wait",
    "other",
    "degradation",
    "other",
)
_KEPT = ("kind", "cores", "turnaround_s", "wait_s", "degradation")


def gains(reference: Run, other: Run) -> pl.DataFrame:
    """Return one row for each job that completed in both, the greatest gain first.

    ``gain_s`` is how much sooner after its submission the job was done under the other setting, below zero
    where it was later; ``turnaround_s``, ``wait_s``, ``degradation`` are the reference's, with ``_other`` the
    other run's.
    """
    one, two = (_measured(run) for run in (reference, other))
    joined = one.join(two, on="trace_job", how="inner", suffix="_other")
    return (
        joined.with_columns(gain_s=pl.col("turnaround_s") - pl.col("turnaround_s_other"))
        .drop_nulls("gain_s")
        .sort("gain_s", "trace_job", descending=[True, False])
    )


def _measured(run: Run) -> pl.DataFrame:
    jobs = with_derived(run.jobs, held=stretches(run.jobs, run.allocations))
    return (
        jobs.filter(pl.col("state") == "COMPLETED")
        .with_columns(turnaround_s=pl.col("end_s") - pl.col("submit_s"))
        .select("trace_job", *_KEPT)
    )


def gain_rows(reference: Run, other: Run, most: int) -> list[list[str]]:
    """Return a row of texts for each of the ``most`` jobs that gained or lost most, half of each."""
    found = gains(reference, other)
    won = found.filter(pl.col("gain_s") > 0).head(most - most // 2)
    lost = found.filter(pl.col("gain_s") < 0).tail(most // 2)
    return [_cells(row) for row in pl.concat([won, lost]).iter_rows(named=True)]


def _cells(row: dict[str, object]) -> list[str]:
    """Return a row's texts, its times in one unit."""
    names = ("turnaround_s", "turnaround_s_other", "gain_s", "wait_s", "wait_s_other")
    known = {name: value for name in names if isinstance(value := row[name], float)}
    texts = dict(zip(known, durations(*map(abs, known.values())), strict=True)) if known else {}
    gain = known.get("gain_s", 0.0)
    change = f"{texts['gain_s']} {'sooner' if gain > 0 else 'later'}" if gain else ABSENT
    return [
        str(row["trace_job"]),
        str(row["kind"]),
        f"{row['cores']:,}",
        *(texts.get(name, ABSENT) for name in ("turnaround_s", "turnaround_s_other")),
        change,
        *(texts.get(name, ABSENT) for name in ("wait_s", "wait_s_other")),
        *(_number(row[name]) for name in ("degradation", "degradation_other")),
    ]


def gain_table(reference: Run, other: Run, most: int) -> Table:
    """Return the jobs for a terminal."""
    title = f"Jobs that gained and lost most: {other.info.label} against {reference.info.label}"
    table = Table(
        title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for name in GAIN_COLUMNS:
        table.add_column(Text(name), justify="left" if name == "kind" else "right", overflow="fold")
    for cells in gain_rows(reference, other, most):
        table.add_row(*map(Text, cells))
    return table


def _number(value: object) -> str:
    return number(value) if isinstance(value, float) else ABSENT


_COLOURS = {"better": "bold green", "worse": "bold red", "mixed": "bold yellow", "unclear": "bold yellow"}


def verdict_lines(verdict: Verdict) -> Iterator[Text]:
    """Yield the answer, a paragraph for each finding, and the evidence; runs that are unfit come first."""
    first = opening(verdict)
    if first is not None:
        yield Text.assemble((first[0], _COLOURS["unclear"]), " ", first[1])
    if verdict.best is not None:
        yield Text(verdict.answer, _COLOURS[verdict.best.answer])
    for finding in verdict.findings:
        yield Text.assemble((heading(finding), _COLOURS[finding.answer]), " ", " ".join(finding.sentences))
    for sentence in verdict.evidence[1 if first else 0 :]:
        yield Text(sentence)


def opening(verdict: Verdict) -> tuple[str, str] | None:
    """Return what a reader must know before any figure, and why: that runs are unfit to judge by.

    It is the first sentence of the evidence, under a heading. None where all are fit.
    """
    if not verdict.unfit:
        return None
    if not verdict.findings:
        return "Unfit as a reference.", verdict.evidence[0]
    nothing = all(finding.answer == "unclear" for finding in verdict.findings)
    return f"{'Nothing' if nothing else 'Not everything'} here can be concluded.", verdict.evidence[0]


def heading(finding: SettingFinding) -> str:
    """Return what is held against what, and the answer in a word."""
    return f"{finding.other} against {finding.reference}: {finding.answer}."
