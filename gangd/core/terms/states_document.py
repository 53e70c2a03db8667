"""Draws ``docs/states.md``: ``python -m gangd.core.terms.states_document > docs/states.md``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from gangd.core.terms import states

State = TypeVar("State", bound=StrEnum)
Input = TypeVar("Input", bound=StrEnum)


_MADE = """\
Generated from `gangd/core/terms/states.py` by `python -m gangd.core.terms.states_document`; do not edit."""


def render() -> str:
    """Return the page."""
    theory = (states.__doc__ or "").strip().split("\n\n", 1)[1].rsplit("\n\n", 1)[0]
    parts = [
        "# States of gangs and agents",
        _MADE,
        theory,
        "## Gangs",
        _diagram(states.GangState.NEW, states.GANG_TABLE),
        _inputs(states.MEANING),
        _matrix(states.GANG_TABLE, list(states.GangState), list(states.GangInput)),
        "## Agents",
        _diagram(states.AgentState.UNKNOWN, states.AGENT_TABLE),
        _inputs(states.AGENT_MEANING),
        _matrix(states.AGENT_TABLE, list(states.AgentState), list(states.AgentInput)),
    ]
    return "\n\n".join(parts) + "\n"


def _diagram(start: State, table: Mapping[tuple[State, Input], State]) -> str:
    """Mermaid diagram; inputs between the same two states share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, happened), following in table.items():
        arrows.setdefault((state.name, following.name), []).append(happened.value)
    lines = [f"    {one} --> {other}: {' / '.join(inputs)}" for (one, other), inputs in arrows.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {start.name}", *lines, "```"])


def _inputs(meaning: Mapping[Input, str]) -> str:
    rows = [f"| {happened.value} | {text} |" for happened, text in meaning.items()]
    return "\n".join(["| input | when |", "| --- | --- |", *rows])


def _matrix(table: Mapping[tuple[State, Input], State], all_states: list[State], inputs: list[Input]) -> str:
    """Every state against every input; an empty field is an error of the scheduler."""
    head = ["| |", *(f" {happened.value} |" for happened in inputs)]
    rows = [
        f"| **{state.name}** | "
        + " | ".join(table[state, happened].name if (state, happened) in table else "" for happened in inputs)
        + " |"
        for state in all_states
    ]
    return "\n".join(["".join(head), "| --- " * (len(inputs) + 1) + "|", *rows])


if __name__ == "__main__":
    sys.stdout.write(render())
