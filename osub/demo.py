"""The demo: one trace under several settings, on the embedded cluster and simulated; one report.

Each setting that was replayed is simulated from the replay's own trace, in a process of its own with
``OSUB_JIT=0``: a demo's jobs are few, so the simulator's kernels run uncompiled in a second, without
the half minute of a first compilation.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from analysis.comparison import RunErrors, run_errors
from analysis.comparison.comparison_page import comparison_section
from analysis.metrics import RunMetrics, cut_short, host_use, job_faults
from analysis.report import write_report
from analysis.verdict import Verdict, verdict_of
from deploy.compose.engine import EngineName, find_engine
from deploy.compose.image import ensure_images
from deploy.compose.plan import DEBIANS
from deploy.local import GangKind, Shape, natural_shape
from deploy.local.host import busy_warning, look_at_host
from foundation.errors import OsubError, OutputError
from foundation.records import Run, load_run
from foundation.trust import refuse_for_root
from foundation.units import counted
from osub.live.forward import AskedReplay, Hear
from osub.physical.cluster_provider import Follow, own_bed
from workloads.swf import SwfTrace, read_swf, write_swf
from workloads.trace.models import INTERACTIVE_S, JOBS_A_BLOCK, coupled_mix, generate_trace
from workloads.trace.scaling import make_miniature

LISTING = ".osub-demo"
"""Names of the runs that demos made in a folder."""
FAILED = "-failed"
"""What the folder of a run is called by, after its own name, whose setting was repeated."""
_GENERATED_JOBS = 4000
COUPLED_APP, COUPLED_CLASS = "lu", "S"
"""What coupled jobs run: wavefronts, in which each rank waits for the one before it."""


@dataclass(frozen=True, slots=True)
class DemoSetting:
    """One way to share the cluster."""

    folder: str
    label: str
    explanation: str
    multiplicity: int
    gang: GangKind


SETTINGS = (
    DemoSetting("m1", "M=1", "every core has one job at a time; the others wait", 1, GangKind.NONE),
    DemoSetting("m2-naive", "M=2 naive", "two jobs a core, left to the operating system", 2, GangKind.NONE),
    DemoSetting(
        "m2-gangd",
        "M=2 gangd",
        "two jobs a core that take turns on all their cores at once",
        2,
        GangKind.OSUB,
    ),
    DemoSetting(
        "m2-slurm", "M=2 Slurm gang", "two jobs a core, Slurm's gang scheduler, 5 s slices", 2, GangKind.SLURM
    ),
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The trace to replay, and where it comes from in a sentence or two.

    Jobs of ``coupled`` run LU. Where ``block_jobs`` is not None, the trace is so many jobs again and again.
    """

    trace: SwfTrace
    story: str
    coupled: tuple[int, ...] = ()
    block_jobs: int | None = None

    def apps(self, steps: Mapping[int, int]) -> str:
        """Return what coupled jobs run, as CSV.

        Each makes the median of ``steps``, which other coupled jobs made; with none, it runs as long as
        in the trace.
        """
        rows = ["trace_job,app,args"]
        usual = int(median(steps.values())) if steps else 0
        lengths = {job.job_number: job.run_s for job in self.trace.jobs}
        for job in self.coupled:
            length = f"--steps {usual}" if usual else f"--target-s {lengths[job]}"
            rows.append(f"{job},rrba,--app {COUPLED_APP} --class {COUPLED_CLASS} {length}")
        return "\n".join(rows) + "\n"


def choose_trace(
    path: Path | None, nodes: int, cores: int, seconds: float, seed: int, *, lenient: bool = False
) -> Chosen:
    """Make the miniature of a real trace; a mixture that shows what sharing does where ``path`` is None.

    One replay of it takes about ``seconds`` with one job a core.
    """
    if path is None and nodes * cores > 1:
        mix = coupled_mix(nodes * cores, seconds, seed)
        then = (
            f"; then an interactive job ({INTERACTIVE_S:g} s, mostly idle) and two more such MPI jobs"
            if mix.block_jobs == JOBS_A_BLOCK
            else ""
        )
        story = (
            f"{counted(mix.blocks, 'time')} the same {mix.block_jobs} jobs: two MPI jobs of {mix.procs} "
            f"ranks that wait for each other all the time (LU of class {COUPLED_CLASS}, {mix.run_s:g} s on "
            f"their own cores){then}. `--trace FILE` replays a real day instead."
        )
        return Chosen(mix.trace, story, mix.coupled, mix.block_jobs)
    if path is not None:
        original, origin = read_swf(path, strict=not lenient), f"the trace {path.name}"
    else:
        original = generate_trace(_GENERATED_JOBS, 32, 12, seed=seed, interactive_share=0.2)
        origin = f"a trace drawn from the Lublin-Feitelson model ({_GENERATED_JOBS} jobs, seed {seed})"
    small = make_miniature(original, nodes, cores, seconds, seed=seed)
    interactive = sum(job.queue == 0 for job in small.trace.jobs)
    window = small.window
    story = (
        f"From {origin}: {counted(len(small.trace.jobs), 'job')} ({interactive} interactive) stand for the "
        f"{window.length_s / 3600:.1f} busy hours from second {window.start_s:.0f} on, scaled to this "
        f"cluster and {small.arrivals_speedup:.0f} times as fast; run times are compressed to "
        f"{seconds / 4:.0f} s at most."
    )
    return Chosen(small.trace, story)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Give a folder for the demo's clusters: the same for all of them, so that nodes keep their names.

    A cluster that could not be taken down keeps its files, without which it could not be taken down later.
    """
    folder = Path(tempfile.mkdtemp(prefix="osub-demo-"))
    try:
        yield folder / "cluster"
    finally:
        with suppress(OSError):
            folder.rmdir()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What all settings have in common: the trace as a file, and the cluster's folder and shape.

    With an ``engine`` clusters are in its containers. ``hear`` are the signals that end a replay there.
    """

    swf: Path
    chosen: Chosen
    out: Path
    state: Path
    nodes: int
    cores: int
    engine: EngineName | None = None
    hear: Hear = lambda _: nullcontext()


def replay_under(
    setting: DemoSetting, stage: Stage, steps: Mapping[int, int], most_s: float, watch: Follow
) -> dict[int, int]:
    """Replay under one setting on a cluster of its own; returns how many steps each coupled job made.

    The RUN is the setting's folder in ``stage.out``. Jobs in ``steps`` make so many, whatever jobs share
    their cores: all settings have the same work. After ``most_s`` seconds the jobs that are left are
    cancelled.

    Raises
    ------
    KeyboardInterrupt
        The user ended the replay: the demo has nothing to go on with.
    """
    path = stage.out / setting.folder
    clear_run(path)
    shape = Shape(nodes=stage.nodes, cores=stage.cores, multiplicity=setting.multiplicity, gang=setting.gang)
    apps = stage.out / "apps.csv" if stage.chosen.coupled else None
    if apps is not None:
        apps.write_text(stage.chosen.apps(steps), encoding="utf-8")
    asked = AskedReplay(
        swf=stage.swf,
        apps=apps,
        out=path,
        title=setting.label,
        label=setting.label,
        most_s=most_s,
        block_jobs=stage.chosen.block_jobs,
    )
    with own_bed(stage.state, shape, stage.engine, stage.hear) as bed:
        if not bed.replay(asked, watch):
            raise KeyboardInterrupt("the demo's clusters are gone, its finished runs are kept")
    jobs = load_run(path).jobs
    return {row["trace_job"]: row["steps"] for row in jobs.iter_rows(named=True) if row["steps"]}


def make_out(out: Path) -> None:
    """Make the demo's folder where it is missing; raises OutputError, and TrustError for root.

    No other user can write what root writes, and later removes.
    """
    if out.is_file():
        raise OutputError(f"{out} is a file: name a folder for the runs and the report")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make {out}: {error.strerror}") from error
    refuse_for_root(out)


def clear_run(path: Path) -> None:
    """Remove an earlier demo's run and list ``path`` as this one's; refuse what no demo made.

    A user's own run may have the same name, so a demo lists its runs in the folder before it makes
    them.
    """
    listing = path.parent / LISTING
    listed = listing.read_text(encoding="utf-8").splitlines() if listing.exists() else []
    if path.is_symlink() or path.exists():
        if path.name not in listed or path.is_symlink() or not (path / "run.json").exists():
            raise OutputError(f"{path} is no run of an earlier demo; choose another --out")
        shutil.rmtree(path)
    if path.name not in listed:
        with listing.open("a", encoding="utf-8") as stream:
            stream.write(f"{path.name}\n")


def set_aside(path: Path) -> Path:
    """Rename a run that is to be repeated and return where it is now; an earlier demo's is replaced."""
    aside = path.with_name(path.name + FAILED)
    clear_run(aside)
    return path.rename(aside)


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
    watch: Follow,
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
    if engine is not None:
        ensure_images(engine, DEBIANS[0], accounting=False, say=say)
        began = time.monotonic()
    make_out(out)
    swf = out / f"{chosen.trace.name}.swf.gz"
    write_swf(swf, chosen.trace)
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
    watch: Follow,
    say: Callable[[str], None],
) -> tuple[Run, dict[int, int]]:
    """Replay under one setting, once more where jobs hung or failed; see ``replay_under``.

    A run with job faults says nothing of its setting. The first one is kept, for its cause is to be found.
    Where time was over because others used the host, it would be over again.
    """
    path = stage.out / setting.folder
    made = replay_under(setting, stage, steps, most_s, watch)
    run = load_run(path)
    faults = job_faults(run)
    if faults is not None and cut_short(run) is not None and (busy := host_use(run).unfit) is not None:
        say(f"{setting.label}: {faults}; and {busy}.")
    elif faults is not None:
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
        [*command, *words], capture_output=True, text=True, check=False, env=os.environ | {"OSUB_JIT": "0"}
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
