"""Which cores a job gets: the thesis's rule, Slurm's, or a user's (``rule``)."""

from __future__ import annotations

from simulator.placement.builtin_placement import place
from simulator.placement.paired_placement import PairedPlacement
from simulator.placement.placement_rule import Cores, Placement
from simulator.placement.plain_placement import SlurmPlacement, ThesisPlacement

__all__ = ["Cores", "PairedPlacement", "Placement", "SlurmPlacement", "ThesisPlacement", "place"]
