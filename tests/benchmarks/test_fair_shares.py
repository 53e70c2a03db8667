"""What an honest job keeps of a core that it shares with a job that cheats; prints a table.

Run it on a calm host, with both of its cores::

    python -m pytest -m benchmark -s tests/benchmarks/test_fair_shares.py

One core of two jobs (M=2): the victim is one loop of root's, the attacker a job of an ordinary user that runs
a trick of ``tests/fixtures/fair_tricks.py``, most with 16 processes in sessions of their own. The share is
the CPU time that the victim got, by that of the same loop on the same core while it was alone; 0.5 is fair.
Two nodes of one core are measured at the same time, with different tricks, so ``none`` (an honest attacker of
one process) is measured with them again and again. Also shown: the victim's part of what the two jobs used
(with cgroup v1's cpuacct), which other work on the host changes less, and what of the core was not used.

All of it takes about half an hour. ``--tricks a,b``, ``--modes freeze,yield,signals`` measure some only;
``--seconds`` is the length of a trial, and ``OSUB_FIGURES`` names a file for the table. On a host with other
work ``--shield`` has jobs weighed above it (cgroup v1's cpu hierarchy), on one core only, so that others keep
the second one; it takes twice as long. ``--gangd tune,pairing`` measures with slices that tune themselves,
and with pairs learnt live. The latter has one node of two cores for the two jobs, which are known to harm
each other and so alternate: there the victim's part of what both used tells what the cheat gains. As
``ConstrainCores`` would, each job keeps to its core.
``--machine`` measures on cgroup v2 instead, in a machine with systemd (``tests/fixtures/machine``): its one
core also runs all daemons, so what counts there is the victim's part of what both jobs used.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from deploy.local import GangKind, HoldSetting, LocalCluster, Shape
from deploy.local.down import CGROUP_ROOT
from foundation.slurm import SlurmJobState
from tests.attacks.attack import ACCOUNT
from tests.fixtures import fair_tricks
from tests.fixtures.gang_trials import Figures, middle, noise, wait_slowly
from tests.fixtures.machine.fair import MachineCore, set_up
from tests.fixtures.machine.slurm import MachineCluster
from tests.fixtures.machine.started import started_machine
from tests.fixtures.voice import say
from tests.integration.gang.frozen import cpu_s, processes_of
from tests.integration.gang.stage import Stage

pytestmark = [pytest.mark.benchmark, pytest.mark.slurm, pytest.mark.timeout(3600)]

REACH = 0.47
SETTLE_S = 3.0
ALONE_S = 10.0
STARTED_S = 20.0  # what the machine's daemons may take until they are at rest
PYTHON = shutil.which("python3", path="/usr/bin:/bin")
GRANTED = 5  # the id of ``games``, who has an account as ``nobody`` has: he may opt out
HONEST = "while :; do :; done"


@dataclass(frozen=True, slots=True)
class Trick:
    """How an attacker's job is submitted: the trick it runs, and options of sbatch.

    runs: name in ``fair_tricks.TRICKS``.
    options: further options of sbatch.
    for_s: length of each of many jobs that run one after another; None for one job.
    outside: what the attacker runs meanwhile outside of his job: ``$JOB`` is its number, ``$CHEAT`` runs a
        trick.
    user: whose job it is.
    """

    runs: str
    options: tuple[str, ...] = ()
    for_s: float | None = None
    outside: str | None = None
    user: int = ACCOUNT


NONE = "none"
TRICKS = {
    NONE: Trick("one"),
    "crowd": Trick("crowd"),
    "SIGTERM blocked": Trick("SIGTERM"),
    "SIGTERM caught": Trick("caught", outside="while :; do scancel -s TERM $JOB; sleep 0.3; done"),
    "SIGTSTP blocked": Trick("SIGTSTP"),
    "one process stopped": Trick("one-stopped"),
    "stop and continue": Trick("stop-and-continue"),
    "stopped for Slurm": Trick(
        "crowd", outside="sleep 1; scancel -s STOP $JOB; while :; do kill -CONT -1; sleep 0.05; done"
    ),
    "comment gangd=off": Trick("crowd", ("--comment=gangd=off",)),
    "granted gangd=off": Trick("crowd", ("--comment=gangd=off",), user=GRANTED),
    "step after step": Trick("steps"),
    "short steps": Trick("short-steps"),
    "honest short steps": Trick("honest-steps"),
    "bursts (half)": Trick("bursts-half"),
    "bursts (waking)": Trick("bursts-wake"),
    "bursts (two slices of three)": Trick("bursts-rest"),
    "bursts (small)": Trick("bursts-small"),
    "work after own slices": Trick("after-slices"),
    "short processes": Trick("short-processes"),
    "600 sleeping threads": Trick("sleepers"),
    "fork storm": Trick("fork-storm"),
    "moved": Trick("moved"),
    "moved short processes": Trick("moved-short"),
    "left behind": Trick("left"),
    "left behind short processes": Trick("left-short"),
    "niced": Trick("niced"),
    "traced": Trick("traced"),
    "first threads traced": Trick("first-threads-traced"),
    "traced from outside": Trick("traceable", outside="$CHEAT tracer --until 0"),
    "comment gangd-hold=yield": Trick("crowd", ("--comment=gangd-hold=yield gangd-weight=1000",)),
    "job after job": Trick("crowd", ("--array=1-60%1",), for_s=2.0),
}
MODES = ("freeze", "yield", "signals")
SETTINGS = {
    "tune": 'tune = true\nquantum_min_ms = 100\ntune_holds = ["freeze"]\n',
    "pairing": 'pairing_learn = true\npairing_word = "name"\npairing = "{place}/pairs.csv"\n',
}  # of gangd, by what ``--gangd`` calls them
PAIRS = "victim,opponent,e_v\nvictim,cheat,0.5\ncheat,victim,0.5\n"


@dataclass(frozen=True, slots=True)
class Share:
    """What a trial gave the victim: of what it had alone, of what both used; and the core's unused share."""

    kept: float
    of_both: float
    unused: float

    @classmethod
    def of(cls, then: Sequence[float], now: Sequence[float], alone: float) -> Share:
        """Compare two readings of the clock, and of the CPU time of victim, of all jobs, and of nothing."""
        at_s, used_s, both_s, idle_s = (new - old for new, old in zip(now, then, strict=True))
        return cls(used_s / at_s / alone, used_s / max(both_s, used_s, 1e-9), idle_s / at_s)


class Core:
    """A node of one core, and trials on it."""

    slack_s = 15.0

    def __init__(self, stage: Stage, place: Path, number: int) -> None:
        self.stage, self.place = stage, place
        self.node = stage.layout.nodes[number].name
        self.cpus = stage.layout.nodes[number].cpus
        self.alone = 1.0
        self._account = CGROUP_ROOT / "cpuacct" / f"slurm_{self.node}" / "cpuacct.usage"
        self._job = 0
        self._outside: subprocess.Popen[bytes] | None = None
        self._pids: list[int] = []
        self._marks: tuple[float, ...] = ()

    def begin(self, trick: Trick | None, until_s: float) -> None:
        """Start the victim, and then the attacker."""
        first, last = self.cpus[0], self.cpus[-1]
        body = f"taskset -cp {first} $$ >/dev/null; {HONEST}"
        self._job = self.stage.start(body, self.node, options=("--job-name=victim",))
        self._pids = processes_of(self._job, self.node)
        if trick is None:
            return
        ends_s = until_s if trick.for_s is None else "$(($(date +%s) + " + f"{trick.for_s:.0f}))"
        cheat = f"{PYTHON} {shlex.quote(str(self.place / 'fair_tricks.py'))}"
        command = f"export ONLY_CPU={last}; {cheat} {trick.runs} --until {ends_s}"
        words = [
            "sbatch", "--parsable", "--output=/dev/null", "--job-name=cheat", "-n1", "-w",
            self.node, *trick.options,
        ]  # fmt: skip
        done = self._as_user(words, trick.user)
        said, _ = done.communicate(f"#!/bin/sh\n{command}\n".encode(), timeout=30)
        assert done.returncode == 0, words
        job = int(said)
        if not trick.for_s:
            wait_slowly(lambda: self.stage.state(job) is SlurmJobState.RUNNING, 30, f"job {job} runs")
        if trick.outside:
            self._outside = self._as_user(
                ["sh", "-c", f"JOB={job}; CHEAT={shlex.quote(cheat)}; {trick.outside}"], trick.user
            )

    def _as_user(self, words: Sequence[str], user: int) -> subprocess.Popen[bytes]:
        """Run a command as the attacker."""
        return subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=user, group=user,
            extra_groups=[], cwd="/",
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CONF": str(self.stage.layout.conf)},
            start_new_session=True,
        )  # fmt: skip

    def mark(self) -> None:
        """Begin the window that is measured."""
        self._marks = self._now()

    def measured(self) -> Share:
        """End it, and what runs outside of jobs."""
        share = Share.of(self._marks, self._now(), self.alone)
        if self._outside is not None:
            os.killpg(self._outside.pid, signal.SIGKILL)
            self._outside.communicate()
            self._outside = None
        return share

    def alarms(self) -> list[str]:
        """Return what the controller has to say."""
        alarms = self.stage.status().alarms
        return [f"{alarm.for_s:.0f} s, {alarm.count} times: {alarm.text}" for alarm in alarms]

    def clear(self) -> None:
        """Cancel all jobs and wait until nothing is left of them."""
        self.stage.clear()

    def _now(self) -> tuple[float, ...]:
        times = psutil.cpu_times(percpu=True)
        idle_s = sum(times[cpu].idle + times[cpu].iowait for cpu in self.cpus)
        both_s = int(self._account.read_text()) / 1e9 if self._account.exists() else 0.0
        return time.monotonic(), cpu_s(self._pids), both_s, idle_s


class CoreInMachine(MachineCore):
    """The one core of a machine with cgroup v2, and trials on it."""

    slack_s = 90.0

    def begin(self, trick: Trick | None, until_s: float) -> None:
        """Start the victim, and then the attacker."""
        self.start_victim(HONEST)
        if trick is not None:
            for_s = until_s - time.time() if trick.for_s is None else trick.for_s
            wait = not trick.for_s
            self.start_attacker(trick.runs, trick.options, trick.user, for_s, trick.outside, wait=wait)

    def measured(self) -> Share:
        """End the window, and what runs outside of jobs."""
        return Share.of(*self.end(), self.alone)


@contextmanager
def core_in_machine(mode: str) -> Iterator[list[CoreInMachine]]:
    """Start a machine under gangd with a hold mode; how fast a loop alone is there is known."""
    with started_machine() as machine:
        cluster = MachineCluster(machine, with_gang=False)
        set_up(cluster, mode, pwd.getpwuid(GRANTED).pw_name)
        core = CoreInMachine(cluster, mode)
        time.sleep(STARTED_S)
        try:
            know_alone(mode, [core])
            yield [core]
        except BaseException:
            print(cluster.logs())
            raise


def know_alone(mode: str, cores: Sequence[Core | CoreInMachine]) -> None:
    """Measure how fast a loop alone is on each core."""
    for core, share in zip(cores, trial(cores, [None for _ in cores], ALONE_S), strict=True):
        core.alone = share.kept
        say(f"  {mode}: a loop alone on {core.node} has {share.kept:.3f} of a core")


@contextmanager
def cores_under(mode: str, settings: Sequence[str], *, shield: bool) -> Iterator[list[Core]]:
    """Two nodes of one core each under gangd with a hold mode; how fast a loop alone is on each is known."""
    place = Path(tempfile.mkdtemp(prefix="osub-fair-"))
    place.chmod(0o755)
    shutil.copy(fair_tricks.__file__, place)
    (place / "fair_tricks.py").chmod(0o644)
    hold = HoldSetting.YIELD if mode == "yield" else HoldSetting.FREEZE
    slurm = ("KillWait=5", "UnkillableStepTimeout=30")
    (place / "pairs.csv").write_text(PAIRS)
    nodes, cores = (1, 2) if "pairing" in settings else (2, 1)
    shape = Shape(nodes=nodes, cores=cores, multiplicity=2, gang=GangKind.OSUB, hold=hold, settings=slurm)
    cluster = LocalCluster(place / "c")
    cluster.up(shape)
    try:
        stage = Stage(cluster, shape)
        file = stage.layout.gang / "gangd.toml"
        granted = f"[users.{pwd.getpwuid(GRANTED).pw_name}]\nmay_opt_out = true\n"
        more = [SETTINGS[name].format(place=place) for name in settings]
        file.write_text("".join([*more, file.read_text(), granted]))
        os.kill(stage.daemon("gangd").pid, signal.SIGHUP)
        with ExitStack() as others:
            options: tuple[str, ...] = ("--freezer", "signals") if mode == "signals" else ()
            if shield:
                options += ("--cpu-root", str(others.enter_context(shielded(stage))))
            if options:
                agents = {f"gang-agent {node}": options for node in stage.nodes}
                others.enter_context(stage.in_place_of(agents))
                wait_slowly(
                    lambda: all(stage.node_status(node).agent == "joined" for node in stage.nodes),
                    60,
                    "other agents join",
                )
            measured = [Core(stage, place, number) for number in range(1 if shield else nodes)]
            know_alone(mode, measured)
            yield measured
    finally:
        cluster.down()
        shutil.rmtree(place)


@contextmanager
def shielded(stage: Stage, weight: int = 65536) -> Iterator[Path]:
    """Weigh jobs as one group, and daemons with us as another one, above everything else on the host."""
    top = CGROUP_ROOT / "cpu"
    jobs, daemons = (top / f"osub-fair-{os.getpid()}-{name}" for name in ("jobs", "daemons"))
    slurmds = [stage.daemon(f"slurmd {node}").pid for node in stage.nodes]
    others = [os.getpid(), stage.daemon("gangd").pid, stage.daemon("slurmctld").pid]
    for group, pids in ((jobs, slurmds), (daemons, others)):
        group.mkdir()
        (group / "cpu.shares").write_text(str(weight))
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
    try:
        yield jobs
    finally:
        wait_slowly(lambda: emptied(jobs, top) and emptied(daemons, top), 60, "the cgroups are empty")


def emptied(group: Path, top: Path) -> bool:
    """Move what is in a cgroup to the top, and remove it with those in it; False if something is left."""
    try:
        for left in (group / "cgroup.procs").read_text().split() if group.exists() else ():
            (top / "cgroup.procs").write_text(left)
        for inner in group.glob("*/"):
            inner.rmdir()
        if group.exists():
            group.rmdir()
    except OSError:
        return False
    return True


def trial(
    cores: Sequence[Core | CoreInMachine], tricks: Sequence[Trick | None], seconds: float
) -> list[Share]:
    """Measure a trick on each of the cores at the same time."""
    until_s = time.time() + SETTLE_S + seconds + cores[0].slack_s
    for core, trick in zip(cores, tricks, strict=True):
        core.begin(trick, until_s)
    time.sleep(SETTLE_S)
    for core in cores:
        core.mark()
    time.sleep(seconds)
    shares = [core.measured() for core in cores]
    for alarm in cores[0].alarms():
        say(f"    alarm, {alarm}")
    cores[0].clear()
    return shares


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become an ordinary user")
def test_shares_of_a_victim(figures: Figures, request: pytest.FixtureRequest) -> None:
    option = request.config.getoption
    seconds, shield = float(option("--seconds", 60.0)), bool(option("--shield", False))
    machine = bool(option("--machine", False))
    asked = {name for name in str(option("--tricks", "")).split(",") if name}
    settings = [name for name in str(option("--gangd", "")).split(",") if name]
    modes = [mode for mode in str(option("--modes", ",".join(MODES))).split(",") if mode]
    assert asked <= TRICKS.keys(), f"tricks are {', '.join(TRICKS)}"
    with noise() as host:
        for mode in modes:
            names = [name for name in TRICKS if not asked or name in asked or name == NONE]
            cores = core_in_machine(mode) if machine else cores_under(mode, settings, shield=shield)
            for name, shares in measured(mode, names, seconds, cores).items():
                kept, both = [share.kept for share in shares], [share.of_both for share in shares]
                figures.add(
                    ", ".join((name, mode, *settings)),
                    f"{middle(kept)}; of both {middle(both)}",
                    f"at least {REACH}" + (" (missed)" if min(both if machine else kept) < REACH else ""),
                    f"{seconds:g} s; nothing used {middle([share.unused for share in shares])} of the core",
                )
    say(f"  {host}")


def measured(
    mode: str,
    names: Sequence[str],
    seconds: float,
    started: AbstractContextManager[Sequence[Core | CoreInMachine]],
) -> dict[str, list[Share]]:
    """Measure tricks, as many at a time as there are cores; an honest attacker again and again."""
    found: dict[str, list[Share]] = {name: [] for name in names}
    queue: list[str] = []
    for number, name in enumerate(names):
        queue += [NONE, name] if number % 11 == 0 and name != NONE else [name]
    with started as cores:
        queue += [NONE] * (len(queue) % len(cores))
        for first in range(0, len(queue), len(cores)):
            pair = queue[first : first + len(cores)]
            for name, share in zip(pair, trial(cores, [TRICKS[name] for name in pair], seconds), strict=True):
                found[name].append(share)
                say(f"  {mode}, {name}: {share.kept:.3f}, of both {share.of_both:.3f}")
    return found
