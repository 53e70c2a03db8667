"""What the thesis prints of its physical study: Tables 7.4 to 7.9, and what follows from them.

Layouts have our names; its BS (Broadcast Synchronization) is in the place of gangd.
"""

from __future__ import annotations

PAIR_SINGLE = (18.18, 17.86, 17.54, 17.24, 17.54)
PAIR_SHARED = {
    "SQ M=2 naive": ((2.17, 2.22), (2.09, 2.04), (1.93, 1.96), (2.10, 2.03), (1.74, 1.73)),
    "SQ M=2 Slurm gang": ((12.99, 5.49), (13.16, 5.49), (7.19, 6.76), (12.99, 5.65), (7.19, 6.76)),
    "SQ M=2 gangd": ((8.40, 8.33), (8.00, 8.06), (8.20, 8.33), (8.33, 8.26), (8.13, 8.06)),
}
"""Table 7.4: speeds of one job, and of both of a pair, in five trials."""
PAIR_TEXT = {
    "SQ M=2 naive": "76%",
    "SQ M=2 Slurm gang": "unfair and unstable",
    "SQ M=2 gangd": "4%",
}
"""What its text says of them."""

WAITED = {
    "SQ M=2 gangd": 0.0,
    "SQ M=2 naive": 0.0,
    "SQ M=1": 0.43,
    "MQ 4+8": 0.0,
    "MQ 3+9": 0.0,
    "MQ 2+10": 0.0,
    "MQ 1+11": 0.29,
}
"""Table 7.5: share of the interactive jobs that wait for more than five seconds."""

PERCENTILES_S: dict[str, tuple[float | None, float, float]] = {
    "MQ 1+11": (56_747, 61_301, 70_960),
    "MQ 2+10": (57_220, 61_171, 72_569),
    "MQ 3+9": (59_268, 64_630, 76_465),
    "MQ 4+8": (64_169, 72_474, 85_573),
    "SQ M=1": (None, 62_153, 73_180),
    "SQ M=2 naive": (62_123, 66_053, 73_323),
    "SQ M=2 gangd": (58_407, 64_355, 76_278),
}
"""Table 7.6: 90th, 95th and 100th percentile of completion; one value is a misprint and left out."""
SIMULATED_PERCENTILES_S = (58_578.0, 67_223.0, 74_769.0)
SIMULATED_SLOWDOWN = {"batch": 2.40, "interactive": 2.02}
"""Table 7.9: SQ with M = 2, simulated."""
REAL_SLOWDOWN = 2.50
"""Table 7.7, job 3030: the largest slowdown of a batch job under SQ, M = 2, BS."""

DEGRADED = {
    2909: ("sp.D, 25", 2.42, (959, 16679, 6, 0)),
    2980: ("lu.D, 12", 2.08, (0, 3730, 0, 0)),
    3000: ("lu.D, 18", 2.28, (0, 16144, 5, 2)),
    3026: ("lu.A, 6", 2.13, (0, 2837, 2, 0)),
    3028: ("sp.D, 25", 2.11, (5217, 12347, 4, 0)),
    3030: ("lu.C, 6", 2.50, (0, 3320, 2, 0)),
    3045: ("sp.D, 25", 2.31, (4931, 9135, 0, 1)),
}
"""Table 7.7: application and cores, degradation, counts of the usage intervals 1 to 4."""
DEGRADED_JOBS, JOBS = 7, 82

SIMULATED_PLACES = {
    2814: "0(0-1)",
    2815: "1(0-1)",
    2816: "2(0-1)",
    2817: "3(0-1)",
    2818: "2(0-1)",
    2819: "3(0-11)",
    2823: "0(0-11)",
    2829: "1(0-11)",
    2835: "2(0-11)",
    2838: "4(0-11)",
    2839: "5(0-11)",
    2842: "6(0-3)",
    2844: "7(0-8) 8(0-8)",
    2849: "1(0-7)",
    2854: "6(0-3)",
}
REAL_PLACES = SIMULATED_PLACES | {2849: "9(0-7)", 2854: "1(0-3)"}
"""Table 7.8: nodes from 0, each with its cores."""
SAME_PLACES = 13
SIMULATED_FINISH_S = {
    2814: 1800,
    2815: 2897,
    2816: 347,
    2817: 293,
    2818: 1000,
    2819: 14981,
    2823: 16660,
    2829: 6955,
    2835: 18182,
    2838: 18548,
    2839: 18550,
    2842: 7914,
    2844: 8617,
    2849: 10038,
    2854: 9096,
}
REAL_FINISH_S = {
    2814: 1928,
    2815: 3150,
    2816: 349,
    2817: 295,
    2818: 1047,
    2819: 16097,
    2823: 18304,
    2829: 7020,
    2835: 17899,
    2838: 19907,
    2839: 19913,
    2842: 8273,
    2844: 8325,
    2849: 9791,
    2854: 9077,
}
"""Table 7.8: seconds from the first arrival."""


def pair_loss(single: float, both: tuple[float, float]) -> float:
    """Return what of one job's speed alone is lost by two that share its cores (Table 7.4)."""
    return 1.0 - sum(both) / single
