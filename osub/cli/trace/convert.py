"""``osub trace convert`` and ``merge``: parts, mergers, compression and tags of traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer
from typer import Argument, Option

from foundation.errors import UsageError
from foundation.units import counted, counted_of
from osub.cli.trace import files
from osub.live.system_named import size_named
from workloads.importers.assemble_trace import INTERACTIVE, INTERACTIVE_QUEUE, ImportOptions, beyond_system
from workloads.importers.detect_log import STDIN, LogKind, read_any
from workloads.swf import SwfTrace
from workloads.swf.swf_reader import trace_name
from workloads.trace import transforms
from workloads.trace.transforms import Align, DrawBy, Tag, TagField


def merge(
    traces: Annotated[list[Path], Argument(help="SWF files, plain or gzip.", metavar="TRACE TRACE...")],
    out: files.OutFile,
    align: Annotated[
        Align, Option(help="What falls together: the traces' seconds 0, or equal dates.")
    ] = Align.START,
    same_users: Annotated[
        bool,
        Option(
            "--same-users/--other-users", help="Whether equal user numbers are the same user in all traces."
        ),
    ] = True,
    force: files.Force = False,
    lenient: files.Lenient = False,
    as_json: files.AsJson = False,
) -> None:
    """Merge the jobs of several traces in the order of submission, under the first one's header.

    A job whose number is taken gets the next free one.
    """
    files.check_free(out, force)
    if len(traces) < 2:
        raise UsageError("osub trace merge takes at least two traces; `osub trace convert` takes one")
    merged = transforms.merge_traces([files.load(path, lenient) for path in traces], align, same_users)
    files.deliver(merged, out)
    if as_json:
        files.print_json({"trace": str(out), "jobs": len(merged.jobs), "notes": [merged.header.notes[-1]]})
        return
    typer.echo(f"{out}: {counted(len(merged.jobs), 'job')} of {counted(len(traces), 'trace')}")


def convert(
    trace: Annotated[
        Path,
        Argument(
            help="SWF, `sacct --parsable2`, `sacct --json` or jobcomp/filetxt log, plain or gzip; - is "
            "standard input (not for SWF).",
            metavar="LOG",
        ),
    ],
    out: files.OutFile,
    system: Annotated[
        str | None, Option(help="The cluster of a Slurm log, such as N40C48; without it, a guess.")
    ] = None,
    interactive: Annotated[
        list[str] | None,
        Option(
            help="Of a Slurm log: which jobs are interactive, FIELD=PATTERN with name, partition, qos, "
            "account or user, such as partition=devel. May repeat; replaces the usual names of shells."
        ),
    ] = None,
    time_zone: Annotated[
        str | None, Option(help="Of a Slurm log's dates, such as Europe/Berlin; by default this host's.")
    ] = None,
    start: Annotated[float | None, Option(min=0, help="First second to keep.")] = None,
    length: Annotated[float | None, Option(help="Seconds to keep from there.")] = None,
    users: Annotated[str | None, Option(help="Only these users, such as 1,4,7-9.")] = None,
    not_users: Annotated[str | None, Option(help="Without these users.")] = None,
    queues: Annotated[str | None, Option(help="Only these queues.")] = None,
    not_queues: Annotated[str | None, Option(help="Without these queues.")] = None,
    partitions: Annotated[str | None, Option(help="Only these partitions.")] = None,
    statuses: Annotated[str | None, Option(help="Only these SWF statuses; 1 is completed.")] = None,
    least_procs: Annotated[int | None, Option(min=0, help="Smallest job to keep.")] = None,
    most_procs: Annotated[int | None, Option(min=0, help="Largest job to keep.")] = None,
    shortest: Annotated[float | None, Option(min=0, help="Shortest run time to keep.")] = None,
    longest: Annotated[float | None, Option(min=0, help="Longest run time to keep.")] = None,
    arrivals: Annotated[
        float | None, Option(help="So many times as many jobs in the same time; below 1, fewer.")
    ] = None,
    gaps: Annotated[
        float | None, Option(help="Divide the times between submissions; run times stay.")
    ] = None,
    raise_runs: Annotated[float | None, Option(min=0, help="Raise shorter run times to this, in s.")] = None,
    cut_runs: Annotated[float | None, Option(min=0, help="Cut longer run times to this, in s.")] = None,
    tag: Annotated[
        list[str] | None,
        Option(
            help="Tag jobs: FIELD=NUMBER[:NAME], FIELD is queue, partition, group or executable. May repeat."
        ),
    ] = None,
    tag_share: Annotated[
        float, Option(min=0, max=1, help="Share of the jobs (or users) that a tag goes to.")
    ] = 1.0,
    tag_by: Annotated[DrawBy, Option(help="Whether jobs or whole users are drawn.")] = DrawBy.JOB,
    tag_queues: Annotated[str | None, Option(help="Tag only jobs of these queues.")] = None,
    tag_users: Annotated[str | None, Option(help="Tag only jobs of these users.")] = None,
    tag_most_procs: Annotated[int | None, Option(min=0, help="Tag only jobs up to this size.")] = None,
    speedup: Annotated[float | None, Option(help="Divide every time by this.")] = None,
    sort: Annotated[bool, Option("--sort", help="Order the jobs by submission.")] = False,
    seed: files.Seed = 1,
    force: files.Force = False,
    lenient: files.Lenient = False,
    as_json: files.AsJson = False,
) -> None:
    """Write LOG, of whatever known kind, as a sound SWF trace.

    What is asked for is done in the order of these options. Every transform leaves a Note in the header that
    says what was done, with its seed.
    """
    files.check_free(out, force)
    asked = transforms.TraceConversion(
        start_s=start,
        length_s=length,
        selection=transforms.Selection(
            users=files.parse_numbers(users, "--users"),
            not_users=files.parse_numbers(not_users, "--not-users"),
            queues=files.parse_numbers(queues, "--queues"),
            not_queues=files.parse_numbers(not_queues, "--not-queues"),
            partitions=files.parse_numbers(partitions, "--partitions"),
            statuses=files.parse_numbers(statuses, "--statuses"),
            least_procs=least_procs,
            most_procs=most_procs,
            shortest_s=shortest,
            longest_s=longest,
        ),
        arrivals=arrivals,
        gaps=gaps,
        shortest_run_s=raise_runs,
        longest_run_s=cut_runs,
        tagging=transforms.Tagging(
            tags=tuple(map(parse_tag, tag or ())),
            share=tag_share,
            by=tag_by,
            among=transforms.Selection(
                users=files.parse_numbers(tag_users, "--tag-users"),
                queues=files.parse_numbers(tag_queues, "--tag-queues"),
                most_procs=tag_most_procs,
            ),
        ),
        speedup=speedup,
        sort=sort,
        seed=seed,
    )
    options = import_options(trace, system, interactive, time_zone)
    with files.working(f"reading {trace}"):
        original, kind = read_any(trace, options, strict=not lenient)
    if original.report.skipped:
        typer.echo(f"osub: left out of {trace}: {files.skipped_in_words(original)}", err=True)
    if kind is LogKind.SWF and (system, interactive, time_zone) != (None, None, None):
        raise UsageError(
            f"{trace} is SWF: --system, --interactive and --time-zone are for logs of Slurm's; `osub trace "
            "scale --system` fits a trace to another system"
        )
    warn_of_options(original, options, trace)
    files.say_joined(trace, original)
    with files.working("transforming"):
        changed = transforms.converted(original, asked)
    files.deliver(changed, out)
    # what the import did is news, too; the notes of an SWF trace are not
    notes = list(changed.header.notes[len(original.header.notes) if kind is LogKind.SWF else 0 :])
    if as_json:
        files.print_json(
            {
                "trace": str(out),
                "kind": kind.value,
                "jobs_before": len(original.jobs),
                "jobs": len(changed.jobs),
                "skipped": original.report.skipped,
                "notes": notes,
            }
        )
        return
    for note in notes:
        typer.echo(note)
    found = len(original.jobs) + original.report.skipped_lines
    typer.echo(f"{out}: {counted_of(len(changed.jobs), found, 'job')}")


def warn_of_options(trace: SwfTrace, options: ImportOptions, path: Path) -> None:
    """Print what of the options does not fit the log that was read: its system, the patterns of jobs."""
    beyond = None if options.procs is None else beyond_system(trace, options.procs)
    if beyond is not None:
        typer.echo(
            f"osub: --system is too small for {path}: {beyond}; name the system of the log here, and fit the "
            "trace to a smaller one with `osub trace scale --system`",
            err=True,
        )
    own = options.interactive != INTERACTIVE
    if own and not any(job.queue == INTERACTIVE_QUEUE for job in trace.jobs):
        typer.echo(f"osub: no job of {path} fits --interactive {' or '.join(options.interactive)}", err=True)


def import_options(
    path: Path, system: str | None, interactive: list[str] | None, time_zone: str | None
) -> ImportOptions:
    """Return how to read a Slurm log; ``UsageError`` for a system or time zone that does not exist."""
    size = size_named(system)
    try:
        zone = None if time_zone is None else ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(
            f"--time-zone: this host knows no {time_zone!r}; write it as Europe/Berlin"
        ) from error
    return ImportOptions(
        name="sacct" if path == STDIN else trace_name(path),
        interactive=INTERACTIVE if interactive is None else tuple(interactive),
        nodes=None if size is None else size[0],
        procs=None if size is None else size[0] * size[1],
        zone=zone,
    )


def parse_tag(text: str) -> Tag:
    """Read FIELD=NUMBER or FIELD=NUMBER:NAME; ``UsageError`` for anything else."""
    field, equals, rest = text.partition("=")
    number, colon, name = rest.partition(":")
    try:
        if not equals:
            raise ValueError(text)
        return Tag(TagField(field.strip()), int(number), name.strip() or None if colon else None)
    except ValueError as error:
        fields = ", ".join(TagField)
        raise UsageError(
            f"--tag takes FIELD=NUMBER or FIELD=NUMBER:NAME with {fields}, not {text!r}"
        ) from error
