"""What outlives a controller: the lock that keeps a second one away, and the accounts of moved ends."""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

import msgspec

from gangd.wire import Controller
from osub.errors import HostError, OutputError

STATE_NAME = "controller.json"
LOCK_NAME = "controller.lock"
STATUS_NAME = "status.json"


class State(msgspec.Struct, kw_only=True):
    """Contents of the state file.

    Parameters
    ----------
    started_ns
        Wall-clock start of the newest controller: the next one must be later, whatever the clock says.
    limits
        ``GangScheduler.limits_state()``.
    """

    version: int = 1
    started_ns: int = 0
    limits: dict[str, dict[str, float]] = {}


class Keeper:
    """The state folder of one running controller."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OutputError(f"cannot write to state folder {folder}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise HostError(f"another gangd uses state folder {folder}: stop it first") from error
        self.state = self._read()

    def begin(self, wall_ns: int) -> Controller:
        """Give this controller its identity, later than that of every earlier one here."""
        self.state.started_ns = max(wall_ns, self.state.started_ns + 1)
        self.save()
        return Controller(secrets.token_bytes(16), self.state.started_ns)

    def save(self) -> None:
        """Write the state, all or nothing."""
        self.write(STATE_NAME, msgspec.json.encode(self.state))

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the folder, all or nothing; a reader never sees half of it."""
        path = self.folder / name
        fresh = path.with_suffix(".new")
        try:
            fresh.write_bytes(content)
            fresh.replace(path)
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror}") from error

    def close(self) -> None:
        """Let another controller use the folder."""
        os.close(self._lock)

    def _read(self) -> State:
        """State of the controller before; a file that is damaged is worth no more than none."""
        try:
            return msgspec.json.decode((self.folder / STATE_NAME).read_bytes(), type=State)
        except (OSError, msgspec.DecodeError):
            return State()
