"""P1 to P19: what the thesis says of pairs, and what our pairs say.

The thesis's pairs share a core as hardware threads, ours take turns on one: 0.5 is the half of a core here,
and much of what is below it there is hyper-threading's. So magnitudes are printed and not judged, and of
directions those are judged that do not depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import polars as pl

from analysis.claims import ClaimRow, Judgement, direction, fact, not_comparable
from foundation.units import counted, verb
from predictor.dataset import PairKind
from predictor.model.linear_models import Clustering
from predictor.model.stepwise import accuracy_of
from simulator.experiment_page import ExperimentTable
from simulator.experiments.claim_study import Judged, WorldFigure, published_rows, rows_of
from simulator.experiments.pairing_tables import SOLVERS, UNFIT, Floats, Folds, MeasuredPairs, family, share

THREADS = "hardware threads there, turns on one core here"
WAKES = (
    "on one hardware thread a job that slept wins the core when it wakes, which is scheduling and not cache"
)
_CACHE = re.compile(r"PAPI_L\d|:l\d_")
_BRANCH = re.compile(r"PAPI_BR|:branch|:conditional_branches")


def rows(found: MeasuredPairs, folds: Folds) -> list[ClaimRow]:
    """Return all claims, judged; ``folds`` is what three folds of the same records say."""
    judged = _of_coupled(found) | _losses(found) | _interactive(found) | {"P13": _phase_one(found)}
    return rows_of(judged | _phase_two(found, folds))


def world_of(found: MeasuredPairs) -> list[WorldFigure]:
    """Return what the thesis prints of its pairs of serial programs, and ours."""
    serial = frozenset(f"P{number}" for number in range(6, 20))
    rows = (
        ("hardware threads that two programs have", 2, 1),
        ("applications", 29, len(found.shared["victim"].unique())),
        ("ordered pairs of batch programs", 800, found.batch().height),
    )
    return [WorldFigure(name, paper, ours, "", serial) for name, paper, ours in rows]


def _losses(found: MeasuredPairs) -> dict[str, Judged]:
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
    text = ", ".join(f"{name} {loss:.2f}" for name, loss in sorted(solvers.items()))
    within = len(found.report.records)
    near = f"E_v within 0.02 of 0.5 in {share(np.abs(e_v - 0.5), 0.02):.0%}"
    one_side = f"{counted(within, 'pair')} of all {verb(within)} surely on one side of 0.5"
    return {
        "P6": (not_comparable(THREADS), f"{shares} of {counted(len(e_v), 'pair')}; {near}"),
        "P7": (
            fact(
                holds=medians[worst] > 0.55,
                note="an application unfit for sharing is one whose median loss is over 0.55",
            ),
            f"worst victim: {worst}, median {medians[worst]:.2f}; of solvers {text}",
        ),
        "P8": (not_comparable(THREADS), f"medians of solvers {text}; {one_side}"),
    }


def _interactive(found: MeasuredPairs) -> dict[str, Judged]:
    """Return P9 to P12: opponents that sleep."""
    e_v, e_o = found.twins("e_v"), found.twins("e_o")
    both = {name: e_v[name] + e_o[name] for name in e_v if len(e_v[name]) == len(e_o.get(name, ()))}
    own = ", ".join(f"{name}: E_o {values.mean():+.3f}" for name, values in e_o.items())
    return {
        "P9": _difference(e_v, direction),
        "P10": _difference(e_o, partial(not_comparable, WAKES)),
        "P11": _difference(both, partial(not_comparable, WAKES)),
        "P12": (not_comparable(WAKES), f"against the same without sleep, {own}" if own else ""),
    }


def _difference(values: dict[str, Floats], judge: Callable[[list[float]], Judgement]) -> Judged:
    every = np.concatenate(list(values.values())) if values else np.empty(0)
    if not len(every):
        return not_comparable("no application was measured both with and without sleep"), ""
    by = ", ".join(f"{name} {one.mean():+.3f}" for name, one in values.items())
    return judge(every.tolist()), f"{every.mean():+.3f} / {np.median(every):+.3f} ({by})"


def _phase_one(found: MeasuredPairs) -> Judged:
    """Return P13: clusters, four as in the thesis; how many the silhouette would have is given."""
    groups, four = found.report.clusters, found.report.four
    names = found.report.records.features.applications
    best = max(groups.silhouette, key=lambda k: groups.silhouette[k])

    def homes(of: Clustering) -> list[int]:
        pairs = zip(of.places.tolist(), of.labels.tolist(), strict=True)
        return sorted({int(label) for place, label in pairs if family(names[place]) in {"chase", "cg"}})

    together = homes(four)
    apart = len(together) == 1 and all(
        family(names[place]) in {"chase", "cg"} for place in four.members(together[0]).tolist()
    )
    own = f"{counted(len(together), 'group')}{', with no other' if apart else ''}"
    text = (
        f"of four, chases of all sizes are in {own}; {best} by silhouette ({groups.silhouette[best]:.2f}): "
        f"in {len(homes(groups))}"
    )
    note = "judged is k = 4, and that they are together; chases replace cg: both read at random"
    return fact(holds=len(together) == 1, note=note), text


def _phase_two(found: MeasuredPairs, sets: Folds) -> dict[str, Judged]:
    """Return P14 to P19: regression."""
    report = found.report
    kept = list(report.kept)
    caches = sum(bool(_CACHE.search(name)) for name in kept)
    branches = sum(bool(_BRANCH.search(name)) for name in kept)
    drawn = report.stepwise["random"]
    between = f"{100 * drawn.low:.0f} to {100 * drawn.high:.0f}"
    folds = f"{drawn.accuracy:.0%} ({between}), majority {report.majority:.0%}"
    dangerous = report.records.dangerous
    missed = [float(((report.unseen.probability <= cut) & dangerous).mean()) for cut in (0.5, 0.3)]
    counts = [sum(one.is_wrong() for one in sets.fit if one.fold == fold) for fold in (1, 2, 3)]
    overlooked = sum(one.is_wrong() and one.dangerous for one in sets.fit)
    everyone, without = accuracy_of(sets.all), accuracy_of(sets.fit)
    wrong = f"{overlooked} false negatives, {sum(counts) - overlooked} false positives"
    return {
        "P14": (
            fact(holds=caches > 0 and branches > 0),
            f"{len(kept)}: {caches} of caches and memory, {branches} of branches",
        ),
        "P15": (
            not_comparable(THREADS),
            f"{folds} at random as there; victims never seen {report.accuracies['application'].accuracy:.0%}",
        ),
        "P16": (
            fact(holds=without > everyone, note=f"{UNFIT} replaces cg: both read at random")
            if sets.fit
            else not_comparable("too few records"),
            f"{without:.0%} of {len(sets.fit)} without {UNFIT}, with it {everyone:.0%} of {len(sets.all)}",
        ),
        "P17": (
            not_comparable(THREADS),
            f"{sum(counts)} of {len(sets.fit)}: {wrong}; victims never seen: {missed[0]:.1%} missed",
        ),
        "P18": (not_comparable("which records are in a fold is drawn"), ", ".join(map(str, counts))),
        "P19": (
            fact(holds=missed[1] < missed[0]),
            f"{missed[0]:.1%} of all pairs at 0.5, {missed[1]:.1%} at 0.3",
        ),
    }


def by_victim(found: MeasuredPairs) -> pl.DataFrame:
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


SPEEDS = "speeds of other machines"
_NO = "the pairs have no jobs of two ranks {}: measure them with --kinds {}"


def degradation(losses: Floats) -> Floats:
    """Return how far a shared speed is below half of the dedicated one, as a share of that half."""
    lost: Floats = 2.0 * losses - 1.0
    return lost


def partly_shared(found: MeasuredPairs) -> pl.DataFrame:
    """Return the pairs in which a job of several ranks shares one core of its cores with a job of one."""
    frame = found.of_kind(PairKind.TIMESLICE)
    return frame.filter(pl.col("victim").is_in(found.coupled) & pl.col("opponent").is_in(found.single))


def _of_coupled(found: MeasuredPairs) -> dict[str, Judged]:
    """Return P1 to P5."""
    naive, gang = found.of_kind(PairKind.NAIVE), found.of_kind(PairKind.GANG)
    speeds = not_comparable(SPEEDS), ""
    return {
        "P1": _p1(partly_shared(found), naive),
        "P2": _p2(naive),
        "P3": _p3(naive, gang),
        "P4": speeds,
        "P5": speeds,
    }


def _p1(one_core: pl.DataFrame, naive: pl.DataFrame) -> Judged:
    both = _by_victim(one_core).join(_by_victim(naive), on="victim", suffix="_naive")
    if not both.height:
        return not_comparable(_NO.format("with one core shared", "timeslice")), ""
    lost = degradation(one_core["e_v"].to_numpy())
    gap = (both["e_v_naive"] - both["e_v"]).to_list()
    return direction(gap), f"{_spread(lost)}; judged: less than with all cores shared"


def _p2(naive: pl.DataFrame) -> Judged:
    if not naive.height:
        return not_comparable(_NO.format("on the same cores", "naive")), ""
    losses = naive["e_v"].to_numpy()
    return direction((losses - 0.5).tolist()), _spread(degradation(losses))


def _p3(naive: pl.DataFrame, gang: pl.DataFrame) -> Judged:
    both = gang.join(naive, on=("victim", "opponent"), suffix="_naive")
    if not both.height:
        return not_comparable(_NO.format("in gang slices", "gang")), ""
    gap = (both["e_v_naive"] - both["e_v"]).to_list()
    return direction(gap), f"{_spread(degradation(gang['e_v'].to_numpy()))}; judged: less than naive"


def coupled_table(found: MeasuredPairs) -> ExperimentTable:
    """Return our degradations next to the thesis's: one core shared, all of them, all with gang slices."""
    kinds = (partly_shared(found), found.of_kind(PairKind.NAIVE), found.of_kind(PairKind.GANG))
    means = [dict(_by_victim(frame).iter_rows()) for frame in kinds]
    lines: list[Sequence[str]] = [
        (name, "2", *(_percent(2 * own[name] - 1) if name in own else "-" for own in means))
        for name in sorted({name for own in means for name in own})
    ]
    lines += [
        (f"thesis: {name}", processes, *(_percent(float(value)) for value in values))
        for name, processes, *values in published_rows("4.4 to 4.6")
    ]
    return ExperimentTable(
        name="Parallel",
        title="how far jobs of several ranks fall below half of their speed alone (Tables 4.4 to 4.6)",
        columns=("victim", "ranks", "one core shared", "all shared", "all shared, gang slices"),
        rows=[tuple(line) for line in lines],
        notes=("means over all opponents; 0% is the half, below it is better than the half",),
    )


def _by_victim(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.group_by("victim").agg(pl.col("e_v").mean()).sort("victim")


def _spread(lost: Floats) -> str:
    median = f"{np.median(lost):.0%} in the median"
    return f"{lost.min():.0%} to {lost.max():.0%}, {median}, over {counted(len(lost), 'pair')}"


def _percent(value: float) -> str:
    return f"{value:.0%}"
