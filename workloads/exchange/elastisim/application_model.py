"""How long an application of ElastiSim runs on so many nodes, as far as that needs no platform.

Delays, alone, in sequences and repeated, are read. Computation, communication and files are not: how long
they take depends on hosts, links and who else uses them. A number may be a formula of named numbers: only
operators and a few functions are known, and nothing is executed.
"""

from __future__ import annotations

import ast
import json
import math
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from foundation.errors import InputError
from foundation.one_line import one_line
from workloads.exchange.fields import shown

MOST_BYTES = 1 << 20
DEEPEST = 50
_SHARED = frozenset({"all_ranks", "total"})

LONGEST = 1_000
_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: math.fmod,
    ast.Pow: math.pow,
}
_FUNCTIONS: dict[str, Callable[..., float]] = {
    "abs": abs,
    "ceil": math.ceil,
    "exp": math.exp,
    "floor": math.floor,
    "log": math.log,
    "log10": math.log10,
    "log2": math.log2,
    "max": max,
    "min": min,
    "pow": math.pow,
    "round": round,
    "sqrt": math.sqrt,
}


class NotToldError(ValueError):
    """What is unknown of an application, and why."""


class Models:
    """The application models below a folder, each read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, Mapping[str, Any]] = {}

    def model(self, name: str) -> Mapping[str, Any]:
        """Return a model; ``InputError`` for one that cannot be read, or that is not below the folder."""
        if name not in self._read:
            self._read[name] = self._load(name)
        return self._read[name]

    def _load(self, name: str) -> Mapping[str, Any]:
        folder = self._folder.resolve()
        try:
            path = (folder / name).resolve()
            if not path.is_relative_to(folder):
                raise InputError(f"{shown(name)} is not below {self._folder}: --models names another folder")
            if not path.is_file():
                raise InputError(f"there is no file {shown(name)} in {self._folder}")
            data = path.read_bytes() if path.stat().st_size <= MOST_BYTES else b""
            found = json.loads(data)
        except (OSError, RuntimeError) as error:
            why = getattr(error, "strerror", None) or "links go in a circle"
            raise InputError(f"cannot read {shown(name)} in {self._folder}: {why}") from error
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{shown(name)} in {self._folder} is no JSON document of at most 1 MiB"
            ) from error
        if not isinstance(found, dict):
            raise InputError(f"{shown(name)} in {self._folder} is no JSON object")
        return found


def run_time(model: Mapping[str, Any], arguments: Mapping[str, float], nodes: int) -> float:
    """Return the seconds that an application runs on ``nodes`` nodes, if it is not resized.

    Raises
    ------
    NotToldError
        The model is malformed, or what it does takes a platform to tell.
    """
    names = {**arguments, "num_nodes": float(nodes), "num_gpus_per_node": 0.0, "num_gpus": 0.0}
    phases = model.get("phases")
    if not isinstance(phases, list) or not phases:
        raise NotToldError("phases: is no list, or empty")
    whole_s = 0.0
    if model.get("on_init") is not None:
        start = model["on_init"]
        whole_s += _phase({"tasks": start} if isinstance(start, list) else start, names)
    return whole_s + sum(_phase(phase, names) for phase in phases)


def _phase(phase: object, names: Mapping[str, float], depth: int = 0) -> float:
    if not isinstance(phase, dict) or not isinstance(phase.get("tasks"), list):
        raise NotToldError("tasks: is no list")
    if depth > DEEPEST:
        raise NotToldError(f"tasks: are nested in more than {DEEPEST} levels")
    times = _number(phase, "iterations", names, 1.0)
    return times * sum(_task(task, names, depth) for task in phase["tasks"])


def _task(task: object, names: Mapping[str, float], depth: int) -> float:
    if not isinstance(task, dict):
        raise NotToldError("tasks: has an item that is no object")
    kind = str(task.get("type", "")).lower()
    if kind == "sequence":
        return _phase(task, names, depth + 1)
    if kind not in ("busy_wait", "idle"):
        raise NotToldError(
            f"type: what a task {shown(kind)} takes depends on the platform: only delays are read"
        )
    pattern = str(task.get("pattern", "uniform")).lower()
    if pattern != "uniform" and pattern not in _SHARED:
        raise NotToldError(f"pattern: {shown(pattern)} is not read")
    delay = _number(task, "delay", names, None)
    over = names["num_nodes"] if pattern in _SHARED else 1.0
    return _number(task, "iterations", names, 1.0) * delay / over


def _number(of: Mapping[str, Any], key: str, names: Mapping[str, float], default: float | None) -> float:
    found = of.get(key, default)
    if isinstance(found, bool) or not isinstance(found, int | float | str):
        raise NotToldError(f"{key}: {shown(found)} is no number and no formula")
    try:
        value = evaluate(found, names) if isinstance(found, str) else float(found)
    except (ValueError, OverflowError) as error:
        raise NotToldError(f"{key}: {error}") from error
    if not 0 <= value < float("inf"):
        raise NotToldError(f"{key}: {shown(found)} is not a number from 0 on")
    return value


def evaluate(text: str, names: Mapping[str, float]) -> float:
    """Return the value of a formula such as ``work / num_nodes ^ 0.8``.

    Raises
    ------
    ValueError
        It is none, names what is not known, or has no finite value.
    """
    if len(text) > LONGEST:
        raise ValueError(f"a formula is longer than {LONGEST:,} characters")
    shown = one_line(text, 60)
    try:
        found = _value(ast.parse(text.replace("^", "**").strip(), mode="eval").body, names)
    except (SyntaxError, RecursionError, MemoryError, ValueError, TypeError) as error:
        why = str(error) if type(error) is ValueError else "it is no formula"
        raise ValueError(f"{shown!r}: {one_line(why, 80)}") from error
    except (ArithmeticError, OverflowError) as error:
        raise ValueError(f"{shown!r} has no finite value") from error
    if not math.isfinite(found):
        raise ValueError(f"{shown!r} has no finite value")
    return found


def _value(node: ast.expr, names: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return float(number)
        case ast.Name(id=name):
            if name not in names:
                raise ValueError(f"there is no {one_line(name, 40)}")
            return float(names[name])
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, names)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _value(inner, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return float(_BINARY[type(op)](_value(left, names), _value(right, names)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return float(_FUNCTIONS[name](*(_value(one, names) for one in arguments)))
    raise ValueError("only + - * / % ^, numbers, names and simple functions are known")
