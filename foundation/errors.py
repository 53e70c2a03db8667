"""The errors a user, a cluster or a peer can cause; each says what happened, to what, and what to do.

``OsubError`` is the root. The command line prints the message on one line and exits with
``exit_code``: 2 for usage (the command was called wrongly), 1 for everything else.
Expected races, such as a job that ends while it is being frozen, are values and not exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self


class OsubError(Exception):
    """Root of every error that the toolkit raises on purpose."""

    exit_code = 1
    fields: tuple[str, ...] = ()
    """Fields of a specification that the message names."""
    _template: tuple[str, Mapping[str, object]] | None = None

    @classmethod
    def naming(cls, template: str, /, **values: object) -> Self:
        """Return an error that names fields of a specification.

        Parameters
        ----------
        template
            The message; ``{name}`` is a value, or else the field of that name.
        values
            What the message has besides.
        """
        fields = FieldNames(values=values)
        error = cls(template.format_map(fields))
        error.fields, error._template = tuple(fields.named), (template, values)
        return error

    def name_fields(self, name_of: Callable[[str], str]) -> None:
        """Name the fields as a front end does, such as by its options."""
        if self._template is not None:
            template, values = self._template
            self.args, self._template = (template.format_map(FieldNames(name_of, values)),), None


class FieldNames(dict[str, object]):
    """Values for a text's ``{name}``: what is no value is a field, as ``name_of`` names it."""

    def __init__(
        self, name_of: Callable[[str], str] = str, values: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(values or {})
        self._name_of = name_of
        self.named: list[str] = []

    def __missing__(self, name: str) -> str:
        self.named.append(name)
        return self._name_of(name)


class UsageError(OsubError):
    """The user's words cannot be carried out as given (option, argument or configuration key)."""

    exit_code = 2


class InputError(OsubError):
    """A file that the user named cannot be used: missing, malformed, unreadable or empty."""


class OutputError(OsubError):
    """A result cannot be written: folder exists already, is not writable, or the disk is full."""


class ClusterError(OsubError):
    """Slurm, or a part of the host that runs it, refused, failed or cannot be reached."""


class PeerError(OsubError):
    """Another process of the toolkit sent something that its protocol does not allow."""


class HostError(OsubError):
    """This host lacks something that the work needs; the message says how to get it."""


class TrustError(OsubError):
    """A file or folder is where another user could have put it, or where he could change it."""
