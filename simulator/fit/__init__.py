"""What a real run tells of the Slurm that scheduled it, for ``--policy slurm``."""

from __future__ import annotations

from simulator.fit.fit_parameters import Fit, Parameter
from simulator.fit.measured_run import Latencies, delayed, latencies_of, overheads_of, undelayed
from simulator.fit.recorded_order import Decision, RecordedOrder, order_of
from simulator.fit.slurm_fit import fit_run
