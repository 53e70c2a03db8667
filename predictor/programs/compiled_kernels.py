"""The kernels' C program, compiled at first use and kept for these very sources."""

from __future__ import annotations

import functools
import hashlib
import os
import shlex
import subprocess
from pathlib import Path

from foundation.errors import HostError
from foundation.kernel_cache import usable_cache
from foundation.one_line import one_line

SOURCE = Path(__file__).with_name("kernels.c")
FLAGS = ("-O3", "-std=gnu11")


@functools.cache
def kernels_program() -> Path:
    """Return the program's path; compile it where that has not been done.

    It is in ``osub/kernels`` in ``XDG_CACHE_HOME``, else in ``~/.cache``, in a folder named after sources,
    flags and compiler.

    Raises
    ------
    HostError
        There is no compiler, it fails, or no folder that nobody else can write to.
    """
    compiler = shlex.split(os.environ.get("CC", "cc"))
    digest = hashlib.sha256("\0".join((*compiler, *FLAGS)).encode() + SOURCE.read_bytes()).hexdigest()[:16]
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    except RuntimeError as error:
        raise HostError("no home for the compiled kernels; set XDG_CACHE_HOME") from error
    folder = base / "osub" / "kernels" / digest
    if not usable_cache(folder):
        raise HostError(
            f"compiled kernels cannot be kept in {folder}; set XDG_CACHE_HOME to a folder of yours"
        )
    program = folder / "kernels"
    if not program.exists():
        _compile(compiler, program)
    return program


def _compile(compiler: list[str], program: Path) -> None:
    fresh = program.with_name(f"kernels.{os.getpid()}")
    try:
        done = subprocess.run(
            [*compiler, *FLAGS, "-o", str(fresh), str(SOURCE)], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise HostError(
            f"no compiler for the measured kernels ({shlex.join(compiler)}: {error.strerror}); "
            "install one (Debian: apt-get install gcc libc6-dev) or set CC"
        ) from error
    if done.returncode != 0:
        fresh.unlink(missing_ok=True)
        raise HostError(
            f"{shlex.join(compiler)} cannot compile the measured kernels: {one_line(done.stderr)}"
        )
    fresh.replace(program)
