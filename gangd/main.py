"""Entry of ``gangd``: ``run`` is the controller, ``check`` judges a configuration, ``keys`` makes keys."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from foundation.errors import ClusterError, OsubError, UsageError
from foundation.one_line import LONGEST_MESSAGE, one_line
from foundation.slurm import CommandSlurm
from foundation.slurm.hosts import expand_hosts
from foundation.slurm.site_configuration import check_conf
from foundation.slurm.subprocess_reader import ApartSlurm
from foundation.units import counted
from gangd.controller.controller_config import Config, load_config
from gangd.controller.controller_loop import ControllerLoop
from gangd.controller.examine_slurm import examine
from gangd.controller.failover import take_the_lead
from gangd.controller.job_policy import policy_of
from gangd.curve_keys import SHARED_AGENT, load_controller_keys, make_keys
from gangd.daemon_process import allow_open_files, calm_collector
from gangd.monitor.address import add_metrics_options
from gangd.monitor.hand_out import handed_out
from gangd.monitor.metrics_table import CONTROLLER
from gangd.wire.sockets import ControllerSockets

log = logging.getLogger("gangd")


class OneLineEach(logging.Formatter):
    """A message is one line, whatever others' words are in it; tracebacks are ours and stay as they are."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        """Return the line."""
        record.message = one_line(record.message, LONGEST_MESSAGE)
        return super().formatMessage(record)


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``gangd``."""
    main = argparse.ArgumentParser(
        prog="gangd", description="Gang scheduling for jobs that share cores under Slurm: the controller."
    )
    commands = main.add_subparsers(dest="command", metavar="COMMAND", required=True)
    run = commands.add_parser(
        "run",
        help="serve the cluster",
        description="Run the controller. SIGHUP reads the configuration again, SIGUSR1 has state and slice "
        "record written now, SIGTERM thaws everything and leaves, SIGUSR2 leaves without a word: agents "
        "keep their plan up to its lease. Options take precedence over the configuration.",
    )
    run.add_argument("--config", type=Path, metavar="FILE", help="TOML file; docs/gangd.md lists its keys")
    run.add_argument("--keys", type=Path, metavar="DIR", help="key folder")
    run.add_argument("--state", type=Path, metavar="DIR", help="state folder")
    run.add_argument("--slurm-conf", type=Path, metavar="FILE", help="slurm.conf of the cluster")
    run.add_argument("--record", type=Path, metavar="DIR", help="write slices.jsonl into this folder")
    run.add_argument("--publish", metavar="ENDPOINT", help="where plans are published")
    run.add_argument("--reports", metavar="ENDPOINT", help="where reports are taken")
    run.add_argument("--quantum-ms", type=float, metavar="MS", help="length of a slice, 20 to 5000")
    add_metrics_options(run)
    run.add_argument("--dry-run", action="store_true", help="decide and log, but hold nothing")
    run.add_argument("--verbose", action="store_true", help="log more")
    check = commands.add_parser(
        "check",
        help="check a configuration",
        description="Read the configuration, hold it against the live Slurm, and say what is wrong with it. "
        "Exit code 0: it can be in force, warnings may be printed; else one line says why not.",
    )
    check.add_argument("--config", type=Path, metavar="FILE", help="TOML file; docs/gangd.md lists its keys")
    check.add_argument("--slurm-conf", type=Path, metavar="FILE", help="slurm.conf of the cluster")
    check.add_argument("--json", action="store_true", help="print one JSON object")
    keys = commands.add_parser("keys", help="make keys", description="Make the keys that are missing.")
    keys.add_argument(
        "--dir", type=Path, required=True, metavar="DIR", help="key folder, made with mode 0700"
    )
    whose = keys.add_mutually_exclusive_group(required=True)
    whose.add_argument("--agents", metavar="NODES", help="nodes to make a key for, such as n[1-4]")
    whose.add_argument(
        "--shared",
        action="store_true",
        help="make one key that is valid for every node: a thief of it can act for every node",
    )
    return main


def serve(config: Config, reload: Callable[[], Config], *, dry_run: bool) -> None:
    """Check Slurm, open everything, and serve until a signal ends it."""
    client = ApartSlurm(_checked_conf(config), alive_only=True, source=config.jobs_from)
    found = examine(client, config)
    for warning in found.warnings:
        log.warning("%s", warning)
    keys = load_controller_keys(config.keys)
    try:
        calm_collector()
        with ControllerSockets(keys, config.publish, config.reports) as sockets:
            keeper = take_the_lead(config, sockets)
            if keeper is None:
                return
            keeper.know_cluster(found.cluster)
            keeper.status_mode = config.mode_of_status(hides_jobs=found.hides_jobs)
            with closing(keeper):
                loop = ControllerLoop(
                    config, client, sockets, keeper, reload, found.partitions, dry_run=dry_run
                )
                with handed_out(config.metrics_address(), config.metrics_token, CONTROLLER, loop.metrics):
                    loop.run()
    finally:
        client.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    options = parser().parse_args(arguments)
    try:
        if options.command == "keys":
            _keys(options.dir, None if options.shared else options.agents)
        elif options.command == "check":
            _check(options)
        else:
            _run(options)
    except OsubError as error:
        print(f"gangd: {one_line(str(error), LONGEST_MESSAGE)}", file=sys.stderr)
        sys.exit(error.exit_code)


def _run(options: argparse.Namespace) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineEach("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.DEBUG if options.verbose else logging.INFO, handlers=[handler])
    overrides = {name: value for name, value in vars(options).items() if name in Config.__struct_fields__}

    def read() -> Config:
        return load_config(options.config, **overrides)

    allow_open_files()
    serve(read(), read, dry_run=options.dry_run)


def _check(options: argparse.Namespace) -> None:
    config = load_config(options.config, slurm_conf=options.slurm_conf)
    policy_of(config)  # reads the table of losses, too
    found = examine(CommandSlurm(_checked_conf(config)), config)
    if options.json:
        print(json.dumps({"warnings": found.warnings}))
        return
    for warning in found.warnings:
        print(f"gangd: warning: {one_line(warning, LONGEST_MESSAGE)}")
    print(f"the configuration can be in force; {len(found.warnings)} warnings")


def _checked_conf(config: Config) -> Path | None:
    if config.slurm_conf is not None:
        with suppress(FileNotFoundError):  # Slurm's commands say so
            check_conf(config.slurm_conf)
    return config.slurm_conf


def _keys(folder: Path, agents: str | None) -> None:
    try:
        nodes = (SHARED_AGENT,) if agents is None else expand_hosts(agents)
    except ClusterError as error:
        raise UsageError(f"--agents {agents}: {error}") from error
    if not nodes:
        raise UsageError("--agents names no node: no key was made")
    if SHARED_AGENT in nodes:
        print(
            "gangd: warning: every node will have the same key, and each can speak for all others; "
            "--agents makes one for each",
            file=sys.stderr,
        )
    made = make_keys(folder, nodes)
    for path in made:
        print(path)
    print(
        f"{counted(len(made), 'key pair')} made; copy controller.key and a node's pair to each node",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
