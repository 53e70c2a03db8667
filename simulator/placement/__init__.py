"""Which cores a job gets: the thesis's rule, Slurm's, or a user's (``rule``)."""

from __future__ import annotations

from simulator.placement.builtin_placement import place
from simulator.placement.placement_rule import Cores, PlacementRule
from simulator.placement.plugin_placements import PairedPlacement, SlurmPlacement, ThesisPlacement

__all__ = ["Cores", "PairedPlacement", "PlacementRule", "SlurmPlacement", "ThesisPlacement", "place"]
