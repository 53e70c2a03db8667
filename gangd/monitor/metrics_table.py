"""Metrics: the table of all, and their values by name and labels.

Every metric of controller and agent: name with its unit, kind, meaning, labels and all of their values.

The one declaration: what is exported, ``docs/metrics.md``, the dashboard and the alert rules are held against
it. Labels are few and their values known beforehand, so that every series is there from the first scrape on,
also while nothing happens. No series is of a job, a user or a node: nothing here grows with the cluster.

Counts of durations by bucket, as Prometheus wants them; cheap enough for every slice.

Values of metrics by name and labels, completed from the table: every declared series is there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import product


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram at an instant: upper bounds (s), what each bucket and all below it hold, and the sum (s).

    The last count is that of all.
    """

    bounds_s: tuple[float, ...]
    counts: tuple[int, ...]
    sum_s: float


class Histogram:
    """Counts durations; filled by one thread."""

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self._sum_s = 0.0

    def add(self, duration_s: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(self._bounds_s, duration_s)] += 1
        self._sum_s += duration_s

    def buckets(self) -> Buckets:
        """Return what was counted so far."""
        counts, so_far = [], 0
        for count in self._counts:
            so_far += count
            counts.append(so_far)
        return Buckets(self._bounds_s, tuple(counts), self._sum_s)


OTHER = "other"
"""Value of a label for what the table does not name."""


class MetricKind(StrEnum):
    """Prometheus's types of metrics."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes
    ----------
    name
        As it is exported; the unit is its last word, before ``_total`` of a counter and ``_info``.
    text
        What it means, in a sentence.
    labels
        Names of its labels with all values; of an ``INFO`` the values are free.
    bounds_s
        Upper bounds of a histogram's buckets, in seconds.
    """

    name: str
    text: str
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()
    bounds_s: tuple[float, ...] = ()

    @property
    def kind(self) -> MetricKind:
        """Its type, which its name tells; but a histogram is what has bounds."""
        if self.bounds_s:
            return MetricKind.HISTOGRAM
        if self.name.endswith("_info"):
            return MetricKind.INFO
        return MetricKind.COUNTER if self.name.endswith("_total") else MetricKind.GAUGE

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the labels."""
        return tuple(name for name, _ in self.labels)

    def series(self) -> Iterator[tuple[str, ...]]:
        """Yield the label values of every series."""
        return product(*(values for _, values in self.labels))

    def known(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """Return label values, ``OTHER`` in the place of each that is not declared."""
        if self.kind is MetricKind.INFO:
            return values
        return tuple(
            value if value in declared else OTHER
            for value, (_, declared) in zip(values, self.labels, strict=True)
        )


HOLDS = ("freeze", "yield")
ALARMS = (
    "agent",
    "agent lost",
    "blocked",
    "configuration",
    "disk",
    "fault",
    "flood",
    "foreign freeze",
    "foreign job",
    "key",
    "late switches",
    "limits",
    "marks",
    "memory",
    "message",
    "opt_out",
    "placement",
    "shared key",
    "slurm",
    "state",
    "thread",
    "unknown key",
    "unreadable",
    OTHER,
)
DROPPED = (
    "flood",
    "foreign_job",
    "invalid_event",
    "malformed",
    "replayed",
    "unknown_agent",
    "unsent_reply",
    "version",
    "wire",
    "wrong_node",
    OTHER,
)
FAULTS = (
    "agent_died",
    "bell",
    "reload_refused",
    "clock_doubted",
    "clock_jump",
    "exhausted",
    "foreign_controller",
    "freeze_failed",
    "freeze_retried",
    "guardian_missing",
    "inotify",
    "late_switch",
    "lease_over",
    "malformed",
    "memory",
    "missed_plan",
    "nested_freeze",
    "no_step",
    "refused",
    "replayed",
    "spared_long",
    "spared_slurmstepd",
    "stray",
    "thawed_by_guardian",
    "unknown_folder",
    "unseen",
    "version",
    "wire",
    "write_failed",
    "wrong_node",
    "yields_not",
    OTHER,
)
DECISION_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
SWITCH_S = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
CHECKS = ("agents", "lease", "slurm")
# As gangd.core.states has them; an agent does without that package, which needs numpy.
STATES = ("new", "solo", "busy", "idle", "waking", "deferred", "free", "foreign", "terminating")
AGENTS = ("unknown", "joined", "lost")

CONTROLLER = (
    Metric(
        "gangd_info",
        "Version of gangd, and whether it only tries (`--dry-run`). Always 1.",
        (("version", ()), ("dry_run", ())),
    ),
    Metric("gangd_up_seconds", "How long the controller has been serving."),
    Metric("gangd_healthy", "Whether a check of `/healthz` holds (1) or not (0).", (("check", CHECKS),)),
    Metric("gangd_nodes", "Nodes by what is known of their agent.", (("agent", AGENTS),)),
    Metric("gangd_gangs", "Gangs (jobs, or heterogeneous jobs) by state.", (("state", STATES),)),
    Metric("gangd_jobs_running", "Jobs that hold cores, as Slurm says."),
    Metric("gangd_jobs_shared", "Jobs that share a core with another."),
    Metric("gangd_jobs_held", "Jobs that are held in the present slice.", (("hold", HOLDS),)),
    Metric("gangd_slice_seconds", "Length of the present slice."),
    Metric("gangd_slice_asked_seconds", "Length that the configuration asks for (`quantum_ms`)."),
    Metric("gangd_lookahead_slices", "Slices that are final."),
    Metric(
        "gangd_switch_lost_ratio",
        "Part of time that nine of ten nodes lose to switches at most; NaN while no gang takes turns.",
    ),
    Metric(
        "gangd_decision_seconds",
        "Time of a decision: slices to come, and messages to all nodes.",
        bounds_s=DECISION_S,
    ),
    Metric(
        "gangd_decision_cpu_seconds",
        "CPU time of a decision: where it took much longer, others had the core.",
        bounds_s=DECISION_S,
    ),
    Metric("gangd_lease_seconds", "How long agents hold without a message."),
    Metric("gangd_slurm_age_seconds", "How old Slurm's newest answer is; NaN before the first."),
    Metric("gangd_slurm_failures_total", "Questions that Slurm did not answer."),
    Metric("gangd_ends_moved_total", "Ends of jobs that were moved."),
    Metric("gangd_ends_refused_total", "Ends of jobs that Slurm refused to move."),
    Metric(
        "gangd_messages_dropped_total",
        "Messages that were refused or could not be sent.",
        (("reason", DROPPED),),
    ),
    Metric(
        "gangd_agent_faults_total", "Faults that agents reported, of all nodes together.", (("kind", FAULTS),)
    ),
    Metric("gangd_alarms", "Alarms.", (("kind", ALARMS),)),
    Metric("gangd_connections", "Connections of agents and of other clients."),
    Metric("gangd_record_bytes", "Size of the slice record with its older parts; 0 where none is kept."),
)
AGENT = (
    Metric(
        "gang_agent_info",
        "Version of the agent, how it freezes and how jobs yield. Always 1.",
        (("version", ()), ("freezer", ()), ("yields", ()), ("dry_run", ())),
    ),
    Metric("gang_agent_up_seconds", "How long the agent has been serving."),
    Metric(
        "gang_agent_healthy",
        "Whether a check of `/healthz` holds (1) or not (0).",
        (("check", ("controller", "guardian", "loop")),),
    ),
    Metric("gang_agent_lease_seconds", "Rest of the lease under which jobs may be held; 0 when it is over."),
    Metric(
        "gang_agent_clock_bound_seconds",
        "How far the estimate of the controller's clock may be off; NaN while not known.",
    ),
    Metric("gang_agent_jobs", "Jobs of which a process was found on this node."),
    Metric(
        "gang_agent_jobs_without_steps",
        "Scheduled jobs without a step found here: nothing runs in them, or their folders cannot be read.",
    ),
    Metric("gang_agent_steps", "Job steps that were found on this node."),
    Metric("gang_agent_steps_held", "Steps that are held now.", (("hold", HOLDS),)),
    Metric("gang_agent_switch_late_seconds", "How long after its instant a switch began.", bounds_s=SWITCH_S),
    Metric(
        "gang_agent_switch_seconds",
        "Time from a slice's instant to the last write of its switch.",
        bounds_s=SWITCH_S,
    ),
    Metric(
        "gang_agent_held_job_seconds_total",
        "Time for which jobs were held here, all jobs added up.",
        (("hold", HOLDS),),
    ),
    Metric("gang_agent_leaked_cpu_seconds_total", "CPU time that frozen jobs used all the same."),
    Metric("gang_agent_faults_total", "What went wrong here.", (("kind", FAULTS),)),
    Metric(
        "gang_agent_memory_available_bytes",
        "Memory that can be allocated without paging; NaN where not measured (`memory_mib`).",
    ),
    Metric("gang_agent_memory_jobs_bytes", "Memory of all jobs here; 0 where not measured."),
    Metric(
        "gang_agent_memory_stalled_seconds_total",
        "Time for which some task waited for memory (/proc/pressure/memory).",
    ),
    Metric(
        "gang_agent_memory_paged_out_bytes_total",
        "Memory of frozen jobs that was advised to be paged out (`memory_reclaim`).",
    ),
    Metric("gang_agent_reports_total", "Reports to the controller."),
)
PROCESS = (
    Metric("process_cpu_seconds_total", "CPU time of the process."),
    Metric("process_max_fds", "Files that it may have open."),
    Metric("process_open_fds", "Files that it has open."),
    Metric("process_resident_memory_bytes", "Memory that it occupies."),
    Metric("process_start_time_seconds", "When it began, as seconds since 1970."),
    Metric("process_virtual_memory_bytes", "Addresses that it has."),
)
"""What the library adds for the process (``prometheus_client.ProcessCollector``)."""


Values = Mapping[tuple[str, ...], float]
Figures = Mapping[str, Values | Buckets | float]
"""By name: one value, one for each label value (a tuple of them), or a histogram."""

UNKNOWN = float("nan")


def complete(table: Iterable[Metric], figures: Figures) -> dict[Metric, Values | Buckets]:
    """Return every metric of a table with all of its series; one without a value is 0.

    Label values that the table does not declare are added up under ``OTHER``. KeyError for a metric that the
    table does not have: it would be missing in the documentation.
    """
    declared = {metric.name: metric for metric in table}
    unknown = figures.keys() - declared.keys()
    if unknown:
        raise KeyError(f"not in the table of metrics: {', '.join(sorted(unknown))}")
    return {metric: _series(metric, figures.get(name)) for name, metric in declared.items()}


def _series(metric: Metric, values: Values | Buckets | float | None) -> Values | Buckets:
    if metric.kind is MetricKind.HISTOGRAM:
        empty = Buckets(metric.bounds_s, (0,) * (len(metric.bounds_s) + 1), 0.0)
        return values if isinstance(values, Buckets) else empty
    series = {} if metric.kind is MetricKind.INFO else dict.fromkeys(metric.series(), 0.0)
    if isinstance(values, Mapping):
        for labels, value in values.items():
            key = metric.known(labels)
            series[key] = series.get(key, 0.0) + value
    elif isinstance(values, int | float):
        series[()] = float(values)
    return series
