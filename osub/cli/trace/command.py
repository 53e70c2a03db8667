"""``osub trace``: look at job traces and transform them."""

from __future__ import annotations

from osub.cli.application import application
from osub.cli.terminal import Console, echo_json
from osub.cli.trace.convert import convert, merge
from osub.cli.trace.exchange import export, fetch, import_workload
from osub.cli.trace.files import AsJson, Lenient, TraceFile, summary_tables
from osub.cli.trace.interactive import generate, interactive, patterns, record_job
from osub.cli.trace.scale import scale
from workloads.swf import load_columns
from workloads.trace.trace_summary import summarize

app = application("Look at job traces and transform them.")


@app.callback()
def trace() -> None:
    """Look at job traces and transform them."""


@app.command()
def info(trace: TraceFile, as_json: AsJson = False, lenient: Lenient = False) -> None:
    """Show a trace's system, span, sizes, run times, queues, arrivals, load, and what to clean."""
    summary = summarize(load_columns(trace, strict=not lenient))
    if as_json:
        echo_json(summary)
        return
    console = Console()
    for part in summary_tables(summary):
        console.print(part)


app.command()(scale)
app.command()(generate)
app.command()(interactive)
app.command()(convert)
app.command()(merge)
app.command()(fetch)
app.command("record")(record_job)
app.command()(patterns)
app.command()(export)
app.command("import")(import_workload)
