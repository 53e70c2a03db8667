"""The Standard Workload Format, version 2.2: typed reader and writer.

Start with ``job.py`` for what a job is, then ``reader.py``.
"""

from __future__ import annotations

from workloads.swf.swf_columns import SwfColumns, dependencies_of, load_columns, numbers_of, procs_column
from workloads.swf.swf_header import SwfComment, SwfHeader
from workloads.swf.swf_job import SWF_FIELDS, InteractivePattern, SwfJob
from workloads.swf.swf_reader import ReadReport, SwfTrace, iter_swf, read_swf, swf_lines, write_swf
