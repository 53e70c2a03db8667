"""A recording in the making: every sample is in its file as soon as it was taken."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from foundation.errors import OutputError
from workloads.behaviour.behaviour_sampler import Sample
from workloads.behaviour.utilisation_series import HEADING, UtilisationSeries, series_row


def write_as_taken(
    out: Path, name: str, taken: Iterator[Sample], tell: Callable[[Sample], None]
) -> UtilisationSeries | None:
    """Write samples to a CSV file while they are taken, and return them all as a series.

    Parameters
    ----------
    out
        The file; it is made with the first sample, and replaced where there is one.
    name
        Of the job in the file.
    taken
        The samples, as ``record`` yields them.
    tell
        Is told of each when it is in the file.

    Returns
    -------
    UtilisationSeries | None
        None where there was no sample, and so is no file.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    first = next(taken, None)
    if first is None:
        return None
    samples: list[Sample] = []
    try:
        with out.open("w", newline="", encoding="utf-8", buffering=1) as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(HEADING)
            for sample in chain([first], taken):
                samples.append(sample)
                writer.writerow(series_row(name, sample.elapsed_s, sample.cores))
                tell(sample)
    except OSError as error:
        raise OutputError(f"cannot write {out}: {error.strerror}") from error
    return UtilisationSeries(
        name, tuple(one.length_s for one in samples), tuple(one.cores for one in samples)
    )
