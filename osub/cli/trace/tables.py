"""A trace's summary as tables for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from foundation.units import counted, duration, durations
from workloads.behaviour.behaviour_figures import BehaviourStatistics
from workloads.trace.trace_summary import PERCENTILES, JobKindSummary, TraceSummary

BAR_CELLS = 40


def summary_tables(summary: TraceSummary) -> Iterator[RenderableType]:
    """Yield the parts to print, from general to particular."""
    yield _facts(summary)
    yield _spreads(summary)
    sizes = {name: float(count) for name, count in summary.size_counts.items()}
    yield _bars("Processors a job", sizes, lambda jobs: counted(int(jobs), "job"))
    yield _queues(summary)
    hours = {f"{hour:02d}:00": rate for hour, rate in enumerate(summary.arrivals_by_hour)}
    where = "local hour of day" if summary.first_submit else "hour since the trace's start, modulo 24"
    yield _bars(f"Submissions by {where}", hours, lambda rate: f"{rate:,.2f} an hour")
    for remark in summary.remarks or ("nothing to remark",):
        yield f"[yellow]Remark:[/yellow] {_plain(remark)}" if summary.remarks else f"Remarks: {remark}"
    for thanks in summary.acknowledge:
        yield f"Acknowledge where you publish: {_plain(thanks)}"


def _plain(text: str) -> str:
    """Return ``text`` for the terminal: no markup, no control characters from a file."""
    return escape("".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text))


def _percent(share: float | None) -> str:
    return "not known" if share is None else f"{share:.1%}"


def _facts(summary: TraceSummary) -> Table:
    table = Table(title=f"Trace {_plain(summary.name)}", show_header=False, title_justify="left")
    system = " · ".join(part for part in (summary.installation, summary.computer) if part)
    size = [f"{counted(summary.max_nodes, 'node')}"] if summary.max_nodes else []
    size += [f"{counted(summary.max_procs, 'processor')}"] if summary.max_procs else []
    table.add_row("System", _plain(system) or "not named")
    table.add_row("Size", ", ".join(size) or "not known")
    table.add_row("Jobs", f"{summary.jobs:,}")
    table.add_row("Users", "not known" if summary.users is None else f"{summary.users:,}")
    if summary.first_submit and summary.last_submit:
        table.add_row("First submission", summary.first_submit)
        table.add_row("Last submission", summary.last_submit)
    table.add_row("Span", duration(summary.span_s))
    table.add_row("Offered load", _percent(summary.offered_load))
    table.add_row("Serial jobs", _percent(summary.serial_share))
    table.add_row("Power of two (2, 4, 8, ...)", _percent(summary.power_of_two_share))
    table.add_row("With requested time", _percent(summary.requested_time_share))
    table.add_row("With requested memory", _percent(summary.requested_memory_share))
    table.add_row("With CPU time", _percent(summary.cpu_time_share))
    table.add_row("With busy and idle periods", f"{summary.interactive_patterns:,}")
    table.add_row("Status", ", ".join(f"{name} {count:,}" for name, count in summary.status_counts.items()))
    return table


def _spreads(summary: TraceSummary) -> Table:
    table = Table(title="Spread over the jobs", title_justify="left")
    quantities = (
        ("run time", summary.run_s, duration),
        ("waiting time", summary.wait_s, duration),
        ("processors", summary.size, _count),
    )
    columns = [(name, spread, shown) for name, spread, shown in quantities if spread is not None]
    table.add_column("percentile", justify="right")
    for name, _, _ in columns:
        table.add_column(name, justify="right")
    for percentile in PERCENTILES:
        named = {0: "smallest", 50: "median", 100: "largest"}.get(percentile, f"{percentile} %")
        table.add_row(named, *(shown(spread.percentiles[percentile]) for _, spread, shown in columns))
    table.add_row("mean", *(shown(spread.mean) for _, spread, shown in columns))
    table.add_row("jobs with it", *(f"{spread.known:,}" for _, spread, _ in columns))
    return table


def _count(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() else f"{value:,.1f}"


def _queues(summary: TraceSummary) -> Table:
    table = Table(title="Queues", title_justify="left")
    table.add_column("queue", justify="right")
    table.add_column("jobs", justify="right")
    table.add_column("share", justify="right")
    table.add_column("processor hours", justify="right")
    table.add_column("description")
    for queue in summary.queues:
        table.add_row(
            "not known" if queue.queue is None else str(queue.queue),
            f"{queue.jobs:,}",
            _percent(queue.jobs / summary.jobs),
            f"{queue.processor_s / 3600:,.0f}",
            _plain(queue.description),
        )
    return table


def _bars(title: str, values: dict[str, float], shown: Callable[[float], str]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column("", justify="right")
    table.add_column("", justify="right")
    table.add_column("")
    largest = max(values.values(), default=0.0) or 1.0
    for name, value in values.items():
        table.add_row(name, shown(value), "█" * round(BAR_CELLS * value / largest))
    return table


def kinds_table(
    kinds: Mapping[str, JobKindSummary], published: Mapping[str, JobKindSummary] | None = None
) -> Table:
    """Return interactive and batch jobs in the columns of thesis Table 7.2, with its figures if given."""
    table = Table(title="Jobs by kind (columns of thesis Table 7.2)", title_justify="left")
    table.add_column("", no_wrap=True)
    for name in ("jobs", "widest", "run, max", "mean", "busy, max", "mean"):
        table.add_column(name, justify="right")
    rows = [(name, kind) for name, kind in kinds.items()]
    if published is not None:
        rows = [row for name in kinds for row in ((name, kinds[name]), (f"{name}, thesis", published[name]))]
    for name, kind in rows:
        seconds = (kind.max_run_s, kind.mean_run_s, kind.max_busy_s, kind.mean_busy_s)
        table.add_row(
            name,
            f"{kind.jobs:,}",
            "none" if kind.max_procs is None else f"{kind.max_procs:,}",
            *("none" if value is None else f"{value:,.0f} s" for value in seconds),
        )
    return table


def behaviour_table(
    found: BehaviourStatistics, other: tuple[str, BehaviourStatistics] | None = None
) -> Table:
    """Return statistics of interactive jobs next to the published ones, and to those of ``other``."""
    table = Table(title="Interactive behaviour", title_justify="left")
    table.add_column("", no_wrap=True)
    table.add_column("here", justify="right")
    if other is not None:
        table.add_column(other[0], justify="right")
    table.add_column("published", justify="right")
    columns = [found] if other is None else [found, other[1]]
    rows = (
        ("jobs", [f"{one.jobs:,}" for one in columns], "193"),
        ("execution time, 90th percentile", durations(*(one.length_p90_s for one in columns)), "5.2 h"),
        ("shorter than 2 h", [f"{one.short_share:.1%}" for one in columns], "most"),
        ("end at 1, 2, 4, 6 or 12 h", [f"{one.peak_share:.1%}" for one in columns], "peaks"),
        ("under 10 % utilisation", [f"{one.under_10_percent:.1%}" for one in columns], "71 %"),
        ("under 1 % utilisation", [f"{one.under_1_percent:.1%}" for one in columns], "37 %"),
        ("fewer than 10 busy periods", [f"{one.few_periods_share:.1%}" for one in columns], "common"),
        ("most busy periods", [f"{one.most_periods:,}" for one in columns], "94"),
        (
            "longest busy period, 54th percentile",
            [f"{one.longest_busy_p54_s:,.0f} s" for one in columns],
            "30 s",
        ),
        ("longest busy period", [f"{one.longest_busy_s:,.0f} s" for one in columns], "46,715 s"),
    )
    for name, cells, published in rows:
        table.add_row(name, *cells, published)
    return table
