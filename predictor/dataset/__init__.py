"""The PAIRS folder: what was measured of applications that share cores, checked on write and on read.

Measurement writes it with `write_pairs`; models, evaluation and use read it with `read_pairs`. The columns
are in ``pairs_folder``, and so is what E_v and E_o mean.
"""

from __future__ import annotations

from predictor.dataset.pairs_folder import (
    APPLICATIONS,
    COUNTERS,
    FORMAT_VERSION,
    NAME,
    PAIRS,
    SOLO,
    STRESSOR,
    TRIALS,
    About,
    CounterSource,
    MeasuredHost,
    PairKind,
    Pairs,
    PairsTable,
    counter_name,
    harmful_loss,
    ideal_loss,
    opponent_loss,
    read_pairs,
    victim_loss,
    write_pairs,
)
