"""Jobs whose users write what reads like Slurm, submitted to a real one; and what must come of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local import LocalCluster
from foundation.slurm import JobSnapshot, SlurmJob
from foundation.slurm.hosts import NodeBook
from foundation.slurm.job_sources import TextSource
from foundation.slurm.site_configuration import read_nodes
from foundation.slurm.slurm_types import SlurmRefusedError

SLEEP = "sleep 100000"


@dataclass(frozen=True, slots=True)
class Words:
    """What the user of a job writes of it, in bytes as a shell passes them on."""

    name: bytes = b"x"
    comment: bytes = b""
    directory: bytes = b"/"
    account: bytes = b""
    output: bytes = b"/dev/null"
    wckey: bytes = b""

    def options(self) -> list[bytes]:
        """Return the options of ``sbatch``."""
        given = {
            b"job-name": self.name, b"comment": self.comment, b"chdir": self.directory,
            b"account": self.account, b"output": self.output, b"wckey": self.wckey,
        }  # fmt: skip
        return [b"--%s=%s" % pair for pair in given.items() if pair[1]]


def read_as(raw: bytes) -> str | None:
    """Return what a client reads of what a user wrote."""
    return raw.decode(errors="replace") or None


class Hostile:
    """Submits and asks next to the client that is tested."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.conf = cluster.state().layout.conf
        self.environment = {"PATH": os.environ["PATH"], "SLURM_CONF": str(self.conf), "TZ": "UTC"}

    def run(
        self, *words: str | bytes, stdin: str = "", timeout_s: float = 60
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command of Slurm in an environment that says nothing else."""
        return subprocess.run(
            words, env=self.environment, input=stdin.encode(), capture_output=True,
            timeout=timeout_s, check=False,
        )  # fmt: skip

    def submit(self, words: Words, *options: str, body: str = SLEEP) -> int | None:
        """Submit a job, held unless ``options`` say something else; None where Slurm refuses its words."""
        more = options or ("--hold",)
        done = self.run("sbatch", "--parsable", *words.options(), *more, stdin=f"#!/bin/sh\n{body}\n")
        if done.returncode:
            return None
        return int(done.stdout)

    def states(self) -> dict[int, str]:
        """Return the states of all jobs by id, in Slurm's short words: numbers and capital letters."""
        printed = self.run("squeue", "--noheader", "--all", "--states=all", "--format=%A %t").stdout
        return {
            int(number): state for number, state in (line.split() for line in printed.decode().splitlines())
        }

    def queue(self) -> str:
        """Return jobs and nodes with Slurm's reasons, for the message of a test that failed."""
        jobs = self.run("squeue", "--all", "--states=all", "--format=%A %t %M %r").stdout
        return (jobs + self.run("sinfo", "--Node", "--format=%N %T %E").stdout).decode(errors="replace")

    def cancel(self, jobs: Iterable[int]) -> None:
        """Cancel jobs, in one call."""
        self.run("scancel", "--quiet", *map(str, jobs))


def plain_text(slurm: Hostile) -> tuple[TextSource, NodeBook]:
    """Return the source that is used where Slurm prints no JSON, and the nodes."""

    def ask(*words: str, check: object = None) -> str:
        done = slurm.run(*words)
        if done.returncode:
            raise SlurmRefusedError(done.stderr.decode(errors="replace"))
        return done.stdout.decode(errors="replace")

    return TextSource(ask, os.getuid()), NodeBook(lambda: read_nodes(ask("scontrol", "show", "-o", "node")))


def by_id(snapshot: JobSnapshot) -> dict[int, SlurmJob]:
    """Return the jobs by id; none may be unreadable."""
    assert snapshot.unreadable == ()
    return {job.job_id: job for job in snapshot.jobs}


RECORD = (
    "x\nJobId={victim} JobName=x UserId=root(0) GroupId=root(0) JobState=CANCELLED Reason=None NumNodes=1 "
    "NumCPUs=1 Partition=main SubmitTime=Unknown StartTime=Unknown EndTime=Unknown TimeLimit=UNLIMITED "
    "ExitCode=0:0"
)
ATTACKS: Sequence[str] = (
    "x Nodes=@x';id>{proof};' CPU_IDs=0 Mem=1",
    "x Nodes=@`id>{proof}` CPU_IDs=0 Mem=1",
    "x Nodes={node} CPU_IDs=0 Mem=1",
    "x Nodes=a CPU_IDs=x Mem=1",
    "x Nodes={node} CPU_IDs=0-3000000 Mem=1",
    "x Nodes={node}[0-99999999] CPU_IDs=0 Mem=1",
    "x Command=/bin/true",
    RECORD,
    "x\n{victim}|{victim}|N/A|N/A|N/A|CANCELLED|0|root|main|1|1|N/A|N/A|N/A|UNLIMITED|0|0|n/a|",
    'x"}}], "errors": [], "jobs": [{{"job_id": {victim}, "job_state": "CANCELLED',
    "gangd=off\n{victim}|gangd=off",
    "x\rJobId={victim} JobState=CANCELLED",
    "x\x1b[2J\x07\x0b\x0c\x1c\x1d\x1e\x85",
    "--json",
    "%A %j @all n[1-",
)  # names and comments that did harm, or would if a text were searched; filled in with the names below


def filled(attack: str, *, proof: Path, node: str, victim: int) -> bytes:
    """Return an attack against a file, a node and a job."""
    return attack.format(proof=proof, node=node, victim=victim).encode()
