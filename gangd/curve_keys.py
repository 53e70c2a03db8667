"""CurveZMQ keys of the controller and its agents: made, read, and checked to be secret.

A key folder holds ``controller.key`` (public) and ``controller.key_secret``, and in ``agents/`` the same
pair for each node, named after it. The controller needs its own pair and every agent's public key; an
agent needs its own pair and the controller's public key. A pair named ``_shared`` may speak for any node:
simpler to install, but one stolen key then speaks for all nodes. It is made only when it is asked for by
name, and while it is in the folder the controller raises an alarm.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import zmq.auth

from foundation.errors import InputError, OutputError, UsageError
from foundation.trust import make_folder, read_trusted

CONTROLLER = "controller"
SHARED_AGENT = "_shared"
_NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE key pair in Z85 text; the representation does not show the secret half."""

    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        return f"KeyPair({self.public.decode()})"


@dataclass(frozen=True, slots=True)
class ControllerKeys:
    """What the controller needs: its own pair and the folder of the agents' public keys."""

    own: KeyPair
    agents_dir: Path

    def agents(self) -> dict[str, str]:
        """Node name of each agent's public key (Z85); read anew, so that a reload sees new agents."""
        names = {}
        for path in sorted(self.agents_dir.glob("*.key")):
            names[_load(path)[0].decode()] = path.stem
        return names


@dataclass(frozen=True, slots=True)
class AgentKeys:
    """What an agent needs: its own pair and the one controller key that it accepts."""

    own: KeyPair
    controller_public: bytes


def make_keys(folder: Path, agents: Sequence[str]) -> list[Path]:
    """Make the controller's pair, if there is none, and one for each of ``agents`` that has none.

    Parameters
    ----------
    folder
        Key folder, made with mode 0700; secret files get 0600.
    agents
        Node names, or ``[SHARED_AGENT]`` for one pair that may speak for every node.

    Returns
    -------
    list of Path
        The public key files that were made; keys that exist are left alone.

    Raises
    ------
    OutputError
        The folder cannot be written.
    TrustError
        Another user could have put the folder there, or may write to it.
    UsageError
        A name is none of a node.
    """
    for name in agents:
        if not _NODE.fullmatch(name):
            raise UsageError(f"{name!r} is no name of a node: no key was made")
    agents_dir = folder / "agents"
    made = []
    old_mask = os.umask(0o077)
    try:
        for place in (folder, agents_dir):
            os.close(make_folder(place, 0o700)[0])
        wanted = [(folder, CONTROLLER), *((agents_dir, name) for name in agents)]
        for place, name in wanted:
            if not (place / f"{name}.key_secret").exists():
                public, secret = zmq.auth.create_certificates(place, name)
                Path(secret).chmod(0o600)
                made.append(Path(public))
    except OSError as error:
        raise OutputError(f"cannot write keys to {folder}: {error.strerror}") from error
    finally:
        os.umask(old_mask)
    return made


def load_controller_keys(folder: Path) -> ControllerKeys:
    """Read the controller's keys.

    Raises
    ------
    InputError
        They are missing.
    UsageError
        They are not secret.
    TrustError
        Another user could have put them there, or may write to them.
    """
    return ControllerKeys(_load_pair(folder / f"{CONTROLLER}.key_secret"), folder / "agents")


def load_agent_keys(folder: Path, node: str) -> AgentKeys:
    """Read the keys of the agent of ``node``, or the shared ones if it has none; raises as above."""
    own = folder / "agents" / f"{node}.key_secret"
    if not own.exists():
        own = folder / "agents" / f"{SHARED_AGENT}.key_secret"
    return AgentKeys(_load_pair(own), _load(folder / f"{CONTROLLER}.key")[0])


def _load_pair(path: Path) -> KeyPair:
    public, secret = _load(path)
    if secret is None:
        raise InputError(f"{path} has no secret key; make keys with 'gangd keys --dir {path.parent}'")
    if path.stat().st_mode & 0o077:
        raise UsageError(f"{path} can be read by others; run 'chmod 600 {path}'")
    return KeyPair(public, secret)


def _load(path: Path) -> tuple[bytes, bytes | None]:
    try:
        read_trusted(path)
        return zmq.auth.load_certificate(path)
    except OSError as error:
        raise InputError(f"cannot read key {path}; make keys with 'gangd keys --dir DIR'") from error
    except ValueError as error:
        raise InputError(f"{path} is no CURVE key file; make keys with 'gangd keys --dir DIR'") from error
