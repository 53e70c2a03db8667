"""Draws ``docs/states.md``: ``python -m gangd.core.states_document > docs/states.md``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from gangd.core import states

State = TypeVar("State", bound=StrEnum)
Input = TypeVar("Input", bound=StrEnum)


_MADE = """\
Generated from `gangd/core/states.py` by `python -m gangd.core.states_document`; do not edit."""
_PICTURE = """\
![A gang is solo while no job shares its cores; busy, it takes turns; idle, it runs and takes no slice; \
waking, it runs at once](pictures/states.svg)"""
_FIELDS = "Each field names the state that follows. An empty field is an error of the scheduler."


def render() -> str:
    """Return the page."""
    theory = (states.__doc__ or "").strip().split("\n\n", 1)[1].rsplit("\n\n", 1)[0]
    parts = [
        "# States of gangs and agents",
        _MADE,
        _PICTURE,
        theory,
        "## Gangs",
        _inputs(states.MEANING),
        _FIELDS,
        _matrix(states.GANG_TABLE, list(states.GangState), list(states.GangInput)),
        "## Agents",
        _inputs(states.AGENT_MEANING),
        _matrix(states.AGENT_TABLE, list(states.AgentState), list(states.AgentInput)),
    ]
    return "\n\n".join(parts) + "\n"


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
