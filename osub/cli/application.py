"""Commands in the one style that all of them have, in groups; options from a specification."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator
from enum import EnumMeta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from typer.core import TyperGroup

from foundation.errors import FieldNames, OsubError

if TYPE_CHECKING:
    import msgspec

    from foundation.specification import SpecField

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


def option_of(name: str) -> str:
    """Return the option of a field, as ``--node-noise`` for ``node_noise``."""
    return f"--{name.replace('_', '-')}"


def takes(spec: type[msgspec.Struct]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each field of a specification, and ``--spec FILE.toml``.

    The command takes the specification first. A parameter of its own takes the place of the field of that
    name. Its errors name fields as options.
    """
    from foundation.specification import fields_of

    fields = fields_of(spec)
    options = {name: (field.option or name).partition("/")[0] for name, field in fields.items()}

    def name_of(name: str) -> str:
        return options.get(name) or option_of(name)

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        _, *rest = inspect.signature(command, eval_str=True).parameters.values()
        own = {one.name: one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in rest}

        @functools.wraps(command)
        def called(*, spec_file: Path | None, **words: Any) -> None:  # noqa: ARG001 - its callback has read it
            given = {name: words.pop(name) for name in fields if name in words and name not in own}
            from_file = click.get_current_context().default_map or {}
            given |= {
                name: from_file[name] for name in fields if not fields[name].option and name in from_file
            }
            try:
                command(spec(**{name: value for name, value in given.items() if value is not None}), **words)
            except OsubError as error:
                error.name_fields(name_of)
                raise

        shown = _parameters(fields, name_of, own)
        called.__signature__ = inspect.Signature([*shown, _spec_file(spec)])  # type: ignore[attr-defined]
        called.__annotations__ = {}
        del called.__wrapped__
        return called

    return decorated


def _parameters(
    fields: dict[str, SpecField], name_of: Callable[[str], str], own: dict[str, inspect.Parameter]
) -> Iterator[inspect.Parameter]:
    """Return the parameters of a command: in the order of the fields, then the rest of its own."""
    for name, field in fields.items():
        if name in own:
            yield own[name]
        elif field.option is not None:
            help_text = field.help.format_map(FieldNames(name_of))
            metavar = field.extra["metavar"]
            info = (
                typer.Argument(help=help_text, metavar=metavar)
                if field.extra.get("argument")
                else typer.Option(field.option, help=help_text, metavar=metavar, min=field.least)
            )
            required = field.default is inspect.Parameter.empty or field.extra.get("required")
            kind, default = _typed(field)
            yield inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if required or field.extra.get("argument") else default,
                annotation=Annotated[kind, info],
            )
    yield from (one for name, one in own.items() if name not in fields)


def _typed(field: SpecField) -> tuple[Any, Any]:
    """Return the type of an option and its default: of several kinds a text is the widest."""
    if field.is_path:
        return Path | None, field.default
    if str in field.kinds:
        return (str | None, None) if field.default is None else (str, str(field.default))
    if field.kinds & {bool, int, float} or any(isinstance(kind, EnumMeta) for kind in field.kinds):
        return field.type, field.default
    return list[str] | None, None


def _spec_file(spec: type[msgspec.Struct]) -> inspect.Parameter:
    def read(context: typer.Context, path: Path | None) -> None:
        from foundation.specification import read_values

        if path is not None:
            context.default_map = {
                name: [f"{key}={one}" for key, one in value.items()] if isinstance(value, dict) else value
                for name, value in read_values(path, spec).items()
            }

    option = typer.Option(
        "--spec",
        metavar="FILE.toml",
        is_eager=True,
        callback=read,
        help="Take what is not said here from this file: Python's parameters and their values.",
    )
    return inspect.Parameter(
        "spec_file", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, option]
    )
