"""A group of commands in the one style that all of them have: plain help, no completion scripts."""

from __future__ import annotations

import click
import typer
from typer.core import TyperGroup

_LONGEST_LINE = 200
"""So long may be what a list of commands says of each: the first sentence of its help, whole."""


class Group(TyperGroup):
    """A group whose list of commands cuts no sentence."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the first sentence of each."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, command.get_short_help_str(_LONGEST_LINE))
                    for name, command in commands
                    if command is not None and not command.hidden
                ]
            )


def application(about: str | None = None, group: type[TyperGroup] = Group) -> typer.Typer:
    """Return an empty group of commands.

    Parameters
    ----------
    about
        What its help says; without it a group of a single command, which is then that command.
    group
        The class of the group, where its members are not fixed.
    """
    return typer.Typer(
        help=about,
        no_args_is_help=about is not None,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        cls=group,
    )
