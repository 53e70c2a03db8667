"""What ``osub sweep tune`` found, in sentences, tables and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

import msgspec
import typer
from rich.table import Table

from foundation.errors import OsubError
from foundation.one_line import one_line
from foundation.units import counted
from osub.cli.terminal import Console
from osub.sweep.tell import SHOWN, figure
from osub.sweep.tune import DEDICATED, GOAL_WORDS, NODE_NOISE, TOLERANCE, Goal, Tried, Tuned

MOST_ROWS = 12


def tell_tuned(tuned: Tuned, *, as_json: bool) -> None:
    """Print what was found; raises OsubError where every setting harms too much."""
    goal, found = tuned.goal, tuned.found
    if as_json:
        facts = {
            "goal": goal.figure,
            "most_degradation": goal.most_degradation,
            "overhead": tuned.overhead,
            "best": tuned.chosen(tuned.best),
            "gain_over_seeds": msgspec.to_builtins(tuned.gain),
            "scenarios": [
                {"overhead": overhead, "best": tuned.chosen(tuned.mild(ordered))}
                | (ordered[0].outcome if ordered else {})
                for overhead, ordered in tuned.elsewhere.items()
            ],
            "tried": [
                {name: one.parameters.get(name) for name in tuned.names} | one.outcome for one in found
            ],
        }
        typer.echo(json.dumps(facts))
    else:
        _show_tuned(tuned)
    if tuned.best is None:
        mildest = min(float(one.outcome.get("degradation_mean") or math.inf) for one in found)
        raise OsubError(
            f"no setting keeps the mean degradation under {goal.most_degradation:g}; "
            f"the mildest has {mildest:.3g}"
        )


def _show_tuned(tuned: Tuned) -> None:
    console = Console()
    if tuned.best is not None:
        console.print(_answer(tuned, tuned.best), highlight=False, markup=False)
    shown = [(name, label) for name, label in SHOWN if name in tuned.found[0].outcome]
    head = [*tuned.names, *(label for _, label in shown), ""]
    for overhead, ordered in {tuned.overhead: tuned.found, **tuned.elsewhere}.items():
        rows = [
            [
                *(str(one.parameters.get(name, "-")) for name in tuned.names),
                *(figure(one.outcome.get(name)) for name, _ in shown),
                _remark(one, tuned.goal),
            ]
            for one in ordered[:MOST_ROWS]
        ]
        print_table(console, f"At C_o = {overhead:g}, best first by {tuned.goal.figure}", head, rows)


def _answer(tuned: Tuned, best: Tried) -> str:
    """Return in sentences which setting it is, what it brings, and at what C_o it is another."""
    goal, alone = tuned.goal, tuned.alone
    amount = goal.amounts(alone, best)
    jobs_a_core = best.parameters["multiplicity"]
    answer = (
        f"Best of {counted(len(tuned.found), 'setting')}, assuming C_o = {tuned.overhead:g}: "
        f"{tuned.named(best)}. {GOAL_WORDS[goal.figure]} {amount(goal.value(best.outcome))}"
    )
    elsewhere = _elsewhere(tuned, best, amount)
    if jobs_a_core == DEDICATED:
        return f"{answer}; {_why_alone(tuned.found, goal)}.{elsewhere}"
    slowed = float(best.outcome["degradation_mean"])
    return (
        f"{answer} instead of {amount(goal.value(alone.outcome))} at M=1{_how_sure(tuned, amount)}; "
        f"running jobs take {slowed:.3g} times as long as on cores of their own on average (at most "
        f"{goal.most_degradation:g} was allowed).{elsewhere}\n"
        f"Slurm does it with OverSubscribe=FORCE:{jobs_a_core} of a partition. This is simulated: C_o, what "
        "sharing costs beyond the share, is assumed. Measure it first (osub predict)."
    )


def _how_sure(tuned: Tuned, amount: Callable[[float], str]) -> str:
    """Return the change with its interval over seeds; empty where none was asked for."""
    gain = tuned.gain
    if gain is None or gain.low is None or gain.high is None:
        return ""
    low, high = sorted((-gain.low, -gain.high))
    if low <= 0:
        return f", not clearly less over {counted(gain.count, 'seed')}"
    return (
        f" (less by {amount(low)} to {amount(high)}, 95% interval over "
        f"{counted(gain.count, 'seed')} of nodes whose speeds differ by {NODE_NOISE:.0%})"
    )


def _elsewhere(tuned: Tuned, best: Tried, amount: Callable[[float], str]) -> str:
    """Return which setting is the best at other C_o; empty where none was tried."""
    parts = []
    for overhead, ordered in tuned.elsewhere.items():
        one = tuned.mild(ordered)
        if one is None:
            parts.append(f"at C_o = {overhead:g} no setting is mild enough")
            continue
        same = tuned.chosen(one) == tuned.chosen(best)
        slowed = float(one.outcome["degradation_mean"])
        parts.append(
            f"at C_o = {overhead:g} the best is {'still ' if same else ''}{tuned.named(one)} "
            f"({amount(tuned.goal.value(one.outcome))}, degradation {slowed:.3g})"
        )
    text = "; ".join(parts)
    return f"\n{text[:1].upper()}{text[1:]}." if parts else ""


def _why_alone(found: Sequence[Tried], goal: Goal) -> str:
    """Return why cores had better not be shared: nothing is better, or nothing that is mild enough."""
    least = goal.value(found[0].outcome)
    better = [one for one in found[1:] if goal.value(one.outcome) < least]
    if not better:
        return "no setting that shares cores is better"
    mildest = min(better, key=lambda one: goal.harm(one.outcome))
    return (
        f"what is better slows running jobs more than {goal.most_degradation:g} times (--most-degradation): "
        f"M={mildest.parameters['multiplicity']}, the mildest, "
        f"{float(mildest.outcome['degradation_mean']):.3g} times"
    )


def _remark(tried: Tried, goal: Goal) -> str:
    if "error" in tried.outcome:
        return one_line(str(tried.outcome["error"]), 60)
    return "too harmful" if goal.harm(tried.outcome) > TOLERANCE else ""


def print_table(console: Console, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of texts."""
    table = Table(*head, title=title)
    for row in rows:
        table.add_row(*row)
    console.print(table)
