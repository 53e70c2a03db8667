"""How an agent reaches its controllers, and by which keys: read at the start, and again on SIGHUP."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from foundation.errors import UsageError
from foundation.toml_file import load_toml
from foundation.trust import read_trusted
from gangd.agent.agent_options import endpoints
from gangd.curve_keys import AgentKeys, load_agent_keys

MOST_CONTROLLERS = 4
Address = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class AgentConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an agent's TOML file may say; the command line comes first.

    Parameters
    ----------
    controllers
        ``HOST``, ``HOST:PORT`` or ``PUBLISH,REPORTS`` of the controller and of its standbys, in any order.
    keys
        Key folder.
    extern
        Whether ``step_extern`` is held: ``hold`` or ``run``.
    """

    controllers: Annotated[tuple[Address, ...], msgspec.Meta(max_length=MOST_CONTROLLERS)] = ()
    keys: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    extern: Literal["hold", "run"] | None = None


@dataclass(frozen=True, slots=True)
class Reach:
    """Keys, the endpoints of each controller (plans, reports), and whether ``step_extern`` is held."""

    keys: AgentKeys
    controllers: tuple[tuple[str, str], ...]
    hold_extern: bool


@dataclass(frozen=True, slots=True)
class RequestedEndpoints:
    """What the command line says; None or nothing where the file is to say it."""

    node: str
    config: Path | None = None
    controllers: tuple[str, ...] = ()
    keys: Path | None = None
    extern: str | None = None


def read_reach(asked: RequestedEndpoints, usual_keys: Path) -> Reach:
    """Read the file, if there is one, and the keys.

    Raises
    ------
    InputError
        The file or the keys cannot be read.
    TrustError
        Another user could have put them there, or may write to them.
    UsageError
        A value is not possible, or there is no controller.
    """
    config = _read(asked.config)
    try:
        addresses = asked.controllers or config.controllers
        controllers = tuple(dict.fromkeys(map(endpoints, addresses)))
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not 1 <= len(controllers) <= MOST_CONTROLLERS:
        raise UsageError(
            f"{len(controllers)} controllers: name one and its standbys, {MOST_CONTROLLERS} at most, by "
            "--controller or controllers in the --config file"
        )
    folder = asked.keys or (usual_keys if config.keys is None else Path(config.keys))
    hold_extern = (asked.extern or config.extern or "hold") == "hold"
    return Reach(load_agent_keys(folder, asked.node), controllers, hold_extern)


def _read(path: Path | None) -> AgentConfig:
    if path is None:
        return AgentConfig()
    table = load_toml(path, frozenset(AgentConfig.__struct_fields__))
    read_trusted(path)
    try:
        return msgspec.convert(table, AgentConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"configuration {path}: {error}") from error
