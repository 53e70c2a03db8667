"""Takes the stretches that have ended out of the log of a state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from simulator.engine.cluster import members, words_of
from simulator.engine.life_state import CAUSES, Lives


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a job, by index, held from when to when (core ids by node), and what that began with.

    ``setup_us`` of it went on set-up. At its end ``lost_us`` of work, of this stretch and of those before,
    were lost; one that holds nothing tells of the loss alone.
    """

    job: int
    from_us: int
    to_us: int
    cores: Mapping[int, list[int]]
    why: str
    setup_us: int = 0
    lost_us: int = 0


def take_log(lives: Lives) -> list[Stretch]:
    """Empty the log of either kind of state; return what was in it, in order of time."""
    if isinstance(lives.clock, np.ndarray):
        return _take_compiled(lives)
    counts, log = lives.clock[0], lives.log
    taken = []
    for place in range(counts.logged):
        entry = log.stretches[place]
        parts = range(entry.part_at, entry.part_at + entry.nodes)
        cores = {log.parts[part].node: members(words_of(log.mask, part)) for part in parts}
        why = CAUSES[entry.why]
        times = (entry.setup_us, entry.lost_us)
        taken.append(Stretch(entry.job, entry.from_us, entry.to_us, cores, why, *times))
    counts.logged = counts.parts_logged = 0
    return taken


def _take_compiled(lives: Lives) -> list[Stretch]:
    clock, stretches = np.asarray(lives.clock), np.asarray(lives.log.stretches)
    nodes, mask = np.asarray(lives.log.parts)["node"], np.asarray(lives.log.mask)
    taken = []
    for entry in stretches[: int(clock["logged"][0])]:
        first = int(entry["part_at"])
        parts = range(first, first + int(entry["nodes"]))
        cores = {int(nodes[part]): members(mask[part]) for part in parts}
        why = CAUSES[int(entry["why"])]
        times = (int(entry["setup_us"]), int(entry["lost_us"]))
        taken.append(
            Stretch(int(entry["job"]), int(entry["from_us"]), int(entry["to_us"]), cores, why, *times)
        )
    clock["logged"] = 0
    clock["parts_logged"] = 0
    return taken
