"""The agent's log: one JSON object a line, with wall-clock time, node, event and its fields."""

from __future__ import annotations

import contextlib
import json
import os
import time

_SAME_EVENT_S = 1.0


class JsonLog:
    """Writes lines to a descriptor; a full disk or a closed pipe never disturbs the agent.

    An event that repeats within a second is counted and written once a second, so that a flood (of bad
    frames, say) can't fill the disk.
    """

    def __init__(self, fd: int, node: str) -> None:
        self._fd = fd
        self._node = node
        self._last: dict[str, float] = {}
        self._skipped: dict[str, int] = {}

    def __call__(self, event: str, **fields: object) -> None:
        """Write one line, unless the same event was written within the last second."""
        now_s = time.time()
        if now_s - self._last.get(event, 0.0) < _SAME_EVENT_S:
            self._skipped[event] = self._skipped.get(event, 0) + 1
            return
        self._last[event] = now_s
        line: dict[str, object] = {
            "time_s": round(now_s, 6),
            "who": "gang-agent",
            "node": self._node,
            "event": event,
            **fields,
        }
        skipped = self._skipped.pop(event, 0)
        if skipped:
            line["not_shown"] = skipped
        with contextlib.suppress(OSError):
            os.write(self._fd, (json.dumps(line, default=str) + "\n").encode())
