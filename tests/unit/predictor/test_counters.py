"""Counters of applications, those of NPB among them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import HostError, UsageError
from osub.cli.main import run
from predictor import counters
from predictor.dataset import COUNTERS, CounterSource
from predictor.measure.frozen_program import FrozenProgram, ProgramError
from predictor.measure.measure_pairs import rows_of, simulated_counts
from predictor.measure.pair_trial import measure
from predictor.programs.program_catalogue import ALL, applications_named, known_applications
from tests.fixtures.cli import Cli
from tests.fixtures.looks import until
from tests.fixtures.tier import examples
from workloads.task.step_meter import make_meter, read_meter

needs_valgrind = pytest.mark.skipif(
    shutil.which("valgrind") is None or shutil.which("cc") is None,
    reason="no valgrind or no compiler on this host: apt-get install valgrind gcc",
)


# As perf prints it with -x, (perf-stat(1)): multiplexed, refused and commented lines.
STAT = """# started on Mon Nov 23

1000000,,instructions,500000,50.00,2.00,insn per cycle
<not supported>,,cycles,0,100.00,,
<not counted>,,LLC-load-misses:u,0,0.00,,
2500,,branch-misses:u,1000000,100.00,0.25,of all branches
0.77,msec,task-clock,770000,100.00,0.384,CPUs utilized
nonsense
1,,half,x,y
"""

SUMMARY = """desc: LL cache:         1048576 B, 64 B, 8-way associative
cmd: ./k chase
events: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw Bc Bcm Bi Bim
fl=k.c
0 1 2 3
summary: 2000 20 2 1000 400 100 200 50 10 300 30 100 10
"""


def test_what_perf_did_not_count_is_null_and_never_zero() -> None:
    events = counters.parse_stat(STAT)
    assert (events["instructions"], events["cycles"]) == (
        counters.Event(1_000_000, 0.5),
        counters.Event(None, None),
    )
    assert (events["LLC-load-misses"], events["branch-misses"].value) == (counters.Event(None, None), 2500)
    assert "half" not in events


@examples(60)
@given(st.text(max_size=200))
def test_no_text_of_perf_or_cachegrind_breaks_the_reading(text: str) -> None:
    for line in (text, f"1,,{text},3,{text},", f"events: Ir\nsummary: {text}"):
        for event in counters.parse_stat(line).values():
            assert event.share is None or 0 <= event.share <= 1
        assert all(value >= 0 for value in counters.parse_summary(line).values())


def test_cachegrind_is_per_instruction_with_names_of_papi() -> None:
    events = counters.parse_summary(SUMMARY)
    counts = {count.counter: count for count in counters.counts_of({2: events, 3: {**events, "DLmr": 0}})}
    assert counts["l1_data_misses"].value == 450 / 2000
    assert (counts["l2_read_misses"].value, counts["l3_read_misses"].value) == (100 / 2000, 0)
    assert counts["branch_misses"].value == 40 / 2000
    assert {count.per for count in counts.values()} == {"instruction"}


def test_a_file_that_is_cut_has_no_counts() -> None:
    cut = counters.parse_summary(SUMMARY[:-60])
    assert not cut
    assert {count.value for count in counters.counts_of({2: cut})} == {None}
    assert counters.per(3, 0) is counters.per(None, 2) is None


def test_a_cache_whose_sets_are_no_power_of_two_is_simulated_a_little_smaller(tmp_path: Path) -> None:
    index = tmp_path / f"cpu{min(os.sched_getaffinity(0))}" / "cache" / "index3"
    index.mkdir(parents=True)
    for name, text in (
        ("level", "3"),
        ("size", "24M"),
        ("ways_of_associativity", "12"),
        ("coherency_line_size", "64"),
    ):
        (index / name).write_text(text + "\n")
    size, ways, line = map(int, counters.last_level(3, tmp_path).split(","))
    sets = size // ways // line
    assert sets & (sets - 1) == 0
    assert 12 << 20 <= size <= 24 << 20
    assert counters.last_level(2, tmp_path).count(",") == 2


def test_the_operating_system_counts_any_command(cli: Cli) -> None:
    words = [
        "predict", "counters", "--source", "os", "--json", "--", sys.executable, "-c",
        "bytearray(1 << 24)",
    ]  # fmt: skip
    document = {row["counter"]: row for row in cli.json(*words)["os"]}
    assert document["faults_minor"]["value"] > 0
    assert document["faults_minor"]["per"] == "second"


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        (["--", "/no/such/program"], "cannot start /no/such/program", 1),
        (["--", "sh", "-c", "exit 7"], "ended with code 7", 1),
        (["--", "sh", "-c", "kill -9 $$"], "was killed by signal 9", 1),
        (["--", ""], "the command is empty", 2),
        ([], "CMD", 2),
    ],
)
def test_a_command_that_fails_is_one_line(cli: Cli, words: list[str], message: str, code: int) -> None:
    error = cli("predict", "counters", "--source", "os", *words, code=code).err
    assert message in error
    assert error.count("\n") == 1


def test_what_is_missing_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    reported = {offer.provider.source: offer.missing for offer in counters.offers()}
    assert reported[CounterSource.OS] is None
    assert "linux-perf" in (reported[CounterSource.PERF] or "")
    assert "apt-get install valgrind" in (reported[CounterSource.CACHEGRIND] or "")
    with pytest.raises(HostError, match="no counters from perf"):
        counters.provider_of(CounterSource.PERF)


def test_a_pmu_that_is_refused_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perf = tmp_path / "perf"
    perf.write_text("#!/bin/sh\necho '<not supported>,,instructions,0,100.00,,' >&2\n")
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert "PMU" in (counters.PerfCounters().missing() or "")


def fake_perf(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Put a program first in PATH that runs a command and prints what perf would; EVENT is each event."""
    folder.mkdir(exist_ok=True)
    perf = folder / "perf"
    printed = "".join(f'echo "{line.replace("EVENT", "$event")}" >>"$to"\n' for line in lines)
    perf.write_text(
        "#!/bin/sh\nto=/dev/stderr; events=\n"
        'while [ "$1" != -- ]; do case $1 in -o) to=$2;; -e) events="$events $2";; esac; shift; done\n'
        f'shift; "$@"; code=$?\nfor event in $events; do\n{printed}done\nexit $code\n'
    )
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


ATOM = "<not counted>,,cpu_atom/EVENT/,0,0.00,,"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["2700,,EVENT,1000000000,100.00,,"], "not believed: perf counts 2,700 instructions"),
        (["0,,cpu_atom/EVENT/,0,0.00,,", "0,,cpu_core/EVENT/,9,100.00,,"], "not believed: perf counts 0 "),
        (["668753,,instructions:u,9,100.00,,", "0,,cycles:u,9,100.00,,"], "and 0 cycles"),
        (["<not supported>,,EVENT,0,100.00,,"], "the PMU is refused"),
        ([ATOM, "1000000000,,cpu_core/EVENT/,9,100.00,,"], None),
        (["900000000,,instructions:u,9,100.00,,", "<not supported>,,cycles,0,100.00,,"], None),
    ],
)
def test_a_pmu_is_believed_where_it_counts_a_known_loop(
    lines: list[str], message: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As virtual machines under KVM and VMware print it, and a sound processor with two kinds of cores."""
    fake_perf(tmp_path, monkeypatch, *lines)
    missing = counters.PerfCounters().missing()
    assert missing is None if message is None else message in (missing or "")


def test_kinds_of_cores_are_added_up() -> None:
    events = counters.parse_stat(
        "100,,cpu_atom/cycles/,9,20.00,,\n300,,cpu_core/cycles/u,9,80.00,,\n"
        "<not counted>,,cpu_atom/branch-misses/,0,0.00,,\n7,,cpu_core/branch-misses/,9,100.00,,\n"
        "5,,cpu/l2_rqsts.miss/,9,100.00,,\n"
    )
    assert events == {
        "cycles": counters.Event(400, 0.8),
        "branch-misses": counters.Event(7, 1.0),
        "l2_rqsts.miss": counters.Event(5, 1.0),
    }


@pytest.mark.slow
def test_counts_that_do_not_fit_the_cpu_time_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_perf(tmp_path, monkeypatch, "2700,,EVENT,1000000000,100.00,,")
    busy = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"]
    with pytest.raises(HostError, match="not believed: perf counts 2,700 instructions"):
        counters.PerfCounters().count(busy, os.environ)


def test_the_next_source_is_taken_and_the_reason_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    fake_perf(tmp_path, monkeypatch, "2700,,EVENT,1000000000,100.00,,")
    output = cli("predict", "counters", "--quick", "--json", "--", "true")
    assert list(json.loads(output.out)) == ["os"]
    assert "no counters from perf: the PMU is not believed" in output.err


def test_perf_is_scaled_and_per_instruction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perf = tmp_path / "perf"
    # A program that prints what perf does: where -o is given into the file, else to the standard error.
    perf.write_text(
        '#!/bin/sh\nto=/dev/stderr\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && to=$2; shift; done\n'
        "echo '2000,,instructions,1,100.00,,' >\"$to\"\necho '50,,branch-misses,1,25.00,,' >>\"$to\"\n"
    )
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    counts = {count.counter: count for count in counters.PerfCounters().count(["true"], os.environ)}
    assert counts["PAPI_BR_MSP"] == counters.Count("PAPI_BR_MSP", "instruction", 0.025, 0.25)
    assert counts["PAPI_L3_TCM"].value is None


def test_counts_are_rows_of_the_table() -> None:
    rows = rows_of(
        ALL["integer"],
        CounterSource.CACHEGRIND,
        [counters.Count("PAPI_L2_DCM", "instruction", None), counters.Count("x", "second", 1)],
    )
    assert COUNTERS.check(COUNTERS.frame(rows), "x").height == 2


@needs_valgrind
@pytest.mark.slow
def test_a_chase_beyond_the_second_level_misses_it_and_an_integer_loop_does_not(tmp_path: Path) -> None:
    # 16 MiB are more than any second level; the integer loop has no memory.
    far = {count.counter: count.value for count in simulated_counts(ALL["chase.16384K"], 400)}
    near = {count.counter: count.value for count in simulated_counts(ALL["integer"], 400)}
    assert (far["l2_read_misses"] or 0) > 0.1
    assert near["l2_read_misses"] is not None
    assert near["l2_read_misses"] < 1e-4
    with pytest.raises(HostError, match="several ranks"):
        simulated_counts(ALL["lu.W.2"], 600)


@pytest.mark.slow
@needs_valgrind
def test_a_command_that_dies_under_the_simulation_is_one_line() -> None:
    with pytest.raises(HostError, match="ended with code 3"):
        counters.CachegrindCounters().count(["sh", "-c", "exit 3"], os.environ)
    assert {count.per for count in counters.SystemCounters().count(["true"], os.environ)} == {"second"}


# Prints as NPB 3.4 does: LU, BT and SP the first time step and each twentieth, MG the first and each fifth.
STAND_IN = """#!{python}
import os, sys
name, klass = os.path.basename(sys.argv[0]).split(".")[:2]
lines = open({{"mg": "mg.input"}}.get(name, "input" + name + ".data")).read().splitlines()
count = int(lines[5] if name == "lu" else lines[2] if name == "mg" else lines[0])
every, word = (5, "  iter %4d") if name == "mg" else (20, " Time step %4d")
print(" NAS Parallel Benchmarks (NPB3.4-OMP) -", name.upper(), "Benchmark")
if klass == "B":
    sys.exit("no memory")
if klass == "C":
    count = 0
field = [1.0] * 3000
for number in range(1, count + 1):
    field = [1.0000001 * value for value in field]
    if number in (1, count) or number % every == 0:
        print(word % number if number < 10000 else word.split(" %")[0] + " ****")
print(" ", name.upper(), "Benchmark Completed.")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    for program in ("lu.S.x", "lu.W.x", "bt.S.x", "bt.B.x", "bt.C.x", "mg.S.x"):
        (path := tmp_path / "bin" / program).write_text(STAND_IN.format(python=sys.executable))
        path.chmod(0o755)
    (tmp_path / "bin" / "sp.S.x").write_text("no program")
    return tmp_path


def test_the_benchmarks_that_are_there_are_applications(folder: Path) -> None:
    given = {"OSUB_NPB": str(folder)}
    assert [each.name for each in applications_named(["npb"], given)] == [
        "npb.lu.S", "npb.lu.W", "npb.bt.S", "npb.bt.B", "npb.bt.C", "npb.mg.S",
    ]  # fmt: skip
    # The name LU means all of them: they are alike.
    assert {"lu.S", "lu.W", "npb.lu.S"} <= {each.name for each in applications_named(["lu"], given)}
    assert not any(name.startswith("npb.") for name in known_applications({}))


@pytest.mark.parametrize(
    ("name", "variables", "message"),
    [
        ("npb", {}, "set OSUB_NPB"),
        ("npb.lu.S", {}, "set OSUB_NPB"),
        ("npb.sp.S", {"OSUB_NPB": "."}, "has no such program"),
        ("npb.\x1b[31m", {}, "set OSUB_NPB"),
    ],
)
def test_a_benchmark_that_is_not_there_is_one_line(
    name: str, variables: dict[str, str], message: str, folder: Path
) -> None:
    if variables:
        variables = {"OSUB_NPB": str(folder)}
    with pytest.raises(UsageError, match=message) as caught:
        applications_named([name], variables)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lu", "bt", "mg"])
def test_as_many_steps_are_reported_as_were_asked_for(name: str, folder: Path, tmp_path: Path) -> None:
    meter = make_meter(tmp_path / "meter")
    application = known_applications({"OSUB_NPB": str(folder)})[f"npb.{name}.S"]
    done = subprocess.run(
        application.command(7), env={**os.environ, "OSUB_METER": str(tmp_path / "meter")},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reading = read_meter(meter)
    assert reading is not None
    assert reading.steps == 7


def test_benchmarks_that_print_no_steps_are_run_whole_again_and_again(folder: Path, tmp_path: Path) -> None:
    (binary := folder / "bin" / "cg.S.x").write_text(f"#!/bin/sh\necho run >> {tmp_path}/runs\n")
    binary.chmod(0o755)
    try:
        application = known_applications({"OSUB_NPB": str(folder)})["npb.cg.S"]
        assert (application.family, application.step) == ("cg", "a whole run")
        subprocess.run(application.command(3), check=True, timeout=60)
    finally:
        binary.unlink()
    assert (tmp_path / "runs").read_text().split() == ["run"] * 3


def is_over(pid: int) -> bool:
    """Whether a process is gone, or dead and only not reaped yet by its new parent."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.mark.slow
def test_it_has_a_speed_in_a_window_and_is_gone_afterwards(folder: Path, tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    application = known_applications({"OSUB_NPB": str(folder)})["npb.lu.W"]
    running = FrozenProgram(application, tmp_path, [cpu], 0)
    pids = [process.pid for process in running.processes]
    try:
        assert len(pids) >= 2  # the benchmark, too, is stopped and let run
        assert measure([running], [cpu], 0.0, 0.1).paces[0].speed > 0
    finally:
        running.close()
    until(lambda: all(is_over(pid) for pid in pids), 30, "all are over")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [("npb.bt.B", "bt.B.x ended with code 1; it printed last"), ("npb.bt.C", "tells no time steps")],
)
def test_a_benchmark_that_dies_or_reports_nothing_is_named(
    name: str, message: str, folder: Path, tmp_path: Path
) -> None:
    application = known_applications({"OSUB_NPB": str(folder)})[name]
    with pytest.raises(ProgramError, match=message):
        FrozenProgram(application, tmp_path, [min(os.sched_getaffinity(0))], 0)


def test_what_runs_it_takes_four_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from predictor.programs import npb_program as npb

    monkeypatch.setattr(sys, "argv", ["npb", "folder", "lu"])
    assert npb.main() == 2
    assert "FOLDER NAME CLASS STEPS" in capsys.readouterr().err
    monkeypatch.delenv("OSUB_NPB", raising=False)
    assert run(["predict", "run", "npb.lu.S", "--steps", "3"]) == 2
    assert "no application is called" in capsys.readouterr().err
