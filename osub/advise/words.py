"""Advice in words: what to do first, then what is sure and what is not, figures, and lines to paste."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from analysis.claims import Estimate
from analysis.verdict.paired_differences import QuantityDifference
from deploy.shape import sharing_words
from foundation.units import counted, counted_of, duration, durations, number, seconds_to_minutes_up, verb
from osub.advise.site_log import JobClass, MemoryFacts, SiteLog, efficiency
from osub.advise.trials import Advice, Group, Scenario, Sharing, Trial

if TYPE_CHECKING:
    from analysis.charts import Chart

Table = tuple[str, list[str], list[list[str]]]
FITTING = 0.95
"""A multiplicity whose jobs' peaks fit together for less of the core time is not possible without a rule."""


@dataclass(frozen=True, slots=True)
class AdviceText:
    """What to print: paragraphs (heading, words), tables, files (name, lines), and facts for JSON."""

    found: Advice
    title: str
    paragraphs: list[tuple[str, str]]
    tables: list[Table]
    files: list[tuple[str, str]]
    facts: dict[str, object]

    @property
    def short_tables(self) -> list[Table]:
        """The tables for a terminal: choices at the usual C_o, and with every job busy."""
        classes, (title, head, rows) = self.tables
        shown = {str(self.found.scenarios[0]), str(self.found.stress)}
        return [classes, (f"{title} (--out: at each C_o)", head, [row for row in rows if row[1] in shown])]

    def json(self) -> str:
        """Return the facts as JSON, with the paragraphs."""
        (_, first), *others = self.paragraphs
        words = {"recommendation": first} | {name.lower().replace(" ", "_"): text for name, text in others}
        return json.dumps({"words": words, "files": dict(self.files)} | self.facts, indent=2) + "\n"

    def write_page(self, out: Path) -> None:
        """Write one page that is complete in itself; raises OutputError."""
        from analysis.pages import Page, PageBlock, PageTable, Section, VerdictParagraph, write_page

        (_, first), check, *others = self.paragraphs
        chart = _chart(self.found)
        sections = [Section("picture", "Picture", [PageBlock("", chart.caption, chart=chart)])]
        for place, (title, head, rows) in enumerate(self.tables):
            grid = PageTable(columns=tuple(head), rows=rows, texts=2, heads=True)
            sections.append(Section(f"table{place}", title, [PageBlock("", "", grid=grid)]))
        files = [PageBlock(name, "", notes=lines.splitlines()) for name, lines in self.files]
        page = Page(
            title=self.title,
            subtitle="osub advise: what sharing cores would have done to the jobs of this log, simulated.",
            answer=[VerdictParagraph("", first), VerdictParagraph(*check)],
            verdict=[VerdictParagraph(name, words, "muted") for name, words in others],
            sections=[*sections, *([Section("files", "Lines to paste", files)] if files else [])],
        )
        write_page(out, page, makes_folder=True)


def advice_text(log: SiteLog, classes: Sequence[JobClass], memory: MemoryFacts, found: Advice) -> AdviceText:
    """Return the advice in words; of a choice that helps, with the lines to try it."""
    best, name = found.best, log.columns.name
    paragraphs = [("", _recommendation(log, found)), ("Check", _check(found)), ("The log", _log(log, found))]
    paragraphs += [("Memory", _memory(memory)), ("Certain", _certain(found))]
    paragraphs += [("Not certain", _uncertain(memory, found))]
    if best is not None:
        paragraphs.append(("Energy", _energy(best, found)))
    facts: dict[str, object] = {
        "log": name,
        "system": str(log.system),
        "system_source": log.system_source,
        "jobs": found.jobs,
        "jobs_in_log": found.jobs_in_log,
        "left_out": found.left_out,
        "blocks": {"of": log.block_name, "count": found.blocks},
        "wait_mean_s": {"log": found.own_wait_s, "simulated": found.simulated_wait_s},
        "credible": found.is_credible,
        "candidate": None if found.candidate is None else found.candidate.partition,
        "efficiency": efficiency(log, log.run_s > 0),
        "memory": {"requested_over_used": memory.requested_over_used, "fits": memory.fits},
        "best": None
        if best is None
        else msgspec.to_builtins(best.sharing) | {"outcome": found.outcome(best)},
        "trials": [
            msgspec.to_builtins(one) | ({"outcome": found.outcome(one)} if one.sharing.is_shared else {})
            for one in found.trials
        ],
    }
    tables = [_class_table(classes), _trial_table(found)]
    return AdviceText(found, f"Sharing cores on {name}", paragraphs, tables, _files(log, found), facts)


def choice_name(sharing: Sharing, found: Advice) -> str:
    """Return a choice in a few words."""
    peaks = ", admitted by peaks of memory" if sharing.by_peaks else ""
    if sharing.nodes is None or found.candidate is None:
        return f"M={sharing.multiplicity} for all{peaks}"
    nodes = counted(sharing.nodes, "node")
    return f"M={sharing.multiplicity} for {found.candidate.partition} on {nodes}{peaks}"


def _recommendation(log: SiteLog, found: Advice) -> str:
    best, first = found.best, found.scenarios[0]
    if not found.shared:
        return f"There is no choice to try on {log.system}."
    if all(found.outcome(one) == "too short" for one in found.shared):
        return (
            f"This log is too short for advice: {counted(found.blocks, log.block_name)} "
            f"{verb(found.blocks, 'counts', 'count')}, and an interval needs five. Take a log of some months."
        )
    if best is None:
        wait_s = found.shared[0].difference(first, "all", "wait_s").reference
        if wait_s < max(found.shared[0].least_gain_s, 0.01 * log.run_s[log.run_s > 0].mean()):
            return f"Sharing does not help this workload: jobs hardly wait ({duration(wait_s)} on average)."
        mildest = max(found.shared, key=lambda one: min(map(one.saved_s, found.scenarios)))
        return f"Sharing does not help this workload. The mildest choice: {_why_not(mildest, first, found)}."
    good = [one for one in found.scenarios if best.helps_in(one, found.question.most_degradation)]
    words = _best_words(best, good[0], found)
    if found.outcome(best) == "helps":
        trust = ""
        if found.stress is not None and not best.helps_in(found.stress, found.question.most_degradation):
            trust = f", if the log's CPU times are right ({efficiency(log, log.run_s > 0) or 1:.0%} busy)"
        return f"{words} It helps at each C_o tried ({_costs(good)}){trust}."
    bad = [one for one in found.scenarios if one not in good]
    return (
        f"Whether sharing helps depends on what was never measured. {words} It helps at {_listed(good)}, "
        f"and not at {_listed(bad)}: measure first."
    )


def _best_words(best: Trial, scenario: Scenario, found: Advice) -> str:
    wait, slowed = (best.difference(scenario, best.target, name) for name in ("wait_s", "degradation"))
    jobs = f"share cores, {best.sharing.multiplicity} jobs a core"
    peaks = " Admit them by their peaks of memory, not by what they ask for." if best.sharing.by_peaks else ""
    figures = f"{_less(wait)}, and run {number(slowed.other)} times as long as alone ({scenario})."
    if best.sharing.nodes is None or found.candidate is None:
        return f"Let all jobs {jobs}: they wait {figures}{peaks}"
    other = best.difference(scenario, "rest", "wait_s")
    apart = next((one for one in found.trials if one.sharing == Sharing(1, best.sharing.nodes)), None)
    alone = (
        "" if apart is None else duration(apart.difference(found.scenarios[0], "candidate", "wait_s").other)
    )
    return (
        f"Let the partition {found.candidate.partition} ({found.candidate.name}), on "
        f"{counted(best.sharing.nodes, 'node')}, {jobs}: its jobs wait {figures} The other jobs keep one "
        f"job a core and wait {_less(other)}."
        + (f" Such nodes without sharing would make it {alone}." if alone else "")
        + peaks
    )


def _why_not(one: Trial, scenario: Scenario, found: Advice) -> str:
    """Return which of the conditions a choice breaks, first in jobs that share, then in the others."""
    ends = one.difference(scenario, one.target, "turnaround_s")
    slowed = one.difference(scenario, one.target, "degradation").other
    name = f"with {choice_name(one.sharing, found)} at {scenario}, jobs that share"
    if ends.way is None:
        return f"{name} end neither clearly sooner nor later ({_later(ends)})"
    if ends.way == 1:
        return f"{name} end {_later(ends)}"
    if slowed > found.question.most_degradation:
        most = f"at most {found.question.most_degradation:g} is allowed, --most-degradation"
        return f"{name} run {number(slowed)} times as long ({most})"
    for group, whose in (("rest", "the other jobs"), ("candidate", "those that could have a partition")):
        other = one.differences[str(scenario)].get(group, {}).get("turnaround_s")
        if other is not None and other.way == 1:
            return f"{name} end {_later(ends)}, but {whose} end {_later(other)}"
    return f"{name} end {_later(ends)}, which few notice"


def _less(one: QuantityDifference) -> str:
    """Return a time after, before, and the interval of the change: 4 min instead of 29 min (less by ...)."""
    change = one.change
    low, high = -(change.high or 0), -(change.low or 0)
    before, after, least, most = durations(one.reference, one.other, low, high)
    if one.way is None:
        return f"{after} instead of {before} (no clear difference)"
    if change.mean > 0:
        _, _, least, most = durations(one.reference, one.other, -high, -low)
    return f"{after} instead of {before} ({'less' if change.mean < 0 else 'more'} by {least} to {most})"


def _later(one: QuantityDifference) -> str:
    change, sign = one.change, 1 if one.change.mean >= 0 else -1
    bounds = sorted((sign * (change.low or 0), sign * (change.high or 0)))
    mean, low, high = durations(abs(change.mean), *bounds)
    return f"{mean} [{low}, {high}] {'later' if sign > 0 else 'sooner'}"


def _listed(scenarios: Sequence[Scenario]) -> str:
    return "; ".join(map(str, scenarios))


def _costs(scenarios: Sequence[Scenario]) -> str:
    return ", ".join(f"{cost:g}" for cost in sorted({one.overhead for one in scenarios}))


def _check(found: Advice) -> str:
    if found.own_wait_s is None:
        return "The log has no waits, so the simulation could not be held against it. The advice is relative."
    own, simulated = durations(found.own_wait_s, found.simulated_wait_s)
    words = f"Simulated as it was ({found.question.policy}), jobs wait {simulated}; in the log {own}."
    if found.is_credible:
        return words
    return (
        f"{words} They differ much: the log does not have limits, priorities, reservations, outages or some "
        "of the jobs. Take the advice as relative: which choice waits less, not its hours."
    )


def _log(log: SiteLog, found: Advice) -> str:
    why = ", ".join(f"{what} {many:,}" for what, many in found.left_out.items() if many)
    busy = efficiency(log, log.run_s > 0)
    cpu = "no CPU time (TotalCPU)" if busy is None else f"cores compute for {busy:.0%} of their time"
    windows = " (windows of whole weeks, --most-jobs)" if found.is_cut else ""
    return (
        f"{counted(found.jobs_in_log, 'job')} on {log.system} ({log.system_source}); {cpu}. Left out: "
        f"{why or 'none'}. {counted_of(found.jobs, found.jobs_in_log, 'job')} count{windows}: the first "
        f"{log.block_name} is for warming up. Intervals of 95% are drawn from "
        f"{counted(found.blocks, log.block_name)}."
    )


def _memory(memory: MemoryFacts) -> str:
    over = memory.requested_over_used
    words = "" if over is None else f"Jobs ask for {number(over)} times the memory that they use at most. "
    if not memory.fits:
        lacks = "give a node's, --memory-gib" if memory.is_known else "ask sacct for ReqMem and MaxRSS"
        return f"{words}Which M memory allows is not known, so every M here is unsure: {lacks}."
    parts = ", ".join(f"M={m} in {share:.0%}" for m, share in memory.fits.items())
    few = " and ".join(f"M={m}" for m, share in memory.fits.items() if share < FITTING)
    rule = (
        f" Memory forbids {few} for all, unless Slurm admits jobs by memory (CR_Core_Memory)." if few else ""
    )
    return f"{words}The peaks of co-located jobs fit on their node with {parts} of the core time.{rule}"


def _certain(found: Advice) -> str:
    """Return what every scenario agrees in."""
    parts = []
    for one in found.shared:
        ways = {one.difference(scenario, one.target, "turnaround_s").way for scenario in found.scenarios}
        name = choice_name(one.sharing, found)
        if found.outcome(one) == "helps":
            parts.append(f"{name} helps at every C_o tried")
        elif ways == {1}:
            parts.append(f"{name} makes jobs end later at every C_o tried")
    return f"{'; '.join(parts)}." if parts else "No choice is better, or worse, under all that was assumed."


def _uncertain(memory: MemoryFacts, found: Advice) -> str:
    parts = []
    if len(found.question.overheads) > 1:
        parts.append(
            "What sharing costs (C_o). `osub demo` measures it on a host of yours, for `--overhead RUN`; "
            "`osub predict pair A B --measure` for two of your programs."
        )
    best, stress = found.best, found.stress
    if stress is None or found.scenarios[0].utilisation is not None:
        parts.append("For how much of their time jobs compute: ask sacct for TotalCPU.")
    if stress is not None and best is not None:
        ends = best.difference(stress, best.target, "turnaround_s")
        still = "still helps" if best.helps_in(stress, found.question.most_degradation) else "does not help"
        parts.append(
            "CPU time: accounting may miss some, and gangd's hold = \"freeze\" gives an owner's idle time to "
            f"no other job. If every job were busy all along, the choice {still} (jobs end {_later(ends)})."
        )
    if not memory.fits:
        parts.append("Memory: see above.")
    parts.append("Slices of gangd: C_o is taken for their cost. Behaviour: users who wait less submit more.")
    return " ".join(parts)


def _energy(best: Trial, found: Advice) -> str:
    (low, high), (least, most) = found.energy_mwh, best.energy
    idle = " to ".join(f"{watts:g}" for watts in found.question.idle_w)
    way = "more" if least > 0 else "less" if most < 0 else ""
    return (
        f"{number(low)} to {number(high)} MWh for these jobs (a node takes {idle} W without work and "
        f"{found.question.busy_w:g} W with it; without jobs it is off, or on). The choice changes that by "
        f"{least:+.1%} to {most:+.1%}: {f'{way} in any case' if way else 'which way cannot be said'}."
    )


def _class_table(classes: Sequence[JobClass]) -> Table:
    head = ["jobs", "partition", "number", "core time", "CPU efficiency", "run, median", "wait, mean"]
    rows = [
        [
            f"{one.name}, {counted(one.most_nodes, 'node')} at most",
            one.partition,
            f"{int(one.members.sum()):,}",
            f"{one.core_share:.1%}",
            "not known" if one.efficiency is None else f"{one.efficiency:.0%}",
            duration(one.run_median_s),
            "not known" if one.wait_mean_s is None else duration(one.wait_mean_s),
        ]
        for one in classes
    ]
    return "Classes of jobs: those with a low CPU efficiency and short runs gain by sharing", head, rows


def _trial_table(found: Advice) -> Table:
    head = ["choice", "assumed", "wait (before)", "ends sooner by", "run", "slowdown (before)"]
    head += ["others wait (before)", "energy", "helps"]
    rows = []
    for one in found.trials:
        scenarios = [*found.scenarios, *([found.stress] if found.stress else [])]
        for scenario in scenarios if one.sharing.is_shared else scenarios[:1]:
            ends, slowed, slow = (
                one.difference(scenario, one.target, name)
                for name in ("turnaround_s", "degradation", "bounded_slowdown")
            )
            helps = one.helps_in(scenario, found.question.most_degradation)
            rows.append(
                [
                    choice_name(one.sharing, found)
                    + (f" ({counted(one.left_out, 'job')} too wide)" if one.left_out else ""),
                    str(scenario),
                    _differs(one.difference(scenario, one.target, "wait_s")),
                    _sooner(ends.change),
                    f"x {number(slowed.other)}",
                    f"{number(slow.other)} ({number(slow.reference)})",
                    "" if one.target == "all" else _differs(one.difference(scenario, "rest", "wait_s")),
                    f"{one.energy[0]:+.1%} to {one.energy[1]:+.1%}",
                    ("yes" if helps else "no") if one.sharing.is_shared else "not shared",
                ]
            )
    return "What was simulated, for the jobs that share", head, rows


def _differs(one: QuantityDifference) -> str:
    before, after = durations(one.reference, one.other)
    return f"{after} ({before})"


def _sooner(change: Estimate) -> str:
    mean, low, high = durations(-change.mean, -(change.high or 0), -(change.low or 0))
    return mean if change.low is None else f"{mean} [{low}, {high}]"


def _chart(found: Advice) -> Chart:
    import plotly.graph_objects as go

    from analysis.charts import RUN_COLOURS, Chart, arrange

    first, figure = found.scenarios[0], go.Figure()
    groups: tuple[Group, ...] = ("candidate", "rest") if found.candidate is not None else ("all",)
    for place, group in enumerate(groups):
        each = [one.difference(first, group, "wait_s") for one in found.trials]
        figure.add_bar(
            name={"candidate": "jobs that could have a partition", "rest": "the other jobs"}.get(
                group, "all jobs"
            ),
            x=["as it was", *(choice_name(one.sharing, found) for one in found.trials)],
            y=[
                value / 3600 for value in (*(one.reference for one in each[:1]), *(one.other for one in each))
            ],
            marker_color=RUN_COLOURS[place],
        )
    arrange(figure, 420, barmode="group")
    figure.update_yaxes(title="mean wait [h]", rangemode="tozero")
    return Chart(figure, f"Mean waits as simulated, at {first}. The table below has intervals and the rest.")


def _files(log: SiteLog, found: Advice) -> list[tuple[str, str]]:
    """Return the lines of slurm.conf and gangd.toml that try the best choice on one partition."""
    best = found.best
    if best is None:
        return []
    several, cores = best.sharing.multiplicity, log.system.cores
    one = found.candidate if best.sharing.nodes else None
    nodes = best.sharing.nodes or max(1, log.system.nodes // 10)
    name, most = ("shared", "") if one is None else (one.partition, f" MaxNodes={one.most_nodes}")
    if one is not None and one.limit_s:
        most += f" MaxTime={seconds_to_minutes_up(one.limit_s)}"
    gib = found.question.memory_gib
    mib = None if gib is None else max(1, int(gib * 1024 / (cores * several)))
    lines = ["# SelectType=select/cons_tres, SelectTypeParameters=CR_Core_Memory, PreemptMode=OFF"]
    lines += [f"# NODES: {counted(nodes, 'node')} that no other partition has meanwhile"]
    lines += [] if mib else ["# add DefMemPerCPU: a node's memory in MiB over its cores and over M"]
    lines += [f"PartitionName={name} Nodes=NODES {sharing_words(several, mib)}{most} State=UP"]
    gangd = f'hold = "yield"\nquantum_ms = 250\n\n[partitions.{name}]\n  hold = "yield"'
    return [("slurm.conf", "\n".join(lines)), ("gangd.toml, by the steps of docs/production.md", gangd)]
