"""The one way to a cgroup's files: validated path, component by component, no symbolic link followed.

Which paths are allowed is a property of the layout (``Layout.allows``): Slurm's own job cgroups and nothing
else. Standard library only: the guardian uses this module too.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path

from foundation.trust import closing_fd, open_below, open_entry

OWN_GROUP = r"gangd_(?P<node>[A-Za-z0-9._-]+)_job_(?P<job>[0-9]+)"
"""The agent's own cpu cgroup of a job, at the top of its hierarchy: see ``own_group``."""
_STEP = r"step_(?P<step>[a-z]+|[0-9]+(?:\+[0-9]+)?)"
JOB2 = r"(?:job_(?P<job>[0-9]+)|s[0-9A-F][0-9A-HJKMNP-TV-Z]{12})"
"""A job's folder (v2): by its number, or by its SLUID as Slurm 26.05 does unless ``CgroupJobIdPaths=yes``.

A SLUID is ``s`` and 64 bits in 13 digits of Crockford's base 32 (Slurm: ``src/common/sluid.c``), so that the
first has four bits, and I, L, O and U do not occur.
"""
_JOB_V1 = r"slurm(?:_(?P<node>[A-Za-z0-9._-]+))?/uid_(?P<uid>[0-9]+)/job_(?P<job>[0-9]+)"
_JOB_V2 = r"(?:[A-Za-z0-9._@:\\-]+/){0,4}(?:(?P<node>[A-Za-z0-9._-]+)_)?slurmstepd\.scope/" + JOB2
_V1 = f"{_JOB_V1}/{_STEP}"
_V2 = f"{_JOB_V2}/{_STEP}/user(?:/task_(?:[0-9]+|special))?"
OF_JOBS = tuple(
    re.compile(rf"^[0-9]+:[^:\n]*:/{path}(?:/|$)", re.MULTILINE)
    for path in (f"{_JOB_V1}(?:/{_STEP})?", f"{_JOB_V2}(?:/{_STEP})?", f"{OWN_GROUP}(?P<step>)")
)
"""Lines of ``/proc/PID/cgroup`` that tell the job of a process, and often its step."""


def own_group(node: str, job: int) -> str:
    """Return the name of the agent's own cpu cgroup of a job."""
    return f"gangd_{node}_job_{job}"


def job_of_own(name: str, node: str | None) -> int | None:
    """Return the job of a cgroup that an agent of ``node`` (None: of any) made; None for any other name."""
    match = re.fullmatch(OWN_GROUP, name)
    return int(match["job"]) if match is not None and node in (None, match["node"]) else None


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one generation of cgroups is spoken to.

    ``kind`` is its number in the ledger; ``control`` is the file that freezes on ``freeze`` and thaws on
    ``thaw``; ``own`` holds 1 where a cgroup was frozen by itself, not with one above; ``pattern`` is what a
    path below the mount must look like (Slurm 22.05, cgroup plugins v1 and v2:
    ``src/plugins/cgroup``). Kernel: ``cgroup-v1/freezer-subsystem.rst``, ``cgroup-v2.rst``.
    """

    name: str
    kind: int
    control: str
    own: str
    freeze: bytes
    thaw: bytes
    pattern: re.Pattern[str]

    def allows(self, path: str) -> re.Match[str] | None:
        """Match of a path (relative to the root) that may be frozen, or None."""
        if any(part in ("", ".", "..") for part in path.split("/")):
            return None
        return self.pattern.fullmatch(path)


CGROUP1 = Dialect(
    "cgroup1", 1, "freezer.state", "freezer.self_freezing", b"FROZEN", b"THAWED", re.compile(_V1)
)
CGROUP2 = Dialect("cgroup2", 2, "cgroup.freeze", "cgroup.freeze", b"1", b"0", re.compile(_V2))
DIALECTS = {dialect.kind: dialect for dialect in (CGROUP1, CGROUP2)}

_GONE = frozenset({errno.ENOENT, errno.ESRCH, errno.ENODEV})


def read_anew(fd: int) -> bytes:
    """Read the whole of a file that is open, as it is now.

    cgroup v1 makes the list of a cgroup's processes when ``cgroup.procs`` is first read, and shows that one
    to later reads through the same descriptor within a second (``cgroup_pidlist_start``). So it is opened
    again.
    """
    with closing_fd(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)) as again:
        raw = b""
        while part := os.read(again, 1 << 16):
            raw += part
        return raw


def write_control(root: Path, dialect: Dialect, path: str, data: bytes) -> bool:
    """Write a control file once, by path; False if the cgroup is gone or the path is not allowed.

    For guardian and operator, who hold no open descriptors. Raises OSError for any other failure.
    """
    return dialect.allows(path) is not None and write_below(root, path, dialect.control, data)


def write_below(root: Path, path: str, name: str, data: bytes) -> bool:
    """Write the file ``name`` of the directory ``path`` below ``root`` once; False if it is gone.

    The caller has made sure that the path is one that may be written. Raises OSError for any other failure.
    """
    try:
        with (
            closing_fd(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as root_fd,
            closing_fd(open_below(root_fd, path)) as dir_fd,
            closing_fd(open_entry(dir_fd, name, os.O_WRONLY)) as fd,
        ):
            os.write(fd, data)
    except OSError as error:
        if is_gone(error):
            return False
        raise
    return True


def is_gone(error: OSError) -> bool:
    """Whether an error means that the cgroup or process is no longer there: an expected race."""
    return error.errno in _GONE


def is_made_by_root(path: Path) -> bool:
    """Whether root or the effective user owns a folder: others may make folders of any name in their own."""
    try:
        return path.stat(follow_symlinks=False).st_uid in (0, os.geteuid())
    except OSError:
        return False


def subdirectories(path: str | int) -> tuple[str, ...]:
    """Names of the real directories in a directory; none if it is gone."""
    try:
        with os.scandir(path) as entries:
            return tuple(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError as error:
        if is_gone(error):
            return ()
        raise
