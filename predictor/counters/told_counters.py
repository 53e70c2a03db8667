"""What `osub predict counters --json` prints, read again: somebody may have written it by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from foundation.errors import InputError
from foundation.one_line import one_line
from predictor.counters.counter_source import Per
from predictor.dataset import Source

_MOST_BYTES = 1 << 20
_MOST_VALUE = 1e30


class _Count(msgspec.Struct, frozen=True):
    counter: Annotated[str, msgspec.Meta(max_length=100)]
    per: Per
    value: float | None = None


def read_counts(path: Path) -> dict[str, float]:
    """Return what was counted, by source and counter: ``os:cpu_user``; what was not measured is left out.

    Raises
    ------
    InputError
        It cannot be read, or is none; one line.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path} is larger than {_MOST_BYTES >> 20} MiB; it is no list of counters")
        told = msgspec.json.decode(path.read_bytes(), type=dict[Source, list[_Count]])
    except OSError as error:
        raise InputError(
            f"cannot read counters from {path}: {error.strerror}; "
            "`osub predict counters --json -- CMD... > FILE` makes them"
        ) from error
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is not what `osub predict counters --json` prints: {one_line(str(error), 120)}"
        ) from error
    found = {
        f"{source}:{count.counter}": count.value
        for source, counts in told.items()
        for count in counts
        if count.value is not None
    }
    odd = next((name for name, value in found.items() if not 0 <= value < _MOST_VALUE), None)
    if odd is not None:
        raise InputError(f"{path}: {one_line(odd, 60)} cannot be {found[odd]:g}")
    return found
