"""Jobs that run alone on a cluster, for the calibration of ``rrba``."""
