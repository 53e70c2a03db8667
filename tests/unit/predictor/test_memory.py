"""Predicted memory peaks: from a user's own jobs, covered as often as aimed at, within the request."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from foundation.errors import InputError, UsageError
from predictor import memory
from tests.fixtures.cli import Cli
from workloads.importers.detect_log import read_accounting

MIB = 1024.0
HEADING = "JobID|User|State|Submit|Start|End|ElapsedRaw|NNodes|NCPUS|ReqCPUS|ReqMem|MaxRSS|NTasks|JobName\n"


def made(count: int = 600, users: int = 3, seed: int = 1) -> memory.MemoryLog:
    """Return jobs of users whose peaks scatter about a level of their application, each alone in time."""
    rng = np.random.default_rng(seed)
    user, application = rng.integers(users, size=count), rng.integers(2, size=count)
    used = 100 * MIB * (1 + user) * (1 + 3 * application) * rng.lognormal(0, 0.2, count)
    at = np.arange(count, dtype=np.float64) * 100
    return memory.MemoryLog(
        user=[f"u{one}" for one in user], app=[f"a{one}" for one in application], submit_s=at,
        end_s=at + 50, procs=np.full(count, 4.0), requested_kib=np.full(count, 4000 * MIB),
        used_kib=used,
    )  # fmt: skip


def line(at: int, rss: str, state: str = "COMPLETED", user: str = "ann", name: str = "job") -> str:
    """Return a job of two processors that asks for 4 GiB, and its step."""
    times = f"2026-01-01T{at // 60:02}:{at % 60:02}:00|2026-01-01T{at // 60:02}:{at % 60:02}:00"
    end = f"2026-01-01T{at // 60:02}:{at % 60:02}:30|30|1|2|2|4G"
    return f"{at}|{user}|{state}|{times}|{end}|||{name}\n{at}.0||{state}|{times}|{end}|{rss}|2|step\n"


def test_peaks_are_covered_as_often_as_aimed_at() -> None:
    log = made(2000)
    for coverage in (0.8, 0.95):
        predicted = memory.scores(log, coverage)[0]["predicted"]
        assert predicted.predicted == predicted.jobs == 1000
        assert predicted.coverage is not None
        assert predicted.low is not None
        assert coverage - 0.02 < predicted.coverage < 1
        assert predicted.low <= predicted.coverage
    found = memory.scores(log)[0]
    assert found["requested"].coverage == 1
    losses = {name: one.pinball_mib or math.inf for name, one in found.items()}
    assert losses["predicted"] < min(losses["requested"], losses["twice the last"])


def test_only_peaks_of_jobs_that_had_ended_count() -> None:
    log = made()
    until = 400
    cut = memory.MemoryLog(
        user=log.user[:until],
        app=log.app[:until],
        **{
            name: getattr(log, name)[:until]
            for name in ("submit_s", "end_s", "procs", "requested_kib", "used_kib")
        },
    )
    assert np.array_equal(memory.replayed(log)[0][:until], memory.replayed(cut)[0], equal_nan=True)
    assert np.array_equal(memory.twice_the_last(log)[:until], memory.twice_the_last(cut), equal_nan=True)


def test_no_users_jobs_change_what_another_gets() -> None:
    log = made()
    spoilt = np.where(np.array(log.user) == "u0", 1e9, log.used_kib)
    other = memory.MemoryLog(
        user=log.user, app=log.app, submit_s=log.submit_s, end_s=log.end_s, procs=log.procs,
        requested_kib=log.requested_kib, used_kib=spoilt,
    )  # fmt: skip
    before, after = memory.replayed(log)[0], memory.replayed(other)[0]
    mine = np.array(log.user) != "u0"
    assert np.array_equal(before[mine], after[mine], equal_nan=True)
    assert not np.array_equal(before[~mine], after[~mine], equal_nan=True)


def test_a_job_without_history_has_no_prediction() -> None:
    history = memory.PeakHistory()
    keys = (("ann", "job", 4000), ("ann", None, 4000), ("ann", None, None))
    for _ in range(history.least - 1):
        history.add(keys, 100 * MIB)
    assert history.predict(keys, 4000 * MIB) is None
    history.add(keys, 200 * MIB)
    assert history.predict(keys, 4000 * MIB) == 200 * MIB
    assert history.predict((("bob", "job", 4000), *keys[1:]), 4000 * MIB) == 200 * MIB


def test_a_prediction_is_never_above_the_request_unless_it_was_exceeded() -> None:
    history = memory.PeakHistory()
    keys = (("ann", "job", 100), ("ann", None, 100), ("ann", None, None))
    other = (("ann", "else", 500), ("ann", None, 500), ("ann", None, None))
    for _ in range(40):
        history.add(other, 400 * MIB)
    assert history.predict(keys, 100 * MIB) == 100 * MIB
    history.add(keys, 130 * MIB)
    assert history.predict(keys, 100 * MIB) == 130 * MIB


def test_an_applications_own_largest_peak_is_the_least_that_it_gets() -> None:
    history = memory.PeakHistory()
    own, other = (("ann", name, 900) for name in ("own", "other"))
    wider = (("ann", None, 900), ("ann", None, None))
    for _ in range(100):
        history.add((other, *wider), 100 * MIB)
    history.add((own, *wider), 700 * MIB)
    assert history.predict((own, *wider), 900 * MIB) == 700 * MIB
    assert history.predict((other, *wider), 900 * MIB) == 100 * MIB
    rows = {key: kib for key, kib, _ in history.rows()}
    assert rows == {own: 700 * MIB, other: 100 * MIB, wider[0]: 100 * MIB, wider[1]: 100 * MIB}


def test_old_peaks_are_forgotten() -> None:
    history = memory.PeakHistory(0.9)
    keys = (("ann", "job", None), ("ann", None, None), ("ann", None, None))
    for _ in range(30):
        history.add(keys, 800 * MIB)
    for _ in range(50):
        history.add(keys, 10 * MIB)
    assert history.predict(keys, math.nan) == 10 * MIB


@pytest.mark.parametrize("coverage", [0.2, 1.0, math.nan])
def test_a_coverage_beyond_bounds_is_refused(coverage: float) -> None:
    with pytest.raises(UsageError, match="coverage"):
        memory.PeakHistory(coverage)


def test_accounting_has_peaks_of_steps_and_names(tmp_path: Path) -> None:
    (path := tmp_path / "sacct.txt").write_text(
        HEADING + line(1, "100M") + line(2, "3G", "OUT_OF_MEMORY", "bob", "|x|"), encoding="utf-8"
    )
    log = memory.read_memory_log(path)
    assert (list(log.user), list(log.app)) == (["ann", "bob"], ["job", "|x|"])
    assert log.used_kib.tolist() == [100 * MIB, 3 * 1024 * MIB]
    assert log.requested_kib.tolist() == [2 * 1024 * MIB] * 2
    path.write_text(HEADING + line(1, "1M") + line(2, "1K", "OUT_OF_MEMORY"), encoding="utf-8")
    assert memory.read_memory_log(path).used_kib.tolist() == [MIB, 2 * 1024 * MIB]


def test_what_gangd_measured_counts_where_accounting_has_no_peak(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(HEADING + line(1, "100M") + line(2, ""), encoding="utf-8")
    found = read_accounting(path, None, strict=True)
    assert found is not None
    runs = {(int(job.job_id), round(job.start_s or 0)): 7.0 * MIB for job in found[0].jobs}
    assert memory.read_memory_log(path, peaks=runs).used_kib.tolist() == [
        100 * MIB,
        7 * MIB / 2,
    ]  # of two processors
    other = {(job, start_s + 60): kib for (job, start_s), kib in runs.items()}
    assert memory.read_memory_log(path, peaks=other).used_kib.tolist() == [100 * MIB, 0], (
        "another run of that number"
    )


def test_a_log_without_peaks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(HEADING + line(1, "") + line(2, "100M", user=""), encoding="utf-8")
    with pytest.raises(InputError, match="no job has a measured memory peak"):
        memory.read_memory_log(path)
    path.write_text("1 0 0 10 1 5 -1 1 10 -1 1 1 1 1 1 -1 -1 -1\n", encoding="utf-8")
    with pytest.raises(InputError, match="no job has a measured memory peak"):
        memory.read_memory_log(path)


def test_the_command_judges_and_writes_a_table(tmp_path: Path, cli: Cli) -> None:
    path, model = tmp_path / "trace.swf", tmp_path / "model.json"
    path.write_text(
        "".join(
            f"{at} {at * 100} 0 50 4 -1 {1000 + at % 7} 4 60 4000 1 {at % 2} 1 1 1 -1 -1 -1\n"
            for at in range(1, 200)
        ),
        encoding="utf-8",
    )
    answer = cli.json("predict", "memory", path, "--out", model, "--json")
    assert answer["methods"]["requested"]["times_used"] > 3.9
    assert answer["methods"]["predicted"]["coverage"] == 1
    table = json.loads(model.read_text(encoding="utf-8"))
    assert {(row["user"], row["mib"]) for row in table["rows"]} == {("0", 1), ("1", 1)}
    assert table == json.loads(json.dumps(memory.table_of(memory.scores(memory.read_memory_log(path))[1])))
    plain = cli("predict", "memory", path).out
    assert "199 jobs with a measured peak" in " ".join(plain.split())
    cli.said("predict", "memory", path, "--out", model, code=1)
    cli.said("predict", "memory", tmp_path / "none", code=1)
