"""``about.json``: where, when and with what a PAIRS folder was measured."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec

from predictor.dataset.pairs_tables import Source
from predictor.dataset.shared_loss import Kind

FORMAT_VERSION = 1
Text = Annotated[str, msgspec.Meta(max_length=1_000)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Size = Annotated[int, msgspec.Meta(ge=0)] | None


class Host(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The host that was measured; sizes are of one cache and of all memory, None where unknown."""

    name: Text
    cpu_model: Text
    cpus: Count
    threads_per_core: Count
    l2_kib: Size
    l3_kib: Size
    memory_mib: Size
    kernel: Text


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The description of a PAIRS folder.

    Attributes
    ----------
    version
        Of the format.
    osub
        The version that measured.
    host
        Where.
    started, ended
        UTC, of the first and the last measurement.
    kinds
        How was shared.
    counter_sources
        What counted.
    notes
        What a reader should know, such as what else ran on the host.
    """

    version: int
    osub: Text
    host: Host
    started: datetime
    ended: datetime
    kinds: list[Kind]
    counter_sources: list[Source]
    notes: list[Text] = []

    def __post_init__(self) -> None:
        if self.version != FORMAT_VERSION:
            raise ValueError(f"version is {self.version}; this osub reads version {FORMAT_VERSION}")
        if self.started.tzinfo is None or self.ended.tzinfo is None:
            raise ValueError("started and ended need a time zone, UTC")
        if self.started.astimezone(UTC) > self.ended.astimezone(UTC):
            raise ValueError("started is after ended")
