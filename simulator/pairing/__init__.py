"""Which application each job of a trace runs, and what two of them lose on a core that they share."""

from __future__ import annotations

from simulator.pairing.job_applications import applications_of
from simulator.pairing.pair_table import PairTable, read_pair_table, write_pair_table

__all__ = ["PairTable", "applications_of", "read_pair_table", "write_pair_table"]
