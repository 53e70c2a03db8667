"""``gang-agent thaw``: release what agents of this host left held, with no daemon and no network.

It goes by the agents' state files, which name exactly what they hold, and so leaves alone what Slurm
suspended: those in one folder, or all of this host. What is frozen or yields after that, and for no agent
that is alive, is listed. ``--scan`` releases that too, no matter which process held it: cgroups are found by
their names, threads with SCHED_IDLE are not looked for, for any user may give it to his own. Standard library
only, like the guardian.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from foundation.errors import HostError, TrustError
from foundation.trust import open_folder
from gangd.freezer.slurm_layout import freezable_paths, nodes_with_scopes, slurm_roots
from gangd.freezer.tree import CGROUP1, CGROUP2, Dialect, job_of_own, subdirectories, write_control
from gangd.guardian.guardian_watch import thaw_held
from gangd.guardian.state_folders import STATE_DIR, all_stand_ins, ledger_folders, noted_folders
from gangd.guardian.statefile import StateFile, Word, time_offset_ns
from gangd.hold.cpu_priority import IDLE1, IDLE2, KNOBS, CpuWeightControl

_LOOKS, _LOOK_S = 3, 0.02
V1_MOUNT = Path("/sys/fs/cgroup/freezer")
V2_MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))

MOUNT = Path("/sys/fs/cgroup")
_SCOPE_DEPTH = 4


@dataclass(slots=True)
class ThawReport:
    """What was done.

    Attributes
    ----------
    files
        State files seen.
    jobs
        Jobs thawed.
    scanned
        Cgroups thawed by the scan.
    failures
        What went wrong.
    frozen, low
        Job cgroups that are frozen still, or yield, and that no live agent with a lease holds.
    """

    files: int = 0
    jobs: set[int] = field(default_factory=set)
    scanned: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)
    low: list[str] = field(default_factory=list)


def state_files(folder: Path | None, node: str | None, failures: list[str] | None = None) -> list[Path]:
    """Return the state files of agents: those of ``folder`` (None: of this host), of all nodes or one.

    Another folder in the place of ours has none. What is wrong with ``folder`` itself is added to
    ``failures``.
    """
    if folder is not None:
        folders = ledger_folders(folder)
    else:
        folders = (*ledger_folders(STATE_DIR), *noted_folders(), *all_stand_ins())
    wanted = "agent-*.state" if node is None else f"agent-{node}.state"
    found: set[Path] = set()
    for live in folders:
        try:
            os.close(open_folder(live))
        except FileNotFoundError:
            continue
        except (OSError, TrustError) as error:
            if failures is not None and folder is not None and live == folder.resolve():
                failures.append(str(error))
            continue
        found.update(live.glob(wanted))
    return sorted(found)


def thaw_recorded(
    folder: Path | None, node: str | None, *, only_expired: bool, pause_s: float = 0.0, dry_run: bool = False
) -> ThawReport:
    """Thaw what state files record as held.

    Parameters
    ----------
    folder, node
        Which agents: see ``state_files``.
    only_expired
        Leave agents alone that live and whose lease runs.
    pause_s
        Tell living agents to freeze nothing for so long, seconds.
    dry_run
        Only find out.
    """
    blow = ThawReport()
    for path in state_files(folder, node, blow.failures):
        try:
            state = StateFile.open(path)
        except FileNotFoundError:
            continue
        except (OSError, HostError) as error:
            blow.failures.append(str(error))
            continue
        blow.files += 1
        if state.this_boot():  # after a reboot nothing is frozen, and names may be others'
            _strike(state, blow, only_expired=only_expired, pause_s=pause_s, dry_run=dry_run)
        state.close()
    return blow


def _strike(state: StateFile, blow: ThawReport, *, only_expired: bool, pause_s: float, dry_run: bool) -> None:
    alive = state.agent_alive()
    if only_expired and alive and state.lease_left_ns() > 0:
        return
    if dry_run:
        blow.jobs |= {held.job for held in state.held()}
        return
    if alive and pause_s > 0:
        here_ns = time.monotonic_ns() - time_offset_ns() + state.word(Word.TIME_OFFSET_NS)
        state.set_word(Word.PAUSED_UNTIL_NS, here_ns + int(pause_s * 1e9))
    if alive:
        state.set_word(Word.GUARDIAN_TRIPS, state.word(Word.GUARDIAN_TRIPS) + 1)
    revived = thaw_held(state)
    blow.jobs |= revived.jobs
    blow.failures += revived.failures
    if not alive and not revived.failures:
        state.void()


def thaw_scanned(root: Path | None, node: str | None, blow: ThawReport, *, dry_run: bool = False) -> None:
    """Thaw every job cgroup of Slurm that is frozen, in ``root`` or wherever cgroups are mounted."""
    for mount, dialect in _hierarchies(root):
        for path in _paths(mount, dialect, node):
            try:
                frozen = (mount / path / dialect.control).read_bytes().strip() != dialect.thaw
                if frozen and (dry_run or write_control(mount, dialect, path, dialect.thaw)):
                    blow.scanned.append(str(mount / path))
            except FileNotFoundError:
                continue
            except OSError as error:
                blow.failures.append(f"{mount / path}: {error.strerror}")


def raise_scanned(node: str | None, blow: ThawReport, *, dry_run: bool = False, mount: Path = MOUNT) -> None:
    """Give every cgroup of a job its usual priority back that yields, wherever cgroups are mounted."""
    for root, path, knob in low_groups(node, mount):
        try:
            if dry_run or knob.restore(root, path):
                blow.scanned.append(str(root / path))
        except OSError as error:
            blow.failures.append(f"{root / path}: {error.strerror}")


def find_low(folder: Path | None, node: str | None, blow: ThawReport, *, mount: Path = MOUNT) -> None:
    """Note which job cgroups yield though no live agent with a lease holds them."""
    nodes = [node] if node or folder is None else [_node_of(path) for path in state_files(folder, None)]

    def low() -> set[str]:
        return {str(root / path) for name in nodes for root, path, _ in low_groups(name, mount)}

    blow.low += sorted(held_without_agent(low, lambda: _held_rightly(folder)))


def find_frozen(root: Path | None, folder: Path | None, node: str | None, blow: ThawReport) -> None:
    """Note which job cgroups are frozen though no live agent with a lease holds them.

    On cgroup v1 what Slurm suspended is among them: one bit serves both. A folder covers the nodes whose
    agents have a state file there.
    """
    nodes = [node] if node or folder is None else [_node_of(path) for path in state_files(folder, None)]

    def frozen() -> set[str]:
        found = set()
        for mount, dialect in _hierarchies(root):
            for path in dict.fromkeys(path for name in nodes for path in _paths(mount, dialect, name)):
                with contextlib.suppress(OSError):
                    if (mount / path / dialect.control).read_bytes().strip() != dialect.thaw:
                        found.add(str(mount / path))
        return found

    suspects = held_without_agent(frozen, lambda: _held_rightly(folder))
    blow.frozen += sorted(suspects.difference(blow.scanned))


def held_without_agent(found: Callable[[], set[str]], recorded: Callable[[], set[str]]) -> set[str]:
    """Return what is ``found`` held and is ``recorded`` by no agent, though agents switch while we look.

    An agent notes what it is about to hold, and forgets it after it has let it go. So what it has held all
    along is on record at any look, and what is missing there was let go in between: unless it has no agent,
    it is found free, or on record, at one of the looks that follow.
    """
    suspects = found()
    for _ in range(_LOOKS):
        if not suspects:
            break
        suspects -= recorded()
        if suspects:
            time.sleep(_LOOK_S)
            suspects &= found()
    return suspects


def _node_of(path: Path) -> str:
    return path.name.removeprefix("agent-").removesuffix(".state")


def _held_rightly(folder: Path | None) -> set[str]:
    """Return the cgroups that agents of this host hold which live and have a lease."""
    held: set[str] = set()
    for path in {*state_files(None, None), *state_files(folder, None)}:
        with contextlib.suppress(OSError, HostError):
            state = StateFile.open(path)
            if state.this_boot() and state.agent_alive() and state.lease_left_ns() > 0:
                held.update(
                    str(Path(state.cpu_root() if one.kind in KNOBS else state.root(), one.path))
                    for one in state.held()
                    if one.path
                )
            state.close()
    return held


def _hierarchies(root: Path | None) -> Iterator[tuple[Path, Dialect]]:
    for mount in (V1_MOUNT,) if root is None else (root,):
        if mount.is_dir():
            yield mount, CGROUP1
    for mount in V2_MOUNTS if root is None else (root,):
        if (mount / "cgroup.procs").exists():
            yield mount, CGROUP2


def _paths(mount: Path, dialect: Dialect, node: str | None) -> Iterator[str]:
    """Every path that a freezer may freeze, of one node or of all."""
    nodes = [node] if node is not None else _nodes(mount, dialect)
    bases = tuple(dict.fromkeys(base for name in nodes for base in slurm_roots(mount, dialect, name)))
    return freezable_paths(mount, dialect, bases)


def _nodes(mount: Path, dialect: Dialect) -> list[str]:
    """Names of all nodes that have a folder here; the empty name finds a folder without one."""
    if dialect is CGROUP1:
        names = [
            name.removeprefix("slurm_") for name in subdirectories(str(mount)) if name.startswith("slurm_")
        ]
        return [*names, ""]
    return nodes_with_scopes(mount)


def low_groups(node: str | None, mount: Path = MOUNT) -> Iterator[tuple[Path, str, CpuWeightControl]]:
    """Every cgroup of a job or a user that yields: its hierarchy, its path there, and its knob.

    Parameters
    ----------
    node
        Only those of this node; None for all.
    mount
        Where cgroups are mounted.
    """
    for name in ("cpu", "cpu,cpuacct"):
        if (mount / name).is_dir() and not (mount / name).is_symlink():
            for path in (*_own(mount / name, node), *_paths1(mount / name, node)):
                if _is_low(mount / name / path, IDLE1):
                    yield mount / name, path, IDLE1
    if (mount / "cgroup.controllers").exists():
        for path in (*_own(mount, node), *_paths2(mount, "", node, _SCOPE_DEPTH)):
            if _is_low(mount / path, IDLE2):
                yield mount, path, IDLE2


def _own(root: Path, node: str | None) -> list[str]:
    return [name for name in subdirectories(str(root)) if job_of_own(name, node) is not None]


def _paths1(root: Path, node: str | None) -> Iterator[str]:
    for top in subdirectories(str(root)):
        if top in ("slurm", f"slurm_{node}") or (node is None and top.startswith("slurm_")):
            for user in subdirectories(f"{root}/{top}"):
                for path in (
                    f"{top}/{user}",
                    *(f"{top}/{user}/{job}" for job in subdirectories(f"{root}/{top}/{user}")),
                ):
                    if IDLE1.allows(path):
                        yield path


def _paths2(root: Path, base: str, node: str | None, depth: int) -> Iterator[str]:
    for name in subdirectories(f"{root}/{base}"):
        path = f"{base}/{name}" if base else name
        if name.endswith("slurmstepd.scope"):
            if node is None or name in ("slurmstepd.scope", f"{node}_slurmstepd.scope"):
                yield from (
                    f"{path}/{job}"
                    for job in subdirectories(f"{root}/{path}")
                    if IDLE2.allows(f"{path}/{job}")
                )
        elif depth > 1:
            yield from _paths2(root, path, node, depth - 1)


def _is_low(folder: Path, knob: CpuWeightControl) -> bool:
    return _number(folder / "cpu.idle") == 1 or _number(folder / knob.weight_file) == knob.least


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
