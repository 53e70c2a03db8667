"""What the paper claims of malleable jobs: M1 to M32, by system."""

from __future__ import annotations

from analysis.claims import Claim

HASWELL, KNL, EAGLE, THETA = SYSTEMS = ("HASWELL", "KNL", "EAGLE", "THETA")


def _said(*claims: tuple[str, str, str, str, str]) -> tuple[Claim, ...]:
    return tuple(
        Claim(id=identifier, where=where, setting=setting, quantity=quantity, paper=paper)
        for identifier, where, setting, quantity, paper in claims
    )


OF_HASWELL = _said(
    (
        "M1",
        "3.1, Fig. 6a",
        "HASWELL, best",
        "mean turnaround",
        "2,391 to 792 s, -66.87%, falling with every step of the share",
    ),
    ("M2", "3.1, Fig. 6b", "HASWELL, best", "mean run", "-65.32%"),
    ("M3", "3.1, Fig. 6c", "HASWELL, best", "mean wait", "-99.71%; under 10 s from 40% malleable on"),
    (
        "M4",
        "3.1",
        "HASWELL, KEEPPREF",
        "mean wait, most jobs' wait",
        "slightly higher mean than the others; most jobs under 1 s at 20%",
    ),
    ("M5", "3.1, Fig. 6d", "HASWELL", "utilisation", "72.33% to 98.73%; spread over seeds narrows"),
    ("M6", "3.1, Fig. 6e", "HASWELL", "expansions a job", "KEEPPREF over 11, AVG steady at about 5"),
    (
        "M7",
        "3.1, Fig. 6f",
        "HASWELL",
        "shrinks a job",
        "about 25 for all at low share; fall clearly only for AVG and PREF",
    ),
)
OF_KNL = _said(
    ("M8", "3.2, Fig. 7a", "KNL, best", "mean turnaround", "4,551 to 1,696 s, -62.74%"),
    ("M9", "3.2, Fig. 7b", "KNL, best", "mean run", "-60.87%"),
    ("M10", "3.2, Fig. 7c", "KNL, best", "mean wait", "-98.81%; under 20 s from 40% on"),
    ("M11", "3.2", "KNL, KEEPPREF", "wait at 40% and 60%", "higher mean, wider range than the others"),
    ("M12", "3.2, Fig. 7d", "KNL", "utilisation", "85.5% to about 95% at 60%, then flat"),
    (
        "M13",
        "3.2, Fig. 7e",
        "KNL",
        "expansions a job",
        "fall with the share; KEEPPREF and AVG more than twice the others",
    ),
    ("M14", "3.2, Fig. 7f", "KNL", "shrinks a job", "about 20, stable; MIN rises slightly"),
)
OF_EAGLE = _said(
    ("M15", "3.3, Fig. 8a", "EAGLE, best", "mean turnaround", "6,138 to 2,114 s, -65.55%"),
    ("M16", "3.3, Fig. 8b", "EAGLE, best", "mean run", "-65.43%"),
    ("M17", "3.3, Fig. 8c", "EAGLE, best", "mean wait", "330 to 89 s, -73.17%; range narrows"),
    ("M18", "3.3, Fig. 8d", "EAGLE", "utilisation", "28.71% to 43.61%"),
    (
        "M19",
        "3.3, Fig. 8e",
        "EAGLE",
        "expansions a job, 20% to 100%",
        "KEEPPREF, AVG 8-9 to 6-7; PREF, MIN 3 to 1-2",
    ),
    ("M20", "3.3, Fig. 8f", "EAGLE", "shrinks a job", "slight fall, most of it between 20% and 40%"),
)
OF_THETA = _said(
    (
        "M21",
        "3.4, Fig. 9a",
        "THETA",
        "mean turnaround",
        "up to -36.91% for three strategies; PREF slightly worse at 60% and more",
    ),
    (
        "M22",
        "3.4, Fig. 9b",
        "THETA",
        "mean run",
        "only KEEPPREF improves throughout, up to -16.3%; the others worsen, up to +60.85%",
    ),
    ("M23", "3.4, Fig. 9c", "THETA", "mean wait", "up to -99.98% for AVG, MIN, PREF; KEEPPREF -16.53%"),
    (
        "M24",
        "3.4, Fig. 9d",
        "THETA",
        "utilisation",
        "KEEPPREF 72.67% to 76.26%; the others fall, up to 3.82%",
    ),
    ("M25", "3.4, Fig. 9e", "THETA", "expansions a job", "stable over shares; KEEPPREF 6"),
    ("M26", "3.4, Fig. 9f", "THETA", "shrinks a job", "little variation; KEEPPREF about half of the others"),
)
OF_ALL = _said(
    ("M27", "3.5 (1)", "all", "effect of 20% malleable", "already notable in every metric"),
    ("M28", "3.5 (2)", "all", "best strategy", "depends on the workload; KEEPPREF is best on THETA"),
    (
        "M29",
        "3.5 (3)",
        "all but THETA",
        "turnaround, wait, run, utilisation",
        "consistent gains for every strategy",
    ),
    ("M30", "3.5", "all", "fewest expansions and shrinks", "PREF"),
    ("M31", "3.5", "all", "EASY against the malleable strategies", "worst, as soon as malleable jobs exist"),
    (
        "M32",
        "6",
        "best strategy of each quantity and system",
        "ranges",
        "turnaround 37-67%, run 16-65%, wait 73-99%, utilisation 5-52% better",
    ),
)
OF_ONE: dict[str, tuple[Claim, ...]] = {HASWELL: OF_HASWELL, KNL: OF_KNL, EAGLE: OF_EAGLE, THETA: OF_THETA}
"""The claims on one system; ``OF_ALL`` are those on several."""
