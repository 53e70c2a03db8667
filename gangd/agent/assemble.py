"""Puts an agent together from its settings, thaws what an earlier one left, and runs it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from foundation.errors import HostError, OsubError, TrustError
from foundation.slurm import CommandSlurm
from foundation.slurm.site_configuration import check_conf
from foundation.trust import closing_fd, make_folder, open_own, read_trusted
from gangd.agent.agenda import Agenda
from gangd.agent.agent_loop import Loop
from gangd.agent.controller_lines import ControllerLines, Reach, read_reach
from gangd.agent.conversation import Conversation
from gangd.agent.decide import HoldLimits
from gangd.agent.freeze_verifier import Checks, ExternalChangeTracker
from gangd.agent.hold_controller import HoldController, Lease
from gangd.agent.linux_host import (
    SWITCH_PRIORITY,
    Bell,
    FileWatch,
    FolderWatch,
    bell_name,
    name_thread,
    prepare_process,
    rest_collector,
    set_fifo,
)
from gangd.agent.native import NativeSwitch, load
from gangd.agent.node_agent import NodeAgent
from gangd.agent.process_scan import ProcessScan
from gangd.agent.report_buffer import SliceBook
from gangd.agent.steps import HoldModes, StepTable
from gangd.agent.switch_thread import SwitchThread
from gangd.agent.telemetry import AgentMetrics, JsonLog
from gangd.agent.thaw_tool import state_files, thaw_recorded
from gangd.daemon_process import allow_open_files
from gangd.freezer.freezer_choice import DryFreezer, FreezerChoice, choose, make_freezer
from gangd.freezer.holder import Holder
from gangd.freezer.procfs import boot_id
from gangd.guardian.guardian_watch import WatchEnd
from gangd.guardian.state_folders import (
    discard,
    ended_path,
    forget_folder,
    make_private,
    note_folder,
    state_path,
)
from gangd.guardian.statefile import StateFile
from gangd.hold.deprioritizer import BothWays
from gangd.hold.deprioritizer_choice import KILL_WAIT_S, SlurmLimits, Way, choose_way, make_yielder
from gangd.monitor.address import ListenAddress
from gangd.monitor.hand_out import handed_out
from gangd.monitor.metrics_table import AGENT
from gangd.wire.messages import Hello

_LONGEST_RECORD = 4096
CLUSTER_MARK = "OSUB_CLUSTER"
"""Daemons of an embedded cluster have it: its users log in to the same host, and run what they like there."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Everything that the command line says about one agent."""

    node: str
    state_dir: Path
    keys_dir: Path | None = None
    controllers: tuple[str, ...] = ()
    config: Path | None = None
    freezer: str = "auto"
    root: Path | None = None
    hold_by: str = "auto"
    cpu_root: Path | None = None
    slurm_conf: Path | None = None
    extern: str | None = None
    realtime: bool = True
    native: bool = True
    dry_run: bool = False
    metrics: ListenAddress | None = None
    metrics_token: Path | None = None


def serve(settings: AgentSettings) -> int:
    """Run the agent until a signal ends it; returns the exit code.

    Raises
    ------
    HostError
        Another agent of this node runs, the state folder cannot be written, no hierarchy can be opened, or
        what an earlier agent left frozen cannot be thawed.
    InputError, UsageError
        Keys are missing or not secret; the freezer asked for does not exist here.
    """
    log = JsonLog(2, settings.node)
    lock_fd = _lock(settings)
    reach = _reach(settings)
    _thaw_what_is_left(settings, log)
    slurm = _slurm(settings)
    choice = choose(settings.freezer, settings.root, slurm.proctrack)
    way = choose_way(settings.hold_by, settings.cpu_root, slurm)
    allow_open_files()
    granted = prepare_process(wanted=settings.realtime)
    path = state_path(settings.state_dir, settings.node)
    make_private(path.parent)
    note_folder(path.parent)
    ended = ended_path(settings.state_dir, settings.node)
    state = StateFile.create(path, settings.node, str(choice.root or "/"), str(way.root or ""), str(ended))
    own_root = way.root if way.kind == "cgroup2-own" else None
    real = make_freezer(choice, settings.node, state, own_root, adopts=CLUSTER_MARK not in os.environ)
    yielder = None if settings.dry_run else make_yielder(way, settings.node, state)
    both = None if yielder is None else BothWays(real, yielder)
    holder: Holder = both or (DryFreezer(real) if settings.dry_run else real)
    log(
        "start",
        freezer=choice.kind,
        why=choice.reason,
        root=str(choice.root),
        yields=way.kind if yielder is None else yielder.name,
        why_yields=way.reason,
        dry_run=settings.dry_run,
        **granted,
    )
    loop = _assemble(settings, (choice, way), (holder, both), state, reach, log)
    loop.node.memory.kill_wait_ns = slurm.kill_wait_s * 1_000_000_000
    report_last_end(ended, log, loop.node.book)
    rest_collector()
    try:
        with handed_out(settings.metrics, settings.metrics_token, AGENT, loop.metrics):
            code = loop.run()
        if not any(state.held()):
            discard(path, state.fd)
            if not path.parent.exists():
                forget_folder(path.parent)
        return code
    finally:
        native = loop.node.gate.native
        if native is not None:  # the marks are about to be unmapped
            with native:
                native.clear()
        holder.close()
        state.close()
        os.close(lock_fd)


def _assemble(
    settings: AgentSettings,
    chosen: tuple[FreezerChoice, Way],
    holders: tuple[Holder, BothWays | None],
    state: StateFile,
    reach: Reach,
    log: JsonLog,
) -> Loop:
    (choice, way), (holder, both) = chosen, holders
    hello = Hello(
        node=settings.node,
        incarnation=secrets.token_bytes(16),
        boot_id=boot_id(),
        pid=os.getpid(),
        agent_version=version("osub"),
        freezer=choice.kind,
        yields=way.kind,
        dry_run=settings.dry_run,
    )
    lease = Lease(state)
    in_folders = holder.traits.in_folders
    files = FileWatch() if in_folders else None
    native = _native(settings, state, files)
    log("switch", native=native is not None)
    gate = HoldController(holder, lease, watch=files, native=native)
    switch = SwitchThread(gate, lambda: _begin_switching(settings))
    table, memory, book, agenda = StepTable(gate), ExternalChangeTracker(), SliceBook(), Agenda()
    watch = FolderWatch() if in_folders else None
    node = NodeAgent(
        talk=Conversation(hello, agenda),
        gate=gate,
        switch=switch,
        table=table,
        checks=Checks(gate, table, memory, book, agenda),
        memory=memory,
        book=book,
        agenda=agenda,
        limits=HoldLimits(hold_extern=reach.hold_extern),
        ways=HoldModes(both, hold_extern=reach.hold_extern),
        guarded=False,
    )
    metrics = AgentMetrics(hello)
    bell = _bell(settings, log)
    census = ProcessScan(settings.node, agenda, finds_strays=CLUSTER_MARK not in os.environ)
    lines = ControllerLines(settings.node, reach, lambda: _reach(settings))
    return Loop(node, lines, switch, state, watch, log, census, metrics, bell)


def _bell(settings: AgentSettings, log: JsonLog) -> Bell | None:
    """Hang the bell that slurmd's prolog and epilog ring; nothing depends on it."""
    try:
        with closing_fd(make_folder(settings.state_dir)[0]) as folder_fd:
            return Bell.hang(folder_fd, bell_name(settings.node))
    except OSError as error:
        log("no_bell", text=f"prolog and epilog are not heard: {error.strerror}")
        return None


def _reach(settings: AgentSettings) -> Reach:
    return read_reach(
        settings.node, settings.config, settings.controllers, settings.keys_dir, settings.extern
    )


def _thaw_what_is_left(settings: AgentSettings, log: JsonLog) -> None:
    """Thaw what an earlier agent of this node left, before its record is replaced; in a dry run, too."""
    left = thaw_recorded(settings.state_dir, settings.node, only_expired=False)
    if left.jobs or left.failures:
        log("thawed_at_start", jobs=sorted(left.jobs), failures=left.failures)
    for path in state_files(settings.state_dir, settings.node):
        try:
            state = StateFile.open(path)
        except (OSError, HostError):  # no record of ours
            continue
        stuck = sorted({held.job for held in state.held()}) if state.this_boot() else []
        state.close()
        if stuck:
            raise HostError(
                f"jobs {', '.join(map(str, stuck))} were left held by an earlier agent and cannot be let go "
                f"({'; '.join(left.failures)}): mend that and run `gang-agent thaw --all`; see {path}"
            )


def report_last_end(path: Path, log: JsonLog, book: SliceBook) -> None:
    """Report how the last agent of this node ended, unless it took leave; its guardian has recorded it."""
    try:
        last = json.loads(read_trusted(path, _LONGEST_RECORD))
        how, end = last["signal"] or f"status {last['status']}", last["end"]
    except (OSError, TrustError, ValueError, TypeError, KeyError):  # none, or none of ours
        return
    log("last_end", record=last)
    if end != WatchEnd.FAREWELL.value:
        book.on_fault("agent_died", f"the last agent of this node died ({how}); see {path}")


def _native(settings: AgentSettings, state: StateFile, files: FileWatch | None) -> NativeSwitch | None:
    """Native code for the switch, where there is any and something that it could write."""
    library = load() if settings.native and not settings.dry_run else None
    return None if library is None or files is None else NativeSwitch(library, state, files.fd)


def _begin_switching(settings: AgentSettings) -> None:
    name_thread("gang-switch")
    if settings.realtime:
        set_fifo(SWITCH_PRIORITY)


def _lock(settings: AgentSettings) -> int:
    """Make sure that one agent serves this node from this folder; the lock ends with the process."""
    try:
        with closing_fd(make_folder(settings.state_dir)[0]) as folder_fd:
            fd = open_own(folder_fd, f"agent-{settings.node}.lock", os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise HostError(f"cannot write to {settings.state_dir}: {error.strerror}; choose --state") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise HostError(
            f"an agent of node {settings.node} already runs with {settings.state_dir}; stop it first"
        ) from error
    return fd


def _slurm(settings: AgentSettings) -> SlurmLimits:
    """Return what matters of Slurm's configuration, if it answers and if something depends on it."""
    if settings.freezer != "auto" and settings.hold_by != "auto":
        return SlurmLimits()
    if settings.slurm_conf is not None:
        with contextlib.suppress(FileNotFoundError):  # without an answer of Slurm's nothing depends on it
            check_conf(settings.slurm_conf)
    try:
        config = CommandSlurm(settings.slurm_conf, timeout_s=5.0, tries=1).config()
    except OsubError:
        return SlurmLimits()
    words = config.get("KillWait", "").split()
    kill_wait_s = int(words[0]) if words and words[0].isdigit() else KILL_WAIT_S
    return SlurmLimits(
        config.get("ProctrackType"), config.get("JobAcctGatherType"), config.get("TaskPlugin"), kill_wait_s
    )
