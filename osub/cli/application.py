"""A group of commands in the one style that all of them have: plain help, no completion scripts."""

from __future__ import annotations

import math
from typing import Any

import click
import typer
from typer.core import TyperGroup

_LONGEST_LINE = 200
"""So long may be what a list of commands says of each: the first sentence of its help, whole."""


class CommandGroup(TyperGroup):
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


class _NoNan(click.ParamType):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; ``nan`` is none."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a valid number.", param, ctx)
        return number


class _Number(_NoNan, click.types.FloatParamType):
    """A number; no bound refuses what is none."""


class _NumberInBounds(_NoNan, click.FloatRange):
    """A number in bounds."""


def refuse_nan(command: click.Command) -> None:
    """Have every option of a command, and of those below it, that takes a number refuse ``nan``."""
    for param in command.params:
        known = param.type
        if isinstance(known, click.FloatRange):
            param.type = _NumberInBounds(known.min, known.max, known.min_open, known.max_open, known.clamp)
        elif known is click.FLOAT:
            param.type = _Number()
    for member in command.commands.values() if isinstance(command, click.Group) else ():
        refuse_nan(member)


def application(about: str | None = None, group: type[TyperGroup] = CommandGroup) -> typer.Typer:
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
