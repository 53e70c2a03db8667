"""Reservations of a real Slurm, and the ends of jobs outside and in them."""

from __future__ import annotations

import time

import pytest

from deploy.local import LocalCluster
from foundation.slurm import SlurmJob, SlurmJobState, SubmitRequest
from gangd.controller.slurm_view import latest_end
from tests.fixtures.looks import until
from tests.integration.hostile import Hostile

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

START_S = 90.0


def test_an_end_does_not_move_into_maintenance(shared_cluster: LocalCluster) -> None:
    slurm, client = Hostile(shared_cluster), shared_cluster.client()
    assert client.reservations() == []

    def start(reservation: str | None = None) -> SlurmJob:
        request = SubmitRequest(
            script="#!/bin/sh\nsleep 10000\n", name="j", time_limit_minutes=5, reservation=reservation
        )
        number = client.submit(request)
        until(
            lambda: (job := client.job(number)) is not None and job.state is SlurmJobState.RUNNING,
            START_S,
            f"job {number} runs",
        )
        job = client.job(number)
        assert job is not None
        return job

    job = start()
    begins_s = int(time.time()) + 900
    nodes = ",".join(node.name for node in client.nodes())
    try:
        made = slurm.run(
            *("scontrol", "create", "reservation", "ReservationName=maint", f"StartTime={_utc(begins_s)}"),
            *("Duration=30", f"Nodes={nodes}", "Users=root", "Flags=MAINT,IGNORE_JOBS"),
        )
        assert made.returncode == 0, made.stderr
        [maint] = client.reservations()
        assert (maint.name, maint.start_s, maint.end_s) == ("maint", begins_s, begins_s + 1800)
        assert maint.nodes == {node.name for node in client.nodes()}
        assert latest_end(job, [maint]) == begins_s
        # Slurm itself would move it there
        assert client.move_ends({job.job_id: begins_s + 600}) == {}
        made = slurm.run(
            *("scontrol", "create", "reservation", "ReservationName=mine", "StartTime=now", "Duration=12"),
            *(f"Nodes={nodes}", "Users=root", "Flags=IGNORE_JOBS,OVERLAP"),
        )
        assert made.returncode == 0, made.stderr
        inside = start("mine")
        assert inside.reservation == "mine"
        mine = next(one for one in client.reservations() if one.name == "mine")
        assert latest_end(inside, client.reservations()) == min(mine.end_s, begins_s)
        client.cancel([inside.job_id])
    finally:
        client.cancel([job.job_id])
        until(lambda: not any(one.state.holds_cores for one in client.jobs().jobs), START_S, "jobs are gone")
        for name in ("mine", "maint"):
            slurm.run("scontrol", "delete", f"ReservationName={name}")
    assert client.reservations() == []


def _utc(instant_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(instant_s))
