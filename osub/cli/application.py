"""A group of commands in the one style that all of them have: plain help, no completion scripts."""

from __future__ import annotations

import typer
from typer.core import TyperGroup


def application(about: str | None = None, group: type[TyperGroup] | None = None) -> typer.Typer:
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
