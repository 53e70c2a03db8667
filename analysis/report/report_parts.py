"""Parts of a report's page that have a column or a card a run: figures at the top, metrics, facts, terms."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from analysis.charts import Measured, run_style
from analysis.metrics import MetricOptions, RunMetrics
from analysis.pages.page_content import Block, Card, Cell, Grid, Mark, Section, Told, Tone
from analysis.report.provenance import provenance_rows
from analysis.tables import metric_rows
from analysis.verdict import Verdict
from analysis.verdict.verdict_in_terminal import heading
from foundation.records import Run

HIGHLIGHTS = (
    ("System", "makespan"),
    ("Interactive jobs", "wait, max"),
    ("All jobs", "waited over"),
    ("All jobs", "S_OSub, mean"),
    ("All jobs", "degradation, mean"),
    ("System", "cores in use"),
    ("Host", "CPU time that others used"),
    ("Host", "pace of the jobs"),
)
"""Rows of the metrics table that stand in each run's card at the top: group, and how the name begins."""
_TONES: dict[str, Tone] = {"better": "good", "worse": "bad", "unclear": "unclear"}


def mark_of(measured: Measured) -> Mark:
    """Return the sign of a run, in the colour of its curves."""
    return Mark(run_style(measured.number)["color"], measured.simulated)


def told(verdict: Verdict) -> list[Told]:
    """Return a paragraph for each finding, then the evidence without a heading."""
    findings = [
        Told(heading(one), " ".join(one.sentences), _TONES.get(one.answer, "")) for one in verdict.findings
    ]
    return findings + [Told("", sentence, "muted") for sentence in verdict.evidence]


def cards(runs: Sequence[Measured], metrics: Sequence[RunMetrics]) -> list[Card]:
    """Return a card for each run."""
    rows = metric_rows(metrics)
    chosen = []
    for group, start in HIGHLIGHTS:
        row = next((row for row in rows if row.group == group and row.name.startswith(start)), None)
        if row is not None:
            chosen.append((("interactive " if group == "Interactive jobs" else "") + row.name, row))
    return [
        Card(run.label, mark_of(run), [(name, row.cells[at], row.best[at]) for name, row in chosen])
        for at, run in enumerate(runs)
    ]


def metrics_section(runs: Sequence[Measured], metrics: Sequence[RunMetrics]) -> Section:
    """Return the metrics, a table for each group of them; several stand side by side where there is room."""
    blocks = []
    for name, rows in groupby(metric_rows(metrics), key=lambda row: row.group):
        cells = [
            [
                row.name,
                *(
                    Cell(text, tone="good") if best else text
                    for text, best in zip(row.cells, row.best, strict=True)
                ),
            ]
            for row in rows
        ]
        blocks.append(Block(name, "", grid=_columns_of_runs(runs, "metric", cells, texts=1)))
    note = ""
    if len(runs) > 1:
        mixed = len({run.simulated for run in runs}) > 1
        note = "Where the runs differ, the best value is green and bold" + (
            ", among the real ones." if mixed else "."
        )
    least = min(230 + 88 * len(runs), 1240)
    return Section("metrics", "Metrics", blocks, abreast=least, lead=note)


def facts_section(runs: Sequence[Measured], records: Sequence[Run], metrics: Sequence[RunMetrics]) -> Section:
    """Return what ran where: host, options, versions, and how the jobs ended."""
    ended = [
        ", ".join(f"{count:,} {state}" for state, count in one.kinds["all"].states.items()) for one in metrics
    ]
    rows = [[name, *texts] for name, texts in (*provenance_rows(records), ("jobs ended", ended))]
    grid = _columns_of_runs(runs, "", rows, texts=1 + len(runs))
    return Section("where", "What ran where", [Block("", "", grid=grid)])


def _columns_of_runs(
    runs: Sequence[Measured], first: str, rows: Sequence[Sequence[str | Cell]], texts: int
) -> Grid:
    return Grid(
        groups=(),
        columns=(first, *(run.label for run in runs)),
        rows=rows,
        texts=texts,
        marks=tuple(mark_of(run) for run in runs),
        heads=True,
        tools=False,
    )


def terms_section(options: MetricOptions) -> Section:
    """Return what the words of the page mean."""
    terms = (
        (
            "wait",
            (
                "time from submission to the end in which a job held no cores, waits after a preemption or a "
                f'requeue among them; "waited" means longer than {round(options.wait_threshold_s, 3):g} s'
            ),
        ),
        (
            "run",
            (
                "time on cores, all lives of a job together; useful is what of it was neither lost to a "
                "preemption or a requeue nor spent on setting up again"
            ),
        ),
        ("slowdown S", "(wait + run) / useful run"),
        (
            "S_OSub",
            "(wait + run) / dedicated, where dedicated is the run time with every core to itself",
        ),
        ("degradation", "useful run / dedicated"),
        ("bounded slowdown", f"(wait + run) / max(dedicated, {round(options.beta_s, 3):g} s)"),
        (
            "done by CPU time",
            "jobs weighted with the core seconds that they need to compute alone; a job counts when it ends",
        ),
        ("cores in use", "core seconds in which at least one job held the core, over cores times makespan"),
        (
            "cores in useful use",
            (
                "the same without lost work and repeated set-up; of a second that k jobs hold a core, 1/k is "
                "each one's"
            ),
        ),
        ("usage interval", "busy slices from one use of the cores by a job to its next"),
        ("Jain's fairness index", "over attained / entitled time in contended slices; 1 is fair"),
    )
    caption = "Times are in the run's own seconds, from its first due submission."
    return Section("definitions", "Definitions", [Block("", caption, terms=terms)])
