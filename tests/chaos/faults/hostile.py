"""What users and a full host can do without touching a daemon: misleading names, full disks, late tasks."""

from __future__ import annotations

import random
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from foundation.slurm import SlurmJobState
from gangd.agent.thaw_tool import thaw_recorded
from gangd.freezer.cgroup_freezer import CgroupFreezer
from gangd.freezer.holder import StepKey
from gangd.freezer.tree import CGROUP2
from gangd.guardian.state_folders import state_path
from gangd.guardian.statefile import StateFile
from tests.chaos.broken import Broken, wait_for
from tests.chaos.fault import Fault
from tests.chaos.stage import Stage
from tests.chaos.troupe import Troupe
from tests.fixtures.gang_host import SPIN, V2_MOUNTS


class HostileNames(Fault):
    """Jobs whose names and comments look like what Slurm prints of jobs, cores and ends."""

    name = "hostile names"
    share = 2.0

    def __init__(self, stage: Stage, troupe: Troupe, dice: random.Random, *, brief: bool) -> None:
        super().__init__(stage, troupe, dice, brief=brief)
        self.jobs: list[int] = []
        self.trap = stage.folder / "owned"

    def lies(self) -> list[str]:
        """Return names: a command for a shell, cores elsewhere, ends, records, a range without end."""
        resident, nodes = self.troupe.residents[0], self.stage.nodes
        return [
            f"x Nodes=@x';touch {self.trap};' CPU_IDs=0 Mem=1",
            f"x Nodes={nodes[0].rpartition('n')[0]}n[1-2] CPU_IDs=0 Mem=1",
            "x Nodes=a CPU_IDs=x Mem=1",
            "x Command=/bin/true JobState=COMPLETED",
            f"x\nJobId={resident} JobName=x JobState=COMPLETED EndTime=2001-01-01T00:00:00",
            f'x","job_id":{resident},"job_state":"CANCELLED","name":"',
            "x CPU_IDs=0-3000000 Nodes=@*",
            "$(touch " + str(self.trap) + ")`touch " + str(self.trap) + "`",
            "\x1b[2J%s%n|" * 20,
        ]

    def inject(self) -> None:
        lies = self.dice.sample(self.lies(), 4)
        for number, lie in enumerate(lies):
            held = ["--hold"] if number % 2 else ["--time=5"]
            done = self.stage.command(
                "sbatch", "--parsable", *held, f"--job-name={lie}", f"--comment={lie}",
                "--output=/dev/null", "--wrap=sleep 300",
            )  # fmt: skip
            if done.returncode:
                raise Broken(f"sbatch refused a name: {done.stderr.strip()[:200]}")
            self.jobs.append(int(done.stdout.strip()))
        self.holds_s = self.dice.uniform(1.5, 3.0)
        self.detail = f"{len(lies)} jobs"

    def check(self) -> None:
        if self.trap.exists():
            raise Broken("a command in a job's name was run")
        snapshot = self.stage.client.jobs()
        if snapshot.unreadable:
            raise Broken(f"jobs cannot be read: {snapshot.unreadable}")
        known = {job.job_id: job for job in snapshot.jobs}
        for job in self.jobs[1::2]:
            if known[job].state is not SlurmJobState.PENDING or known[job].cores:
                raise Broken(f"job {job} is {known[job].state} on {known[job].cores} by its name")

    def heal(self) -> None:
        self.check_then_cancel()

    def check_then_cancel(self) -> None:
        """Look while the jobs are there; Slurm keeps their names for long after that."""
        try:
            self.check()
        finally:
            self.stage.client.cancel(self.jobs)
            self.jobs = []


class FullMemoryFolder(Fault):
    """An agent restarts where ``/dev/shm`` is full: it holds nothing, and comes back once there is space."""

    name = "full /dev/shm"

    def __init__(self, stage: Stage, troupe: Troupe, dice: random.Random, *, brief: bool) -> None:
        super().__init__(stage, troupe, dice, brief=brief)
        self.node = self.a_node()

    def inject(self) -> None:
        small = 'mount -t tmpfs -o size=64k none /dev/shm && exec "$@"'
        self.stage.replace(
            self.stage.agent(self.node), prefix=["/usr/bin/unshare", "--mount", "sh", "-c", small, "sh"]
        )
        wait_for(lambda: not self.stage.is_alive(self.stage.agent(self.node)), 20, "the agent refuses")
        self.detail = f"{self.node}, for {self.holds_s:.1f} s"

    def heal(self) -> None:
        self.stage.revive()


class SteppedClock(Fault):
    """The host's wall clock is set, forward or back, and set right again."""

    name = "stepped clock"
    share = 0.5
    short = False

    def __init__(self, stage: Stage, troupe: Troupe, dice: random.Random, *, brief: bool) -> None:
        super().__init__(stage, troupe, dice, brief=brief)
        self.step_s = dice.choice([-3.0, -1.0, 1.0, 3.0])
        self.stepped = False

    def inject(self) -> None:
        _step(self.step_s)
        self.stepped = True
        self.detail = f"{self.step_s:+.0f} s for {self.holds_s:.1f} s"

    def heal(self) -> None:
        if self.stepped:
            self.stepped = False
            _step(-self.step_s)


def _step(by_s: float) -> None:
    """Set the wall clock by so much; several campaigns that do so add up to nothing in the end."""
    time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME) + by_s)


class LateTask(Fault):
    """A task that comes late in a step that is held, on cgroup v2, and an agent that dies right then.

    The stage's Slurm uses cgroup v1, so this has a step, a ledger and a holder of its own on the unified
    hierarchy of the host.
    """

    name = "late task on cgroup v2, agent dead"

    def __init__(self, stage: Stage, troupe: Troupe, dice: random.Random, *, brief: bool) -> None:
        super().__init__(stage, troupe, dice, brief=brief)
        self.holds_s = 0.0
        self.made: list[Path] = []
        self.spinning: list[subprocess.Popen[bytes]] = []

    def inject(self) -> None:
        mount = next((mount for mount in V2_MOUNTS if (mount / "cgroup.procs").exists()), None)
        if mount is None:
            self.detail = "no unified hierarchy here"
            return
        node = f"late{self.stage.nodes[0].partition('-')[0]}"
        scope = mount / f"{node}_slurmstepd.scope"
        user = scope / "job_7" / "step_0" / "user"
        (ledgers := self.stage.folder / f"late-{time.monotonic_ns()}").mkdir(mode=0o700)
        for path in (scope, *(scope / part for part in ("job_7", "job_7/step_0", "job_7/step_0/user"))):
            self._make(path)
        self._spin(user)
        path = state_path(ledgers, node)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = StateFile.create(path, node, str(mount))
        holder = CgroupFreezer(mount, CGROUP2, node, state)
        try:
            key = StepKey(7, "0")
            holder.adopt(holder.look())
            holder.hold(key)
            late = user / "task_0"
            self._make(late)
            self._spin(late)
            for _ in range(self.dice.randint(0, 2)):  # dies before, at, or after the look that finds it
                holder.adopt(holder.look())
                holder.hold(key)
        finally:
            holder.close()
            state.close()
        blow = thaw_recorded(ledgers, None, only_expired=False)
        frozen = [where for where in self.made if "frozen 1" in (where / "cgroup.events").read_text()]
        path.unlink(missing_ok=True)
        with suppress(OSError):
            path.parent.rmdir()
        self.detail = f"job_7 of {node}"
        if frozen or blow.failures:
            raise Broken(f"frozen for good: {[str(where) for where in frozen]} {blow.failures}")

    def heal(self) -> None:
        for path in self.made:
            with suppress(OSError):
                (path / "cgroup.freeze").write_text("0")
        for process in self.spinning:
            process.kill()
            process.wait(5)
        for path in reversed(self.made):
            wait_for(lambda path=path: _removed(path), 5, f"{path} is removed")  # type: ignore[misc]

    def _make(self, path: Path) -> None:
        path.mkdir()
        self.made.append(path)

    def _spin(self, path: Path) -> None:
        process = subprocess.Popen(["nice", "-n", "19", *SPIN])
        self.spinning.append(process)
        (path / "cgroup.procs").write_text(str(process.pid))


def _removed(path: Path) -> bool:
    with suppress(FileNotFoundError):
        try:
            path.rmdir()
        except OSError:
            return False
    return True


HOSTILE_FAULTS: tuple[type[Fault], ...] = (HostileNames, FullMemoryFolder, SteppedClock, LateTask)
