"""A state as compiled kernels see it: the address of its tables, not the tables one by one.

numba passes a named tuple as all that it holds, and an array as seven numbers or more. A state of thirty
tables would be 250 arguments of every kernel that takes it, which costs the compiler more than the kernels
themselves. Here its tables are written into a block of memory once, when the event loop is called; kernels
get the block's address. Nothing in a block changes while the loop runs (kernels change what tables hold), as
the loads say to the compiler.

Kernels count the bits of a word by ``int.bit_count``, which numba lacks: here it is one instruction.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import numba.core.cgutils
import numba.core.imputils
import numba.extending
from numba import types
from numba.core.datamodel import models
from numba.core.typing.templates import AttributeTemplate

# numba's own functions have no types.
core: Any = numba.core
extending: Any = numba.extending
ir = core.cgutils.ir

_ALIGNMENT = 16
_POINTER = core.cgutils.voidptr_t


class StateType(types.Type):
    """The type of one class of state, with tables of certain types.

    Parameters
    ----------
    values
        What it holds, as numba's type of a named tuple.
    """

    def __init__(self, values: Any) -> None:
        self.values = values
        cast("Any", super()).__init__(values.instance_class.__name__)

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from others: the name is short, for it is in the name of every kernel."""
        return (self.values,)


@extending.register_model(StateType)
class _StateModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        cast("Any", super()).__init__(manager, kind, _POINTER)


def declare(state: type[tuple[Any, ...]]) -> None:
    """Let kernels take a class of named tuples by its address."""

    def type_of(value: Any, context: Any) -> StateType:
        fields = [extending.typeof_impl(field, context) for field in value]
        return StateType(cast("Any", types.NamedTuple)(fields, state))

    extending.typeof_impl.register(state, type_of)


@functools.cache
def _layout(context: Any, kind: StateType) -> tuple[list[tuple[int, Any]], int]:
    """Return where each field is in the block, with its machine type, and the size of the block in bytes."""
    places, size = [], 0
    for field in kind.values.types:
        machine = context.get_value_type(field)
        places.append((size, machine))
        size += -(-context.get_abi_sizeof(machine) // _ALIGNMENT) * _ALIGNMENT
    return places, size


def _pointer_to(builder: Any, block: Any, place: tuple[int, Any]) -> Any:
    at, machine = place
    return builder.bitcast(builder.gep(block, [core.cgutils.intp_t(at)]), machine.as_pointer())


def _unbox(kind: StateType, value: Any, c: Any) -> Any:
    native = c.unbox(kind.values, value)
    places, size = _layout(c.context, kind)
    block = core.cgutils.alloca_once(c.builder, core.cgutils.int8_t, size=core.cgutils.intp_t(size))
    block.align = _ALIGNMENT
    for index, place in enumerate(places):
        c.builder.store(c.builder.extract_value(native.value, index), _pointer_to(c.builder, block, place))
    return extending.NativeValue(block, is_error=native.is_error, cleanup=native.cleanup)


extending.unbox(StateType)(_unbox)


@extending.infer_getattr
class _StateFields(AttributeTemplate):
    key = StateType

    def generic_resolve(self, kind: StateType, name: str) -> Any:  # type: ignore[override]
        """Return the type of a field."""
        if name in kind.values.fields:
            return kind.values.types[kind.values.fields.index(name)]
        return None


def _load_field(context: Any, builder: Any, kind: StateType, value: Any, name: str) -> Any:
    index = kind.values.fields.index(name)
    places, _ = _layout(context, kind)
    field = _load_unchanging(builder, _pointer_to(builder, value, places[index]))
    return core.imputils.impl_ret_borrowed(context, builder, kind.values.types[index], field)


def _load_unchanging(builder: Any, pointer: Any) -> Any:
    """Load what never changes, number by number: of a load of several LLVM forgets that it doesn't change."""
    machine = pointer.type.pointee
    if not isinstance(machine, ir.LiteralStructType | ir.ArrayType):
        loaded = builder.load(pointer)
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
        return loaded
    whole = ir.Constant(machine, ir.Undefined)
    for index in range(len(machine)):
        part = _load_unchanging(builder, core.cgutils.gep_inbounds(builder, pointer, 0, index))
        whole = builder.insert_value(whole, part, index)
    return whole


extending.lower_getattr_generic(StateType)(_load_field)


def _type_count(typing_context: Any, word: Any) -> Any:  # noqa: ARG001
    return core.typing.signature(types.int64, types.int64), _lower_count


def _lower_count(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
    return builder.ctpop(arguments[0])


_count_bits = extending.intrinsic(_type_count)


def _bit_count(word: Any) -> Any:  # noqa: ARG001
    def count(word: Any) -> Any:
        return _count_bits(word)

    return count


extending.overload_method(types.Integer, "bit_count", jit_options={"_nrt": False})(_bit_count)
