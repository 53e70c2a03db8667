"""P1 to P19: what the thesis says of pairs, and what our pairs say.

The thesis's pairs share a core as hardware threads, ours take turns on one: 0.5 is the half of a core here,
and much of what is below it there is hyper-threading's. So magnitudes are told and not judged, and of
directions those are judged that do not depend on it.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from analysis.claims import Claim, Row, direction, fact, not_comparable
from foundation.units import counted, verb
from predictor.model.three_folds import accuracy_of
from simulator.experiments.pairing import parallel_pairs as parallel
from simulator.experiments.pairing.beside_thesis import UNFIT, Folds
from simulator.experiments.pairing.measured_pairs import SOLVERS, Floats, Measured, family, share

THREADS = "hardware threads there, turns on one core here"
_CACHE = ("PAPI_L", "DCM", "TCM", "ICM", "LDM", "STM")
_BRANCH = "PAPI_BR"


def rows(found: Measured, folds: Folds) -> list[Row]:
    """Return all claims, judged; ``folds`` is what three folds of the same records say."""
    return [
        *parallel.rows(found),
        *_losses(found),
        *_interactive(found),
        *_phase_one(found),
        *_phase_two(found, folds),
    ]


def _claim(id_: str, where: str, setting: str, quantity: str, paper: str) -> Claim:
    return Claim(id=id_, where=where, setting=setting, quantity=quantity, paper=paper)


def _losses(found: Measured) -> list[Row]:
    """Return P6 to P8: how large losses are."""
    batch = found.batch()
    e_v, e_o = batch["e_v"].to_numpy(), batch["e_o"].drop_nulls().to_numpy()
    total = (batch["e_v"] + batch["e_o"]).drop_nulls().to_numpy()
    shares = ", ".join(
        f"{share(values, most):.0%}" for values, most in ((e_v, 0.5), (e_o, 0.5), (total, 1.0))
    )
    medians = {
        str(name): float(np.median(part["e_v"].to_numpy()))
        for (name,), part in batch.group_by(["victim"], maintain_order=True)
    }
    worst = max(medians, key=lambda name: medians[name])
    solvers = {name: loss for name, loss in medians.items() if family(name) in SOLVERS}
    told = ", ".join(f"{name} {loss:.2f}" for name, loss in sorted(solvers.items()))
    unfit = _claim(
        "P7", "Fig. 4.3", "victim sp.B; victim cg.B", "E_v", "under 0.5; over 0.5: cg is unfit for sharing"
    )
    within = found.report.records
    return [
        Row.of(
            _claim(
                "P6",
                "Table 4.7",
                "800 batch-batch records",
                "E_v <= 0.5, E_o <= 0.5, E <= 1",
                "92%, 89%, 92%",
            ),
            not_comparable(THREADS),
            f"{shares} of {counted(len(e_v), 'pair')}; E_v within 0.02 of 0.5 in "
            f"{share(np.abs(e_v - 0.5), 0.02):.0%}",
        ),
        Row.of(
            unfit,
            fact(
                holds=medians[worst] > 0.55,
                note="an application unfit for sharing is one whose median loss is over 0.55",
            ),
            f"worst victim: {worst}, median {medians[worst]:.2f}; of solvers {told}",
        ),
        Row.of(
            _claim("P8", "4.2.3", "most NAS victims", "E_v", "under 0.5"),
            not_comparable(THREADS),
            f"medians of solvers {told}; {counted(len(within), 'pair')} of all {verb(len(within))} "
            "surely on one side of 0.5",
        ),
    ]


def _interactive(found: Measured) -> list[Row]:
    """Return P9 to P12: opponents that sleep."""
    e_v, e_o = found.twins("e_v"), found.twins("e_o")
    both = {name: e_v[name] + e_o[name] for name in e_v if len(e_v[name]) == len(e_o.get(name, ()))}
    made = [
        _difference(
            _claim(
                id_,
                "Table 4.8",
                "interactive against batch opponent",
                f"{what} difference, mean / median",
                paper,
            ),
            values,
        )
        for id_, what, paper, values in (
            ("P9", "E_v", "+0.04 / +0.02", e_v),
            ("P10", "E_o", "+0.15 / +0.16", e_o),
            ("P11", "E", "+0.19 / +0.19", both),
        )
    ]
    cause = _claim(
        "P12", "4.2.3", "cause of P9 to P11", "who suffers", "the interactive job: its cache content is gone"
    )
    cached = [name for name in e_o if "chase" in name or "stream" in name]
    others = [name for name in e_o if name not in cached]
    if not cached or not others:
        return [*made, Row.of(cause, not_comparable("no mimics with and without a working set in the cache"))]
    gap = [float(one - other) for one, other in zip(e_o[cached[0]], e_o[others[0]], strict=False)]
    told = ", ".join(f"{name}: E_o {values.mean():+.3f}" for name, values in e_o.items())
    return [*made, Row.of(cause, direction(gap), f"against the same without sleep, {told}")]


def _difference(claim: Claim, values: dict[str, Floats]) -> Row:
    every = np.concatenate(list(values.values())) if values else np.empty(0)
    if not len(every):
        return Row.of(claim, not_comparable("no application was measured both with and without sleep"))
    by = ", ".join(f"{name} {one.mean():+.3f}" for name, one in values.items())
    return Row.of(claim, direction(every.tolist()), f"{every.mean():+.3f} / {np.median(every):+.3f} ({by})")


def _phase_one(found: Measured) -> list[Row]:
    """Return P13: clusters."""
    groups = found.report.clusters
    names = found.report.records.features.applications
    best = max(groups.silhouette, key=lambda k: groups.silhouette[k])
    chases = [name for name in (names[place] for place in groups.places) if family(name) in {"chase", "cg"}]
    homes = {
        int(label)
        for place, label in zip(groups.places.tolist(), groups.labels.tolist(), strict=True)
        if names[place] in chases
    }
    claim = _claim(
        "P13",
        "Fig. 4.5",
        "counters of dedicated runs",
        "clusters",
        "four; cg of all classes together and apart from the rest",
    )
    told = f"{best} by silhouette ({groups.silhouette[best]:.2f}); chases of all sizes are in {len(homes)}"
    return [Row.of(claim, fact(holds=len(homes) == 1, note="chases stand for cg: both read at random"), told)]


def _phase_two(found: Measured, sets: Folds) -> list[Row]:
    """Return P14 to P19: regression."""
    report = found.report
    kept = list(report.kept)
    caches = sum(any(word in name for word in _CACHE) and _BRANCH not in name for name in kept)
    branches = sum(_BRANCH in name for name in kept)
    drawn = report.stepwise["random"]
    between = f"{100 * drawn.low:.0f} to {100 * drawn.high:.0f}"
    folds = f"{drawn.accuracy:.0%} ({between}), majority {report.majority:.0%}"
    dangerous = report.records.dangerous
    missed = [float(((report.unseen.probability <= cut) & dangerous).mean()) for cut in (0.5, 0.3)]
    counts = [sum(one.is_wrong() for one in sets.fit if one.fold == fold) for fold in (1, 2, 3)]
    overlooked = sum(one.is_wrong() and one.dangerous for one in sets.fit)
    everyone, without = accuracy_of(sets.all), accuracy_of(sets.fit)
    return [
        Row.of(
            _claim(
                "P14",
                "Table 4.9",
                "dataset2",
                "kinds of counters kept",
                "cache, memory and branch; 11 of them, 31 for dataset1",
            ),
            fact(holds=caches > 0 and branches > 0),
            f"{len(kept)}: {caches} of caches and memory, {branches} of branches",
        ),
        Row.of(
            _claim("P15", "Table 4.10", "dataset1, folds 1 to 3", "accuracy", "96%, 92%, 93%"),
            not_comparable(THREADS),
            f"{folds} at random as there; victims never seen {report.accuracies['application'].accuracy:.0%}",
        ),
        Row.of(
            _claim(
                "P16",
                "Table 4.10",
                "dataset2, folds 1 to 3",
                "accuracy",
                "98%, 96%, 98%: excluding dangerous applications helps",
            ),
            fact(holds=without > everyone, note=f"{UNFIT} stands for cg: both read at random")
            if sets.fit
            else not_comparable("too few records"),
            f"{without:.0%} of {len(sets.fit)} without {UNFIT}, with it {everyone:.0%} of {len(sets.all)}",
        ),
        Row.of(
            _claim(
                "P17",
                "Table 4.11",
                "dataset2",
                "mispredictions",
                "13 of 591: 4 false negatives, 9 false positives",
            ),
            not_comparable(THREADS),
            f"{sum(counts)} of {len(sets.fit)}: {overlooked} false negatives, "
            f"{sum(counts) - overlooked} false positives; victims never seen: {missed[0]:.1%} missed",
        ),
        Row.of(
            _claim("P18", "Table 4.11", "folds 1, 2, 3", "mispredictions", "3, 7, 3"),
            not_comparable("which records are in a fold is drawn"),
            f"{', '.join(map(str, counts))}",
        ),
        Row.of(
            _claim("P19", "4.3.3", "cut lowered to 0.3", "false negatives", "2 of 4 become right"),
            fact(holds=missed[1] < missed[0]),
            f"{missed[0]:.1%} of all pairs at 0.5, {missed[1]:.1%} at 0.3",
        ),
    ]


def by_victim(found: Measured) -> pl.DataFrame:
    """Return median, least and largest loss of each victim."""
    return (
        found.shared.group_by("victim")
        .agg(
            median=pl.col("e_v").median(),
            least=pl.col("e_v").min(),
            largest=pl.col("e_v").max(),
            by=pl.col("opponent").sort_by("e_v").last(),
        )
        .sort("median", descending=True)
    )
