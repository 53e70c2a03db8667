"""Where Slurm put this task: its job, step, node and place among the others.

Read from the environment that ``srun`` and the batch step give (``man srun``, OUTPUT ENVIRONMENT
VARIABLES). Outside Slurm a task is the only one on the only node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from foundation.errors import UsageError


@dataclass(frozen=True, slots=True)
class SlurmTask:
    """One task's place in its step.

    Attributes
    ----------
    identity
        Names this step of this job, its restarts told apart: ``JOB.STEP.RESTART``; None outside Slurm.
    node_name
        Slurm's name of the node; None outside Slurm.
    node_index
        This node's place among the step's nodes, from 0.
    nodes
        Nodes of the step.
    local_index
        This task's place among the step's tasks on this node, from 0.
    tasks
        Tasks of the step on all nodes; None where Slurm does not say.
    node_cpus
        CPUs that the job has on this node; None where Slurm does not say.
    launcher_address
        Address of the host that ran ``srun``; None where Slurm does not say.
    """

    identity: str | None
    node_name: str | None
    node_index: int
    nodes: int
    local_index: int
    tasks: int | None
    node_cpus: int | None
    launcher_address: str | None


def slurm_task(environment: Mapping[str, str]) -> SlurmTask:
    """Return the place that ``environment`` describes.

    Raises
    ------
    UsageError
        A variable of Slurm's does not hold what Slurm writes there.
    """
    nodes = _number(environment, "SLURM_STEP_NUM_NODES") or _number(environment, "SLURM_NNODES") or 1
    node_index = _number(environment, "SLURM_NODEID") or 0
    if node_index >= nodes:
        raise UsageError(f"SLURM_NODEID is {node_index} of {nodes} nodes; start this program with srun")
    job = environment.get("SLURM_JOB_ID")
    step = environment.get("SLURM_STEP_ID", "batch")
    return SlurmTask(
        identity=f"{job}.{step}.{environment.get('SLURM_RESTART_COUNT', '0')}" if job else None,
        node_name=environment.get("SLURMD_NODENAME"),
        node_index=node_index,
        nodes=nodes,
        local_index=_number(environment, "SLURM_LOCALID") or 0,
        tasks=_number(environment, "SLURM_STEP_NUM_TASKS"),
        node_cpus=_node_cpus(environment, node_index),
        launcher_address=environment.get("SLURM_LAUNCH_NODE_IPADDR"),
    )


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise UsageError(f"{name} is {text!r}; expected a whole number, as Slurm writes it")
    return int(text)


def _node_cpus(environment: Mapping[str, str], node_index: int) -> int | None:
    on_node = _number(environment, "SLURM_CPUS_ON_NODE")
    if on_node is not None:
        return on_node
    text = environment.get("SLURM_JOB_CPUS_PER_NODE")
    if text is None:
        return None
    # Slurm folds equal neighbours together: "4(x2),2" is 4, 4, 2.
    place = 0
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?", part)
        if match is None:
            raise UsageError(f"SLURM_JOB_CPUS_PER_NODE is {text!r}; expected the form 4(x2),2")
        place += int(match[2] or 1)
        if node_index < place:
            return int(match[1])
    return None
