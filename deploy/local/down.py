"""Taking a cluster down: every process that is proven to be its own, its cgroups, its memory, its files.

What is done goes by the path of the home and by the list in its mark. What ``cluster.json`` says is not
needed, so that nothing in it can lead elsewhere, and `down` works whatever killed `up`, or an earlier `down`.
"""

from __future__ import annotations

from collections.abc import Callable

from deploy.local.belongings import FolderName
from deploy.local.cgroups import cluster_cgroups, remove_all, thaw_all
from deploy.local.home import Home
from deploy.local.layout import names_of
from deploy.local.members import Kin, is_daemon, kin_of, living_members, pin_all
from deploy.local.processes import Facts, end
from deploy.local.shared_memory import mapped_segments, remove_ledgers, remove_segments
from foundation.errors import ClusterError

_GANG = ("gangd.main", "gangd.agent.main")
_SLURM = ("slurmctld", "slurmd")


def take_down(home: Home, *, keep_logs: bool) -> tuple[FolderName, ...]:
    """End the cluster in ``home`` and remove everything that `up` made; safe to repeat.

    Parameters
    ----------
    home
        The open home.
    keep_logs
        Whether to leave the daemons' logs, if there are any.

    Returns
    -------
    tuple
        The folders that were kept for their logs.

    Raises
    ------
    ClusterError
        A process or cgroup of the cluster survived; the message names it. Its files are then left.
    """
    names = names_of(home.path)
    kin = kin_of(names, home.path, home.short)
    remove_segments(end_members(kin), home.marked_s)
    remove_ledgers(kin.ledgers)
    keep: tuple[FolderName, ...] = ("log",) if keep_logs and home.holds_any("log") else ()
    home.empty(keep)
    return keep


def end_members(kin: Kin) -> set[str]:
    """End every process of a cluster; returns the paths of the memory that its tasks shared.

    The gang's daemons come first, so that nothing is frozen any more, then Slurm's, so that no job is
    started, then tasks, and munged last.
    """
    _end_some(kin, lambda facts: is_daemon(facts, kin) and _runs(facts, _GANG), within_s=3.0)
    _end_some(kin, lambda facts: is_daemon(facts, kin) and _runs(facts, _SLURM), within_s=3.0)
    thaw_all(cluster_cgroups(kin.names.letters))
    segments: set[str] = set()
    for _ in range(2):  # what a task started while it was looked for is found the second time
        members = living_members(kin)
        segments |= mapped_segments(members)
        tasks = [facts for facts in members.values() if not _runs(facts, ("munged",))]
        end(pin_all(tasks), 5.0, politely=False)
    _end_some(kin, lambda _: True, within_s=2.0)
    alive = list(living_members(kin))
    stuck = remove_all(cluster_cgroups(kin.names.letters), within_s=5.0)
    if alive or stuck:
        told = [f"process {pid}" for pid in alive] + [str(path) for path in stuck]
        raise ClusterError(f"left after the cluster's end: {', '.join(told)}; try `down` again")
    return segments


def _end_some(kin: Kin, chosen: Callable[[Facts], bool], within_s: float) -> None:
    members = living_members(kin)
    end(pin_all(facts for facts in members.values() if chosen(facts)), within_s, politely=True)


def _runs(facts: Facts, programs: tuple[str, ...]) -> bool:
    return any(word.rpartition("/")[2] in programs for word in facts.words)
