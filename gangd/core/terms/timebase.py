"""Slice numbers and instants: slices follow each other without gap; a new quantum begins at a slice."""

from __future__ import annotations

from typing import NamedTuple


class Era(NamedTuple):
    """A run of slices of one length: from ``first_slice``, which starts at ``start_ns``, on."""

    first_slice: int
    start_ns: int
    quantum_ns: int


class Timebase:
    """Where slices lie on the controller's clock."""

    def __init__(self, start_ns: int, quantum_ns: int) -> None:
        self._eras = [Era(0, start_ns, quantum_ns)]

    @property
    def quantum_ns(self) -> int:
        """Length of the slices of the newest era."""
        return self._eras[-1].quantum_ns

    def era(self, number: int) -> Era:
        """Era of slice ``number``; the oldest one known for slices before it."""
        for era in reversed(self._eras):
            if era.first_slice <= number:
                return era
        return self._eras[0]

    def slice_at(self, now_ns: int) -> int:
        """Return the number of the slice that holds the instant; negative before slice 0."""
        for era in reversed(self._eras):  # nearly always the newest: it is asked for in each report
            if era.start_ns <= now_ns:
                break
        return era.first_slice + (now_ns - era.start_ns) // era.quantum_ns

    def start_ns(self, number: int) -> int:
        """Start of slice ``number``."""
        era = self.era(number)
        return era.start_ns + (number - era.first_slice) * era.quantum_ns

    def length_ns(self, number: int) -> int:
        """Length of slice ``number``."""
        return self.era(number).quantum_ns

    def change(self, first_slice: int, quantum_ns: int) -> None:
        """Begin a new era with slices of ``quantum_ns`` at ``first_slice``."""
        start_ns = self.start_ns(first_slice)
        kept = [era for era in self._eras if era.first_slice < first_slice]
        self._eras = [*kept[-3:], Era(first_slice, start_ns, quantum_ns)]
