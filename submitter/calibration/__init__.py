"""Jobs that run alone on a cluster, for the calibration of ``rrba``."""

from __future__ import annotations

from submitter.calibration.calibration_samples import calibrate_kinds, fit_kind, try_out
from submitter.calibration.lone_jobs import LoneJobs

__all__ = ["LoneJobs", "calibrate_kinds", "fit_kind", "try_out"]
