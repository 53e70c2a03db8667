"""What the dashboard shows: rows of panels, each with the expressions that it draws."""

from __future__ import annotations

from dataclasses import dataclass

C = 'job=~"$controller"'
A = 'job=~"$agents",instance=~"$instance"'
"""Which series: those of the scrape jobs, and of the nodes, that are chosen above the dashboard."""


@dataclass(frozen=True, slots=True)
class Query:
    """An expression, and how its series are called in the legend."""

    expr: str
    legend: str

    def called(self, legend: str) -> Query:
        """Return the same expression under another name."""
        return Query(self.expr, legend)


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: what it shows, in which unit (Grafana's name of it), and how wide it is of 24 columns."""

    title: str
    text: str
    unit: str
    queries: tuple[Query, ...]
    width: int = 8
    is_number: bool = False
    bad_from: float | None = None
    bad_below: float | None = None
    stacked: bool = False


def quantiles(metric: str, labels: str) -> tuple[Query, ...]:
    """Return the middle and the slowest of a hundred of a histogram."""
    return tuple(
        Query(
            f"histogram_quantile({of}, sum by (le) (rate({metric}_bucket{{{labels}}}[$__rate_interval])))",
            name,
        )
        for of, name in (("0.5", "median"), ("0.99", "99 of 100"))
    )


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Is it well?",
        (
            Panel(
                "Health",
                "Each check of /healthz: 1 holds.",
                "none",
                (Query(f"gangd_healthy{{{C}}}", "{{check}}"),),
                6,
                True,
                bad_below=1,
            ),
            Panel(
                "Agents",
                "Nodes by what is known of their agent.",
                "none",
                (Query(f"gangd_nodes{{{C}}}", "{{agent}}"),),
                6,
                True,
            ),
            Panel(
                "Jobs",
                "Running, sharing cores, and held in this slice.",
                "none",
                (
                    Query(f"gangd_jobs_running{{{C}}}", "running"),
                    Query(f"gangd_jobs_shared{{{C}}}", "share"),
                    Query(f"sum(gangd_jobs_held{{{C}}})", "held"),
                ),
                6,
                True,
            ),
            Panel(
                "Alarms",
                "Alarms that stand.",
                "none",
                (Query(f"sum(gangd_alarms{{{C}}})", "alarms"),),
                3,
                True,
                bad_from=1,
            ),
            Panel(
                "Slurm's answer",
                "How old the newest is.",
                "s",
                (Query(f"gangd_slurm_age_seconds{{{C}}}", "age"),),
                3,
                True,
                bad_from=30,
            ),
        ),
    ),
    (
        "Gangs and slices",
        (
            Panel(
                "Gangs by state",
                "docs/states.md says what they mean.",
                "none",
                (Query(f"gangd_gangs{{{C}}}", "{{state}}"),),
                stacked=True,
            ),
            Panel(
                "Held jobs",
                "In the present slice, by how they are held.",
                "none",
                (Query(f"gangd_jobs_held{{{C}}}", "{{hold}}"),),
                stacked=True,
            ),
            Panel(
                "Nodes without agent",
                "Gangs with such a node are held nowhere.",
                "none",
                (Query(f'gangd_nodes{{{C},agent!="joined"}}', "{{agent}}"),),
                bad_from=1,
            ),
            Panel(
                "Length of slices",
                "What holds, and what was asked for: longer while switches are late.",
                "s",
                (
                    Query(f"gangd_slice_seconds{{{C}}}", "is"),
                    Query(f"gangd_slice_asked_seconds{{{C}}}", "asked"),
                    Query(f"gangd_lookahead_slices{{{C}}} * gangd_slice_seconds{{{C}}}", "final ahead"),
                ),
            ),
            Panel(
                "Lost to switching",
                "Part of a slice, on nine of ten nodes at most.",
                "percentunit",
                (Query(f"gangd_switch_lost_ratio{{{C}}}", "lost"),),
                bad_from=0.03,
            ),
            Panel(
                "Deciding",
                "How long one decision takes, with telling all nodes.",
                "s",
                (
                    *quantiles("gangd_decision_seconds", C),
                    quantiles("gangd_decision_cpu_seconds", C)[1].called("99 of 100, CPU time"),
                ),
                bad_from=0.25,
            ),
        ),
    ),
    (
        "What goes wrong",
        (
            Panel(
                "Alarms by kind",
                "osub top has their texts.",
                "none",
                (Query(f"gangd_alarms{{{C}}} > 0", "{{kind}}"),),
                stacked=True,
            ),
            Panel(
                "Faults of agents",
                "Of all nodes together, a minute.",
                "none",
                (Query(f"60 * rate(gangd_agent_faults_total{{{C}}}[$__rate_interval]) > 0", "{{kind}}"),),
            ),
            Panel(
                "Messages refused",
                "A minute, by reason.",
                "none",
                (
                    Query(
                        f"60 * rate(gangd_messages_dropped_total{{{C}}}[$__rate_interval]) > 0", "{{reason}}"
                    ),
                ),
            ),
            Panel(
                "Slurm",
                "Questions without an answer, ends moved and refused; a minute.",
                "none",
                (
                    Query(f"60 * rate(gangd_slurm_failures_total{{{C}}}[$__rate_interval])", "no answer"),
                    Query(f"60 * rate(gangd_ends_moved_total{{{C}}}[$__rate_interval])", "ends moved"),
                    Query(f"60 * rate(gangd_ends_refused_total{{{C}}}[$__rate_interval])", "ends refused"),
                ),
            ),
            Panel(
                "Slice record",
                "With its older files.",
                "bytes",
                (Query(f"gangd_record_bytes{{{C}}}", "size"),),
            ),
            Panel(
                "Connections", "Two for each agent.", "none", (Query(f"gangd_connections{{{C}}}", "open"),)
            ),
        ),
    ),
    (
        "Agents",
        (
            Panel(
                "Switches begin late",
                "After the instant of their slice, all nodes together.",
                "s",
                quantiles("gang_agent_switch_late_seconds", A),
                bad_from=0.01,
            ),
            Panel(
                "Switches take",
                "From the instant to the last write.",
                "s",
                quantiles("gang_agent_switch_seconds", A),
            ),
            Panel(
                "Not well",
                "Agents for which a check does not hold.",
                "none",
                (Query(f"sum by (check) (1 - gang_agent_healthy{{{A}}})", "{{check}}"),),
                bad_from=1,
            ),
            Panel(
                "Held",
                "Jobs that are held at a time, on average, all nodes added up.",
                "none",
                (
                    Query(
                        f"sum by (hold) (rate(gang_agent_held_job_seconds_total{{{A}}}[$__rate_interval]))",
                        "{{hold}}",
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "Leaks",
                "CPU time that frozen jobs use all the same: cores.",
                "none",
                (
                    Query(
                        f"topk(5, rate(gang_agent_leaked_cpu_seconds_total{{{A}}}[$__rate_interval]))",
                        "{{instance}}",
                    ),
                ),
                bad_from=0.05,
            ),
            Panel(
                "Jobs without a step",
                "Nothing runs in their allocation, or their folders cannot be read.",
                "none",
                (Query(f"topk(5, gang_agent_jobs_without_steps{{{A}}})", "{{instance}}"),),
            ),
            Panel(
                "Clocks",
                "How far the controller's clock may be from where agents believe it.",
                "s",
                (Query(f"max(gang_agent_clock_bound_seconds{{{A}}})", "worst"),),
            ),
            Panel(
                "Faults by node",
                "Most, a minute.",
                "none",
                (
                    Query(
                        f"topk(5, 60 * sum by (instance) (rate(gang_agent_faults_total{{{A}}}[5m])))",
                        "{{instance}}",
                    ),
                ),
            ),
            Panel(
                "Lease left",
                "Least of all agents; 0: an agent lets everything run.",
                "s",
                (Query(f"min(gang_agent_lease_seconds{{{A}}})", "least"),),
            ),
        ),
    ),
    (
        "What it costs",
        (
            Panel(
                "CPU of the controller",
                "Cores.",
                "none",
                (Query(f"rate(process_cpu_seconds_total{{{C}}}[$__rate_interval])", "gangd"),),
            ),
            Panel(
                "CPU of agents",
                "Cores; guardian not included.",
                "percentunit",
                (
                    Query(
                        f"quantile(0.5, rate(process_cpu_seconds_total{{{A}}}[$__rate_interval]))", "median"
                    ),
                    Query(f"max(rate(process_cpu_seconds_total{{{A}}}[$__rate_interval]))", "most"),
                ),
            ),
            Panel(
                "Memory",
                "Resident.",
                "bytes",
                (
                    Query(f"process_resident_memory_bytes{{{C}}}", "gangd"),
                    Query(f"max(process_resident_memory_bytes{{{A}}})", "agents, most"),
                ),
            ),
        ),
    ),
)
