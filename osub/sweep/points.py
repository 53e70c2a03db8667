"""A point's key: the same for the same parameters, contents of files and code, and for nothing else."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from foundation.errors import InputError
from osub.sweep.spec import FILES, KIND, KINDS, Parameters

_PACKAGES = ("simulator", "osub", "foundation", "analysis", "workloads", "predictor", "gangd")
_ELSEWHERE = {("osub", "cli"), ("osub", "sweep"), ("foundation", "slurm")}
_REPLAYING = ("submitter", "deploy", "gangd", "workloads", "foundation", "analysis")
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Point:
    """One setting, with the key of what comes of it."""

    key: str
    parameters: Parameters


def point_of(parameters: Parameters) -> Point:
    """Return the point; raises InputError if a file cannot be read."""
    is_replay = parameters.get(KIND) == "replay"
    usual: Parameters = {} if is_replay else _usual()
    identity = {
        name: _content(Path(str(value))) if _is_file(name, value) else value
        for name, value in sorted(parameters.items())
        if not (name in usual and type(usual[name]) is type(value) and usual[name] == value)
    }
    # A trace under another name is another's result: tables have the name.
    identity["trace_name"] = Path(str(parameters["trace"])).name
    packages = _REPLAYING if is_replay else _PACKAGES
    text = json.dumps([code_version(packages), identity], sort_keys=True)
    return Point(hashlib.sha256(text.encode()).hexdigest()[:32], parameters)


def _is_file(name: str, value: object) -> bool:
    text = str(value)
    plugin = name in {"policy", "placement", "sharing"} and ".py:" in text
    return name in FILES or plugin or (name == "apps" and text.endswith(".csv"))


@cache
def _usual() -> Parameters:
    """Return what a simulation takes where nothing is said: to say it makes no other point."""
    from osub.api.simulation import simulate

    signature = inspect.signature(simulate).parameters.values()
    plain = {one.name: one.default for one in signature if isinstance(one.default, str | int | float)}
    return plain | {KIND: KINDS[0]}


@cache
def code_version(packages: tuple[str, ...] = _PACKAGES) -> str:
    """Return a digest of all sources that a simulation's, or a replay's, result can depend on."""
    digest = hashlib.sha256()
    for package in packages:
        found = importlib.util.find_spec(package)
        assert found is not None
        assert found.origin is not None
        folder = Path(found.origin).parent
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).parts
            if packages == _PACKAGES and (package, parts[0]) in _ELSEWHERE:
                continue
            digest.update(f"{package}/{'/'.join(parts)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _content(path: Path) -> str:
    """Return the digest of a file, or of all files of a folder; ``FILE.py:NAME`` is the file and the name."""
    name = ""
    if not path.exists() and ":" in path.name:
        text, _, name = str(path).rpartition(":")
        path = Path(text)
    if path.is_dir():
        return _digest([one for one in sorted(path.iterdir()) if one.is_file()]) + name
    return _digest([path]) + name


def _digest(paths: list[Path]) -> str:
    return hashlib.sha256("".join(_of_file(str(path), _stamp(path)) for path in paths).encode()).hexdigest()


def _stamp(path: Path) -> tuple[int, int]:
    try:
        seen = path.stat()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    return seen.st_size, seen.st_mtime_ns


@cache
def _of_file(path: str, stamp: tuple[int, int]) -> str:  # noqa: ARG001 - part of the key of what is kept
    digest = hashlib.sha256()
    try:
        with Path(path).open("rb") as stream:
            while piece := stream.read(_PIECE):
                digest.update(piece)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    return digest.hexdigest()
