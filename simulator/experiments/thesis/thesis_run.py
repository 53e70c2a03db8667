"""The thesis's simulated experiments on a trace: what is studied, by which rules, and of whose trace."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from foundation.errors import InputError
from foundation.units import counted
from simulator.experiments.thesis import kit_trace as kit
from simulator.experiments.thesis.case_runs import Study
from simulator.experiments.thesis.thesis_datasets import cleaned
from simulator.setting_choices import Words, setting_of
from simulator.simulation import Setting
from simulator.world import System
from workloads.swf import load_columns

_JOBS = 51_871
"""Of the thesis's trace, UniLu-Gaia-2014-1 (Table 5.1); data sets made of it differ by what was added."""
_ALIKE = 0.05


class Rules(NamedTuple):
    """The words for the rules of an experiment."""

    policy: str
    placement: str
    overhead: str


def study_of(
    trace: Path, rules: Rules, system: System, *, patterns: bool, examples: tuple[int, ...] = ()
) -> Study:
    """Return the study of a trace on a system; raises InputError for a file that is no trace."""
    columns = cleaned(load_columns(trace), system.cores)
    return Study(columns, system, _setting(rules, system).rules, patterns, examples)


def kit_study(trace: Path, rules: Rules, queue: int | None) -> Study:
    """Return the study of the second trace (KIT-FH2); without ``queue`` the smaller one is interactive."""
    columns = load_columns(trace)
    queue = kit.smaller_queue(columns) if queue is None else queue
    columns = cleaned(columns, None, queue)
    return Study(
        columns, kit.SYSTEM, _setting(rules, kit.SYSTEM).rules, patterns=False, interactive_queue=queue
    )


def facts_of(study: Study, rules: Rules) -> str:
    """Return what was simulated, in two sentences."""
    frame = study.trace.frame
    interactive = int((frame["queue"] == study.interactive_queue).sum())
    return (
        f"{study.trace.name}: {counted(frame.height, 'job')}, {interactive:,} interactive (queue "
        f"{study.interactive_queue}), {frame['user'].drop_nulls().n_unique()} users, on {study.system}. "
        f"Policy {rules.policy}, placement {rules.placement}, C_o = {rules.overhead}."
    )


def about_trace(study: Study, *, any_trace: bool) -> list[str]:
    """Return what is to be said where the trace is not the thesis's; refuse it unless ``any_trace``."""
    jobs = study.trace.frame.height
    if abs(jobs - _JOBS) <= _ALIKE * _JOBS:
        return []
    what = f"{study.trace.name} is not the thesis's trace: {counted(jobs, 'job')} that run, not {_JOBS:,}"
    if any_trace:
        return [f"{what}; the thesis's numbers stand beside those of another machine and mean nothing here."]
    raise InputError(f"{what} (UniLu-Gaia-2014-1); --any-trace runs the experiment all the same")


def _setting(rules: Rules, system: System) -> Setting:

    return setting_of(
        Words(system=str(system), policy=rules.policy, overhead=rules.overhead, placement=rules.placement)
    )
