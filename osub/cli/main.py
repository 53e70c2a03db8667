"""``osub``: the commands, put together; every error becomes one line and an exit code.

A command's module is imported when the command is called: what one of them needs (a compiler, a chart
library) costs the others nothing.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import io
import os
import re
import select
import signal
import sys
from typing import TextIO

import click
import typer

from foundation.errors import OsubError
from foundation.interruption import end, interrupted_by_signals, is_noted, note, status
from foundation.one_line import LONGEST_MESSAGE, one_line
from foundation.version import VERSION
from osub.cli.application import application, option_of, refuse_nan

# The order of `osub --help`: what a newcomer tries first comes first.
COMMANDS = {
    "demo": "One trace under several settings on this host, and one report.",
    "doctor": "Say what this host offers: Slurm, MPI, freezer, cgroup, PMU, CPUs.",
    "cluster": "A real Slurm on this host, for experiments.",
    "trace": "Look at job traces and transform them.",
    "workloads": "The applications inside the jobs: compile, calibrate, check.",
    "replay": "Submit each job of a trace to Slurm at its instant, and write the RUN.",
    "top": "Who runs in this time slice and who is held, live.",
    "gang": "Control gangd while it runs: pause, resume, drain, weigh by node, partition, job.",
    "simulate": "The same trace on a simulated cluster, in a moment; writes a RUN, too.",
    "advise": "A site's log: would sharing cores have helped, how sure is that, and how to try it.",
    "sweep": "Many settings at once, each run once and kept; or a search for the best.",
    "experiment": "Published experiments again, with the published numbers next to ours.",
    "evict": "Which running jobs to kill or checkpoint so that nodes are free by a deadline.",
    "on-demand": "Notice of jobs that are to start the moment they come, and the service for them.",
    "predict": "Which applications may share a core: counters, measured pairs, models.",
    "compare": "Real and simulated runs of a trace, metric by metric and job by job.",
    "report": "Draw RUNs side by side on one page.",
    "runs": "RUN folders: list them, and remove them safely.",
    "completion": "A script with which bash, zsh or fish complete commands, options and files.",
}


_INSIDE = {
    "convert": "trace convert",
    "down": "cluster down",
    "generate": "trace generate",
    "info": "trace info",
    "tune": "sweep tune",
    "up": "cluster up",
}
"""Subcommands that are tried without their group."""

READER_HAS_GONE = 128 + signal.SIGPIPE
"""Exit code of a closed pipe (`osub ... | head`): that of a tool which SIGPIPE ends."""

_FOLDERS = frozenset(["evict", "predict", "top", "trace"])
"""Commands of several modules; ``command`` is the one to begin with."""


class Commands(click.Group):
    """A group whose members are the modules and folders of ``osub.cli``, imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        """Return the names in the order of ``COMMANDS``."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as click calls it
        """Import the module of that name and return its ``app``, or its function as a command."""
        if cmd_name not in COMMANDS:
            return None
        where = f"{cmd_name}.command" if cmd_name in _FOLDERS else cmd_name
        module = importlib.import_module(f"osub.cli.{where.replace('-', '_')}")
        app = getattr(module, "app", None)
        if app is None:
            app = application()
            app.command(cmd_name)(getattr(module, cmd_name))
        command: click.Command = typer.main.get_command(app)
        command.name = cmd_name
        refuse_nan(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of a word; where there is none, the error names what it is nearly."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], COMMANDS)
            if near := [*near, *filter(None, [_INSIDE.get(args[0])])]:
                error.message = f"{error.message.rstrip('.')}. Did you mean {', '.join(map(repr, near))}?"
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as click calls it
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=Commands,
    name="osub",
    help="Oversubscribe a Slurm cluster, replay traces on it, and measure what comes of it.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(VERSION, prog_name="osub")
def root() -> None:
    """Only the group: each command does its own work."""


def main() -> None:
    """Run the command line; exit code 2 for usage, 1 for any other error, 130 for Ctrl-C, 143 for SIGTERM.

    A closed pipe (``osub ... | head``) exits silently with 141, as a tool that SIGPIPE ends.
    """
    for stream in (sys.stdout, sys.stderr):
        # What a locale has no letters for, and names of files that are no text, are shown as ?.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    with interrupted_by_signals():
        code = run(sys.argv[1:])
        if is_noted():
            end(code)
    sys.exit(code)


def run(words: list[str]) -> int:
    """Run one command and return its exit code."""
    note(None)
    try:
        code = _called(words)
    except OsubError as error:
        error.name_fields(option_of)
        return _complain(str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return 2
    except click.UsageError as error:
        where = f" (see `{error.ctx.command_path} --help`)" if error.ctx else ""
        return _complain(f"{_plain(error.format_message())}{where}", 2)
    except click.ClickException as error:
        return _complain(error.format_message(), 1)
    except (click.Abort, KeyboardInterrupt) as error:
        # A command that can be resumed says how; Click passes it on as a cause.
        said = str(error.__cause__ or error)
        return _complain(f"interrupted: {said}" if said else "interrupted", status())
    except UnicodeEncodeError as error:
        said = error.object[max(0, error.start - 40) : error.end + 40]
        return _complain(f"{said!r} is no text: names must be UTF-8 here", 1)
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _drop_unread_output():
            return READER_HAS_GONE
        if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            _drop(sys.stdout)
            return _complain(f"cannot write: {error.strerror}", 1)
        return _complain(f"{error.filename or 'operating system'}: {error.strerror or error}", 1)
    except RuntimeError as error:
        # CPython 3.11 makes one of what is raised in __set_name__, while a module is imported.
        if isinstance(error.__cause__, KeyboardInterrupt):
            return _complain("interrupted", status())
        raise
    return code if isinstance(code, int) else 0


def _called(words: list[str]) -> object:
    """Call a command and return what it returns, its output written.

    Raises
    ------
    BrokenPipeError
        The output's pipe is closed. Click would end the process with 1 itself.
    """
    if "_OSUB_COMPLETE" in os.environ:
        from osub.cli.completion import answer_shells

        answer_shells()
    try:
        code: object = root.main(words, prog_name="osub", standalone_mode=False)
        if sys.stdout is not None:  # closed by the caller
            sys.stdout.flush()
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):
            raise ended.__context__ from None
        raise
    return code


def _drop_unread_output() -> bool:
    """Have what is still to be printed to a pipe without a reader go nowhere; False if there is none."""
    streams = {stream.fileno(): stream for stream in (sys.stdout, sys.stderr) if stream is not None}
    look = select.poll()
    for fd in streams:
        look.register(fd, 0)  # an error is reported without being asked for
    gone = [streams[fd] for fd, seen in look.poll(0) if seen & select.POLLERR]
    for stream in gone:
        _drop(stream)
    return bool(gone)


def _drop(stream: TextIO) -> None:
    """Have what is still to be printed go nowhere, or Python would complain of it once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _plain(message: str) -> str:
    """Return what Click says of a word in plain words."""
    kinds = {"float": "number", "integer": "whole number"}
    text = re.sub(r"valid (float|integer)( range)?\b", lambda found: kinds[found[1]], message.rstrip("."))
    return re.sub(r"(?<![.?]) Did you mean", ". Did you mean", text)


def _complain(message: str, code: int) -> int:
    print(f"osub: {one_line(' '.join(message.split()), LONGEST_MESSAGE)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
