"""Draws ``docs/states.md``: ``python -m gangd.core.states_document > docs/states.md``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from gangd.core import states

State = TypeVar("State", bound=StrEnum)
Input = TypeVar("Input", states.GangInput, states.AgentInput)


_MADE = """\
Generated from `gangd/core/states.py` by `python -m gangd.core.states_document`; do not edit."""
_PICTURE = "![A busy gang takes turns; one that is solo, idle or waking runs](pictures/states.svg)"


def render() -> str:
    """Return the page."""
    theory = (states.__doc__ or "").strip().split("\n\n", 1)[1].rsplit("\n\n", 1)[0]
    parts = [
        "# States of gangs and agents",
        _MADE,
        _PICTURE,
        theory,
        "## Gangs",
        _inputs(states.GangInput, states.GANG_TABLE),
        "## Agents",
        _inputs(states.AgentInput, states.AGENT_TABLE),
    ]
    return "\n\n".join(parts) + "\n"


def _inputs(kind: type[Input], table: Mapping[tuple[State, Input], State]) -> str:
    """Return a row for each input: when it is, in which states, and the state that follows."""
    rows: list[str] = []
    for happened in kind:
        before = [state for state, given in table if given is happened]
        (after,) = {table[state, happened] for state in before}
        rows.append(f"| {happened} | {happened.when} | {_names(before, table)} | {after.name} |")
    return "\n".join(["| input | when | in | becomes |", "| --- | --- | --- | --- |", *rows])


def _names(some: list[State], table: Mapping[tuple[State, Input], State]) -> str:
    """Name states, or the fewer others of which the table has an input."""
    others = [state.name for state in dict.fromkeys(state for state, _ in table) if state not in some]
    if len(others) < len(some) - 1:
        return f"all but {', '.join(others)}" if others else "all"
    return ", ".join(state.name for state in some)


if __name__ == "__main__":
    sys.stdout.write(render())
