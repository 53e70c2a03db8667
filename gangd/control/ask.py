"""``osub gang``'s end of the control socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec

from foundation.errors import ClusterError, UsageError
from gangd.control.order_requests import MOST_BYTES, Answer, Request, read_answer
from gangd.control.order_server import SOCKET_NAME

PATIENCE_S = 10.0


def ask(folder: Path, request: Request, patience_s: float = PATIENCE_S) -> Answer:
    """Send a request to the controller whose state folder this is, and return its answer.

    Raises
    ------
    ClusterError
        No controller listens there, or it does not answer in time.
    UsageError
        The request names too much at once.
    """
    body = msgspec.json.encode(request)
    if len(body) > MOST_BYTES:
        raise UsageError("too many names at once: give them in several commands")
    try:
        folder_fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ClusterError(f"cannot open state folder {folder}: {error.strerror}") from error
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
            link.settimeout(patience_s)
            link.connect(f"/proc/self/fd/{folder_fd}/{SOCKET_NAME}")
            link.send(body)
            said = link.recv(1 << 20)
    except TimeoutError as error:
        raise ClusterError(f"gangd of {folder} does not answer; is it well? (osub top)") from error
    except (ConnectionResetError, BrokenPipeError):
        said = b""
    except OSError as error:
        raise ClusterError(
            f"no gangd listens in {folder} ({error.strerror}); is it running with this state folder?"
        ) from error
    finally:
        os.close(folder_fd)
    if not said:
        raise ClusterError("gangd closed the connection: too many at once, try again")
    return read_answer(said)
