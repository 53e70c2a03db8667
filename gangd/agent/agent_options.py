"""The agent's command line, read with the standard library: the hammer must work on a sick host."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

from gangd.freezer.freezer_choice import KINDS
from gangd.guardian.state_folders import STATE_DIR
from gangd.hold.deprioritizer_choice import WAYS
from gangd.monitor.address import add_metrics_options

PUBLISH_PORT = 7321
KEYS_DIR = Path("/etc/gangd/keys")

_NOTE = """\
Without COMMAND it is run. The agent thaws everything when it loses its controller, when a signal
ends it, and when it dies: a guardian process sees to that. Exit codes: 0 done, 1 the host refuses,
2 wrong usage."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``gang-agent``."""
    main = argparse.ArgumentParser(prog="gang-agent", description=__doc__, epilog=_NOTE)
    main.description = "Hold and run the jobs of this node at the instants that gangd publishes."
    commands = main.add_subparsers(dest="command", metavar="COMMAND", required=True)
    run = commands.add_parser("run", help="serve this node", epilog=_NOTE)
    _node_options(run)
    run.add_argument(
        "--controller",
        dest="controllers",
        metavar="ADDR",
        action="append",
        help=f"HOST, HOST:PORT (default port {PUBLISH_PORT}; reports go to the next port), or two ZeroMQ "
        "endpoints: PUBLISH,REPORTS; again for a standby",
    )
    run.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="TOML file with controllers, keys and extern, which options override; SIGHUP reads it again",
    )
    run.add_argument("--keys", dest="keys_dir", type=Path, metavar="DIR", help=f"key folder ({KEYS_DIR})")
    run.add_argument("--freezer", choices=KINDS, default="auto", help="way of freezing (%(default)s)")
    run.add_argument("--root", type=Path, metavar="DIR", help="mount of the freezer's cgroup hierarchy")
    run.add_argument(
        "--hold-by", choices=WAYS, default="auto", help="how jobs yield that do not freeze (%(default)s)"
    )
    run.add_argument("--cpu-root", type=Path, metavar="DIR", help="mount of the cpu hierarchy, to yield by")
    run.add_argument("--slurm-conf", type=Path, metavar="FILE", help="slurm.conf to ask for ProctrackType")
    run.add_argument("--extern", choices=("hold", "run"), help="step_extern (hold)")
    add_metrics_options(run)
    run.add_argument(
        "--no-realtime",
        dest="realtime",
        action="store_false",
        help="ask for no priority and no locked memory",
    )
    run.add_argument("--no-native", dest="native", action="store_false", help="switch by Python alone")
    run.add_argument("--dry-run", action="store_true", help="find, decide and report, but freeze nothing")
    thaw = commands.add_parser("thaw", help="thaw what agents of this host left; needs no daemon")
    _node_options(thaw, every_node=True)
    which = thaw.add_mutually_exclusive_group(required=True)
    which.add_argument("--all", action="store_true", help="everything that any agent froze here")
    which.add_argument(
        "--expired",
        action="store_true",
        help="only where the agent is dead or its lease is over (health check)",
    )
    thaw.add_argument(
        "--scan",
        action="store_true",
        help="with --all: also every frozen job cgroup that no agent recorded, no matter who froze it "
        "(this resumes jobs that Slurm has suspended)",
    )
    thaw.add_argument("--root", type=Path, metavar="DIR", help="mount of the freezer's hierarchy, for --scan")
    thaw.add_argument(
        "--pause",
        type=float,
        default=60.0,
        metavar="S",
        help="with --all: agents freeze nothing for S (%(default)s)",
    )
    thaw.add_argument("--dry-run", action="store_true", help="say what would be thawed")
    thaw.add_argument("--json", action="store_true", help="print one JSON object")
    return main


def with_command(arguments: list[str]) -> list[str]:
    """Put ``run`` in front of arguments that begin with an option of it."""
    first = arguments[0] if arguments else ""
    return ["run", *arguments] if first.startswith("-") and first not in ("-h", "--help") else arguments


def endpoints(address: str) -> tuple[str, str]:
    """Publish and report endpoints of a ``--controller`` value; raises ValueError if it is none."""
    if "," in address:
        publish, _, reports = address.partition(",")
        return publish, reports
    host, colon, port = address.removeprefix("tcp://").rpartition(":")
    if not colon:
        host, port = port, str(PUBLISH_PORT)
    if not host or not port.isdigit():
        raise ValueError(f"{address} is no HOST, HOST:PORT or PUBLISH,REPORTS")
    return f"tcp://{host}:{port}", f"tcp://{host}:{int(port) + 1}"


def _node_options(command: argparse.ArgumentParser, *, every_node: bool = False) -> None:
    command.add_argument(
        "--node",
        default=None if every_node else socket.gethostname().split(".", 1)[0],
        metavar="NAME",
        help="Slurm's name of the node" + (" (default: all)" if every_node else " (%(default)s)"),
    )
    command.add_argument(
        "--state",
        dest="state_dir",
        type=Path,
        default=None if every_node else STATE_DIR,
        metavar="DIR",
        help="folder of state files"
        + (" (default: of all agents of this host)" if every_node else ", best on tmpfs (%(default)s)"),
    )
