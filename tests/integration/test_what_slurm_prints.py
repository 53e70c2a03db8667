"""Reading a real Slurm: what its users write, and environments that change what it prints."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import datetime, timedelta
from functools import partial
from importlib import metadata
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from deploy.local import LocalCluster, Shape
from foundation.slurm import CommandSlurm, SlurmJob, SlurmJobState, SubmitRequest
from foundation.slurm.job_sources import TextSource
from foundation.slurm.pyslurm_library import is_installed, release
from foundation.slurm.slurm_types import SlurmRefusedError, SlurmUnreachableError
from foundation.slurm.subprocess_reader import ApartSlurm
from tests.fixtures.looks import until
from tests.integration.conftest import end_cluster, quick_to_kill
from tests.integration.hostile import ATTACKS, RECORD, Hostile, Words, by_id, filled, plain_text, read_as

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

START_S = 240.0
PYSLURM = metadata.version("pyslurm") if is_installed() else "none"
NEEDS_PYSLURM = pytest.mark.skipif(
    release(PYSLURM) is None, reason="no pyslurm here: docs/slurm.md says which fits and how it is built"
)
NEW_YORK = "America/New_York"


@pytest.fixture(scope="module")
def slurm() -> Iterator[Hostile]:
    """Two nodes of two cores of two threads, M=3: more slots than jobs that run at one time."""
    with tempfile.TemporaryDirectory(prefix="osub-prints-") as folder:
        cluster = LocalCluster(Path(folder, "c"))
        cluster.up(quick_to_kill(Shape(nodes=2, cores=2, threads=2, virtual=True, multiplicity=3)))
        try:
            yield Hostile(cluster)
        finally:
            end_cluster(cluster)


@pytest.fixture(autouse=True)
def _left_idle(slurm: Hostile) -> Iterator[None]:
    yield
    known = slurm.states()
    slurm.cancel(number for number, state in known.items() if state in {"PD", "R", "S", "CF"})
    until(lambda: not {"R", "S", "CG", "PD"} & set(slurm.states().values()), 60, "all jobs end")


def running(slurm: Hostile, *options: str, words: Words | None = None) -> SlurmJob:
    """Start a job and return it as it is when it runs."""
    number = slurm.submit(words or Words(), *options)
    assert number is not None
    until(lambda: slurm.states()[number] == "R", START_S, f"job {number} runs", slurm.queue)
    return by_id(slurm.cluster.client().jobs())[number]


def differences(one: SlurmJob, other: SlurmJob) -> dict[str, tuple[object, object]]:
    names = [field.name for field in fields(SlurmJob)]
    values = {name: (getattr(one, name), getattr(other, name)) for name in names}
    return {name: pair for name, pair in values.items() if pair[0] != pair[1]}


# Users who write what reads like Slurm


def test_no_word_of_a_user_is_run_or_taken_for_slurms(slurm: Hostile, tmp_path: Path) -> None:
    client = slurm.cluster.client()
    victim = running(slurm, "-N1", "-n1", "-t", "7")
    node, proof = victim.nodes[0], tmp_path / "proof"
    written: dict[int, Words] = {}
    for attack in ATTACKS:
        text = filled(attack, proof=proof, node=node, victim=victim.job_id)
        words = Words(name=text, comment=text, output=b"/tmp/" + text, account=text, wckey=text)
        number = slurm.submit(words)
        assert number is not None, attack
        written[number] = words
    plain, book = plain_text(slurm)
    for source in (client.jobs, lambda: plain.read(book)):
        jobs = by_id(source())
        assert jobs.keys() == slurm.states().keys()
        assert not proof.exists()
        # of one's own jobs a line in a name can take a name away, where there is no JSON, and nothing else
        assert differences(jobs[victim.job_id], victim).keys() <= (
            {"name"} if source != client.jobs else set()
        )
        for number in written:
            job = jobs[number]
            assert (job.state, job.cores, job.end_time, job.uid) == (
                SlurmJobState.PENDING,
                (),
                None,
                os.getuid(),
            )
    jobs = by_id(client.jobs())
    for number, words in written.items():
        assert (jobs[number].name, jobs[number].comment) == (read_as(words.name), read_as(words.comment))


def test_a_running_job_has_its_own_cores_and_end_whatever_it_is_called(
    slurm: Hostile, tmp_path: Path
) -> None:
    client = slurm.cluster.client()
    victim = running(slurm, "-N1", "-n1")
    attackers: dict[int, Words] = {}
    for attack in ATTACKS[:8]:
        text = filled(attack, proof=tmp_path / "proof", node=victim.nodes[0], victim=victim.job_id)
        words = Words(name=text, comment=text)
        job = running(slurm, "-N1", "-n1", "-t", "1", words=words)
        attackers[job.job_id] = words
        if len(attackers) % 3 == 0:
            slurm.cancel(attackers)
    jobs = by_id(client.jobs())
    assert not (tmp_path / "proof").exists()
    assert differences(jobs[victim.job_id], victim) == {}
    for number in attackers:
        job = jobs[number]
        assert [len(held.cores) for held in job.cores] == [1]
        assert set(job.cores[0].cores) < {0, 1}
        assert job.time_limit_s == 60
        if job.state is SlurmJobState.RUNNING:
            assert job.start_time is not None
            assert job.end_time == job.start_time + 60
    plain, book = plain_text(slurm)
    text_snapshot = plain.read(book)
    assert {one.job_id for one in text_snapshot.unreadable} <= attackers.keys()
    later = by_id(client.jobs())  # cancelled jobs end meanwhile
    for job in text_snapshot.jobs:
        known = [found[job.job_id] for found in (jobs, later) if job.job_id in found]
        assert job.cores in {*(one.cores for one in known), ()}
        assert (job.state, job.end_time) in [(one.state, one.end_time) for one in known]


def test_who_forges_the_record_of_a_job_of_his_own_gains_nothing(slurm: Hostile) -> None:
    job = running(slurm, "-N1", "-n1", "-t", "1")
    forged = RECORD.replace("CANCELLED", "RUNNING").replace("Unknown", "2030-01-01T00:00:00")
    name = forged.format(victim=job.job_id)
    slurm.run("scontrol", "update", f"JobId={job.job_id}", f"JobName={name}")
    assert by_id(slurm.cluster.client().jobs())[job.job_id] == replace(job, name=name)


# What the sources say


def jobs_of_every_kind(slurm: Hostile) -> dict[str, int]:
    """Submit them, wait until each is what it is to be, and return their numbers."""
    kinds = {
        "across": running(slurm, "-N2", "-n2", "--ntasks-per-node=1", "-t", "1-02:04").job_id,
        "endless": running(slurm, "-N1", "-n1").job_id,
        "failed": slurm.submit(Words(), "-n1", body="exit 3"),
        "killed": slurm.submit(Words(), "-n1", body="kill -9 $$"),
        "held": slurm.submit(Words()),
        "late": slurm.submit(Words(), "-n1", "--begin=now+1hour", "-t", "3"),
        "array": slurm.submit(Words(), "--array=5-9%1", "-n1", "-t", "30"),
        "het": slurm.submit(Words(), "-n1", ":", "-n1"),
        "again": slurm.submit(Words(), "-n1", "--requeue"),
        "stopped": slurm.submit(Words(), "-n1"),
        "cancelled": slurm.submit(Words(), "-n1"),
    }
    assert None not in kinds.values(), kinds
    number = {kind: known for kind, known in kinds.items() if known is not None}

    def runs(job: int) -> bool:
        return slurm.states()[job] == "R"

    until(partial(runs, number["stopped"]), START_S, "the job to suspend runs", slurm.queue)
    slurm.run("scontrol", "suspend", str(number["stopped"]))
    until(partial(runs, number["again"]), START_S, "the job to requeue runs", slurm.queue)
    slurm.run("scontrol", "requeue", str(number["again"]))
    slurm.cancel([number["cancelled"]])
    settled = {"failed": "F", "killed": "F", "stopped": "S", "again": "PD", "cancelled": "CA"}
    until(
        lambda: all(slurm.states()[number[kind]] == state for kind, state in settled.items()),
        START_S,
        f"jobs are {settled}",
        slurm.queue,
    )
    return number


def test_components_of_a_heterogeneous_job_have_their_own_words(slurm: Hostile) -> None:
    first = running(slurm, "-n1", "--comment=one", ":", "-n1", "--comment=gangd=off").job_id
    plain, book = plain_text(slurm)
    for jobs in by_id(plain.read(book)), by_id(slurm.cluster.client().jobs()):
        assert (jobs[first].comment, jobs[first + 1].comment) == ("one", "gangd=off")


def test_all_sources_say_the_same_of_jobs_of_every_kind(slurm: Hostile) -> None:
    number = jobs_of_every_kind(slurm)
    jobs = by_id(slurm.cluster.client().jobs())
    plain, book = plain_text(slurm)
    texts = by_id(plain.read(book))
    assert jobs.keys() == texts.keys() == slurm.states().keys()
    for one, text in ((jobs[key], texts[key]) for key in jobs if key >= number["across"]):
        assert differences(one, text).keys() <= {"reason"}, one
    tasks = [job for job in jobs.values() if job.array_job_id == number["array"]]
    assert {job.time_limit_s for job in tasks} == {1800}
    assert 5 in {job.array_task_id for job in tasks}
    assert sorted(
        (job.het_job_id, job.het_job_offset) for job in jobs.values() if job.het_job_id == number["het"]
    ) == [(number["het"], 0), (number["het"], 1)]
    assert (jobs[number["failed"]].exit_code, jobs[number["killed"]].exit_signal) == (3, 9)
    assert jobs[number["again"]].restarts == 1
    assert [(len(held.cores), held.memory_mib) for held in jobs[number["across"]].cores] == [
        (len(held.cores), held.memory_mib) for held in texts[number["across"]].cores
    ]
    assert jobs[number["across"]].nodes == tuple(node.name for node in slurm.cluster.client().nodes())
    apart = ApartSlurm(slurm.conf, source="commands")
    try:
        assert by_id(apart.jobs()) == jobs
        assert apart.nodes() == slurm.cluster.client().nodes()
    finally:
        apart.close()


@NEEDS_PYSLURM
def test_the_c_library_says_the_same_of_jobs_of_every_kind(slurm: Hostile) -> None:
    jobs_of_every_kind(slurm)
    apart = ApartSlurm(slurm.conf)
    try:
        found = by_id(apart.jobs())
        assert apart.read_from == "pyslurm"
        jobs = by_id(slurm.cluster.client().jobs())
        assert found.keys() == jobs.keys()
        for key, job in jobs.items():
            differing = differences(job, found[key])
            if job.state is not SlurmJobState.COMPLETED and job.state.is_over:
                assert differing.pop("exit_code", (0, None))[1] is None
            assert differing == {}
        assert apart.nodes() == slurm.cluster.client().nodes()
    finally:
        apart.close()


@NEEDS_PYSLURM
def test_no_word_of_a_user_harms_what_the_c_library_says(slurm: Hostile, tmp_path: Path) -> None:
    victim = running(slurm, "-N1", "-n1", "-t", "7")
    written: dict[int, Words] = {}
    for attack in ATTACKS:
        text = filled(attack, proof=tmp_path / "proof", node=victim.nodes[0], victim=victim.job_id)
        words = Words(name=text, comment=text, output=b"/tmp/" + text, account=text, wckey=text)
        number = slurm.submit(words)
        assert number is not None, attack
        written[number] = words
    apart = ApartSlurm(slurm.conf)
    try:
        jobs = by_id(apart.jobs())
        assert apart.read_from == "pyslurm"
        assert differences(jobs[victim.job_id], victim) == {}
        for number, words in written.items():
            assert (jobs[number].name, jobs[number].comment) == (read_as(words.name), read_as(words.comment))
        # a text that is no UTF-8 cannot be had there: commands are read
        number = slurm.submit(Words(comment=b"gangd=off \xff"))
        assert number is not None
        assert by_id(apart.jobs())[number].comment == "gangd=off \ufffd"
        assert apart.read_from == "commands"
    finally:
        apart.close()
    assert not (tmp_path / "proof").exists()


def test_a_completing_job_is_completing(slurm: Hostile) -> None:
    job = running(slurm, "-N1", "-n1")
    node = job.nodes[0]
    # a node that does not answer leaves its job completing
    slurmd = next(one for one in slurm.cluster.state().daemons if one.role == f"slurmd {node}")
    os.kill(slurmd.pid, 19)
    try:
        slurm.cancel([job.job_id])
        until(lambda: slurm.states()[job.job_id] == "CG", START_S, "the job is completing")
        seen = by_id(slurm.cluster.client().jobs())[job.job_id]
        assert (seen.state, seen.cores) == (SlurmJobState.COMPLETING, job.cores)
    finally:
        os.kill(slurmd.pid, 18)


# Environments


@pytest.mark.parametrize(
    "environment",
    [
        {"SLURM_TIME_FORMAT": "relative", "TZ": NEW_YORK},
        {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C", "LANG": "C"},
        {"SQUEUE_STATES": "PD", "SQUEUE_FORMAT": "%j", "SQUEUE_PARTITION": "none", "SQUEUE_USERS": "nobody"},
        {"SLURM_CLUSTERS": "elsewhere", "SLURM_BITSTR_LEN": "1", "SQUEUE_ARRAY": "1", "SLURM_JSON": "x"},
    ],
)
def test_the_callers_environment_changes_nothing(
    slurm: Hostile, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    job = running(slurm, "-N1", "-n1", "-t", "9")
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    time.tzset()
    client = CommandSlurm(slurm.conf)
    assert differences(by_id(client.jobs())[job.job_id], job) == {}
    assert job.start_time is not None
    assert abs(job.start_time - time.time()) < 120
    assert client.config()["ClusterName"] == slurm.cluster.state().layout.cluster_name
    text = by_id(TextSource(client._ask, os.getuid()).read(plain_text(slurm)[1]))[job.job_id]
    assert differences(text, job) == {}
    client.cancel([job.job_id])
    until(lambda: slurm.states()[job.job_id] == "CA", START_S, "the job is cancelled")
    monkeypatch.undo()
    time.tzset()


def hour_that_comes_twice() -> int:
    """Return the epoch second of half past one in New York, the first of two, on a day to come."""
    zone = ZoneInfo(NEW_YORK)
    half_past = datetime.now(zone).replace(hour=1, minute=30, second=0, microsecond=0, fold=0) + timedelta(
        days=1
    )
    while half_past.utcoffset() == half_past.replace(fold=1).utcoffset():
        half_past += timedelta(days=1)
    return int(half_past.timestamp())


def test_an_end_is_moved_to_its_instant_in_an_hour_that_comes_twice(
    slurm: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = running(slurm, "-N1", "-n1", "-t", "9")
    monkeypatch.setenv("TZ", NEW_YORK)
    time.tzset()
    client = CommandSlurm(slurm.conf)
    first = hour_that_comes_twice()
    for end in (first, first + 3600, first + 7200):
        assert client.move_ends({job.job_id: end}) == {}
        assert by_id(client.jobs())[job.job_id].end_time == end
    monkeypatch.undo()
    time.tzset()


def test_a_submission_is_what_was_asked_for_whatever_the_words(
    slurm: Hostile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for key, value in {
        "SBATCH_PARTITION": "none",
        "SBATCH_TIMELIMIT": "3",
        "SBATCH_JOB_NAME": "other",
        "SBATCH_HOLD": "1",
        "SBATCH_BEGIN": "now+1hour",
        "SLURM_HINT": "nomultithread",
    }.items():
        monkeypatch.setenv(key, value)
    client = CommandSlurm(slurm.conf)
    output = tmp_path / "out"
    request = SubmitRequest(
        script="#!/bin/sh\nenv | sort; sleep 100000\n",
        name="--json -H\n; $(id)",
        comment="-x\n--hold\t%j",
        time_limit_minutes=7,
        output=output,
        working_directory=tmp_path,
        environment={"MARK": "a b", "SBATCH_TIMELIMIT": "2"},
    )
    number = client.submit(request)
    until(lambda: slurm.states()[number] == "R", START_S, "it runs")
    job = by_id(client.jobs())[number]
    assert (job.name, job.comment, job.time_limit_s) == (request.name, request.comment, 420)
    until(lambda: "MARK=a b" in output.read_text() if output.exists() else False, START_S, "it has begun")
    assert not {
        line for line in output.read_text().splitlines() if line.startswith(("SBATCH_", "TZ=", "LC_ALL"))
    }
    with pytest.raises(SlurmRefusedError, match="too long"):
        client.submit(replace(request, comment="x" * 70_000))


def test_output_goes_to_the_very_file_that_was_named(slurm: Hostile, tmp_path: Path) -> None:
    client = CommandSlurm(slurm.conf)
    names = ("plain", "%j", "%", "%%x", "a\\b", "a\\%j", "\\\\", "a b\t%A")
    outputs = [tmp_path / f"folder{name}" / f"file{name}" for name in names]
    for output in outputs:
        output.parent.mkdir()
        client.submit(SubmitRequest(script="#!/bin/sh\necho here\n", name="j", output=output))
    until(lambda: all(each.exists() and each.read_text() == "here\n" for each in outputs), START_S, "outputs")
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == set(outputs)


# A Slurm that is away, or prints no JSON


@pytest.mark.long
def test_slurm_being_away_is_an_error_and_no_empty_cluster(slurm: Hostile) -> None:
    job = running(slurm, "-N1", "-n1")
    daemon = next(one for one in slurm.cluster.state().daemons if one.role == "slurmctld")
    client = CommandSlurm(slurm.conf, tries=1, timeout_s=15)
    os.kill(daemon.pid, 19)
    try:
        with pytest.raises(SlurmUnreachableError):
            client.jobs()
    finally:
        os.kill(daemon.pid, 18)
    until(lambda: job.job_id in slurm.states(), START_S, "slurmctld is back")
    assert by_id(client.jobs())[job.job_id].cores == job.cores


def test_a_slurm_without_json_is_read_all_the_same(slurm: Hostile, tmp_path: Path) -> None:
    victim = running(slurm, "-N1", "-n1", words=Words(name=b"calm", comment=b"gangd-weight=2\nx"))
    forged = f"x Nodes={victim.nodes[0]} CPU_IDs=0 Mem=1".encode()
    attacker = running(slurm, "-N1", "-n1", words=Words(name=forged))
    (plugins := tmp_path / "plugins").mkdir()
    found = slurm.cluster.client().config()["PluginDir"]
    for plugin in Path(found).iterdir():
        if "json" not in plugin.name:
            (plugins / plugin.name).symlink_to(plugin)
    (conf := tmp_path / "slurm.conf").write_text(f"{slurm.conf.read_text()}\nPluginDir={plugins}\n")
    snapshot = CommandSlurm(conf).jobs()
    assert [one.job_id for one in snapshot.unreadable] == [attacker.job_id]
    [job] = [job for job in snapshot.jobs if job.job_id == victim.job_id]
    assert differences(job, victim) == {}
