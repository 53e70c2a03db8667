"""Charts of runs, each a function from rows to a figure; ``chart_style`` has what all share."""

from __future__ import annotations

from analysis.charts.chart_style import (
    GRID,
    INK,
    JOB_COLOURS,
    KIND_COLOURS,
    MUTED,
    RUN_COLOURS,
    Chart,
    arrange,
    figure_json,
    run_style,
    safe,
)
from analysis.charts.gantt_chart import gantt
from analysis.charts.run_curves import (
    ChartedRun,
    completion_chart,
    slowdown_chart,
    use_chart,
    wait_chart,
    wait_over_time_chart,
)
from analysis.charts.slice_charts import (
    INTERVAL_COLUMNS,
    excerpt_chart,
    interval_chart,
    interval_rows,
    lateness_chart,
)
