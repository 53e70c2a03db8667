"""A specification declares once what a command, a function and a file take.

It is a msgspec struct. Each field is ``Annotated`` with ``about(...)``: help, metavar, bounds. From it come
the options of a command (``osub.cli.application.takes``), the keywords of a function (``signature_of``,
``parameters_of``), keys of a TOML file (``read_values``) and checks of what is given (``checked``).
"""

from __future__ import annotations

import difflib
import inspect
import math
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec

from foundation.errors import FieldNames, InputError, UsageError
from foundation.one_line import one_line

PathText = str | PathLike[str]
"""A path, or its text."""
_Spec = TypeVar("_Spec", bound=msgspec.Struct)
_MOST_BYTES = 16 << 20
_KINDS: dict[type, tuple[type, str]] = {
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "a text"),
    bool: (bool, "True or False"),
    type(None): (type(None), "None"),
}
"""Of an annotation's parts what a value is an instance of, and the words for it."""


def about(help: str, *, metavar: str | None = None, ge: float | None = None, **extra: Any) -> msgspec.Meta:  # noqa: A002 - as Typer calls it
    """Return what there is to say of a field.

    Parameters
    ----------
    help
        One sentence; ``{name}`` is another field, which a command names as its option.
    metavar
        What its value is, such as its unit.
    ge
        Its least value.
    extra
        ``option``: the option's name where it is not the field's, None: there is none. ``argument``: a
        command takes it by position. ``required``: a command does not run without. ``keyword``, ``swept``:
        whether a function and a sweep take it (True).
    """
    return msgspec.Meta(description=help, ge=ge, extra={"metavar": metavar, **extra})


@dataclass(frozen=True, slots=True)
class SpecField:
    """A field of a specification: see ``about``; ``kinds`` are the parts of its type."""

    name: str
    type: Any
    kinds: frozenset[Any]
    default: Any
    help: str
    least: float | None
    extra: Mapping[str, Any]

    @property
    def option(self) -> str | None:
        """Its option on the command line; None: there is none."""
        option: str | None = self.extra.get("option", f"--{self.name.replace('_', '-')}")
        return option

    @property
    def is_path(self) -> bool:
        """Whether it names a file or a folder."""
        return PathLike[str] in self.kinds

    def wanted(self, value: object) -> str | None:
        """Return in words what it takes where ``value`` is nothing of it, else None.

        A truth is no number here, nor is ``nan``.
        """
        if not self.kinds <= {*_KINDS, PathLike[str]}:
            takes_many = any(get_origin(kind) in (Sequence, Mapping) for kind in self.kinds)
            has_many = isinstance(value, Sequence | Mapping | None) and not isinstance(value, str)
            return None if has_many or not takes_many else "a mapping or a list"
        if not any(_is_of(value, kind) for kind in self.kinds - {PathLike[str]}):
            return " or ".join(words for kind, (_, words) in _KINDS.items() if kind in self.kinds)
        if isinstance(value, float) and math.isnan(value):
            return "a number"
        if self.least is not None and isinstance(value, int | float) and value < self.least:
            return f"a number of at least {self.least:g}"
        return None


def _is_of(value: object, kind: Any) -> bool:
    return isinstance(value, _KINDS[kind][0]) and (kind is bool or not isinstance(value, bool))


@cache
def fields_of(spec: type[msgspec.Struct]) -> dict[str, SpecField]:
    """Return the fields of a specification by name, in its order."""
    found = {}
    for one in msgspec.structs.fields(spec):
        plain, *metas = get_args(one.type) if get_origin(one.type) is Annotated else (one.type,)
        meta = metas[0] if metas else about("", option=None, keyword=False)
        kinds = frozenset(get_args(plain) or (plain,))
        default = inspect.Parameter.empty if one.required else one.default
        found[one.name] = SpecField(
            one.name, plain, kinds, default, meta.description or "", meta.ge, meta.extra or {}
        )
    return found


def given_fields(spec: type[msgspec.Struct]) -> dict[str, SpecField]:
    """Return the fields that a file can give: None is what it does not say."""
    return {
        name: replace(field, kinds=field.kinds - {type(None)})
        for name, field in fields_of(spec).items()
        if field.extra.get("keyword", True)
    }


def checked(spec: _Spec) -> _Spec:
    """Return a specification with paths for their texts.

    Raises
    ------
    UsageError
        A value is of another kind than its field takes, or out of its bounds.
    """
    paths: dict[str, Path | None] = {}
    for name, field in fields_of(type(spec)).items():
        value = getattr(spec, name)
        if field.is_path:
            paths[name] = None if value is None else as_path(value, name)
        elif (wanted := field.wanted(value)) is not None:
            shown = one_line(repr(value), 60)
            raise UsageError.naming(f"{{{name}}} takes {{wanted}}, not {{shown}}", wanted=wanted, shown=shown)
    return msgspec.structs.replace(spec, **paths)


def as_path(given: PathText, name: str) -> Path:
    """Return the path that a parameter names.

    Raises
    ------
    UsageError
        It is none: neither a text nor a path.
    """
    try:
        path = Path(given)
        has_null = "\0" in str(path)
    except TypeError:
        raise UsageError.naming(f"{{{name}}} takes a path, not {{kind}}", kind=type(given).__name__) from None
    if has_null or not str(given):
        raise UsageError.naming(f"{{{name}}} takes a path, not {{given!r}}", given=str(given))
    return path


def signature_of(spec: type[msgspec.Struct], positional: int) -> inspect.Signature:
    """Return the signature of a function that takes the fields as keywords, the first by position, too."""
    fields = [field for field in fields_of(spec).values() if field.extra.get("keyword", True)]
    return inspect.Signature(
        [
            inspect.Parameter(
                field.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD
                if at < positional
                else inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if at < positional else field.default,
                annotation=field.type,
            )
            for at, field in enumerate(fields)
        ]
    )


def parameters_of(spec: type[msgspec.Struct]) -> str:
    """Return what a docstring says of the fields."""
    lines = ["Parameters", "----------"]
    for field in fields_of(spec).values():
        if field.extra.get("keyword", True):
            text = field.help.format_map(FieldNames())
            lines += [field.name, *textwrap.wrap(text, 104, initial_indent="    ", subsequent_indent="    ")]
    return "\n".join(lines)


def read_tables(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file that a user wrote.

    Raises
    ------
    InputError
        It cannot be read, is too large, or no TOML.
    """
    try:
        with path.open("rb") as stream:
            text = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read the {what} {path}: {error.strerror}") from error
    if len(text) > _MOST_BYTES:
        raise InputError(f"{path} is larger than {_MOST_BYTES >> 20} MiB; it is no {what}")
    try:
        return tomllib.loads(text.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} is no TOML: {one_line(str(error))}") from error


def read_values(path: Path, spec: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the values of a TOML file by field; paths are relative to the file.

    Raises
    ------
    InputError
        See ``read_tables``.
    UsageError
        A key is no field, or its value is of another kind.
    """
    fields = given_fields(spec)
    values = read_tables(path, "specification")
    for name, value in values.items():
        if name not in fields:
            near = difflib.get_close_matches(name[:60], fields, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(
                f"{path}: nothing is called {one_line(name, 60)}{meant}; there are {', '.join(fields)}"
            )
        wanted = fields[name].wanted(value)
        if wanted is not None:
            raise UsageError(f"{path}: {name} takes {wanted}, not {one_line(repr(value), 60)}")
        if fields[name].is_path:
            values[name] = path.parent / value
    return values
