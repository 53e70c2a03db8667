"""Entry of ``gang-agent``: ``run`` serves a node, ``thaw`` is the operator's hammer."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence

from foundation.errors import OsubError, UsageError
from foundation.one_line import LONGEST_MESSAGE, one_line
from foundation.units import counted
from gangd.agent.agent_options import endpoints, parser, with_command
from gangd.agent.thaw_tool import (
    ThawReport,
    find_frozen,
    find_low,
    raise_scanned,
    thaw_recorded,
    thaw_scanned,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    command_line = parser()
    options = command_line.parse_args(with_command(list(sys.argv[1:] if arguments is None else arguments)))
    try:
        sys.exit(_thaw(options) if options.command == "thaw" else _run(command_line, options))
    except OsubError as error:
        print(f"gang-agent: {one_line(str(error), LONGEST_MESSAGE)}", file=sys.stderr)
        sys.exit(error.exit_code)


def _run(command_line: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from gangd.agent.assemble import AgentSettings, serve  # the hammer does without all that this imports
    from gangd.monitor.address import read_address

    try:
        options.controllers = tuple(options.controllers or ())
        for address in options.controllers:
            endpoints(address)
        options.metrics = None if options.metrics is None else read_address(options.metrics)
    except (ValueError, UsageError) as error:
        command_line.error(str(error))
    if not options.controllers and options.config is None:
        command_line.error("--controller is needed, or --config with controllers")
    settings = {name: value for name, value in vars(options).items() if name != "command"}
    return serve(AgentSettings(**settings))


def _thaw(options: argparse.Namespace) -> int:
    pause_s = options.pause if options.all else 0.0
    blow = thaw_recorded(
        options.state_dir,
        options.node,
        only_expired=options.expired,
        pause_s=pause_s,
        dry_run=options.dry_run,
    )
    if options.all and options.scan:
        thaw_scanned(options.root, options.node, blow, dry_run=options.dry_run)
        if options.root is None:
            raise_scanned(options.node, blow, dry_run=options.dry_run)
    if not options.dry_run:
        find_frozen(options.root, options.state_dir, options.node, blow)
        if options.root is None:
            find_low(options.state_dir, options.node, blow)
    _tell(blow, options)
    return 1 if blow.failures or blow.frozen or blow.low else 0


def _tell(blow: ThawReport, options: argparse.Namespace) -> None:
    jobs = sorted(blow.jobs)
    if options.json:
        fields = {"files": blow.files, "jobs": jobs, "scanned": blow.scanned, "failures": blow.failures}
        fields |= {"frozen": blow.frozen, "low": blow.low}
        print(json.dumps(fields | {"dry_run": options.dry_run}))
        return
    verb = "would thaw" if options.dry_run else "thawed"
    for text in blow.failures:
        print(f"gang-agent: cannot thaw {one_line(text, LONGEST_MESSAGE)}", file=sys.stderr)
    for path in blow.frozen:
        print(
            f"gang-agent: {path} is frozen still, and no live agent holds it. "
            "If Slurm has not suspended the job: gang-agent thaw --all --scan",
            file=sys.stderr,
        )
    for path in blow.low:
        print(
            f"gang-agent: {path} still yields to all processes, and no live agent holds it. "
            "To give it its priority back: gang-agent thaw --all --scan",
            file=sys.stderr,
        )
    named = f": {', '.join(map(str, jobs))}" if jobs else ""
    if options.all and not options.scan and not blow.files:
        print("gang-agent: no agent left a state file here; --scan looks at all job cgroups", file=sys.stderr)
    with contextlib.suppress(BrokenPipeError):
        print(
            f"{verb} {counted(len(jobs), 'job')} that agents held{named}; {counted(blow.files, 'state file')}"
        )
        for path in blow.scanned:
            print(f"{verb} {path}")


if __name__ == "__main__":
    main()
