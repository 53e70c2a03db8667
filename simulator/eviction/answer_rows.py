"""Answers as rows of texts, for the terminal and for the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from simulator.eviction.eviction_problem import EvictionAnswer, EvictionChoice

ABSENT = "-"
ANSWER_COLUMNS = ("deadline", "loss", "checkpoints", "nodes", "kill", "app", "system")
CHOICE_COLUMNS = ("job", "choice")


def answer_rows(answers: Sequence[EvictionAnswer]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the columns and a row for each answer: what it costs, and how many jobs meet which fate.

    Deadlines with the same answer are one row, such as ``7 to 15``.
    """
    return ANSWER_COLUMNS, [_row(same) for same in alike(answers)]


def alike(answers: Sequence[EvictionAnswer]) -> list[list[EvictionAnswer]]:
    """Return the answers in groups of neighbours that say the same."""
    return [list(same) for _, same in groupby(answers, key=lambda answer: (answer.possible, answer.choices))]


def choice_rows(answer: EvictionAnswer) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the columns and one row for each job that is evicted."""
    return CHOICE_COLUMNS, [(name, choice.value) for name, choice in answer.choices.items()]


def _row(same: Sequence[EvictionAnswer]) -> tuple[str, ...]:
    answer = same[0]
    deadline = f"{answer.deadline_min:g}" + (f" to {same[-1].deadline_min:g}" if len(same) > 1 else "")
    if answer.loss is None or answer.checkpoint_min is None or answer.nodes is None:
        return (deadline, "not possible", *(ABSENT,) * 5)
    often = Counter(answer.choices.values())
    return (
        deadline,
        _loss(answer.loss),
        f"{answer.checkpoint_min:g}",
        f"{answer.nodes:,}",
        *(str(often[choice]) for choice in EvictionChoice),
    )


def _loss(value: float) -> str:
    return f"{value:,.2f}" if value == 0 or value >= 0.1 else f"{value:.2g}"
