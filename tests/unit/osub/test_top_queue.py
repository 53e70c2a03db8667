"""What ``osub top`` adds from Slurm: names, applications, elapsed times, the queue."""

from __future__ import annotations

import io

from foundation.errors import ClusterError
from foundation.slurm import JobSnapshot, NodeCores, SlurmJob, SlurmJobState
from osub.cli.terminal import Console
from osub.cli.top.frame import Screen, frame
from osub.live.queue import LiveQueue, QueuedJob, QueueEye, queue_of
from tests.fixtures.looks import until
from tests.unit.osub.test_cli_top import WELL, status

EVIL = "a\x1b[31m\n\u202eb" + "x" * 300
NOW = 1_700_000_100.0


def slurm_job(number: int, state: SlurmJobState, name: str | None = None, **more: object) -> SlurmJob:
    plain: dict[str, object] = {
        "user": "u", "uid": 1, "partition": "main", "reason": "Resources", "num_nodes": 1,
    }  # fmt: skip
    return SlurmJob(job_id=number, name=name, state=state, **(plain | more))  # type: ignore[arg-type]


def drawn(queue: LiveQueue | None, width: int = 150) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(frame(status(), WELL, Screen(width), queue, NOW))
    return out.getvalue().splitlines()


def snapshot() -> JobSnapshot:
    held = (NodeCores("a1", (0,)),)
    return JobSnapshot(
        (
            slurm_job(
                12, SlurmJobState.RUNNING, "solver", cores=held, start_time=NOW - 90,
                comment="osub replay f gangd-app=lu",
            ),
            slurm_job(
                13, SlurmJobState.RUNNING, EVIL, cores=held, start_time=None, comment="gangd-app=$(id) x"
            ),
            slurm_job(21, SlurmJobState.PENDING, "late", submit_time=NOW - 5),
            slurm_job(20, SlurmJobState.PENDING, EVIL, submit_time=NOW - 300),
            slurm_job(30, SlurmJobState.COMPLETED, "done"),
        )
    )  # fmt: skip


def test_names_applications_elapsed_times_and_the_queue_are_shown() -> None:
    lines = drawn(queue_of(snapshot()))
    own = next(line.split() for line in lines if line.lstrip().startswith("12 "))
    assert own[:5] == ["12", "solver", "lu", "90", "s"]
    (waits,) = (line for line in lines if line.startswith("queue: "))
    assert waits.startswith("queue: 2 jobs: 20 ")
    assert "21 late (Resources, 5.0 s)" in waits


def test_what_users_write_neither_steers_the_terminal_nor_fills_it() -> None:
    lines = drawn(queue_of(snapshot()))
    assert all(line.isprintable() and len(line) <= 150 for line in lines)
    assert "$(id)" not in "\n".join(lines)
    assert "x" * 40 not in "\n".join(lines)


def test_without_slurm_the_picture_has_neither_columns_nor_queue() -> None:
    lines = drawn(None)
    assert not any(line.startswith("queue") for line in lines)
    assert not any("name" in line and "does" in line for line in lines)


def test_an_empty_queue_and_a_long_one_are_reported_in_a_line() -> None:
    assert any(line.startswith("queue: no job waits") for line in drawn(LiveQueue({}, ())))
    many = tuple(QueuedJob(n, "n", "u", None, None, "Priority") for n in range(1000))
    assert sum("queue" in line for line in drawn(LiveQueue({}, many))) == 1


def test_a_slurm_that_does_not_answer_is_asked_again() -> None:
    asked: list[int] = []

    def ask() -> JobSnapshot:
        asked.append(1)
        if len(asked) == 1:
            raise ClusterError("away")
        return snapshot()

    with QueueEye(ask, 0.0) as eye:
        until(lambda: eye.latest is not None)
    assert QueueEye(lambda: snapshot()).once() == queue_of(snapshot())
