"""How late a job may end for the sake of reservations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foundation.slurm import JobSnapshot, NodeCores, Reservation, SlurmJob, SlurmJobState, SlurmNode
from foundation.slurm.site_configuration import read_reservations
from gangd.controller.job_policy import Policy
from gangd.controller.slurm_view import ClusterView, latest_end
from gangd.core import CoreMap

JOB = SlurmJob(
    job_id=1,
    name="x",
    user="u",
    uid=1,
    partition="main",
    state=SlurmJobState.RUNNING,
    reason="None",
    num_nodes=2,
    cores=(NodeCores("n1", (0,)), NodeCores("n2", (0,))),
    start_time=100,
    end_time=1000,
    time_limit_s=900,
)


def reserved(name: str, start_s: int, end_s: int, *nodes: str) -> Reservation:
    return Reservation(name, start_s, end_s, frozenset(nodes))


@pytest.mark.parametrize(
    ("reservations", "latest_s"),
    [
        ([], None),
        ([reserved("other", 2000, 3000, "n3")], None),
        ([reserved("maint", 2000, 3000, "n2", "n3")], 2000),
        ([reserved("later", 5000, 6000, "n1"), reserved("maint", 2000, 3000, "n2")], 2000),
        ([reserved("mine", 50, 4000, "n1", "n2")], 4000),
        ([reserved("mine", 50, 4000, "n1", "n2"), reserved("maint", 2000, 3000, "n2")], 2000),
        ([reserved("began", 500, 3000, "n1")], 500),
    ],
)
def test_a_job_ends_before_reservations_of_its_nodes_but_may_use_its_own_up(
    reservations: list[Reservation], latest_s: float | None
) -> None:
    assert latest_end(replace(JOB, reservation="mine"), reservations) == latest_s


def test_jobs_that_were_known_learn_of_a_new_reservation() -> None:
    view = ClusterView(CoreMap(), Policy())
    view.know_nodes(
        SlurmNode(
            name=name,
            states=frozenset(),
            cores=1,
            threads_per_core=1,
            memory_mib=1,
            cpus_allocated=0,
            features=frozenset(),
        )
        for name in ("n1", "n2")
    )
    snapshot = JobSnapshot((JOB,))
    assert [one.latest_s for one in view.views(snapshot)] == [None]
    view.know_reservations([reserved("maint", 2000, 3000, "n2")])
    assert [one.latest_s for one in view.views(snapshot)] == [2000.0]
    view.know_reservations([])
    assert [one.latest_s for one in view.views(snapshot)] == [None]


def test_what_slurm_prints_of_reservations_is_read() -> None:
    rest = "Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES TRES=cpu=4 Users=root State=INACTIVE"
    times = "StartTime=1970-01-01T00:33:20 EndTime=1970-01-01T00:50:00"
    lines = [
        f"ReservationName=maint {times} Nodes=n[1-2] {rest}",
        f"ReservationName=licence {times} Nodes=(null) {rest}",
        f"ReservationName=odd StartTime=Unknown EndTime=1970-01-01T00:50:00 Nodes=n3 {rest}",
        "No reservations in the system",
    ]
    assert read_reservations("\n".join(lines)) == [reserved("maint", 2000, 3000, "n1", "n2")]
