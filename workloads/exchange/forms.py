"""Whose files are read or written."""

from __future__ import annotations

from enum import StrEnum


class ExchangeForm(StrEnum):
    """A simulator, or a tool that draws what simulators did."""

    BATSIM = "batsim"
    ELASTISIM = "elastisim"
    EVALYS = "evalys"
