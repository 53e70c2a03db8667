"""``osub``: the commands, put together; every error becomes one line and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import click
import typer

from osub import __version__
from osub.cli import cluster, demo, doctor, replay, report, trace
from osub.errors import OsubError

app = typer.Typer(
    name="osub",
    help="Oversubscribe a Slurm cluster, replay traces on it, and measure what comes of it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(cluster.app, name="cluster")
app.add_typer(trace.app, name="trace")
app.command("replay")(replay.replay)
app.command("report")(report.report)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"osub {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Oversubscribe a Slurm cluster, replay traces on it, and measure what comes of it."""


def main() -> None:
    """Run the command line; exit code 2 for usage, 1 for any other error, 130 for Ctrl-C."""
    sys.exit(run(sys.argv[1:]))


def run(words: list[str]) -> int:
    """Run one command and return its exit code."""
    try:
        code = app(words, prog_name="osub", standalone_mode=False)
    except OsubError as error:
        return _complain(str(error), error.exit_code)
    except click.UsageError as error:
        where = f" (see `{error.ctx.command_path} --help`)" if error.ctx else ""
        return _complain(f"{error.format_message().rstrip('.')}{where}", 2)
    except click.ClickException as error:
        return _complain(error.format_message(), 1)
    except (click.Abort, KeyboardInterrupt):
        return _complain("interrupted", 130)
    except BrokenPipeError:
        # Whoever read our output has gone (`osub ... | head`): nothing to say, and nobody to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _complain(f"{error.filename or 'operating system'}: {error.strerror or error}", 1)
    return code if isinstance(code, int) else 0


def _complain(message: str, code: int) -> int:
    print(f"osub: {' '.join(message.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
