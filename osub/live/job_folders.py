"""The finding of ``osub doctor`` on the folders in which Slurm keeps its jobs' processes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from deploy.local.host import HostFinding
from gangd.freezer.slurm_layout import MOST_NAMED, recognise_host

WHAT = "job folders"
MOUNT = Path("/sys/fs/cgroup")


def job_folders(mount: Path = MOUNT) -> HostFinding:
    """Say whether gang-agent would find every job that runs here, whatever this Slurm calls its folders."""
    found = recognise_host(mount)
    unknown = [f"{root / one.path}: {one.why}" for root, seen in found.items() for one in seen.unknown]
    if unknown:
        more = f"; and {len(unknown) - MOST_NAMED} more" if len(unknown) > MOST_NAMED else ""
        return HostFinding(
            WHAT,
            "no",
            "; ".join(unknown[:MOST_NAMED]) + more,
            "gang-agent cannot hold what runs there, and raises an alarm; from Slurm 26.05.2 on "
            "CgroupJobIdPaths=yes in cgroup.conf names folders by job number",
        )
    named = sum((Counter(seen.named) for seen in found.values()), Counter[str]())
    if not named:
        return HostFinding(WHAT, "partly", "no job of Slurm runs here now", "look again while jobs run")
    counts = ", ".join(f"{count} named by {how}" for how, count in sorted(named.items()))
    return HostFinding(WHAT, "yes", counts, "gang-agent finds every job by its cgroup")
