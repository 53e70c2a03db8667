"""Links between jobs (fields 17 and 18) where jobs are left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from workloads.swf import SwfJob


def with_sound_links(jobs: Iterable[SwfJob]) -> list[SwfJob]:
    """Return ``jobs`` without the links to preceding jobs that are not among them."""
    kept = list(jobs)
    present = {job.job_number for job in kept}
    return [
        job
        if job.preceding_job is None or job.preceding_job in present
        else replace(job, preceding_job=None, think_s=None)
        for job in kept
    ]
