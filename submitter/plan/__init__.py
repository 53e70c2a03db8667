"""What will be submitted, and how: from a trace and a cluster to timed submissions. Nothing is sent here."""

from __future__ import annotations

from submitter.plan.apart_applications import (
    Apart,
    ConflictPairs,
    applications_of,
    apply,
    checked_threshold,
    keep_apart,
    read_apart,
    write_apart,
)
from submitter.plan.replay_options import (
    Clock,
    ReplayOptions,
    ReplaySpec,
    SystemClock,
    Timing,
    exported,
    fitting,
    look_back_s,
    restored,
)
from submitter.plan.replay_plan import (
    COUNTS,
    RRBA,
    PlannedJob,
    ReplayPlan,
    batch_script,
    job_environment,
    left_out,
    make_plan,
    quoted,
    read_apps,
)
from submitter.plan.target_cluster import RequestedTarget, TargetCluster, look_at_target
