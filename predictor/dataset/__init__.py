"""The PAIRS folder: what was measured of applications that share cores, checked on write and on read.

Measurement writes it with `write_pairs`; models, evaluation and use read it with `read_pairs`. The columns
are in ``tables.py``, what describes the whole in ``about.py``, and what E_v and E_o mean in ``loss.py``.
"""

from __future__ import annotations

from predictor.dataset.pairs_folder import FORMAT_VERSION, About, MeasuredHost, Pairs, read_pairs, write_pairs
from predictor.dataset.pairs_tables import (
    APPLICATIONS,
    COUNTERS,
    PAIRS,
    SOLO,
    STRESSOR,
    TABLES,
    TRIALS,
    CounterSource,
    PairKind,
    PairsTable,
    ideal_loss,
    opponent_loss,
    victim_loss,
)

__all__ = [
    "APPLICATIONS",
    "COUNTERS",
    "FORMAT_VERSION",
    "PAIRS",
    "SOLO",
    "STRESSOR",
    "TABLES",
    "TRIALS",
    "About",
    "CounterSource",
    "MeasuredHost",
    "PairKind",
    "Pairs",
    "PairsTable",
    "ideal_loss",
    "opponent_loss",
    "read_pairs",
    "victim_loss",
    "write_pairs",
]
