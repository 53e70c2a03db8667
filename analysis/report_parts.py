"""Parts of a report's page that have a column or a card a run: figures at the top, metrics, facts, terms.

The facts are those of ``run.json``: what ran where.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from analysis.charts import ChartedRun, run_style
from analysis.metrics import MetricOptions, RunMetrics
from analysis.pages import Card, PageBlock, PageTable, RunMark, Section, TableCell, Tone, VerdictParagraph
from analysis.tables import metric_rows
from analysis.verdict import Verdict
from analysis.verdict.verdict_in_terminal import heading, opening
from foundation.records import Run, RunInfo
from foundation.units import counted, durations, number

HIGHLIGHTS = (
    ("System", "makespan"),
    ("All jobs", "not completed"),
    ("Interactive jobs", "wait, max"),
    ("All jobs", "waited over"),
    ("All jobs", "S_OSub, mean"),
    ("All jobs", "degradation, mean"),
    ("System", "cores in use"),
    ("Host", "CPU time that others used"),
    ("Host", "pace of the jobs"),
)
"""Rows of the metrics table that stand in each run's card at the top: group, and how the name begins."""
_TONES: dict[str, Tone] = {"better": "good", "worse": "bad", "mixed": "unclear", "unclear": "unclear"}

_LATENCIES = {
    "submission_s": "submission",
    "scheduling_s": "scheduling",
    "release_s": "release",
    "launch_serial_s": "launch of one core",
    "launch_parallel_s": "of several",
    "launch_interactive_s": "of an interactive job",
}
_GANG_NAMES = {"none": "none: the operating system shares the cores", "slurm": "Slurm's own", "osub": "gangd"}


def mark_of(measured: ChartedRun) -> RunMark:
    """Return the sign of a run, in the colour of its curves."""
    return RunMark(run_style(measured.number)["color"], measured.simulated)


def answered(verdict: Verdict) -> list[VerdictParagraph]:
    """Return what comes first: which runs are unfit, and the answer, if there are any."""
    first, best = opening(verdict), verdict.best
    unfit = [VerdictParagraph(*first, "unclear")] if first else []
    return [*unfit, *([] if best is None else [VerdictParagraph(verdict.answer, "", _TONES[best.answer])])]


def of_one(metrics: RunMetrics) -> list[VerdictParagraph]:
    """Return what a single run comes to, in a sentence; nothing where no wait is known."""
    every = metrics.kinds["all"]
    if every.wait_s.mean is None or every.wait_s.max is None:
        return []
    mean, longest = durations(every.wait_s.mean, every.wait_s.max)
    slowdown = every.bounded_slowdown.mean
    slowed = "" if slowdown is None else f"; mean bounded slowdown {number(slowdown)}"
    use = metrics.utilisation_allocated
    used = "" if use is None else f"; {use:.0%} of the cores were in use"
    jobs = counted(every.jobs, "job")
    return [VerdictParagraph(f"{jobs}: waits of {mean} on average, {longest} at most{slowed}{used}.", "")]


def paragraphs(verdict: Verdict) -> list[VerdictParagraph]:
    """Return a paragraph for each finding, then their evidence, without what ``answered`` says."""
    findings = [
        VerdictParagraph(heading(one), " ".join(one.sentences), _TONES.get(one.answer, ""))
        for one in verdict.findings
    ]
    evidence = [
        VerdictParagraph("", sentence, "muted")
        for sentence in verdict.evidence[1 if opening(verdict) else 0 :]
    ]
    return [*findings, *evidence]


def cards(runs: Sequence[ChartedRun], metrics: Sequence[RunMetrics]) -> list[Card]:
    """Return a card for each run."""
    rows = metric_rows(metrics)
    chosen = []
    for group, start in HIGHLIGHTS:
        row = next((row for row in rows if row.group == group and row.name.startswith(start)), None)
        if row is not None and not (start == "not completed" and set(row.cells) == {"0"}):
            chosen.append((("interactive " if group == "Interactive jobs" else "") + row.name, row))
    return [
        Card(run.label, mark_of(run), [(name, row.cells[at], row.best[at]) for name, row in chosen])
        for at, run in enumerate(runs)
    ]


def metrics_section(runs: Sequence[ChartedRun], metrics: Sequence[RunMetrics]) -> Section:
    """Return the metrics, a table for each group of them; several are side by side where they fit."""
    blocks = []
    for name, rows in groupby(metric_rows(metrics), key=lambda row: row.group):
        cells = [
            [
                row.name,
                *(
                    TableCell(text, tone="best") if best else text
                    for text, best in zip(row.cells, row.best, strict=True)
                ),
            ]
            for row in rows
        ]
        blocks.append(PageBlock(name, "", grid=_columns_of_runs(runs, "metric", cells, texts=1)))
    note = ""
    if len(runs) > 1:
        mixed = len({run.simulated for run in runs}) > 1
        note = (
            f"Where the runs differ, the best value{' of the real ones' if mixed else ''} is bold. Whether a "
            "difference is more than chance is in “Differences, with intervals”."
        )
    least = min(230 + 88 * len(runs), 1240)
    return Section("metrics", "Metrics", blocks, abreast=least, lead=note)


def facts_section(
    runs: Sequence[ChartedRun], records: Sequence[Run], metrics: Sequence[RunMetrics]
) -> Section:
    """Return what ran where: host, options, versions, and how the jobs ended."""
    ended = [
        ", ".join(f"{count:,} {state}" for state, count in one.kinds["all"].states.items()) for one in metrics
    ]
    rows = [[name, *texts] for name, texts in (*provenance_rows(records), ("jobs ended", ended))]
    grid = _columns_of_runs(runs, "", rows, texts=1 + len(runs))
    return Section("where", "What ran where", [PageBlock("", "", grid=grid)])


def _columns_of_runs(
    runs: Sequence[ChartedRun], first: str, rows: Sequence[Sequence[str | TableCell]], texts: int
) -> PageTable:
    return PageTable(
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
                "time on cores, all attempts of a job together; useful is what of it was neither lost to a "
                "preemption or a requeue nor spent on setting up again"
            ),
        ),
        ("slowdown S", "(wait + run) / useful run"),
        ("S_OSub", "(wait + run) / dedicated, where dedicated is the run time with every core to itself"),
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
    return Section("definitions", "Definitions", [PageBlock("", caption, terms=terms)])


def provenance_rows(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Return (fact, text for each run); a fact that no run knows is left out."""
    rows = [(name, [fact(run) for run in runs]) for name, fact in _FACTS]
    return [(name, texts) for name, texts in rows if any(texts)]


def _kind(run: Run) -> str:
    if run.info.kind == "simulated":
        return "simulated"
    return f"real cluster, Slurm {run.info.slurm_version}" if run.info.slurm_version else "real cluster"


def _system(run: Run) -> str:
    nodes, cores = run.info.system[1:].split("C")
    return f"{run.info.system}: {counted(int(nodes), 'node')} of {counted(int(cores), 'core')}"


def _queues(run: Run) -> str:
    info = run.info
    if info.queues == "sq":
        return "one queue (SQ)"
    return f"two queues (MQ), {counted(info.interactive_nodes or 0, 'node')} for interactive jobs"


def _policy(run: Run) -> str:
    return run.info.policy + (f" ({run.info.scheduler})" if run.info.scheduler else "")


def _parameters(run: Run) -> str:
    value = (run.info.slurm_config or {}).get("SchedulerParameters", "")
    return "" if value == "(null)" else value.replace(",", ", ")


def _multiplicity(run: Run) -> str:
    info = run.info
    if info.multiplicity_interactive is None:
        return str(info.multiplicity)
    return f"{info.multiplicity} batch, {info.multiplicity_interactive} interactive"


def _gang(run: Run) -> str:
    gang = run.info.gang
    details = [
        f"{gang.quantum_ms:g} ms slices" if gang.quantum_ms else "",
        "held jobs yield" if gang.hold == "yield" else "",
        f"{gang.freezer} freezer" if gang.freezer else "",
    ]
    return ", ".join(part for part in (_GANG_NAMES[gang.kind], *details) if part)


def _trace(run: Run) -> str:
    digest = run.info.trace_sha256
    return run.info.trace_name + (f" (sha256 {digest[:12]}…)" if digest else "")


def _host(run: Run) -> str:
    host = run.info.host
    if host is None:
        return ""
    cpus = f"{host.cpus} x {host.cpu_model}" if host.cpus and host.cpu_model else host.cpu_model or ""
    memory = f"{host.memory_mib / 1024:.1f} GiB" if host.memory_mib else ""
    return ", ".join(part for part in (host.name, cpus, memory, host.os or "") if part)


def _when(run: Run) -> str:
    took = "" if run.info.wall_s is None else f", took {run.info.wall_s:,.1f} s"
    return run.info.started.replace("T", " ").partition(".")[0].removesuffix("Z") + " UTC" + took


def _cpu_time(run: Run) -> str:
    info = run.info
    whole = "" if info.cpu_s is None else f"{info.cpu_s:,.1f} s"
    engine = "" if info.engine_cpu_s is None else f"engine {info.engine_cpu_s:,.2f} s"
    return ", ".join(part for part in (whole, engine) if part)


def _pairs(pairs: dict[str, int] | dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in pairs.items())


def _options(info: RunInfo) -> dict[str, str]:
    return {
        name: str(value)
        for name, value in info.options.items()
        if value is not None and name not in _LATENCIES
    }


def _latencies(run: Run) -> str:
    return ", ".join(
        f"{value} {run.info.options[name]:g} s"
        for name, value in _LATENCIES.items()
        if name in run.info.options
    )


_FACTS: tuple[tuple[str, Callable[[Run], str]], ...] = (
    ("kind", _kind),
    ("system", _system),
    ("queues", _queues),
    ("policy", _policy),
    ("Slurm's parameters", _parameters),
    ("jobs a core, at most (M)", _multiplicity),
    ("gang scheduling", _gang),
    ("trace", _trace),
    ("speed-up", lambda run: f"{run.info.speedup:g}" if run.info.speedup != 1 else ""),
    ("seeds", lambda run: _pairs(run.info.seeds)),
    ("trial", lambda run: str(run.info.trial) if run.info.trial != 1 else ""),
    ("latencies", _latencies),
    ("other options", lambda run: _pairs(_options(run.info))),
    ("host", _host),
    ("started", _when),
    ("command's CPU time", _cpu_time),
    ("osub", lambda run: run.info.tool_version),
    ("folder", lambda run: str(run.path)),
)
