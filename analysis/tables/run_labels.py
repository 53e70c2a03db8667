"""Labels that tell the runs of one table or page apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from foundation.records import Run


def told_apart(runs: Sequence[Run]) -> list[Run]:
    """Return the runs with different labels: to those that are alike the folder's name is added."""
    labels = [run.info.label for run in runs]
    often = Counter(labels)
    named = [
        f"{label} ({run.path.name})" if often[label] > 1 else label
        for label, run in zip(labels, runs, strict=True)
    ]
    seen: Counter[str] = Counter()
    distinct: list[Run] = []
    for run, label in zip(runs, named, strict=True):
        seen[label] += 1
        text = f"{label} #{seen[label]}" if seen[label] > 1 else label
        distinct.append(replace(run, info=msgspec.structs.replace(run.info, label=text)))
    return distinct
