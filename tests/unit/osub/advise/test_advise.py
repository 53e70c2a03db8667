"""Advice on small logs whose right answer is known."""

from __future__ import annotations

import gzip
import itertools
import random
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import numpy as np
import pytest

from foundation.errors import UsageError
from gangd.controller.controller_config import load_config
from osub.advise import site_log
from osub.advise.trials import Advice, Question, Scenario, Sharing, advise, block_difference, drawn_periods
from osub.advise.words import AdviceText, advice_text
from osub.cli.main import run
from tests.fixtures.cli import Cli
from tests.fixtures.golden import SHARED
from workloads.importers.assemble_trace import ImportOptions

HOUR_S, DAY = 3600, timedelta(days=1)
SYSTEM = "N2C8"
HEAD = (
    "JobID|User|Partition|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|NCPUS|"
    "ReqMem|TotalCPU|MaxRSS|JobName"
)
START = datetime(2025, 1, 6, tzinfo=UTC)


def row(number: int, partition: str, at: datetime, run_s: int, cores: int, busy: float, gib: float) -> str:
    """Return a line of sacct: of a job that waited for a minute, and asked for twice its memory."""
    start = at + timedelta(seconds=60)
    cpu_s = int(run_s * cores * busy)
    stamps = "|".join(
        one.strftime("%Y-%m-%dT%H:%M:%S") for one in (at, start, start + timedelta(seconds=run_s))
    )
    cpu = f"{cpu_s // HOUR_S:02d}:{cpu_s // 60 % 60:02d}:{cpu_s % 60:02d}"
    limit_min = max(1, run_s // 60)
    return (
        f"{number}|u{number % 7}|{partition}|COMPLETED|{stamps}|{run_s}|{limit_min}|1|{cores}|"
        f"{min(gib * 2, 60):g}G|{cpu}|{int(gib * 1024)}M|job"
    )


def sessions(rng: random.Random, weeks: int, gib: float) -> Iterator[tuple[datetime, str, int, float, float]]:
    """Yield days of idle one-hour sessions, too many for the nodes at noon, and busy jobs of four hours."""
    for day in range(7 * weeks):
        for _ in range(20):
            yield START + day * DAY + timedelta(hours=rng.uniform(9, 17)), "debug", HOUR_S, 0.05, gib
        for _ in range(4):
            yield START + day * DAY + timedelta(hours=rng.uniform(0, 24)), "batch", 4 * HOUR_S, 0.98, gib


def busy_jobs(
    rng: random.Random, weeks: int, gib: float
) -> Iterator[tuple[datetime, str, int, float, float]]:
    """Yield busy jobs of six hours for whole nodes, for 93% of all node time."""
    for day in range(7 * weeks):
        for _ in range(7 + day % 2):
            yield START + day * DAY + timedelta(hours=rng.uniform(0, 24)), "batch", 6 * HOUR_S - 60, 0.99, gib


def write_log(path: Path, jobs: Iterator[tuple[datetime, str, int, float, float]]) -> Path:
    """Write a log of jobs of whole nodes."""
    lines = [
        row(number, partition, at, run_s, 8, busy, gib)
        for number, (at, partition, run_s, busy, gib) in enumerate(sorted(jobs), start=1)
    ]
    path.write_text("\n".join([HEAD, *lines]) + "\n")
    return path


def read(path: Path, system: str | None = SYSTEM) -> site_log.SiteLog:
    return site_log.read_site_log(path, ImportOptions(name=path.stem), system, lenient=False)


def asked(log: site_log.SiteLog, **words: object) -> tuple[Advice, AdviceText]:
    question = Question(multiplicities=(2,), **words)  # type: ignore[arg-type]  # its own fields
    classes = site_log.job_classes(log)
    found = advise(
        log, site_log.candidate_of(classes, len(log.run_s)), site_log.interactive_jobs(log), question
    )
    return found, advice_text(log, classes, site_log.memory_facts(log, question.memory_gib, (2,), 1), found)


@pytest.fixture(scope="module")
def idle_sessions(tmp_path_factory: pytest.TempPathFactory) -> site_log.SiteLog:
    path = tmp_path_factory.mktemp("log") / "sessions.txt"
    return read(write_log(path, sessions(random.Random(1), 7, 4)))


@pytest.fixture(scope="module")
def advice(idle_sessions: site_log.SiteLog) -> tuple[Advice, AdviceText]:
    return asked(idle_sessions)


@pytest.mark.slow
def test_idle_sessions_gain_by_sharing(advice: tuple[Advice, AdviceText]) -> None:
    found, text = advice

    assert found.candidate is not None
    assert found.candidate.partition == "debug"
    assert found.best is not None
    assert found.outcome(found.best) == "helps"
    wait = found.best.difference(found.scenarios[0], found.best.target, "wait_s")
    assert wait.way == -1
    assert wait.other < 0.5 * wait.reference
    assert text.paragraphs[0][1].startswith("Let ")
    slurm, gangd = (lines for _, lines in text.files)
    assert "OverSubscribe=FORCE:2" in slurm.splitlines()[-1]
    assert tomllib.loads(gangd)["hold"] == "yield"


@pytest.mark.slow
def test_gangd_takes_the_lines(advice: tuple[Advice, AdviceText], tmp_path: Path) -> None:
    _, text = advice
    (path := tmp_path / "gangd.toml").write_text(text.files[1][1])

    assert load_config(path) is not None


def test_busy_jobs_do_not_gain(tmp_path: Path) -> None:
    found, text = asked(read(write_log(tmp_path / "busy.txt", busy_jobs(random.Random(2), 7, 1))))

    assert found.best is None
    assert "does not help" in text.paragraphs[0][1]
    assert not text.files
    assert found.shared[0].difference(found.scenarios[0], "all", "turnaround_s").way == 1


@pytest.mark.slow
def test_memory_forbids_two(tmp_path: Path) -> None:
    log = read(write_log(tmp_path / "wide.txt", sessions(random.Random(1), 7, 40)))

    facts = site_log.memory_facts(log, 64, (2, 4), 1)
    found, text = asked(log, memory_gib=64.0)

    assert facts.requested_over_used == pytest.approx(1.5, rel=0.01)
    assert facts.fits == {2: 0.0, 4: 0.0}
    assert "Memory forbids M=2" in dict(text.paragraphs)["Memory"]
    assert found.best is None
    for one in found.shared:
        assert one.difference(found.scenarios[0], "all", "degradation").other == pytest.approx(1.0)


@pytest.mark.slow
def test_peaks_admit_what_requests_do_not(tmp_path: Path) -> None:
    log = read(write_log(tmp_path / "asked.txt", sessions(random.Random(1), 7, 20)))

    found, text = asked(log, memory_gib=64.0)

    by_request, by_peaks = (one for one in found.shared if one.sharing.nodes is None)
    assert not by_request.sharing.by_peaks
    assert (found.outcome(by_request), found.outcome(by_peaks)) == ("harms", "helps")
    assert "peaks of memory" in text.paragraphs[0][1]


def test_what_the_log_says_of_cpu_time(idle_sessions: site_log.SiteLog) -> None:
    classes = {one.partition: one for one in site_log.job_classes(idle_sessions)}

    assert classes["debug"].efficiency == pytest.approx(0.05, abs=0.001)
    assert classes["batch"].efficiency == pytest.approx(0.98, abs=0.001)
    assert (classes["debug"].run_median_s, classes["debug"].wait_mean_s) == (HOUR_S, 60)
    assert 0.05 < (site_log.efficiency(idle_sessions, idle_sessions.run_s > 0) or 0) < 0.98


def test_a_candidate_may_be_named(idle_sessions: site_log.SiteLog) -> None:
    classes = site_log.job_classes(idle_sessions)
    named = site_log.candidate_of(classes, 100, "batch")

    assert named is not None
    assert named.partition == "batch"
    with pytest.raises(UsageError, match="debug"):
        site_log.candidate_of(classes, 100, "gpu")


def test_waits_that_differ_from_the_log_make_the_advice_relative(advice: tuple[Advice, AdviceText]) -> None:
    found, text = advice

    assert found.own_wait_s == 60
    assert found.is_credible is False
    assert "relative" in dict(text.paragraphs)["Check"]


def test_a_gain_of_seconds_is_none(advice: tuple[Advice, AdviceText]) -> None:
    found, _ = advice
    best = found.best

    assert best is not None
    assert best.helps_in(found.scenarios[0], 1.5)
    assert not msgspec.structs.replace(best, least_gain_s=1e6).helps_in(found.scenarios[0], 1.5)


def test_the_same_seed_gives_the_same_advice(
    idle_sessions: site_log.SiteLog, advice: tuple[Advice, AdviceText]
) -> None:
    assert asked(idle_sessions)[1].json() == advice[1].json()


def test_jobs_of_a_few_whole_nodes_fit_on_the_system_that_a_log_without_one_gives(tmp_path: Path) -> None:
    """At most 20 cores of nodes of 8 are in use: three nodes of seven would take no job of two nodes."""
    path = tmp_path / "log.txt"
    rows = [(1, 1, 4, "10:00"), (2, 2, 16, "10:01")]
    path.write_text(
        "JobID|Submit|Start|End|ElapsedRaw|NNodes|NCPUS|State\n"
        + "".join(
            f"{job}|2025-03-03T{at}:00|2025-03-03T{at}:00|2025-03-03T11:30:00|5400|{nodes}|{cores}|COMPLETED\n"
            for job, nodes, cores, at in rows
        )
    )
    log = read(path, None)
    assert (log.system.nodes, log.system.cores) == (3, 8)


def test_too_few_days_give_no_advice(tmp_path: Path) -> None:
    found, text = asked(
        read(
            write_log(
                tmp_path / "short.txt",
                (one for one in sessions(random.Random(1), 1, 4) if one[0] < START + 3 * DAY),
            )
        )
    )

    assert found.best is None
    assert "too short" in text.paragraphs[0][1]


def test_a_long_log_is_cut_into_windows(idle_sessions: site_log.SiteLog) -> None:
    found, text = asked(idle_sessions, most_jobs=700)

    assert found.is_cut
    assert found.blocks == 3
    assert "windows of whole weeks" in dict(text.paragraphs)["The log"]


def test_periods_have_the_share_that_is_asked_for() -> None:
    run_us = np.array([HOUR_S, 30, 10 * HOUR_S, 0], dtype=np.int64) * 1_000_000
    periods = drawn_periods(run_us, np.array([0.25, 0.25, 1.0, 0.5]), seed=1)

    assert periods.totals_us.tolist() == run_us.tolist()
    assert periods.busy_us[0] == pytest.approx(0.25 * run_us[0], abs=10)
    assert periods.busy_us[1:].tolist() == run_us[1:].tolist()
    assert (periods.us[np.setdiff1d(np.arange(len(periods.us)), periods.at[:-1])] > 0).all()


def test_an_interval_is_of_blocks_and_not_of_jobs() -> None:
    rng = np.random.default_rng(1)
    blocks = np.repeat(np.arange(10), 1000)
    change = rng.normal(0, 1, 10)[blocks]
    draws = rng.integers(0, 10, (2000, 10))
    found = block_difference(np.zeros(len(blocks)), change, blocks, draws).change

    assert found.count == 10
    assert found.low is not None
    assert found.high is not None
    # of 10,000 jobs as independent ones the interval would be 0.04 wide
    assert found.high - found.low > 0.5


def test_scenarios_have_distinct_names() -> None:
    some = [
        Scenario(overhead=1.2),
        Scenario(overhead=1.2, utilisation=0.5),
        Scenario(overhead=1.2, all_busy=True),
    ]
    assert len(set(map(str, some))) == 3
    assert not Sharing(1, 4).is_shared


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        (HEAD + "\n", "no job"),
        (HEAD.replace("Submit|", "") + "\n1\n", "JobID and Submit"),
        ("a,b,c\n1,2,3\n", "SWF"),
        (HEAD + "\n" + row(1, "debug", START, 60, 8, 0.5, 1) + "\n", "one job"),
        (
            HEAD
            + "\n"
            + row(1, "debug", START, 60, 8, 0.5, 1).replace("COMPLETED", "CANCELLED").replace("|60|", "|0|")
            + "\n",
            "",
        ),
        (
            HEAD
            + "\n"
            + "\n".join(row(n, "debug", START + n * DAY, 60, 640, 0.5, 1) for n in range(1, 9))
            + "\n",
            "can never run",
        ),
    ],
    ids=["empty", "heading", "no-submit", "other", "one-job", "cancelled", "too-wide"],
)
def test_a_log_that_cannot_be_used_is_refused(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path := tmp_path / "log.txt").write_text(text)

    assert run(["advise", str(path), "--system", SYSTEM]) in (1, 2)
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--overhead", "0.5"],
        ["--idle-watts", "300,200"],
        ["--idle-watts", "x"],
        ["--candidate", "gpu"],
        ["--candidate-nodes", "2"],
        ["--policy", "nonsense"],
        ["--memory-gib", "-1"],
        ["--system", "big"],
    ],
)
def test_an_option_that_cannot_be_is_refused(words: list[str], tmp_path: Path, cli: Cli) -> None:
    path = write_log(
        tmp_path / "log.txt", (one for one in sessions(random.Random(1), 1, 4) if one[0] < START + DAY)
    )

    assert "Traceback" not in cli("advise", path, *words, code=2).err


@pytest.mark.slow
def test_the_command_writes_a_page_and_json(tmp_path: Path, cli: Cli) -> None:
    path = write_log(tmp_path / "log.txt", sessions(random.Random(1), 2, 4))
    page = tmp_path / "advice.html"

    facts = cli.json("advise", path, "--system", SYSTEM, "--overhead", "1.2", "--json", "--out", page)
    assert (facts["candidate"], facts["system"]) == ("debug", SYSTEM)
    assert facts["words"]["recommendation"]
    assert "Sharing cores on log" in page.read_text()
    assert run(["advise", str(path), "--out", str(page)]) == 1  # it is there


@pytest.mark.skipif(not (SHARED / "traces").is_dir(), reason="the shared traces are not here")
def test_a_real_log_of_accounting(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "cirrus.csv"
    with gzip.open(SHARED / "traces" / "cirrus_2024Q1_CPU_sacct_subset.csv.gz", "rt") as log:
        path.write_text("".join(itertools.islice(log, 1200)))

    facts = cli.json("advise", path, "--overhead", "1.2", "--json")
    assert facts["system"].endswith("C36")
    assert facts["memory"]["fits"] == {}
    assert facts["efficiency"] is None
    assert facts["best"] is None
    assert facts["wait_mean_s"]["log"] > 0
