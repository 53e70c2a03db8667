"""Points of a sweep on workers of Dask: any scheduler, or jobs of a Slurm cluster (dask-jobqueue).

The scheduler runs in the process of the sweep and takes connections by TLS only, with a certificate made
for this one sweep: a client that can connect to a Dask scheduler can run code as its owner.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foundation.errors import ClusterError, OsubError, UsageError
from foundation.one_line import one_line
from osub.sweep.points import Point
from osub.sweep.workers import KILLED, Ended, Failure, Work

if TYPE_CHECKING:
    from dask_jobqueue.slurm import SLURMCluster
    from distributed import Client


class Dask:
    """A Dask cluster that is there already.

    Parameters
    ----------
    work
        What runs a point; osub must be installed where the workers are, and files be where they are here.
    address
        Of its scheduler, such as ``tcp://10.0.0.1:8786``, or a file that it wrote (``--scheduler-file``).

    Raises
    ------
    OsubError
        No scheduler answers.
    UsageError
        Dask is not installed.
    """

    def __init__(self, work: Work, address: str) -> None:
        self._work = work
        self._address = address
        _client(address).close()

    def run(self, points: Sequence[Point]) -> Iterator[Ended]:
        """Yield each point as it ends."""
        with _client(self._address) as client:
            yield from gather(client, self._work, points)


def gather(client: Client, work: Work, points: Sequence[Point]) -> Iterator[Ended]:
    """Run ``work`` on each point, and yield each as it ends."""
    from distributed import KilledWorker, as_completed

    # Keys of this run's own: results of an earlier one that Dask still has are not taken for it.
    run = os.urandom(4).hex()
    futures = {
        client.submit(work, point.parameters, key=f"{point.key}-{run}", pure=False): point for point in points
    }
    for future in as_completed(futures, loop=client.loop):
        failure = future.exception()
        if failure is None:
            yield futures[future], future.result()
        elif isinstance(failure, KilledWorker):
            yield futures[future], KILLED
        else:
            why = one_line(f"{type(failure).__name__}: {failure}")
            yield futures[future], Failure(why, again=not isinstance(failure, OsubError))


def _client(address: str) -> Client:
    try:
        from distributed import Client
    except ImportError as error:
        raise UsageError("--dask needs Dask: pip install 'osub[sweep]'") from error
    is_file = "/" in address and "://" not in address
    where: dict[str, Any] = {"scheduler_file": address} if is_file else {"address": address}
    try:
        return Client(**where, timeout=10, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise OsubError(
            f"no Dask scheduler answers at {one_line(address, 100)}: {one_line(str(error))}"
        ) from error


# A worker that has not heard of its sweep for as long ends its job.
_FORGOTTEN_S = 60
_LEAVES_NOTHING = "export DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD=fork"
"""Otherwise a worker's semaphores have names in /dev/shm, and stay there if its job is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsWanted:
    """Which jobs run a sweep's points.

    Parameters
    ----------
    jobs
        How many, of one core each.
    slurm_conf
        Configuration of the cluster; ``None`` takes the environment's.
    memory_mib, limit_min
        What each asks for; no memory at 0, and the partition's default counts.
    partition, account
        Where to, if not the cluster's and the user's defaults.
    host
        Address of this host that the nodes reach; ``None`` takes that of its name.
    """

    jobs: int
    slurm_conf: Path | None = None
    memory_mib: int = 2000
    limit_min: int = 240
    partition: str | None = None
    account: str | None = None
    host: str | None = None


class SlurmJobs:
    """Jobs of Slurm, as many as wanted at a time; they end with the sweep.

    Parameters
    ----------
    work
        What runs a point; osub must be installed where the nodes see it, and files be where they are here.
    wanted
        The jobs.
    folder
        Folder that every node sees: the jobs' certificates and logs lie there.

    Raises
    ------
    UsageError
        Dask, dask-jobqueue or cryptography is not installed.
    """

    def __init__(self, work: Work, wanted: JobsWanted, folder: Path) -> None:
        try:
            import cryptography  # noqa: F401 - whether it is there
            import dask_jobqueue  # noqa: F401 - whether it is there
        except ImportError as error:
            raise UsageError("--slurm needs Dask: pip install 'osub[sweep]'") from error
        self._work = work
        self._wanted = wanted
        self._folder = folder

    def run(self, points: Sequence[Point]) -> Iterator[Ended]:
        """Yield each point as it ends.

        Raises
        ------
        ClusterError
            Slurm takes no jobs.
        """
        from distributed import Client

        with _jobs(self._wanted, self._folder) as cluster:
            _ask(cluster.job_script())
            cluster.scale(jobs=min(self._wanted.jobs, len(points)))
            with Client(cluster, set_as_default=False) as client:
                yield from gather(client, self._work, points)


def _ask(script: str) -> None:
    """Ask Slurm whether it would take such a job: Dask itself would wait for ever for one that is refused."""
    try:
        asked = subprocess.run(
            ["sbatch", "--test-only"], input=script, capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"sbatch does not answer: {one_line(str(error), 200)}") from error
    if asked.returncode != 0:
        cure = "; --slurm-memory-mib 0 asks for no memory" if "mem" in asked.stderr.lower() else ""
        raise ClusterError(f"Slurm takes no such job: {one_line(' '.join(asked.stderr.split()), 300)}{cure}")


@contextmanager
def _jobs(wanted: JobsWanted, folder: Path) -> Iterator[SLURMCluster]:
    """Begin a scheduler whose workers are jobs; the jobs are cancelled at the end."""
    import dask
    from dask_jobqueue.slurm import SLURMCluster

    secrets = folder / "slurm"
    secrets.mkdir(mode=0o700, parents=True, exist_ok=True)
    scheduler: dict[str, Any] = {"dashboard": False}
    if wanted.host is not None:
        scheduler["host"] = wanted.host
    before = os.environ.get("SLURM_CONF")
    if wanted.slurm_conf is not None:
        os.environ["SLURM_CONF"] = str(wanted.slurm_conf)
    try:
        with dask.config.set({"temporary-directory": str(secrets)}):
            cluster = SLURMCluster(
                cores=1,
                processes=1,
                memory=f"{wanted.memory_mib} MiB",
                job_mem=f"{wanted.memory_mib}M",
                job_directives_skip=[] if wanted.memory_mib else ["--mem="],
                walltime=f"{wanted.limit_min}",
                queue=wanted.partition,
                account=wanted.account,
                job_name="osub-sweep",
                python=sys.executable,
                death_timeout=_FORGOTTEN_S,
                local_directory=str(secrets),
                log_directory=str(secrets),
                shared_temp_directory=str(secrets),
                scheduler_options=scheduler,
                job_script_prologue=[_LEAVES_NOTHING],
                security=True,
            )
            with cluster:
                yield cluster
    except (RuntimeError, OSError, ValueError) as error:
        raise ClusterError(f"the sweep's jobs could not be started: {one_line(str(error), 300)}") from error
    finally:
        if before is None:
            os.environ.pop("SLURM_CONF", None)
        else:
            os.environ["SLURM_CONF"] = before
