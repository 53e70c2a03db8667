"""Accounting of the lifecycles of a pool's jobs, as columns."""

from __future__ import annotations

from dataclasses import dataclass, fields

from simulator.engine.kernels.field_records import Ints, column
from simulator.engine.state.lifecycle_state import Lives


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Accounting:
    """Columns of length J; times in microseconds.

    Parameters
    ----------
    preemptions, starts
        How often each job was preempted, and started.
    given_up
        Whether it was given up when a node failed.
    lost_us, spent_setup_us
        Run time that was lost, and spent on set-up.
    useful_node_us, lost_node_us, setup_node_us, save_node_us, fresh_node_us
        Node time by what it was spent on; nothing is fresh any more when a job has ended.
    """

    preemptions: Ints
    starts: Ints
    given_up: Ints
    lost_us: Ints
    spent_setup_us: Ints
    useful_node_us: Ints
    lost_node_us: Ints
    setup_node_us: Ints
    save_node_us: Ints
    fresh_node_us: Ints


def books_of(lives: Lives) -> Accounting:
    """Return the columns."""
    return Accounting(**{field.name: column(lives.jobs, field.name) for field in fields(Accounting)})
