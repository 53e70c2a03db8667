"""``/proc/PID/stat``, one line of numbers about a process; the fields are those of proc(5)."""

from __future__ import annotations

STATE, PARENT, SESSION, USER_TICKS, THREADS, START_TICKS = 0, 1, 3, 11, 17, 19
"""Places in what ``split_stat`` returns: fields 3, 4, 6, 14 (15 to 17 follow), 20 and 22."""


def split_stat(line: bytes) -> tuple[bytes, list[bytes]]:
    """Split a line into the process's name, which may hold anything, and the fields from the third on.

    Raises
    ------
    ValueError
        It is no such line; the kernel returns a part of none.
    """
    left, right = line.find(b"("), line.rfind(b")")
    fields = line[right + 1 :].split()
    if left < 0 or len(fields) <= START_TICKS:
        raise ValueError("not a line of /proc/PID/stat")
    return line[left + 1 : right], fields
