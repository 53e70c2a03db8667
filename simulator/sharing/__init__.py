"""How fast jobs run on cores that they share: built-in models, or a user's (``model``)."""

from __future__ import annotations

from simulator.sharing.node_speeds import NoisyNodes
from simulator.sharing.pairwise_sharing import Pairwise
from simulator.sharing.proportional_sharing import Proportional
from simulator.sharing.sharing_model import BuiltinSharing, SharingModel, SharingTables

__all__ = ["BuiltinSharing", "NoisyNodes", "Pairwise", "Proportional", "SharingModel", "SharingTables"]
