"""The options of ``sbatch`` for a request, and which options of a site may be added."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from foundation.errors import UsageError
from foundation.slurm.slurm_client import SubmitRequest

# What a request sets itself, or what would change the meaning of a submission, and why a site may not set it.
_OWN = dict.fromkeys(
    ("job-name", "nodes", "ntasks", "ntasks-per-node", "ntasks-per-core", "output", "error", "open-mode"),
    "osub sets it for each job",
) | {
    "partition": "use --partition",
    "account": "use --account",
    "qos": "use --qos",
    "reservation": "use --reservation",
    "no-requeue": "use --no-requeue",
    "oversubscribe": "it follows from the partition",
    "share": "it follows from the partition",
    "time": "it comes from the trace",
    "time-min": "it would shorten the trace's requested times",
    "mem": "it comes from the trace",
    "mem-per-cpu": "it comes from the trace",
    "mem-per-gpu": "it comes from the trace",
    "cpus-per-task": "a task has one core",
    "threads-per-core": "a task has one core",
    "hint": "a task has one core",
    "extra-node-info": "a task has one core",
    "overcommit": "a task has one core",
    "core-spec": "a task has one core",
    "thread-spec": "a task has one core",
    "exclusive": "jobs could not share cores",
    "array": "each job of a trace is one job",
    "hetjob": "the jobs of a trace are not heterogeneous",
    "het-group": "the jobs of a trace are not heterogeneous",
    "hold": "the job would never start",
    "begin": "jobs are submitted at their own instants",
    "deadline": "jobs are submitted at their own instants",
    "wait": "submissions would not return",
    "parsable": "osub reads what sbatch prints",
    "quiet": "osub reads what sbatch prints",
    "verbose": "osub reads what sbatch prints",
    "test-only": "nothing would be submitted",
    "help": "nothing would be submitted",
    "usage": "nothing would be submitted",
    "version": "nothing would be submitted",
    "wrap": "osub writes the script",
    "input": "osub writes the script",
    "chdir": "osub writes the script",
    "export": "osub sets the environment",
    "export-file": "osub sets the environment",
    "get-user-env": "osub sets the environment",
    "propagate": "osub sets the environment",
    "uid": "jobs are the user's own",
    "gid": "jobs are the user's own",
    "clusters": "a replay has one cluster; choose it by --cluster or SLURM_CONF",
    "cluster-constraint": "a replay has one cluster; choose it by --cluster or SLURM_CONF",
    "signal": "it would reach the wrapper that stamps start and end",
    "kill-on-invalid-dep": "an end would come from sbatch, not from the job",
}
_OPTION = re.compile(r"([a-z][a-z0-9-]*)(?:=([^\x00-\x1f\x7f]*))?", re.ASCII)
_LONGEST = 1024


def check_options(options: Sequence[str]) -> tuple[str, ...]:
    """Return options such as ``constraint=fast`` or ``requeue`` where a request may carry them.

    Names are sbatch's long ones, whole: sbatch would take an abbreviation of a name that is refused here.

    Raises
    ------
    UsageError
        One is no option, or must not be overridden; the message says which and why.
    """
    for option in options:
        match = _OPTION.fullmatch(option)
        if match is None or len(option) > _LONGEST:
            raise UsageError(
                f"--sbatch-option takes NAME=VALUE or NAME, a long option of sbatch without its dashes, not "
                f"{option[:80]!r}"
            )
        name = match[1]
        for own, why in _OWN.items():
            if own.startswith(name):
                short = "" if own == name else f" (sbatch reads it as --{own})"
                raise UsageError(f"--sbatch-option {name}{short} can't be set: {why}")
    return tuple(options)


def _as_it_is(path: Path) -> str:
    """Return a path as ``--output`` takes it: Slurm expands ``%j`` in it, unless a backslash is there.

    Source: ``sbatch(1)``, "filename pattern"; seen with 22.05.
    """
    text = str(path)
    return text.replace("\\", "\\\\") if "\\" in text else text.replace("%", "%%")


def sbatch_options(request: SubmitRequest) -> list[str]:
    """Return the words between ``sbatch`` and the script."""
    words = [
        "--parsable",
        "--export=ALL",
        f"--job-name={request.name}",
        f"--nodes={request.nodes}",
        f"--ntasks={request.nodes * request.tasks_per_node}",
        f"--ntasks-per-node={request.tasks_per_node}",
        f"--output={_as_it_is(request.output or Path(os.devnull))}",
        "--open-mode=append",  # a job that starts again keeps what it printed before
    ]
    optional = {
        "partition": request.partition,
        "account": request.account,
        "qos": request.qos,
        "reservation": request.reservation,
        "ntasks-per-core": request.tasks_per_core,
        "mem-per-cpu": request.memory_per_cpu_mib and f"{request.memory_per_cpu_mib}M",
        "mem": request.memory_per_node_mib and f"{request.memory_per_node_mib}M",
        "time": request.time_limit_minutes,
        "comment": request.comment,
        "constraint": request.constraint,
        "chdir": request.working_directory,
    }
    words += [f"--{key}={value}" for key, value in optional.items() if value is not None]
    words += ["--no-requeue"] if request.no_requeue else []
    words += ["--oversubscribe"] if request.oversubscribe else []
    return words + [f"--{option}" for option in request.options]
