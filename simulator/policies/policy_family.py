"""What a family of policies is to the registry and to the command line: name, options, how it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from foundation.errors import UsageError
from simulator.policy_interface import QueuePolicy

if TYPE_CHECKING:
    from simulator.model.system import PoolQueues
    from simulator.simulation import Workload

Value: TypeAlias = int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOption:
    """An option of a family, ``--set NAME=VALUE`` on the command line.

    Parameters
    ----------
    name, help
        Its name, and one line on what it does.
    default
        Its value if it is not given, which also says whether it is an int, a float or a str.
    least, most
        Bounds of a number, inclusive.
    choices
        The words that are possible; empty: any.
    """

    name: str
    help: str
    default: Value
    least: float = float("-inf")
    most: float = float("inf")
    choices: tuple[str, ...] = ()

    def read(self, text: str) -> Value:
        """Return the value that ``text`` means.

        Raises
        ------
        UsageError
            It is not of the option's type, or out of its bounds.
        """
        kind = type(self.default)
        refusal = UsageError.naming(f"{{settings}} {self.name} takes {self.range}, not {{text!r}}", text=text)
        try:
            value = kind(text)
        except ValueError:
            raise refusal from None
        out = isinstance(value, int | float) and not self.least <= value <= self.most
        if out or (self.choices and value not in self.choices):
            raise refusal
        return value

    @property
    def range(self) -> str:
        """The values that are possible, in words."""
        if self.choices:
            return ", ".join(self.choices)
        kind = {int: "a whole number", float: "a number", str: "a word"}[type(self.default)]
        below = "" if self.least == float("-inf") else f" from {self.least:g}"
        return kind + below + ("" if self.most == float("inf") else f" to {self.most:g}")


def number(name: str, default: float, least: float, most: float, text: str) -> PolicyOption:
    """Return an option that is a number within bounds; ``default`` says whether it is a whole one."""
    return PolicyOption(name=name, help=text, default=default, least=least, most=most)


def choice(name: str, choices: tuple[str, ...], text: str, default: str | None = None) -> PolicyOption:
    """Return an option that is one of some words, by default the first."""
    return PolicyOption(name=name, help=text, default=default or choices[0], choices=choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A built-in policy, or several that differ in their options.

    Parameters
    ----------
    name, help
        What ``--policy`` takes, and one line on what it does.
    make
        Makes the policy from the values of the options, by name.
    options
        Its options.
    prepare
        Gives the jobs what the family needs (sizes, set-up, notices, ...), from the workload, the queues, the
        values and the seed; None: they are as in the trace.
    whole_nodes
        Whether jobs hold whole nodes; the policy is an ``AlonePolicy`` then.
    guests
        How many jobs a core may have beyond ``--multiplicity``.
    times_passes
        Whether the policy times its passes itself, whatever else happens at an instant.
    instants
        What holds for events at one instant where ``--instants`` is not given.
    """

    name: str
    help: str
    make: Callable[[Mapping[str, Value]], QueuePolicy]
    options: tuple[PolicyOption, ...] = ()
    prepare: Callable[[Workload, PoolQueues, Mapping[str, Value], int], Workload] | None = None
    guests: int = 0
    whole_nodes: bool = False
    times_passes: bool = False
    instants: str = "together"

    def values(self, settings: Sequence[str]) -> dict[str, Value]:
        """Return the value of every option, from ``NAME=VALUE`` texts.

        Raises
        ------
        UsageError
            An option is not known, given twice, or has no such value.
        """
        known = {option.name: option for option in self.options}
        values = {option.name: option.default for option in self.options}
        for name, text in split_settings(settings).items():
            if name not in known:
                has = f"it has {', '.join(known)}" if known else "it has none"
                raise UsageError(f"policy {self.name} has no option {name!r}: {has}")
            values[name] = known[name].read(text)
        return values

    def lines(self) -> list[str]:
        """Return what there is to say of it: one line, and one more for each option."""
        return [
            f"{self.name}: {self.help}",
            *(
                f"  --set {option.name}={option.default}: {option.help} ({option.range})"
                for option in self.options
            ),
        ]


def split_settings(settings: Sequence[str]) -> dict[str, str]:
    """Return the texts ``NAME=VALUE`` by name.

    Raises
    ------
    UsageError
        A text has another form, or a name comes twice.
    """
    found: dict[str, str] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError.naming("{settings} takes NAME=VALUE, not {text!r}", text=text)
        if name in found:
            raise UsageError.naming(f"{{settings}} gives {name} twice")
        found[name] = value
    return found
