"""``osub advise``: from a site's log to a page that says whether sharing cores would have helped."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from foundation.errors import UsageError
from osub.cli.out_file import Force, check_free
from osub.cli.sweep import print_table
from osub.cli.terminal import Console
from osub.cli.trace.convert import import_options
from osub.cli.trace.files import Lenient, Seed, counting


def advise(
    log: Annotated[
        Path,
        Argument(
            help="`sacct --parsable2` or --json, a job completion log, SWF, plain or gzip, or a RUN.",
            metavar="LOG",
        ),
    ],
    system: Annotated[
        str | None, Option(help="The cluster, such as N40C48; without it, what the log tells.")
    ] = None,
    out: Annotated[
        Path | None, Option(help="Write a page that is complete in itself.", metavar="FILE", dir_okay=False)
    ] = None,
    candidate: Annotated[
        str | None,
        Option(help="The partition that could share; without it, the one of least CPU efficiency."),
    ] = None,
    candidate_nodes: Annotated[
        int | None, Option(min=1, help="Nodes that this partition has for itself today.")
    ] = None,
    overhead: Annotated[
        str,
        Option(
            metavar="LIST|RUN",
            help="C_o, what sharing costs beyond the share, the usual one first; or a RUN to measure it on.",
        ),
    ] = "1.2,1.0,1.4",
    memory_gib: Annotated[
        float | None, Option(help="Memory of a node; without it memory plays no part.")
    ] = None,
    most_degradation: Annotated[
        float, Option(min=1, help="Mean degradation of jobs that share at most.")
    ] = 1.5,
    policy: Annotated[str, Option(help="Scheduling policy: see osub simulate --policies.")] = "easy",
    most_jobs: Annotated[
        int, Option(min=100, help="Simulate a longer log in windows of whole weeks with so many jobs.")
    ] = 100_000,
    idle_watts: Annotated[
        str, Option(metavar="LEAST,MOST", help="Power of a node without work.")
    ] = "130,215",
    busy_watts: Annotated[float, Option(min=1, help="Power of a node that computes.")] = 430.0,
    interactive: Annotated[
        list[str] | None,
        Option(help="Of a Slurm log: which jobs are interactive, as for osub trace convert."),
    ] = None,
    time_zone: Annotated[str | None, Option(help="Of a Slurm log's dates.")] = None,
    seed: Seed = 1,
    lenient: Lenient = False,
    force: Force = False,
    as_json: Annotated[bool, Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Say what sharing cores would have done to the jobs of a log, how sure that is, and how to try it."""
    check_free(out, force, makes_folder=True)
    if candidate_nodes is not None and candidate is None:
        raise UsageError("--candidate-nodes are those of a partition: name it, --candidate NAME")
    options = import_options(log, system, interactive, time_zone)
    from osub.advise.site_log import candidate_of, interactive_jobs, job_classes, memory_facts, read_site_log
    from osub.advise.trials import Question, advise, overheads_named
    from osub.advise.words import advice_text

    with counting(f"reading {log.name}"):
        site = read_site_log(log, options, system, lenient=lenient)
    costs, measured = overheads_named(overhead)
    question = Question(
        policy=policy,
        overheads=costs,
        measured=measured,
        memory_gib=memory_gib,
        most_degradation=most_degradation,
        most_jobs=most_jobs,
        candidate_nodes=candidate_nodes,
        idle_w=_range(idle_watts, busy_watts),
        busy_w=busy_watts,
        seed=seed,
    )
    classes = job_classes(site)
    chosen = candidate_of(classes, len(site.run_s), candidate)
    with counting("simulating") as step:
        found = advise(site, chosen, interactive_jobs(site), question, step)
    words = advice_text(site, classes, memory_facts(site, memory_gib, question.multiplicities, seed), found)
    if out is not None:
        words.write_page(out)
    if as_json:
        sys.stdout.write(words.json())
        return
    console = Console()
    for heading, text in words.paragraphs:
        console.say(f"{heading}: {text}" if heading else text)
    for title, head, rows in words.short_tables:
        print_table(console, title, head, rows)
    for name, lines in words.files:
        console.say(f"# {name}\n{lines}", soft_wrap=True)
    if out is not None:
        console.say(f"Page: {out}")


def _range(text: str, busy_w: float) -> tuple[float, float]:
    """Return the powers in ``130,215``."""
    try:
        low, high = (float(word) for word in text.split(","))
    except ValueError:
        low, high = -1.0, 0.0
    if not 0 <= low <= high <= busy_w:
        raise UsageError(
            f"--idle-watts takes the least and the most of an idle node, not over --busy-watts ({busy_w:g}), "
            f"such as 130,215; not {text[:60]!r}"
        )
    return low, high
