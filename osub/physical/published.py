"""What the thesis prints of its physical study: Tables 7.4 to 7.9 (``thesis_tables.csv``), and what follows.

Layouts have our names; its BS (Broadcast Synchronization) is in the place of gangd.
"""

from __future__ import annotations

from simulator.experiments.claim_study import published_rows

_PAIRS = [(layout, tuple(map(float, speeds))) for layout, *speeds in published_rows("7.4")]
PAIR_SINGLE = [speeds[0] for _, speeds in _PAIRS if len(speeds) == 1]
PAIR_SHARED = {
    layout: [both for name, both in _PAIRS if name == layout] for layout, both in _PAIRS if len(both) == 2
}
"""Table 7.4: speeds of one job, and of both of a pair, in five trials."""
PAIR_TEXT = {"SQ M=2 naive": "76%", "SQ M=2 Slurm gang": "unfair and unstable", "SQ M=2 gangd": "4%"}
"""What its text says of them."""
WAITED = {layout: float(share) for layout, share in published_rows("7.5")}
"""Table 7.5: share of the interactive jobs that wait for more than five seconds."""
PERCENTILES_S: dict[str, list[float | None]] = {
    layout: [float(end_s) if end_s else None for end_s in ends_s] for layout, *ends_s in published_rows("7.6")
}
"""Table 7.6: 90th, 95th and 100th percentile of completion; one value is a misprint and left out."""
SIMULATED_PERCENTILES_S = (58_578.0, 67_223.0, 74_769.0)
SIMULATED_SLOWDOWN = {"batch": 2.40, "interactive": 2.02}
"""Table 7.9: SQ with M = 2, simulated."""
REAL_SLOWDOWN = 2.50
"""Table 7.7, job 3030: the largest slowdown of a batch job under SQ, M = 2, BS."""
DEGRADED = published_rows("7.7")
"""Table 7.7: job, application and cores, degradation, counts of the usage intervals 1 to 4."""
DEGRADED_JOBS, JOBS = 7, 82
_FIRST_JOBS = {int(job): cells for job, *cells in published_rows("7.8")}
SIMULATED_PLACES, REAL_PLACES = ({job: cells[at] for job, cells in _FIRST_JOBS.items()} for at in (0, 1))
"""Table 7.8: nodes from 0, each with its cores."""
SIMULATED_FINISH_S, REAL_FINISH_S = (
    {job: int(cells[at]) for job, cells in _FIRST_JOBS.items()} for at in (2, 3)
)
"""Table 7.8: seconds from the first arrival."""
SAME_PLACES = 13
