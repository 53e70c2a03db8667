"""Arithmetic that stands in another simulator's files: a number, or a formula of named numbers.

Only operators and a few functions are known; nothing is executed.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping

from foundation.one_line import one_line

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
