"""The demo from a trace to a page: every setting replayed, then simulated, then compared.

Each setting that was replayed is simulated from the replay's own trace, in a process of its own with
``OSUB_JIT=0``: a demo's jobs are few, so the simulator's kernels run uncompiled in a second, without
the half minute of a first compilation.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.comparison import RunErrors, run_errors
from analysis.comparison.comparison_page import comparison_section
from analysis.metrics import RunMetrics, job_faults
from analysis.report import write_report
from analysis.verdict import Verdict, verdict_of
from deploy.compose.engine import EngineName, find_engine
from deploy.compose.image import base_of, ensure_images
from deploy.compose.plan import DEBIANS, images_to_build
from deploy.local import natural_shape
from deploy.local.host import busy_warning, look_at_host
from foundation.errors import OsubError
from foundation.records import Run, load_run
from foundation.units import counted
from osub.demo.run import (
    SETTINGS,
    DemoSetting,
    Stage,
    Watch,
    choose_trace,
    clear_run,
    make_out,
    replay_under,
    scratch_folder,
    set_aside,
)
from osub.live.forward import Hear
from workloads.swf import write_swf

PAGE = "report.html"
_AROUND_S = 7.0
"""A setting's cluster starts and ends in so many seconds of its share of the time."""
_LEAST_S = 20.0
"""A replay is no shorter, for less says nothing: a demo of a minute then takes up to a minute and a half."""
_LONG_S = 300.0
"""Slurm's gang scheduler has slices of 5 s at least and may stall launches: it needs long replays."""
_MOST = 1.6
"""Replays on a busy host may take longer than planned, all together by this factor."""

SUFFIX = " (sim)"
_SLURM_SLICE_MS = 5000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """What came of a demo.

    Attributes
    ----------
    verdict
        What the real runs say.
    metrics
        Of all runs, real and simulated.
    errors
        How far each simulation is from its real run.
    page
        The report.
    is_whole
        Whether every setting could be simulated.
    """

    verdict: Verdict
    metrics: Sequence[RunMetrics]
    errors: Sequence[RunErrors]
    page: Path
    is_whole: bool

    def of_kind(self, kind: str) -> list[RunMetrics]:
        """Return the metrics of the real, or of the simulated runs."""
        return [metric for metric in self.metrics if metric.kind == kind]


def demonstrate(
    trace: Path | None,
    out: Path,
    *,
    seconds: float,
    seed: int,
    lenient: bool,
    say: Callable[[str], None],
    begin: Callable[[DemoSetting], object],
    watch: Watch,
    engine_name: EngineName | None,
    hear: Hear,
) -> Demo:
    """Replay the same jobs under every setting, simulate each, and write the report.

    Parameters
    ----------
    trace
        A real trace; None: one is made.
    out
        The demo's folder; runs of an earlier demo in it are replaced.
    seconds
        How long all replays take, about.
    seed
        For everything that is drawn at random.
    lenient
        Whether malformed lines of the trace are passed over.
    say
        Called with messages for the user.
    begin
        Called with each setting when it begins.
    watch
        Carries a replay out.
    engine_name
        The engine in whose containers clusters are; None: embedded ones.
    hear
        Signals that end a replay in containers.

    Raises
    ------
    OsubError
        The trace cannot be used, a cluster does not start, or the user wants to end.
    """
    began = time.monotonic()
    engine = None if engine_name is None else find_engine(engine_name)
    nodes, cores = natural_shape(len(look_at_host().cpus) if engine is None else engine.facts.cpus)
    say(f"This host is a cluster of {counted(nodes, 'node')} with {counted(cores, 'core')} each.")
    busy = busy_warning()
    if busy is not None:
        say(f"Note: {busy}.")
    settings = SETTINGS if seconds >= _LONG_S else SETTINGS[:3]
    one_s = max(_LEAST_S, seconds / len(settings) - _AROUND_S)
    chosen = choose_trace(trace, nodes, cores, one_s, seed, lenient=lenient)
    say(chosen.story)
    make_out(out)
    swf = out / f"{chosen.trace.name}.swf.gz"
    write_swf(swf, chosen.trace)
    if engine is not None:
        images = images_to_build(DEBIANS[0], accounting=False, monitoring=None)
        ensure_images(engine, images, base_of(engine, DEBIANS[0]), anew=False, say=say)
        began = time.monotonic()
    runs: list[Run] = []
    steps: dict[int, int] = {}
    with scratch_folder() as state:
        stage = Stage(
            swf=swf,
            chosen=chosen,
            out=out,
            state=state,
            nodes=nodes,
            cores=cores,
            engine=engine_name,
            hear=hear,
        )
        for number, setting in enumerate(settings):
            begin(setting)
            left_s = _MOST * seconds - (time.monotonic() - began)
            # What an earlier setting did not use, a later one may.
            most_s = max(seconds / len(settings), left_s / (len(settings) - number))
            run, made = replayed(setting, stage, steps, most_s, watch, say)
            # What the first one makes of the time is every other's work.
            steps = steps or made
            runs.append(run)
    compared = simulate_all(runs, out, say)
    errors = [run_errors(real, other) for real, other in compared]
    page = out / PAGE
    return Demo(
        verdict=verdict_of(runs),
        metrics=_page(runs, compared, errors, page),
        errors=errors,
        page=page,
        is_whole=len(compared) == len(runs),
    )


def replayed(
    setting: DemoSetting,
    stage: Stage,
    steps: Mapping[int, int],
    most_s: float,
    watch: Watch,
    say: Callable[[str], None],
) -> tuple[Run, dict[int, int]]:
    """Replay under one setting, once more where jobs hung or failed; see ``replay_under``.

    A run with job faults says nothing of its setting. The first one is kept, for its cause is to be found.
    """
    path = stage.out / setting.folder
    made = replay_under(setting, stage, steps, most_s, watch)
    run = load_run(path)
    if job_faults(run) is not None:
        say(f"{setting.label}: {job_faults(load_run(set_aside(path)))}. The setting is repeated once.")
        made = replay_under(setting, stage, steps, most_s, watch)
        run = load_run(path)
    return run, made


def _page(
    runs: Sequence[Run], compared: Sequence[tuple[Run, Run]], errors: Sequence[RunErrors], page: Path
) -> Sequence[RunMetrics]:
    """Write the report, each real run before its simulation; returns the metrics in this order."""
    simulated = {real.info.label: other for real, other in compared}
    both = [[run, *filter(None, [simulated.get(run.info.label)])] for run in runs]
    return write_report(
        [run for pair in both for run in pair],
        page,
        first=[comparison_section(compared, errors, NOTES)] if compared else [],
        twins={other.info.label: real.info.label for real, other in compared},
    )


def simulate_all(runs: Sequence[Run], out: Path, say: Callable[[str], None]) -> list[tuple[Run, Run]]:
    """Return each real run, in the order of ``SETTINGS``, with its simulation.

    A setting that cannot be simulated is left out, and ``say`` gets the reason: the real runs took minutes.
    """
    compared: list[tuple[Run, Run]] = []
    for run, setting in zip(runs, SETTINGS, strict=False):
        try:
            compared.append((run, simulate_as(run, setting, out, runs)))
        except OsubError as error:
            say(str(error))
    return compared


def simulate_as(real: Run, setting: DemoSetting, out: Path, known: Sequence[Run]) -> Run:
    """Simulate the trace of ``real`` under its setting, and return the RUN.

    Parameters
    ----------
    real
        The replay.
    setting
        How the cluster was shared.
    out
        Folder of the demo.
    known
        The real runs so far: latencies are measured on the one with M=1, C_o on the naive one.

    Raises
    ------
    OsubError
        The simulation failed.
    """
    path = out / f"{setting.folder}-sim"
    clear_run(path)
    words = [*("--label", real.info.label + SUFFIX), *_words(real, setting, known)]
    command = [sys.executable, "-P", "-m", "osub.cli.main", "simulate", str(real.path), "--out", str(path)]
    done = subprocess.run(
        [*command, *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OSUB_JIT": "0"},
    )
    if done.returncode:
        why = done.stderr.strip().removeprefix("osub: ") or f"exit code {done.returncode}"
        raise OsubError(f"the simulation of {real.info.label} failed: {why}")
    return load_run(path)


def _words(real: Run, setting: DemoSetting, known: Sequence[Run]) -> list[str]:
    words = ["--system", real.info.system, "--policy", "easy", "--placement", "lln"]
    words += ["--multiplicity", str(setting.multiplicity)]
    for run in known:
        if run.info.multiplicity == 1 and "COMPLETED" in run.jobs["state"]:
            words += ["--latency", str(run.path)]
    slice_ms = _SLURM_SLICE_MS if real.info.gang.kind == "slurm" else real.info.gang.quantum_ms
    return words + (["--slices", f"{slice_ms:g}"] if slice_ms else [])


_METHOD = (
    "Each real run is followed by a simulation of the very jobs that were replayed: EASY backfilling with "
    "Slurm's placement, the latencies of Slurm and of launching a job as measured on the real run with M=1, "
    "time slices by the gang scheduler's own core."
)
_LIMITS = (
    "Not modelled: time limits in whole minutes, which Slurm's backfilling plans with, and Slurm's own gang "
    "scheduler, for which the simulation has gangd's rule with slices of 5 s. Slurm's suspends jobs while "
    "they launch, which then may stand still for a minute or more; the simulation has nothing of that."
)
NOTES = (_METHOD, _LIMITS)
