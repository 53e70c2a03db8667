"""``osub completion``: what a shell needs to complete commands, options, file names and clusters."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import click
import typer
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
)
from typer import Argument

from deploy.local.state import live_clusters
from foundation.errors import UsageError

VARIABLE = "_OSUB_COMPLETE"


class Shell(StrEnum):
    """A shell that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


class _FilesElse(ShellComplete):
    """Offers names of files where nothing else is known: Typer says nothing of its paths."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return what is known, else that a file is to be named."""
        return super().get_completions(args, incomplete) or [CompletionItem(incomplete, type="file")]


class _Bash(_FilesElse, BashComplete):
    pass


class _Zsh(_FilesElse, ZshComplete):
    pass


class _Fish(_FilesElse, FishComplete):
    pass


def answer_shells() -> None:
    """Have shells that ask be offered names of files, too."""
    for shell in (_Bash, _Zsh, _Fish):
        add_completion_class(shell)


def clusters(incomplete: str) -> list[str]:
    """Return the folders of this user's clusters that run, of those that begin so."""
    return [str(one.folder) for one in live_clusters() if str(one.folder).startswith(incomplete)]


def clusters_or_environment(incomplete: str) -> list[str]:
    """Return the same, and the word for the environment's Slurm."""
    return [*clusters(incomplete), *(["environment"] if "environment".startswith(incomplete) else [])]


def completion(shell: Annotated[Shell, Argument(help="bash, zsh or fish.")]) -> None:
    """Print a script that completes commands, options, file names and folders of running clusters.

    bash (4.4 or newer): `eval "$(osub completion bash)"` in ~/.bashrc; zsh: the same in ~/.zshrc, after
    `autoload -Uz compinit && compinit`; fish: `osub completion fish > ~/.config/fish/completions/osub.fish`.
    """
    kind = get_completion_class(str(shell))
    if kind is None:
        raise UsageError(f"no completion for {shell}")
    made = kind(click.Group("osub"), {}, "osub", VARIABLE)
    # `source()` of bash starts a bash to look at its version; the script itself needs none.
    typer.echo(made.source_template % made.source_vars())
