"""The prolog and epilog that ring the agent's bell, run by a real slurmd, with an agent and without one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local import LocalCluster, Shape
from foundation.slurm import SlurmJobState, SubmitRequest
from gangd.agent.linux_host import Bell, bell_name
from tests.fixtures.looks import until

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

SCRIPT = Path(__file__).parents[2] / "deploy" / "slurm" / "gang-bell"
LONG_S = 90.0


def test_slurmd_rings_and_no_node_drains_when_no_one_hears(
    make_cluster: Callable[[Shape], LocalCluster], tmp_path: Path
) -> None:
    bells = Path("/tmp") / f"bells-{os.getpid()}"  # the path of a socket is short
    bells.mkdir(mode=0o700)
    script = tmp_path / "ring"
    patient = tmp_path / "gang-bell"  # half a minute in place of a tenth of a second: the host may be busy
    patient.write_text(SCRIPT.read_text().replace("KILL 0.1", "KILL 30"))
    patient.chmod(0o755)
    script.write_text(f"#!/bin/sh\nGANGD_STATE={bells} exec {patient}\n")
    script.chmod(0o755)
    tmp_path.chmod(0o755)
    shape = Shape(nodes=1, cores=1, virtual=True, settings=(f"Prolog={script}", f"Epilog={script}"))
    client = make_cluster(replace(shape, multiplicity=2)).client()
    [node] = client.nodes()
    fd = os.open(bells, os.O_RDONLY | os.O_DIRECTORY)
    bell = Bell.hang(fd, bell_name(node.name))
    os.close(fd)
    begun: set[int] = set()
    ended: set[int] = set()

    def heard(number: int) -> bool:
        rings = bell.take()
        begun.update(rings.begun)
        ended.update(rings.ended)
        assert rings.refused == 0
        return number in begun and number in ended

    def run() -> int:
        number = client.submit(SubmitRequest(script="#!/bin/sh\nexit 0\n", name="ringing"))
        until(lambda: _state(number) is SlurmJobState.COMPLETED, LONG_S, f"job {number} is done")
        return number

    def _state(number: int) -> SlurmJobState | None:
        job = client.job(number)
        return None if job is None else job.state

    try:
        first = run()
        until(lambda: heard(first), LONG_S, "begin and end of the job are heard")
        bell._socket.close()  # the agent is killed: its socket's name stays
        assert (bells / bell_name(node.name)).is_socket()
        run()
        (bells / bell_name(node.name)).unlink()
        run()
        assert [one.is_up for one in client.nodes()] == [True]
    finally:
        bell._socket.close()
        os.close(bell._folder_fd)
        (bells / bell_name(node.name)).unlink(missing_ok=True)
        bells.rmdir()
