"""Measurements of pairs, and their agreement."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import numpy as np
import polars as pl
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import HostError, InputError, UsageError
from foundation.units import seconds_of
from predictor.dataset import SOLO, TRIALS, PairKind, Pairs, pair_frame, read_pairs, write_pairs
from predictor.measure import pairs_store
from predictor.measure.frozen_program import FrozenProgram, ProgramError, weigh_session
from predictor.measure.measure_pairs import (
    Measurement,
    MeasurementPlan,
    MeasurementSettings,
    pairs_of,
    places,
)
from predictor.measure.pair_trial import (
    Lengths,
    ProgramPace,
    ProgramPairTrial,
    RoundClock,
    Row,
    SpeedWindow,
    measure,
    share_taken,
    shares_taken,
)
from predictor.pairs_agreement import agreement_of
from predictor.programs.program_catalogue import (
    ALL,
    CatalogueApplication,
    applications_named,
    kernels_program,
)
from tests.fixtures.cli import Cli
from tests.fixtures.pairs_made import made_pairs
from tests.fixtures.tier import examples
from workloads.task.step_meter import Meter, make_meter, map_meter, read_meter

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None, reason="no compiler on this host: install gcc"
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SHORT = Lengths(pair_s=0.1, solo_s=0.1, warm_up_s=0.01)


def application(name: str, *words: str, family: str = "") -> CatalogueApplication:
    return CatalogueApplication(name, family or name, "a step", lambda _: list(words))


def pace(speed: float, busy: float = 1.0) -> ProgramPace:
    return ProgramPace(steps=round(speed), wall_s=1.0, busy_s=busy, cpu_s=busy)


def trial(first: str = "a", second: str = "b", number: int = 1, shared: float = 50) -> ProgramPairTrial:
    alone = pace(100), pace(200)
    window = SpeedWindow(NOON, 1.0, (pace(shared), pace(100)), 0.1, 0.0)
    return ProgramPairTrial(PairKind.TIMESLICE, (first, second), number, alone, window, alone)


def solo_row(name: str = "a") -> Row:
    return {
        "application": name, "kind": "timeslice", "started": NOON, "wall_s": 1.0, "steps": 5.0,
        "speed": 5.0, "cpu_s": 1.0, "steal_s": 0.0, "foreign_cpu_s": 0.0,
    }  # fmt: skip


def test_a_meter_is_read_while_it_is_written(tmp_path: Path) -> None:
    page = make_meter(tmp_path / "meter")
    assert read_meter(page) is None
    meter = Meter.of({"OSUB_METER": str(tmp_path / "meter")})
    assert meter is not None
    for _ in range(3):
        meter.step()
    reading = read_meter(page)
    assert reading is not None
    assert reading.steps == 3
    assert 0 <= time.monotonic() - reading.last_s < 60
    assert 0 <= reading.busy_s < 60
    assert Meter.of({}) is None


def test_a_meter_that_is_no_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "short")
    for name in ("short", "link", "nothing"):
        with pytest.raises(HostError, match="cannot map the meter"):
            map_meter(tmp_path / name)


def test_a_trial_has_a_row_for_each_as_victim() -> None:
    both = {(row["victim"], row["opponent"]): row for row in trial().rows()}
    assert (both["a", "b"]["e_v"], both["b", "a"]["speed_victim"]) == (0.5, 100)
    assert len(trial("a", "a").rows()) == 1
    TRIALS.check(TRIALS.frame(list(both.values())), "x")


def test_an_opponent_that_sleeps_counts_for_the_time_in_which_it_is_busy() -> None:
    asleep = trial(shared=75)
    window = replace(asleep.together, paces=(pace(75), pace(100, busy=0.5)))
    one = replace(asleep, together=window, before=(pace(100), pace(200, busy=0.5)))
    assert one.rows()[0]["e_v"] == pytest.approx(0.25 / 0.5)


def test_what_others_take_of_the_core_is_not_laid_to_the_pair() -> None:
    # Others had a fifth of a second of one: the two have 0.8 s, and got their work done in that.
    always = ProgramPace(steps=100, wall_s=1.0, busy_s=1.0, cpu_s=0.4)
    taken = share_taken(1.0, 0.2, [always, always])
    assert taken == pytest.approx(0.2)
    assert replace(always, taken=taken).speed == pytest.approx(125.0)
    # A program that sleeps half the time, and loses nothing to others who run meanwhile.
    assert share_taken(1.0, 0.4, [ProgramPace(steps=100, wall_s=1.0, busy_s=0.5, cpu_s=0.5)]) == 0.0
    # One that waits for a disk as long as it computes: no other job took that.
    assert share_taken(1.0, 0.0, [ProgramPace(steps=9, wall_s=1.0, busy_s=1.0, cpu_s=0.5)]) == 0.0
    # On a CPU of its own each has lost what it wanted and did not get; of jobs of two ranks it is unknown.
    half = ProgramPace(steps=100, wall_s=1.0, busy_s=1.0, cpu_s=0.5)
    assert shares_taken(1.0, 0.6, [half, always], 1, 2) == [pytest.approx(0.1)] * 2
    assert shares_taken(1.0, 0.6, [half, always], 2, 2) == [pytest.approx(0.5), pytest.approx(0.6)]
    assert shares_taken(1.0, 0.6, [half, always], 2, 4) == [0.0, 0.0]
    # A count that cannot be leaves a tenth.
    assert share_taken(1.0, 5.0, [ProgramPace(steps=9, wall_s=1.0, busy_s=1.0, cpu_s=0.0)]) == pytest.approx(
        0.9
    )


def test_every_pair_but_stressors_among_themselves() -> None:
    apps = [application(name) for name in "abc"] + [application(name, family="stressor") for name in "xy"]
    names = [(one.name, other.name) for one, other in pairs_of(apps)]
    assert len(names) == len(set(names)) == 6 + 6
    assert len(pairs_of(apps, against={"x", "y"})) == 6
    # Against one of them: each other one, and itself.
    assert [(one.name, other.name) for one, other in pairs_of(apps[:3], against={"b"})] == [
        ("a", "b"),
        ("b", "b"),
        ("b", "c"),
    ]


@examples(30)
@given(count=st.integers(1, 6), most=st.integers(1, 9), noise=st.floats(0, 0.2), seed=st.integers(0, 99))
def test_a_plan_ends_with_every_pair_narrow_or_measured_often_enough(
    count: int, most: int, noise: float, seed: int
) -> None:
    apps = [application(f"a{number}") for number in range(count)]
    plan = MeasurementPlan(pairs_of(apps), width=0.05, most=most, seed=seed)
    for asked, (first, second) in enumerate(plan.rounds()):
        value = 0.5 + noise * math.sin(asked * 12.9898)
        plan.note([{"victim": first.name, "opponent": second.name, "e_v": value}])
        if first is not second:
            plan.note([{"victim": second.name, "opponent": first.name, "e_v": value}])
    assert plan.left() == 0
    counts = [plan.trials(*pair) for pair in plan.pairs]
    assert min(counts) >= min(3, most)
    assert max(counts) <= most
    assert list(plan.rounds()) == []


def test_an_application_that_failed_is_not_asked_for_again() -> None:
    plan = MeasurementPlan(pairs_of([application(name) for name in "abc"]), width=0.05, most=2)
    plan.failed.add("b")
    assert {each.name for pair in plan.pairs if not plan.is_done(*pair) for each in pair} == {"a", "c"}


def journal(folder: Path) -> pairs_store.Journal:
    return pairs_store.Journal(folder, TRIALS.empty(), SOLO.empty())


def test_what_is_in_a_journal_survives_a_kill_in_the_middle_of_a_line(tmp_path: Path) -> None:
    first = journal(tmp_path)
    first.append(trial().rows(), [solo_row()])
    first.append(trial(number=2).rows(), [solo_row()])
    path = tmp_path / pairs_store.JOURNAL_NAME
    with path.open("ab") as stream:
        stream.write(b'{"trials": [{"kind": "timesl')
    again = journal(tmp_path)
    assert again.trials().equals(first.trials())
    assert again.solo()["trial"].to_list() == [1, 2]
    again.append(trial(number=3).rows(), [])
    assert journal(tmp_path).trials().height == 6


def test_rows_that_are_in_tables_and_journal_count_once(tmp_path: Path) -> None:
    first = journal(tmp_path)
    first.append(trial().rows(), [])
    assert pairs_store.Journal(tmp_path, first.trials(), first.solo()).trials().height == 2


@pytest.mark.parametrize(
    "text", [b"[]\n", b"\xff\n", b'{"trials": [{"kind": 1}], "solo": []}\n', b'{"trials": 3}\n']
)
def test_a_journal_that_is_none_is_one_line(tmp_path: Path, text: bytes) -> None:
    (tmp_path / pairs_store.JOURNAL_NAME).write_bytes(text)
    with pytest.raises(InputError, match=r"measured.jsonl: line 1") as error:
        journal(tmp_path)
    assert "\n" not in str(error.value)


def test_pairs_have_the_interval_of_their_trials() -> None:
    rows = [
        row
        for number, speed in enumerate((48, 50, 52), start=1)
        for row in trial("a", "b", number, speed).rows()
    ]
    row = pair_frame(TRIALS.frame(rows), 1.0).filter(victim="a").to_dicts()[0]
    assert row["e_v"] == pytest.approx(0.5)
    # 4.303 is Student's t of two degrees of freedom.
    assert row["e_v_high"] - row["e_v"] == pytest.approx(4.303 * 0.02 / math.sqrt(3), rel=1e-3)
    assert row["load"] == pytest.approx(0.1)
    assert pair_frame(TRIALS.frame(trial().rows()), 1.0)["e_v_low"].to_list() == [None, None]


def test_names_groups_and_families() -> None:
    assert {each.name for each in applications_named(["chase", "integer", "chase.256K"])} >= {
        "chase.256K",
        "integer",
    }
    single = applications_named(["single"])
    assert len(single) >= 25
    assert {each.ranks for each in single} == {1}
    assert {each.ranks for each in applications_named(["coupled"])} == {2}
    with pytest.raises(UsageError, match="no application is called 'tea'"):
        applications_named(["tea"])


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("1.5h", 5400), ("7", 7)])
def test_time_to_spend(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-3m", "3d", "1e9", "m", "9" * 20])
def test_no_time_to_spend(text: str) -> None:
    with pytest.raises(UsageError, match="no time to spend"):
        seconds_of(text)


@pytest.mark.parametrize(
    ("code", "words", "message"),
    [
        (2, "measure --apps tea", "no application is called 'tea'"),
        (2, "measure --kinds sleep", "--kinds is 'sleep'; there are timeslice"),
        (2, "measure --kinds=", "--kinds is ''"),
        (2, "measure --cpus a", "--cpus is 'a'"),
        (2, "measure --cpus 9999", "CPU 9999"),
        (2, "measure --budget never", "no time to spend"),
        (2, "measure --apps integer --kinds naive", "two ranks"),
        (2, "measure --apps integer --kinds gang", "two ranks"),
        (2, "measure --apps coupled --kinds gang --slice 0", "--slice"),
        (1, "measure --apps coupled --kinds cores --cpus 0", "2 ranks"),
        (2, "measure --apps integer --lanes 9999", "--lanes is 9999"),
        (2, "run tea --steps 3", "no application is called 'tea'"),
        (2, "run integer", "say how much work"),
        (2, "run integer --steps 3 --seconds 1", "say how much work"),
        (2, "run integer --steps 0", "--steps"),
        (2, "run integer --seconds nan", "--seconds"),
        (1, "run matmul.6144K --seconds 1", "was not measured alone"),
    ],
)
def test_what_cannot_be_measured_or_run_is_one_line(
    tmp_path: Path, cli: Cli, code: int, words: str, message: str
) -> None:
    out = ("--out", tmp_path / "p") if words.startswith("measure") else ()
    assert message in cli.said("predict", *words.split(), *out, code=code)


def test_threads_are_refused_where_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("predictor.measure.measure_pairs.thread_siblings", lambda: None)
    settings = MeasurementSettings([ALL["integer"]], [PairKind.THREADS], 1)
    with pytest.raises(HostError, match="no hardware threads"):
        places(PairKind.THREADS, settings)


def test_siblings_are_read_as_ranges_and_lists(tmp_path: Path) -> None:
    for cpu, text in ((0, "0,4\n"), (1, "1-2\n"), (2, "mist\n")):
        (folder := tmp_path / f"cpu{cpu}" / "topology").mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(text)
    assert pairs_store.siblings(0, tmp_path) == [0, 4]
    assert pairs_store.siblings(1, tmp_path) == [1, 2]
    assert pairs_store.siblings(2, tmp_path) == [2]
    assert pairs_store.siblings(9, tmp_path) == [9]
    assert pairs_store.describe_host().cpus >= 1


def test_a_program_that_is_not_there_or_dies_is_named(tmp_path: Path) -> None:
    cpu = [min(os.sched_getaffinity(0))]
    with pytest.raises(ProgramError, match="gone ended with code"):
        FrozenProgram(application("gone", str(tmp_path / "nothing")), tmp_path, cpu, 0)
    with pytest.raises(ProgramError, match="mute ended with code 3: no tea"):
        FrozenProgram(application("mute", "sh", "-c", "echo no tea >&2; exit 3"), tmp_path, cpu, 0)


STEPS = """
import os, time
from workloads.task.step_meter import Meter
meter = Meter.of(os.environ)
while True:
    meter.step()
    time.sleep(0.005)
"""


def test_launcher_of_ranks_removes_its_files_when_they_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher, kept = tmp_path / "mpiexec", tmp_path / "xmlfile"
    launcher.write_text(
        f'#!/bin/sh\nshift 2\n: >{kept}\nPMI_RANK=0 "$@" &\nsleep 0.4; PMI_RANK=1 "$@" &\nwait\nrm {kept}\n'
    )
    launcher.chmod(0o755)
    monkeypatch.setattr("predictor.programs.program_catalogue._mpiexec", lambda: str(launcher))
    twins = CatalogueApplication("twins", "twins", "a step", lambda _: [sys.executable, "-c", STEPS], 2)
    running = FrozenProgram(twins, tmp_path, [min(os.sched_getaffinity(0))], 0)
    assert kept.exists()
    running.close()
    assert not kept.exists()
    assert not any(psutil.pid_exists(process.pid) for process in running.processes)


def test_a_launcher_that_ends_before_all_ranks_began_says_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (launcher := tmp_path / "mpiexec").write_text('#!/bin/sh\nshift 2\nPMI_RANK=0 "$@"\nexit 3\n')
    launcher.chmod(0o755)
    monkeypatch.setattr("predictor.programs.program_catalogue._mpiexec", lambda: str(launcher))
    few = STEPS.replace("while True:", "for _ in range(200):")
    twins = CatalogueApplication("twins", "twins", "a step", lambda _: [sys.executable, "-c", few], 2)
    with pytest.raises(ProgramError, match="ended with code 3"):
        FrozenProgram(twins, tmp_path, [min(os.sched_getaffinity(0))], 0)


def test_no_compiler_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    kernels_program.cache_clear()
    try:
        with pytest.raises(HostError, match="no compiler for the measured kernels"):
            kernels_program()
        monkeypatch.setenv("CC", "false")
        kernels_program.cache_clear()
        with pytest.raises(HostError, match="cannot compile"):
            kernels_program()
    finally:
        kernels_program.cache_clear()


@pytest.fixture
def quick_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[CatalogueApplication]]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kernels_program.cache_clear()
    yield [ALL["integer"], ALL["mimic.integer"]]
    kernels_program.cache_clear()


@needs_compiler
@pytest.mark.slow
def test_a_real_program_steps_in_its_window_only_and_is_gone_afterwards(
    tmp_path: Path, quick_programs: list[CatalogueApplication]
) -> None:
    cpu = min(os.sched_getaffinity(0))
    running = FrozenProgram(quick_programs[0], tmp_path, [cpu], 0)
    pids = [process.pid for process in running.processes]
    try:
        time.sleep(0.5)  # what passed while it was frozen counts for no window, nor for a step
        window = measure([running], [cpu], 0.0, 0.1)
        assert window.paces[0].speed > 0
        assert window.paces[0].wall_s < window.seconds + 0.05
        assert 0 < window.paces[0].busy <= 1
        while psutil.Process(pids[0]).status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        steps = running.read().steps
        time.sleep(0.05)
        assert running.read().steps == steps
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(ProgramError, match="integer was killed by SIGKILL"):
            measure([running], [cpu], 0.01, 0.1)
    finally:
        running.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/proc/self/autogroup").exists(), reason="needs root and sched_autogroup"
)
def test_a_niceness_counts_against_other_sessions_too() -> None:
    sleeper = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        weigh_session(Path("/proc", str(sleeper.pid)), -10)
        assert Path(f"/proc/{sleeper.pid}/autogroup").read_text().split()[-1] == "-10"
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_kernel_without_sessions_weights_is_no_error(tmp_path: Path) -> None:
    weigh_session(tmp_path, -10)
    assert not (tmp_path / "autogroup").exists()


class Puppet:
    """A program of which only this is known: when it was let run and stopped."""

    def __init__(self, name: str, said: list[str]) -> None:
        self._name = name
        self._said = said

    def resume(self) -> None:
        self._said.append(f"{self._name}+")

    def freeze(self) -> None:
        self._said.append(f"{self._name}-")


def test_programs_take_whole_turns_and_end_frozen() -> None:
    said: list[str] = []
    passed: list[float] = []
    turns = RoundClock(
        cast("list[FrozenProgram]", [Puppet("a", said), Puppet("b", said)]), 0.1, passed.append
    )
    turns(0.2)
    assert said == ["a+", "a-", "b+", "b-"]
    turns(0.21)
    assert len(said) == 12
    turns(0.0)
    assert len(said) == 16
    assert passed == [0.1] * 8

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RoundClock(cast("list[FrozenProgram]", [Puppet("c", said)]), 0.1, interrupted)(1)
    assert said[-2:] == ["c+", "c-"]


@needs_compiler
@pytest.mark.slow
def test_in_gang_slices_each_computes_while_the_other_is_stopped(
    tmp_path: Path, quick_programs: list[CatalogueApplication]
) -> None:
    cpu = min(os.sched_getaffinity(0))
    both = [FrozenProgram(quick_programs[0], tmp_path, [cpu], 0) for _ in range(2)]
    try:
        for running in both:
            running.pin([cpu])
        # A twentieth of a second of warm-up is less than a round: rounds are whole.
        window = measure(both, [cpu], 0.05, 0.4, slice_s=0.1)
        assert window.seconds >= 0.4
        for pace in window.paces:
            assert 0 < pace.cpu_s < 0.75 * window.seconds
        for running in both:
            while running.processes[0].status() != psutil.STATUS_STOPPED:
                time.sleep(0.01)
    finally:
        for running in both:
            running.close()


@needs_compiler
@pytest.mark.slow
def test_a_measurement_is_a_folder_and_goes_on_where_it_was(
    tmp_path: Path, quick_programs: list[CatalogueApplication]
) -> None:
    out = tmp_path / "p"
    dies = application("dies", sys.executable, "-c", "raise SystemExit('bad day')")
    warnings: list[str] = []
    settings = MeasurementSettings([*quick_programs, dies], [PairKind.TIMESLICE], 60, most=1, lengths=SHORT)
    Measurement(
        settings,
        pairs_store.PairsStore(out, settings.applications, 0.1, resume=False),
        lambda _: None,
        warnings.append,
    ).run()
    first = read_pairs(out)
    assert (first.pairs.height, first.pairs["trials"].to_list()) == (4, [1] * 4)
    assert [warning for warning in warnings if "bad day" in warning]
    assert any("bad day" in note for note in first.about.notes)
    assert not (out / pairs_store.JOURNAL_NAME).exists()
    with pytest.raises(UsageError, match="--resume"):
        pairs_store.PairsStore(out, quick_programs, 0.1, resume=False)
    more = replace(settings, applications=quick_programs, most=2)
    Measurement(
        more, pairs_store.PairsStore(out, quick_programs, 0.1, resume=True), lambda _: None, warnings.append
    ).run()
    again = read_pairs(out)
    assert again.pairs["trials"].to_list() == [2] * 4
    # Two that never sleep halve a core: less of it is lost where others take most of it anyway.
    both = again.pairs.filter(pl.col("victim") == "integer", pl.col("opponent") == "integer")["e_v"][0]
    assert both < 0.9
    assert both > 0.1 or os.getloadavg()[0] > 2 * (os.cpu_count() or 1)
    assert not [
        process
        for process in psutil.process_iter(["exe"])
        if (process.info["exe"] or "").startswith(str(tmp_path))
    ]


@needs_compiler
@pytest.mark.slow
def test_an_application_runs_with_as_much_work_as_is_asked_for(cli: Cli) -> None:
    words = [sys.executable, "-m", "osub.cli.main", "predict", "run", "integer"]
    for more in (["--steps", "3"], ["--seconds", "0.01"]):
        done = subprocess.run([*words, *more], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_program_of_ones_own_is_measured_by_whole_runs_and_leaves_nothing(cli: Cli) -> None:
    before = set(psutil.Process().children(recursive=True))
    loop = f"{sys.executable} -S -E -c 'sum(range(300_000))'"
    words = ["pair", "mine", "integer", "--measure", "--program", f"mine={loop}", "--budget", "1s", "--json"]
    for _ in range(5):  # on a loaded host the program alone may be the slower one of a second
        document = cli.json("predict", *words)
        assert [(one["victim"], one["opponent"]) for one in document["victims"]] == [
            ("mine", "integer"),
            ("integer", "mine"),
        ]
        assert document["kind"] == "timeslice"
        if all(0 < one["loss"] < 1 for one in document["victims"]):
            break
    else:
        raise AssertionError(document["victims"])
    left = set(psutil.Process().children(recursive=True)) - before
    assert not [process for process in left if process.is_running()]


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["mine", "integer"], 2, "no application is called 'mine'"),
        (["solvers", "integer"], 2, "one of several"),
        (["mine", "integer", "--program", "mine"], 2, "NAME=COMMAND"),
        (["mine", "integer", "--program", "mine="], 2, "NAME=COMMAND"),
        (["mine", "integer", "--program", "mine='a"], 2, "cannot be read"),
        (["mine", "integer", "--program", "mine=/no/such/program"], 2, "no program that can be started"),
        (["integer", "sort", "--program", "sort=true"], 2, "choose another"),
        (["mine", "integer", "--program", "mine=false"], 1, "ended with code 1"),
        (["lu.W.2", "integer"], 2, "different numbers of ranks"),
        (["integer", "sort", "--budget", "soon"], 2, "soon"),
        (["integer", "sort", "--model", "m.json"], 2, "leave them out"),
    ],
)
def test_pairs_that_cannot_be_measured_here_are_one_line(
    words: list[str], code: int, why: str, cli: Cli
) -> None:
    assert why in cli.said("predict", "pair", *words, "--measure", code=code)


def moved(pairs: Pairs, by: np.ndarray) -> Pairs:
    """Return the pairs with each loss, and its interval, moved."""
    columns = [(pl.col(name) + pl.Series(by)).alias(name) for name in ("e_v", "e_v_low", "e_v_high")]
    return replace(pairs, pairs=pairs.pairs.with_columns(columns))


def test_the_same_measurement_agrees_with_itself() -> None:
    pairs = made_pairs(6)
    found = agreement_of(pairs, pairs, PairKind.TIMESLICE)
    assert found.pairs == 36
    assert {most: share.value for most, share in found.within.items()} == {0.05: 1.0, 0.1: 1.0}
    assert (found.bias.value, found.deviation, found.overlapping) == (0.0, 0.0, 1.0)
    assert found.rank_correlation == pytest.approx(1.0)


def test_a_shift_of_all_pairs_is_a_bias_and_no_change_of_order() -> None:
    pairs = made_pairs(6)
    found = agreement_of(pairs, moved(pairs, np.full(36, 0.07)), PairKind.TIMESLICE)
    assert (found.within[0.05].value, found.within[0.1].value) == (0.0, 1.0)
    assert found.bias.value == pytest.approx(0.07)
    assert found.bias.low <= 0.07 <= found.bias.high
    assert found.rank_correlation == pytest.approx(1.0)
    assert found.overlapping == 0.0  # intervals are 0.04 wide


def test_shares_are_of_the_pairs_that_both_have_and_the_furthest_is_named() -> None:
    pairs = made_pairs(6)
    change = np.zeros(36)
    row = pairs.pairs.with_row_index().filter((pl.col("victim") == "app1") & (pl.col("opponent") == "app2"))[
        "index"
    ][0]
    change[row] = -0.3
    part = replace(pairs, pairs=pairs.pairs.filter(pl.col("opponent") != "app5"))
    found = agreement_of(moved(pairs, change), part, PairKind.TIMESLICE)
    assert (found.pairs, found.only_first, found.only_second) == (30, 6, 0)
    assert found.within[0.05].value == pytest.approx(29 / 30)
    assert found.within[0.05].low < found.within[0.05].value
    assert (found.furthest[0].victim, found.furthest[0].opponent) == ("app1", "app2")
    assert found.furthest[0].second - found.furthest[0].first == pytest.approx(0.3)


def test_noise_within_a_bound_is_counted_as_it_was_drawn() -> None:
    pairs = made_pairs(20)
    drawn = np.random.default_rng(3).normal(0.0, 0.05, 400)
    found = agreement_of(pairs, moved(pairs, drawn), PairKind.TIMESLICE)
    assert found.within[0.05].value == pytest.approx(float((np.abs(drawn) <= 0.05).mean()))
    assert found.within[0.05].low < 0.683 < found.within[0.05].high  # of a normal distribution
    assert found.deviation == pytest.approx(float(np.sqrt(np.mean(drawn**2))))


def test_no_pair_in_common_is_one_line() -> None:
    with pytest.raises(InputError, match="no pair of kind naive in common"):
        agreement_of(made_pairs(6), made_pairs(6), PairKind.NAIVE)


@pytest.mark.slow
def test_the_command_compares_folders(tmp_path: Path, cli: Cli) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    pairs = made_pairs(6)
    write_pairs(one, pairs)
    write_pairs(other, moved(pairs, np.full(36, 0.02)))
    document = cli.json("predict", "compare", one, other, "--json")
    assert document["warning"] is None
    kind = document["kinds"]["timeslice"]
    assert (kind["within"]["0.05"]["value"], kind["bias"]["value"]) == (1.0, pytest.approx(0.02))
    shown = cli("predict", "compare", one, other, "--within", "0.01")
    assert "within 0.01: 0% (0 to 0)" in shown.out
    # Against osub's own there is nothing in common but the kind.
    assert "no pair of kind timeslice in common" in cli.said("predict", "compare", one, code=1)


@pytest.mark.parametrize("words", [["--within", "wide"], ["--within", "-1"], ["--kind", "odd"]])
def test_what_cannot_be_compared_is_one_line(words: list[str], tmp_path: Path, cli: Cli) -> None:
    write_pairs(tmp_path / "one", made_pairs(6))
    cli.said("predict", "compare", tmp_path / "one", tmp_path / "one", *words, code=2)
