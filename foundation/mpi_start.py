"""How MPI is started: the environment that makes it start everywhere, and a deadline for ``MPI_Init``.

The MPICH wheel has two network modules. UCX exchanges 4,096 bytes of address for each rank over PMI-1, and
what of them it does not use is whatever the heap held (MPICH 5.0, ``ucx_init.c``). Slurm's ``mpi/pmi2`` reads
1,024 bytes of a request (``pmi1.c``, ``handle_pmi1_cmd``) and cuts a longer one, so ``MPI_Init`` across nodes
hangs, or ranks have wrong addresses. OFI over TCP exchanges a socket address of 16 bytes, over shared memory
the name of a file. The latter is five times quicker, where all nodes are one host.

``python -m foundation.mpi_start`` is one rank of a trial: it uses its heap, starts MPI and says what it is.
"""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from foundation.errors import HostError
from foundation.process_stat import STATE, split_stat
from foundation.units import counted

PREFIXES = ("MPIR_CVAR_", "UCX_", "FI_")
"""What variables begin with by which a user chooses how MPICH communicates."""

NETMOD, PROVIDER, DEADLINE = "MPIR_CVAR_CH4_NETMOD", "FI_PROVIDER", "OSUB_MPI_START_S"
START_S, START_RANK_S = 30.0, 0.1
_TURN_S = 0.1
# The first rank speaks for all; the others end a moment later, in case it is through.
_OTHERS_S = 2.0
_LAUNCHED = frozenset({"PMI_FD", "PMI_RANK", "PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "PALS_RANKID"})


def mpi_environment(caller: Mapping[str, str], *, one_host: bool = False) -> dict[str, str]:
    """Return the variables by which MPI starts on any network; a variable that ``caller`` sets is kept.

    ``one_host``: all nodes are this host, as an embedded cluster's are, so that ranks can share memory.
    """
    chosen = {name: value for name, value in caller.items() if name.startswith(PREFIXES)}
    ours = {NETMOD: "ofi"}
    if chosen.get(NETMOD, "ofi") == "ofi":
        ours[PROVIDER] = "shm" if one_host else "tcp"
    return ours | chosen


def is_lone(environment: Mapping[str, str]) -> bool:
    """Say whether no launcher of MPI ranks started this process: it is the only rank, and needs no MPI."""
    return _LAUNCHED.isdisjoint(environment)


def start_mpi(program: str, clean_up: Callable[[int], object] = lambda _: None) -> None:
    """Initialise ``mpi4py.MPI`` within a deadline.

    The deadline is 30 s and 0.1 s for each rank, or ``OSUB_MPI_START_S``, of time in which this job ran: it
    stops while the job is suspended. A rank that is late says so in one line and is killed.

    Parameters
    ----------
    program
        Its name, with which the line begins.
    clean_up
        Called with the process id of a late rank before it is killed.

    Raises
    ------
    HostError
        There is no MPI library.
    """
    os.environ.update(mpi_environment(os.environ))
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise HostError(
            f"no MPI library: {error}; install the package mpich, or mpi4py for this host"
        ) from error
    rank, ranks = _number("PMI_RANK", "SLURM_PROCID", 0), _number("PMI_SIZE", "SLURM_STEP_NUM_TASKS", 1)
    limit_s = start_limit_s(os.environ, ranks)
    line = f"{program}: {late_start(os.environ, rank, ranks, limit_s)}\n"
    with start_deadline(limit_s + (_OTHERS_S if rank else 0.0), line, clean_up):
        # rrba's only other thread, the termination watch, makes no call of MPI.
        MPI.Init_thread(MPI.THREAD_FUNNELED)


def start_limit_s(environment: Mapping[str, str], ranks: int) -> float:
    """Return how long ``MPI_Init`` may take, s."""
    with suppress(ValueError):
        own_s = float(environment.get(DEADLINE, ""))
        if 0 < own_s < float("inf"):
            return own_s
    return START_S + START_RANK_S * ranks


def late_start(environment: Mapping[str, str], rank: int, ranks: int, limit_s: float) -> str:
    """Return what is said of a start that is not through in time: where, how, and what to do."""
    netmod = environment.get(NETMOD, "of the library's choice")
    node = environment.get("SLURMD_NODENAME") or socket.gethostname()
    remedy = (
        f"unset {NETMOD}, or set it to ofi"
        if netmod != "ofi"
        else f"was the job suspended, or does {environment.get(PROVIDER, 'OFI')} not reach the other nodes "
        f"({PROVIDER}, FI_TCP_IFACE)? `osub doctor --cluster` tries"
    )
    return (
        f"MPI_Init did not end within {limit_s:g} s on node {node}, rank {rank} of {ranks}, netmod {netmod}: "
        f"the ranks did not find each other; {remedy}; {DEADLINE} sets the seconds"
    )


@contextmanager
def start_deadline(limit_s: float, line: str, clean_up: Callable[[int], object]) -> Iterator[None]:
    """Kill this process, after ``line`` on standard error, where the block takes longer than ``limit_s``.

    A child watches: the block keeps the interpreter's lock, so that no thread of Python's would run.
    """
    reading, writing = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        _watch(parent, reading, limit_s, line, clean_up)
    os.close(reading)
    try:
        yield
    finally:
        os.close(writing)
        os.waitpid(child, 0)


def _watch(parent: int, reading: int, limit_s: float, line: str, clean_up: Callable[[int], object]) -> None:
    """Wait for the parent's end of the pipe to close, or for the deadline; then end."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        # The launcher waits until no process has the rank's descriptors; one of them would be ours.
        os.closerange(3, reading)
        os.closerange(reading + 1, os.sysconf("SC_OPEN_MAX"))
        os.dup2(2, 1)
        ended = select.poll()
        ended.register(reading)
        run_s, before_s = 0.0, time.monotonic()
        while run_s < limit_s:
            if ended.poll(1000 * _TURN_S):
                return
            now_s = time.monotonic()
            # A turn that took longer was one in which the job was suspended.
            if not _is_stopped(parent):
                run_s += min(now_s - before_s, 2 * _TURN_S)
            before_s = now_s
        os.write(2, line.encode(errors="replace"))
        clean_up(parent)
        os.kill(parent, signal.SIGKILL)
    finally:
        os._exit(0)


def _is_stopped(pid: int) -> bool:
    with suppress(OSError, ValueError):
        return split_stat(Path(f"/proc/{pid}/stat").read_bytes())[1][STATE] == b"T"
    return False


def _number(first: str, second: str, default: int) -> int:
    texts = (os.environ.get(name, "") for name in (first, second))
    return next((int(text) for text in texts if text.isascii() and text.isdigit()), default)


def use_heap(seed: int = 1) -> list[bytes]:
    """Leave a heap whose free parts are not zeros, as a program does that worked before ``MPI_Init``."""
    draw = random.Random(seed)  # noqa: S311 - not a secret
    blocks = [os.urandom(draw.randrange(600, 6000)) for _ in range(4000)]
    draw.shuffle(blocks)
    return blocks[::2]


def main() -> int:
    """Be one rank of a trial; the first prints a line once all are through."""
    kept = use_heap()
    try:
        start_mpi("trial")
    except HostError as error:
        print(f"trial: {error}", file=sys.stderr)
        return 1
    from mpi4py import MPI

    hosts = MPI.COMM_WORLD.gather(os.environ.get("SLURMD_NODENAME") or socket.gethostname())
    if hosts is not None and kept:
        version = MPI.Get_library_version().split("\n", 1)[0]
        where = f"{counted(len(hosts), 'rank')} on {counted(len(set(hosts)), 'node')}"
        print(f"trial: {where}, {' '.join(version.split())}", flush=True)
    MPI.Finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
