"""A cluster under gangd for tests: submit, watch who runs and who is held, change slices, clear up."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from deploy.local import LocalCluster, Shape
from deploy.local.daemons import Daemon, find_process
from deploy.local.gang import gang_daemons, record_folder, status_folder
from deploy.local.host import look_at_host
from foundation.errors import OsubError
from foundation.records import SliceRecord
from foundation.slurm import SlurmJob, SlurmJobState
from gangd.controller.controller_status import ControllerStatus, JobStatus, NodeStatus, read_status
from gangd.controller.slicelog import read_slices
from gangd.controller.state_directory import STATE_NAME
from tests.fixtures.looks import until
from tests.fixtures.marked import marked_processes
from tests.integration.gang.frozen import frozen_cgroups, is_frozen, processes_of
from tests.integration.waiting import agents_joined

GENTLY = "{ echo 10 >/proc/self/autogroup; } 2>/dev/null"
"""Shell code after which a job takes little of a core that others want: Linux weighs sessions first."""
SPIN = f"{GENTLY}; while :; do :; done"
START_S = 30.0
TURN_S = 30.0
END_S = 40.0


class Stage:
    """One cluster that many tests share; ``clear`` brings it back to how it was."""

    def __init__(self, cluster: LocalCluster, shape: Shape) -> None:
        self.cluster = cluster
        self.shape = shape
        self.client = cluster.client()
        self.layout = cluster.state().layout
        self.nodes = tuple(node.name for node in self.layout.nodes)
        self.quantum_ms = shape.quantum_ms

    def run(self, *words: str, timeout_s: float = 90.0) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm, or another one that needs to know the cluster."""
        environment = dict(os.environ) | {"SLURM_CONF": str(self.layout.conf)}
        return subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def submit(self, body: str, *nodes: str, options: tuple[str, ...] = ()) -> int:
        """Submit a batch job on these nodes, one task and core on each, whose script is ``body``."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CONF": str(self.layout.conf)}
        places = ("-N", str(len(nodes)), "-n", str(len(nodes)), "-w", ",".join(nodes)) if nodes else ()
        done = subprocess.run(
            ["sbatch", "--parsable", "--output=/dev/null", *places, *options],
            input=f"#!/bin/sh\n{body}\n",
            env=environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return int(done.stdout.strip())

    def start(self, body: str, *nodes: str, options: tuple[str, ...] = ()) -> int:
        """Submit a job and wait until it runs and has processes on its first node."""
        job = self.submit(body, *nodes, options=options)
        until(lambda: self.state(job) is SlurmJobState.RUNNING, START_S, f"job {job} runs")
        node = self.job(job).nodes[0]
        until(lambda: bool(processes_of(job, node)), START_S, f"job {job} has processes")
        return job

    def job(self, job: int) -> SlurmJob:
        """Return what Slurm says of a job."""
        known = self.client.job(job)
        assert known is not None, f"Slurm does not know job {job}"
        return known

    def state(self, job: int) -> SlurmJobState:
        """Return a job's state."""
        return self.job(job).state

    def finish(self, *jobs: int, within_s: float) -> list[SlurmJobState]:
        """Wait for jobs to end and return their states."""
        for job in jobs:
            until(lambda job=job: self.state(job).is_over, within_s, f"job {job} ends")  # type: ignore[misc]
        return [self.state(job) for job in jobs]

    def status(self) -> ControllerStatus:
        """Return the controller's newest status, at most a second old."""
        return read_status(status_folder(self.layout))

    def job_status(self, job: int) -> JobStatus | None:
        """Return what the controller says of a job; None for one that shares no core."""
        return next((one for one in self.status().jobs if one.job == job), None)

    def node_status(self, node: str) -> NodeStatus:
        """Return what the controller says of a node."""
        return next(one for one in self.status().nodes if one.node == node)

    def wait_state(self, job: int, state: str, within_s: float = TURN_S) -> None:
        """Wait until the controller has a job in a state of ``docs/states.md``."""

        def reached() -> bool:
            status = self.job_status(job)
            return status is not None and status.state == state

        until(reached, within_s, f"job {job} is {state}; {self.status().jobs}")

    def wait_frozen(self, *pids: int, within_s: float = TURN_S) -> None:
        """Wait for an instant at which all these processes are frozen."""
        until(lambda: all(is_frozen(pid) for pid in pids), within_s, f"{pids} are frozen")

    def wait_thawed(self, *pids: int, within_s: float = TURN_S) -> None:
        """Wait for an instant at which none of these processes is frozen."""
        until(lambda: not any(is_frozen(pid) for pid in pids), within_s, f"{pids} are thawed")

    def rows(self, *jobs: int, past: int = 0) -> list[SliceRecord]:
        """Return the slice record of jobs so far, once slice ``past`` is over."""
        until(lambda: self.status().slice > past + 1, TURN_S, f"slice {past} is over")
        saved, now_s = status_folder(self.layout) / STATE_NAME, time.time()
        os.kill(self.daemon("gangd").pid, signal.SIGUSR1)
        until(lambda: saved.stat().st_mtime > now_s, TURN_S, "the controller writes what it knows")
        return [row for row in read_slices(record_folder(self.layout), 0.0) if row.job in jobs]

    def set_quantum(self, quantum_ms: float) -> None:
        """Have the controller cut other slices from now on, through its configuration and SIGHUP."""
        if quantum_ms == self.quantum_ms:
            return
        file = self.layout.gang / "gangd.toml"
        text = re.sub(r"quantum_ms = [\d.]+", f"quantum_ms = {quantum_ms:g}", file.read_text())
        file.write_text(text)
        os.kill(self.daemon("gangd").pid, signal.SIGHUP)
        self.quantum_ms = quantum_ms
        until(lambda: self.status().quantum_ms == quantum_ms, 60, f"slices of {quantum_ms:g} ms")

    @contextmanager
    def lease(self, lease_ms: float) -> Iterator[None]:
        """Have the controller grant another lease while it lasts, through its configuration and SIGHUP."""
        file, before_ms = self.layout.gang / "gangd.toml", self.status().lease_ms
        text = file.read_text()
        self._configure(f"lease_ms = {lease_ms:g}\n{text}", lease_ms)
        try:
            yield
        finally:
            self._configure(text, before_ms)

    def _configure(self, text: str, lease_ms: float) -> None:
        (self.layout.gang / "gangd.toml").write_text(text)
        os.kill(self.daemon("gangd").pid, signal.SIGHUP)
        until(lambda: self.status().lease_ms == lease_ms, 60, f"a lease of {lease_ms:g} ms")

    def daemon(self, role: str) -> Daemon:
        """Return a daemon of the cluster."""
        return next(daemon for daemon in self.cluster.state().daemons if daemon.role == role)

    def last_lines(self, lines: int = 15) -> str:
        """Return the controller's status and the last lines of what controller and agents wrote."""
        logs = sorted(self.layout.logs.glob("*gang*.out"))
        parts = [f"--- {path.name}\n" + "\n".join(path.read_text().splitlines()[-lines:]) for path in logs]
        try:
            status = str(self.status())
        except OsubError as error:  # a controller that has died or never began is reported, too
            status = str(error)
        return "\n".join([status, *parts])

    @contextmanager
    def another_agent(self, node: str, freezer: str) -> Iterator[None]:
        """Put an agent with another freezer in the place of a node's own, for as long as it lasts."""
        with self.in_place_of({f"gang-agent {node}": ("--freezer", freezer)}):
            until(lambda: self._joined_with(node, freezer), 180, f"another agent of {node} joins")
            yield

    @contextmanager
    def in_place_of(
        self, options: Mapping[str, tuple[str, ...]]
    ) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
        """Put daemons with further options in the places of the cluster's own, by role, while it lasts."""
        environment = dict(os.environ) | {
            "OSUB_CLUSTER": self.layout.cluster_name,
            "SLURM_CONF": str(self.layout.conf),
        }
        words = gang_daemons(self.layout, look_at_host())
        for role in options:
            _end(self.daemon(role))
        others: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for role, more in options.items():
                log = self.layout.logs / f"another-{role.replace(' ', '-')}.out"
                with log.open("ab") as out:
                    others[role] = subprocess.Popen(
                        [*words[role], *more], env=environment, stdout=out, stderr=out, cwd="/"
                    )
            yield others
        finally:
            for other in others.values():
                other.terminate()
            for other in others.values():
                other.wait(20)
            self.cluster.up(self.shape)
            until(lambda: agents_joined(self.layout), 60, f"{', '.join(options)} are back")

    def _joined_with(self, node: str, freezer: str) -> bool:
        status = self.node_status(node)
        return status.agent == "joined" and status.freezer == freezer

    def clear(self) -> None:
        """Cancel every job, and check that nothing is left frozen, stopped or drained."""
        jobs = [job.job_id for job in self.client.jobs().jobs if not job.state.is_over]
        self.client.cancel(jobs)

        def over() -> bool:
            return all(not job.state.holds_cores for job in self.client.jobs().jobs)

        until(over, END_S, f"jobs {jobs} are gone")
        until(lambda: not frozen_cgroups(self.nodes), 10, "nothing is frozen")
        marked = [process.pid for process in marked_processes(self.layout.cluster_name)]
        assert [pid for pid in marked if is_frozen(pid)] == []
        drained = self.run("sinfo", "-R", "-h").stdout.split()
        assert drained == [], f"nodes were drained: {drained}"


def gangd(*words: str) -> list[str]:
    """Return the command line of a gangd."""
    return [sys.executable, "-P", "-m", "gangd.main", *words]


def _end(daemon: Daemon) -> None:
    os.kill(daemon.pid, signal.SIGTERM)
    until(lambda: find_process(daemon) is None, 60, f"{daemon.role} leaves")
