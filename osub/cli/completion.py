"""``osub completion``: what a shell needs to complete commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import click
import typer
from click.shell_completion import get_completion_class

from foundation.errors import UsageError

VARIABLE = "_OSUB_COMPLETE"


class Shell(StrEnum):
    """A shell that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print a script that completes commands and options.

    bash: `eval "$(osub completion bash)"` in ~/.bashrc; zsh: the same in ~/.zshrc; fish: `osub completion
    fish > ~/.config/fish/completions/osub.fish`.
    """
    kind = get_completion_class(str(shell))
    if kind is None:
        raise UsageError(f"no completion for {shell}")
    made = kind(click.Group("osub"), {}, "osub", VARIABLE)
    # `source()` of bash starts a bash to look at its version; the script itself needs none.
    typer.echo(made.source_template % made.source_vars())
