"""Simulation as Slurm schedules, and its fit to real runs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl
import pytest

from foundation.errors import InputError, UsageError
from foundation.records import ALLOCATIONS, AllocationRecord, GangSettings, Placement, Run, load_run
from foundation.records.table_files import frame_of
from osub.cli.main import run
from simulator.fit.fit_parameters import Parameter
from simulator.fit.measured_run import Latencies
from simulator.fit.recorded_order import read_starts
from simulator.fit.slurm_fit import configured, fit_run
from tests.fixtures.cli import Cli
from tests.fixtures.real_runs import Row, real_run
from tests.fixtures.slurm_runs import SLURM_CONFIG, SYSTEM, slurm_run, write_trace
from tests.fixtures.swf_jobs import write_jobs

Line = tuple[int, float, int, int, int, int]  # number, submit, run, processors, request, user
AT_ONCE = {"tick": "0", "delay": "0", "every": "0", "resolution": "1", "calc": "0"}
"""Slurm without its looks, and as exact as can be."""


def starts(
    tmp_path: Path,
    lines: Sequence[Line],
    *settings: str,
    system: str = "N2C1",
    multiplicity: int = 1,
    policy: str = "slurm",
) -> dict[int, float]:
    path = write_jobs(tmp_path / "trace.swf", lines)
    given = (AT_ONCE if policy == "slurm" else {}) | dict(setting.split("=") for setting in settings)
    words = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    words += ["--system", system, "--multiplicity", str(multiplicity), "--policy", policy]
    out = tmp_path / f"run-{multiplicity}"
    assert run(["simulate", str(path), "--out", str(out), *words]) == 0
    rows = pl.read_parquet(out / "jobs.parquet")
    return dict(zip(rows.get_column("trace_job"), rows.get_column("start_s"), strict=True))


BACKFILLABLE = [(1, 0, 100, 1, 100, 1), (2, 1, 50, 2, 50, 1), (3, 2, 40, 1, 40, 1), (4, 3, 300, 1, 300, 1)]
QUIET = [(1, 0, 300, 1, 300, 1), (2, 150, 50, 2, 50, 1), (3, 260, 30, 1, 30, 1), (4, 261, 20, 1, 20, 1)]
LOOKS = [(1, 0, 5, 1, 5, 1), (2, 0.9, 50, 1, 50, 1), (3, 1.1, 5, 2, 5, 1), (4, 80, 5, 1, 5, 1)]
TWO = [(1, 0, 5, 1, 5, 1), (2, 1, 50, 1, 50, 1)]
SPACED = [(1, 0, 5, 1, 5, 1), (2, 3, 5, 1, 5, 1), (3, 15, 5, 1, 5, 1)]
PAIR = [(1, 0, 10, 2, 10, 1), (2, 1, 10, 2, 10, 1)]
WIDER = [(1, 0, 100, 2, 100, 1), (2, 1, 50, 2, 50, 1), (3, 2, 200, 3, 200, 1), (4, 3, 160, 1, 160, 1)]
ONE_NODE = [(1, 0, 100, 2, 100, 1), (2, 1, 50, 1, 50, 1), (3, 2, 50, 1, 50, 1)]
OVER_A_MINUTE = [(1, 0, 100, 1, 100, 1), (2, 1, 50, 2, 50, 1), (3, 2, 40, 1, 61, 1)]
TWO_USERS = [(1, 0, 100, 2, 100, 1), (2, 1, 10, 2, 10, 1), (3, 2, 10, 2, 10, 2)]
SIZES = [(1, 0, 100, 2, 100, 1), (2, 1, 10, 1, 10, 1), (3, 2, 10, 2, 10, 1)]
SCHEDULES: list[tuple[str, Sequence[Line], str, dict[int, float]]] = [
    ("backfilled at intervals", BACKFILLABLE, "interval=30", {1: 0, 2: 100, 3: 30, 4: 150}),
    ("backfilled at an earlier run", BACKFILLABLE, "interval=7", {1: 0, 2: 100, 3: 7, 4: 150}),
    ("backfilled at a later run", BACKFILLABLE, "interval=59", {1: 0, 2: 100, 3: 59, 4: 150}),
    ("backfill scheduler begins at its phase", BACKFILLABLE, "interval=30 phase=11", {3: 11}),
    ("none beyond the depth is backfilled", BACKFILLABLE, "depth=1", {3: 150}),
    ("none overtakes without backfilling", BACKFILLABLE, "backfill=no", {3: 150}),
    ("nodes kept from the last whole resolution on", BACKFILLABLE, "resolution=60", {3: 150}),
    # When job 3 has ended the start of job 2 is 10 s away, and job 4 takes its node for 300 s.
    ("no nodes kept beyond the window", BACKFILLABLE, "window=5", {4: 90}),
    ("backfilled at once after a quiet time", QUIET, "interval=60", {1: 0, 2: 300, 3: 260, 4: 350}),
    ("arrivals wait for a look", LOOKS, "tick=1 backfill=no", {1: 0.5, 2: 1.5, 3: 52.5, 4: 80.5}),
    ("time between looks", LOOKS, "tick=1 delay=10 backfill=no", {1: 0.5, 2: 10.5, 3: 61.5, 4: 81.5}),
    ("a pass every so often", TWO, "delay=100 every=20 backfill=no", {1: 0, 2: 20}),
    ("passes keep their distance", SPACED, "spacing=10 backfill=no", {1: 0, 2: 10, 3: 20}),
    ("ends wait for a look", PAIR, "tick=8 backfill=no ends=wait", {1: 4, 2: 20}),
    ("ends do not wait for a look", PAIR, "tick=8 backfill=no ends=at-once", {1: 4, 2: 14}),
    ("nodes complete before another job starts", PAIR, "completing=4 backfill=no", {1: 0, 2: 14}),
    # Job 2 is kept two nodes from 100 to 150, job 3 all three from then on: job 4 would be in its way.
    ("all that wait are kept nodes", WIDER, "N3C1 interval=1", {1: 0, 2: 100, 3: 150, 4: 350}),
    ("one that waits is kept nodes", WIDER, "N3C1 interval=1 reserve=1", {4: 3}),
    # Job 2 takes one of two cores from second 100 on, and job 3 may not have the other for longer.
    ("kept nodes are kept whole", ONE_NODE, "N1C2 interval=1", {1: 0, 2: 100, 3: 100}),
    ("limits as they are", OVER_A_MINUTE, "interval=10", {3: 10}),
    ("limits are whole minutes", OVER_A_MINUTE, "interval=10 limits=1", {3: 150}),
    ("no fair share", TWO_USERS, "", {1: 0, 2: 100, 3: 110}),
    ("less used first by fair share", TWO_USERS, "fair=1000", {1: 0, 2: 110, 3: 100}),
    ("large first by size", SIZES, "size=10", {1: 0, 2: 110, 3: 100}),
    ("small first by size", SIZES, "size=10 favour=small", {1: 0, 2: 100, 3: 110}),
    ("old first by age", SIZES, "size=1 age=1000000", {1: 0, 2: 100, 3: 110}),
    ("age is not looked at yet", SIZES, "size=1 age=1000000 calc=1000", {1: 0, 2: 110, 3: 100}),
]


@pytest.mark.parametrize(("_", "lines", "words", "expected"), SCHEDULES, ids=[case[0] for case in SCHEDULES])
def test_jobs_start_as_slurm_starts_them(
    tmp_path: Path, _: str, lines: Sequence[Line], words: str, expected: dict[int, float]
) -> None:
    settings = [word for word in words.split() if "=" in word]
    (system,) = set(words.split()) - set(settings) or {"N2C1"}
    found = starts(tmp_path, lines, *settings, system=system)
    assert {job: found[job] for job in expected} == expected


@pytest.mark.parametrize(("others", "fourth_s"), [(1, 160), (2, 200)])
def test_in_a_crowd_looks_are_changes_and_the_backfill_scheduler_keeps_its_rhythm(
    tmp_path: Path, others: int, fourth_s: float
) -> None:
    """Every 20 s the main scheduler looks at the first that waits: a change, if another is behind it."""
    wide = [(number, 1, 50, 2, 50, 1) for number in range(2, 2 + others)]
    lines = [(1, 0, 300, 1, 300, 1), *wide, (9, 160, 30, 1, 30, 1)]
    assert starts(tmp_path, lines, "every=20", "interval=50")[9] == fourth_s


@pytest.mark.slow
def test_limits_of_jobs_that_share_cores_are_times_on_the_wall(tmp_path: Path) -> None:
    """Jobs 1 and 3 share a core until 144; their limits end at 120, and that of job 5 at 131 or later."""
    lines = [
        *((number, 0, 60, 1, 60, 1) for number in (1, 2, 3)),
        (4, 1, 50, 2, 60, 1),
        (5, 71, 10, 1, 20, 1),
    ]
    found = starts(tmp_path, lines, "interval=5", "limits=2", multiplicity=2)
    assert (found[4], found[5]) == (144, 144)
    (tmp_path / "work").mkdir()
    assert starts(tmp_path / "work", lines, "interval=5", multiplicity=2)[5] < 80


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("interval=0", "--set interval takes a number from 0.001 to 1e+09, not '0'"),
        ("depth=many", "--set depth takes a whole number from 0 to 1e+09, not 'many'"),
        ("fair=-1", "--set fair takes a number from 0"),
        ("sorcery=1", "policy slurm has no option 'sorcery'"),
    ],
)
def test_values_that_cannot_be_are_refused(setting: str, message: str, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "t.swf").write_text("1 0 -1 5 1 -1 -1 1 5 -1 1 1 1 -1 1 -1 -1 -1\n")
    words = ["--system", "N1C1", "--policy", "slurm", "--set", setting, "--out", str(tmp_path / "run")]
    assert message in cli("simulate", tmp_path / "t.swf", *words, code=2).err


STREAM = [(1, 0, 1000, 1, 1000, 1), (2, 0, 200, 1, 200, 1), (3, 10, 100, 2, 100, 2)]
STREAM += [(4 + at, 20 + 100 * at, 300, 1, 300, 3) for at in range(20)]


@pytest.mark.parametrize("policy", ["easy", "easy-elsewhere"])
def test_a_wide_job_keeps_its_reservation_in_a_stream_of_small_ones(tmp_path: Path, policy: str) -> None:
    """Job 3 needs both nodes: no small job starts that would still run when the first node is free."""
    found = starts(tmp_path, STREAM, policy=policy)
    assert [found[job] for job in range(1, 8)] == [0, 0, 1000, 200, 500, 1100, 1100]
    assert [found[job] for job in range(8, 24)] == [1400 + 300 * (at // 2) for at in range(16)]


def test_slurm_keeps_nodes_for_a_wide_job_in_a_stream_of_small_ones(tmp_path: Path) -> None:
    found = starts(tmp_path, STREAM)
    assert found[3] == 1000
    assert not any(700 < found[job] < 1000 for job in range(4, 24))
    assert starts(tmp_path, STREAM, multiplicity=2)[3] == 10


# Kind, due, submitted, start, end, dedicated; cores of the only node, which has two.
ROWS: list[Row] = [
    ("batch", 0, 0.1, 0.6, 10.6, 10, "0"),  # arrived: 0.5 s
    ("batch", 1, 1.1, 11.0, 20.0, 9, "0-1"),  # released by the first: 0.4 s
    ("batch", 2, 2.1, 2.5, 8.5, 6, "1"),  # overtook the second
    ("batch", 3, 3.1, 20.7, 30.7, 10, "0"),  # released by the second: 0.7 s
    ("batch", 4, 4.1, 20.8, 29.8, 9, "1"),  # ready at the same instant: nothing new
    ("batch", 40, 40.1, 41.1, 50.0, 9, "0"),  # arrived: 1 s
]

MULTIFACTOR = {"PriorityType": "priority/multifactor", "PriorityWeightAge": "9"}


def values(run: Run, requests: int = 1) -> dict[str, Parameter]:
    fit = fit_run(run, run.info.system, requests)
    return {parameter.name: parameter for parameter in (*fit.policy, *fit.latencies)}


def with_config(run: Run, **config: str) -> Run:
    return replace(run, info=msgspec.structs.replace(run.info, slurm_config=config))


def test_starts_are_distinguished_by_what_jobs_waited_for(tmp_path: Path) -> None:
    starts = read_starts(real_run(tmp_path / "r", ROWS))
    assert starts.arrived == pytest.approx([0.5, 1.0])
    assert starts.released == pytest.approx([0.4, 0.7])
    assert (starts.overtook, starts.deepest) == ([2.5], 2)
    assert starts.passes == pytest.approx([0.6, 11.0, 20.7, 20.8, 41.1])


def test_on_shared_cores_a_job_waits_for_the_end_that_leaves_space(tmp_path: Path) -> None:
    shared: list[Row] = [
        ("batch", 0, 0.1, 0.2, 10, 9, "0"),
        ("batch", 0, 0.1, 0.2, 20, 9, "0"),
        ("batch", 1, 1.1, 10.3, 15, 9, "0"),
        ("batch", 2, 2.1, 15.4, 40, 9, "0"),
    ]
    run = real_run(tmp_path / "r", shared, multiplicity=2)
    assert read_starts(run).released == pytest.approx([0.3, 0.4])
    queues = {"queues": "mq", "interactive_nodes": 1}
    apart = msgspec.structs.replace(run.info, multiplicity=1, multiplicity_interactive=2, **queues)
    jobs = run.jobs.with_columns(kind=pl.lit("interactive"))
    assert read_starts(replace(run, info=apart, jobs=jobs)).released == pytest.approx([0.3, 0.4])


def test_batch_jobs_next_to_interactive_ones_have_cores_of_their_own(tmp_path: Path) -> None:
    run = real_run(tmp_path / "r", ROWS)
    queues = {"queues": "mq", "interactive_nodes": 1, "multiplicity_interactive": 4}
    apart = replace(run, info=msgspec.structs.replace(run.info, **queues))
    assert read_starts(apart) == read_starts(run)


def test_who_is_before_whom_is_a_matter_of_priority(tmp_path: Path) -> None:
    """The wide job goes first by size: then it did not overtake the narrow one."""
    rows: list[Row] = [
        ("batch", 0, 0.1, 0.2, 10, 9, "0-1"),
        ("batch", 1, 1.1, 20.3, 30, 9, "0"),
        ("batch", 2, 2.1, 10.3, 20, 9, "0-1"),
    ]
    run = real_run(tmp_path / "r", rows)
    assert (read_starts(run).overtook, read_starts(run, size_weight=100).overtook) == ([10.3], [])


def test_a_job_that_was_cancelled_waited_until_then_and_reports_nothing_else(tmp_path: Path) -> None:
    run = real_run(tmp_path / "r", ROWS)
    second = pl.col("trace_job") == 2
    jobs = run.jobs.with_columns(
        start_s=pl.when(~second).then("start_s"), placement=pl.when(~second).then("placement")
    )
    starts = read_starts(replace(run, jobs=jobs))
    assert (starts.overtook, len(starts.passes)) == ([2.5], 4)
    unknown = jobs.with_columns(end_s=pl.when(~second).then("end_s"))
    assert read_starts(replace(run, jobs=unknown)).overtook == [], "refused, or lost"
    early = jobs.with_columns(end_s=pl.when(second).then(2.0).otherwise("end_s"))
    assert read_starts(replace(run, jobs=early)).overtook == []


def test_a_job_that_began_again_is_in_the_way_and_reports_nothing(tmp_path: Path) -> None:
    run = real_run(tmp_path / "r", ROWS)
    place = (Placement("n1", (0,)),)
    lifecycles = [
        AllocationRecord(job=1, from_s=0.6, to_s=4.0, placement=place, why="start"),
        AllocationRecord(job=1, from_s=5.0, to_s=10.6, placement=place, why="requeue"),
    ]
    starts = read_starts(replace(run, allocations=frame_of(lifecycles, ALLOCATIONS)))
    assert starts.arrived == pytest.approx([1.0])
    assert starts.released == pytest.approx([0.4, 0.7])


def test_few_starts_report_little_and_say_so(tmp_path: Path) -> None:
    found = values(real_run(tmp_path / "r", ROWS))
    assert {found[name].source for name in ("tick", "interval", "completing", "scheduling_s")} == {"default"}
    assert found["interval"].note == "too few jobs overtook others"
    assert (found["backfill"].value, found["backfill"].note) == ("no", "sched/builtin")
    assert (found["submission_s"].value, found["submission_s"].observations) == (0.1, 6)
    assert found["launch_interactive_s"].note == "no such job"


def test_jobs_that_share_cores_do_not_report_how_long_launching_takes(tmp_path: Path) -> None:
    run = real_run(tmp_path / "r", ROWS, multiplicity=2, gang=GangSettings(kind="osub", quantum_ms=250.0))
    fit = fit_run(run, "N1C2", 1)
    assert {one.note for one in fit.latencies if one.name.startswith("launch")} == {"jobs share cores"}
    known = Latencies(submission_s=9, launch_serial_s=3, launch_interactive_s=2)
    assert (fit.times(known).launch_serial_s, fit.times(known).submission_s) == (3, 0.1)
    assert fit.times().launch_serial_s == 0


def test_stated_values_are_slurms_own(tmp_path: Path) -> None:
    run = with_config(
        real_run(tmp_path / "r", ROWS),
        SchedulerType="sched/backfill",
        SchedulerParameters="bf_window=10,BF_INTERVAL=45,bf_resolution=x,bf_max_job_test=-3,"
        "sched_min_interval=1500000,defer,bf_interval=7,salloc_wait_nodes",
        Epilog="/etc/slurm/epilog.sh",
        PriorityType="priority/multifactor",
        PriorityWeightAge="100",
        PriorityWeightFairShare="5000",
        PriorityMaxAge="1-02:00:00",
        PriorityDecayHalfLife="00:00:00",
        PriorityFavorSmall="Yes",
        PriorityWeightQOS="10",
        CompleteWait="5 sec",
    )
    found = values(run)
    expected: dict[str, object] = {
        "window": 600.0, "interval": 45, "resolution": 60, "depth": 500, "delay": 3,
    }  # fmt: skip
    expected |= {"spacing": 1.5, "ends": "wait", "age": 100.0, "size": 0.0, "fair": 0.0}
    expected |= {"max_age": 93_600.0, "favour": "small", "half_life": 1e9}
    assert {name: found[name].value for name in expected} == expected
    assert {found[name].source for name in expected} == {"configuration"}
    assert (found["ends"].note, found["calc"].source) == ("defer", "default")
    ignored = fit_run(run, "N1C2", 1).ignored
    assert ignored == ("salloc_wait_nodes", "PriorityWeightQOS=10", "CompleteWait=5 sec")


@pytest.mark.parametrize(
    ("config", "name", "value"),
    [
        ({"Epilog": "/x"}, "ends", "at-once"),
        ({"Epilog": "(null)"}, "ends", "wait"),
        ({"SchedulerType": "sched/builtin"}, "backfill", "no"),
        ({"SchedulerParameters": "bf_interval=-1"}, "backfill", "no"),
        ({"SchedulerParameters": "bf_interval=20000"}, "interval", 30),
        ({"SchedulerParameters": "(null)"}, "every", 60),
        ({"PriorityType": "priority/basic", "PriorityWeightAge": "9"}, "age", 0.0),
        (MULTIFACTOR, "age", 9.0),
        (MULTIFACTOR | {"AccountingStorageType": "accounting_storage/slurmdbd"}, "age", 9.0),
        (MULTIFACTOR | {"AccountingStorageType": "accounting_storage/none"}, "age", 0.0),
    ],
)
def test_what_a_configuration_means(config: dict[str, str], name: str, value: object) -> None:
    assert configured(config).stated[name].value == value


def refusal(run: Run, system: str = "N1C2") -> str:
    with pytest.raises((InputError, UsageError)) as reported:
        fit_run(run, system, 1)
    assert "\n" not in str(reported.value)
    return f"{reported.value.exit_code}: {reported.value}"


def test_runs_that_report_nothing_are_refused(tmp_path: Path) -> None:
    run = real_run(tmp_path / "r", ROWS, label="that run")
    simulated = msgspec.structs.replace(run.info, kind="simulated")
    assert refusal(replace(run, info=simulated)).startswith("1: that run is a simulation")
    assert refusal(replace(run, complete=False)).startswith("1: that run is not finished: `osub replay")
    assert refusal(run, "N2C2") == "2: fit: that run is a run on N1C2, not on N2C2"
    none = run.jobs.with_columns(start_s=None, placement=None).cast({"start_s": float})
    assert refusal(replace(run, jobs=none)) == "1: no job of that run has started: there is nothing to fit"


@pytest.mark.slow
def test_a_simulation_takes_what_is_fitted_and_what_is_given_wins(tmp_path: Path, cli: Cli) -> None:
    settings = {"tick": 1, "delay": 1, "interval": 12, "phase": 5}
    real = slurm_run(
        tmp_path / "real", settings, latencies=Latencies(scheduling_s=0.1), config=SLURM_CONFIG, jobs=120
    )
    words = ("simulate", real.path, "--system", SYSTEM, "--policy", "slurm", "--fit", real.path)
    fit = cli.json(*words, "--set", "depth=7", "--json", "--out", tmp_path / "sim")["fit"]
    reported = {one["name"]: one for one in fit["policy"]}
    assert fit["run"] == "real"
    assert (reported["interval"]["value"], reported["interval"]["source"]) == (12, "configuration")
    assert reported["depth"]["value"] == 500
    simulated = load_run(tmp_path / "sim")
    assert simulated.info.options["fitted_on"] == "real"
    assert str(simulated.info.options["policy_options"]).endswith("depth=7")
    out = cli(*words, "--out", tmp_path / "again").out
    assert "Slurm as in real, by" in out
    assert "configuration: bf_interval=12" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("N1C2 --policy easy", "--fit goes with --policy slurm, not with easy"),
        ("N2C2 --policy slurm", "--fit: r is a run on N1C2, not on N2C2"),
    ],
)
def test_a_fit_that_does_not_go_with_the_rest_is_refused(
    words: str, message: str, tmp_path: Path, cli: Cli
) -> None:
    run, trace = real_run(tmp_path / "r", ROWS, label="r"), write_trace(tmp_path / "t.swf", 1, 3)
    always = ("--fit", run.path, "--out", tmp_path / "sim")
    assert cli.said("simulate", trace, "--system", *words.split(), *always, code=2) == f"osub: {message}\n"
    assert not (tmp_path / "sim").exists()


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, cli: Cli) -> None:
    trace = write_trace(tmp_path / "t.swf", 1, 3)
    words = ("simulate", trace, "--system", "N1C2", "--policy", "slurm", "--out", tmp_path / "sim", "--fit")
    cli.said(*words, tmp_path / "none", code=1)
    shutil.copytree(real_run(tmp_path / "r", ROWS).path, tmp_path / "cut")
    (tmp_path / "cut" / "jobs.parquet").unlink()
    (tmp_path / "cut" / "jobs.journal").write_bytes(b"")
    cli.said(*words, tmp_path / "cut", code=1)
