"""The findings of a study: a verdict in sentences, the claims in order, tables and figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import unescape
from pathlib import Path
from statistics import mean

from analysis.claims import ClaimRow
from foundation.units import counted, several, verb
from osub.physical import published
from osub.physical.cells import NAMES, longest_wait, mean_text, share_text
from osub.physical.claims_full import full_rows
from osub.physical.claims_pair import pair_findings, pair_rows
from osub.physical.claims_real import real_rows
from osub.physical.full_size import SHARED
from osub.physical.layouts import DEDICATED, GANGD, NAIVE, SharingLayout
from osub.physical.outcome import ReplayOutcome
from osub.physical.places import same_places
from osub.physical.plan import DAY, FIRST, StudyPlan, fitted_trace, plan_lines
from osub.physical.results import Results
from osub.physical.tables import all_tables, table_7_4
from simulator.experiment_page import Drawing
from simulator.experiments.claim_study import StudyFindings
from workloads.swf import SwfTrace

TITLE = "The thesis's physical study (chapter 7) again"
_HEAD_BYTES = 4096


def is_page(path: Path) -> bool:
    """Whether a file is a page of such a study, which another one may replace."""
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES).decode("utf-8", errors="replace")
    return f"<title>{TITLE}</title>" in unescape(head)


def findings(results: Results, first: SwfTrace, day: SwfTrace) -> StudyFindings:
    """Return everything that is shown; ``first`` and ``day`` are the traces for N12C12."""
    if results.plan.only is not None:
        return _pair_findings(results)

    def draw() -> list[Drawing]:
        from osub.physical.figures import drawings

        return drawings(results, day)

    return StudyFindings(
        title=TITLE,
        facts=[*verdict(results), *plan_lines(results.plan)],
        claims=claims(results),
        tables=all_tables(results, _traces(results.plan, results.layouts[DEDICATED.key], first, day)),
        figures=draw,
    )


def _pair_findings(results: Results) -> StudyFindings:
    """Return what is shown of a study of the pair alone."""

    def draw() -> list[Drawing]:
        from osub.physical.figures import PAIR_TITLE, pairs

        return [(PAIR_TITLE, pairs(results))] if results.pairs else []

    return StudyFindings(
        title=TITLE,
        facts=[*pair_findings(results), _evidence(results), *plan_lines(results.plan)],
        claims=pair_rows(results),
        tables=[table_7_4(results)],
        figures=draw,
    )


def claims(results: Results) -> list[ClaimRow]:
    """Return all claims by number; the thesis's own size after the cluster at hand."""
    rows = [*pair_rows(results), *real_rows(results), *full_rows(results.full)]
    return sorted(rows, key=lambda row: (int(row.id.split()[0][1:]), " " in row.id))


def verdict(results: Results) -> list[str]:
    """Return what came of it in a few sentences."""
    lines: list[str] = []
    for workload in results.workloads():
        lines += _waits(results, workload)
    lines += pair_findings(results)
    same = same_places(results.full.places, published.SIMULATED_PLACES)
    at_once = mean(1 - one.waited() for one in results.full.outcomes[SHARED])
    lines.append(
        f"At the thesis's own size, simulated, {same} of {len(published.SIMULATED_PLACES)} jobs of Table 7.8 "
        f"lie where its simulation puts them, and SQ M=2 starts {at_once:.0%} of the interactive jobs at "
        "once."
    )
    lines.append(_evidence(results))
    return lines


def _waits(results: Results, workload: str) -> Iterator[str]:
    waits, shares = (
        [results.values(key, value, workload) for key in (DEDICATED.key, NAIVE.key, GANGD.key)]
        for value in (longest_wait("interactive"), ReplayOutcome.waited)
    )
    if waits[0] and (waits[1] or waits[2]):
        alone, naive, gangd = (f"{mean_text(of)} s" if of else "not known" for of in waits)
        yield (
            f"{NAMES[workload].capitalize()}: the longest wait of an interactive job is {alone} with M=1, "
            f"{naive} with M=2 naive, {gangd} under gangd; of these "
            f"jobs {', '.join(map(share_text, shares))} wait at all."
        )


def _evidence(results: Results) -> str:
    whole = len(results.plan.items())
    planned = "" if results.made >= whole else f" (of {whole} planned)"
    replays = f"{results.made}{planned} {several(results.made, 'replay')}"
    failed = sum(outcome.failed for of in results.real.values() for outcome in of.values())
    if failed:
        replays += f" in which {counted(failed, 'job')} did not complete"
    if not results.unfit:
        known = f", {results.unwatched} of them without a watch on the host" if results.unwatched else ""
        return f"Evidence: {replays}{known}; none is known to be disturbed by others' work."
    why = next(iter(results.unfit.values()))
    return (
        f"Evidence: {len(results.unfit)} of {replays} {verb(len(results.unfit))} unfit to "
        f"judge by (in the first {why}): make them again on a quiet host (--again-unfit) before anything is "
        "concluded from its times."
    )


def _traces(
    plan: StudyPlan, layout: SharingLayout, first: SwfTrace, day: SwfTrace
) -> Sequence[tuple[str, SwfTrace]]:
    here = f"N{plan.nodes}C{plan.cores}"
    found = [
        ("first hours, N12C12", first),
        (f"first hours, {here}", fitted_trace(first, plan, layout, plan.compression(FIRST))),
        ("whole day, N12C12", day),
    ]
    if plan.draws:
        found.append((f"whole day, {here}", fitted_trace(day, plan, layout, plan.compression(DAY))))
    return found
