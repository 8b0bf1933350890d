"""Named tuples that kernels take by reference.

numba passes a tuple by value, as one argument per number in it: a problem has 400, and a function
that takes it would need a second to compile for passing it alone. By reference it is one argument,
the address of these numbers. An array is what numba makes of it: owner (none: the caller keeps it),
number of entries, their size, address, shape and strides.
"""

import hashlib
import struct
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)

Made = TypeVar("Made")
SLOT = 8  # bytes per number


class Reference(types.Type):
    """The type of a named tuple in kernels, which may contain others."""

    def __init__(self, made: type, fields: tuple[types.Type, ...]) -> None:
        self.fields = dict(zip(made._fields, fields, strict=True))  # type: ignore[attr-defined]
        digest = hashlib.sha256(str(fields).encode()).hexdigest()[:16]
        super().__init__(f"{made.__name__}_{digest}")


def by_reference(made: type[Made]) -> type[Made]:
    """Let kernels take a class of named tuples by reference. They can read it, but not make one."""
    # a class that can hold more than its fields: their numbers and types, once they were needed
    more = {
        "__module__": made.__module__,
        "__doc__": made.__doc__,
        "__getstate__": lambda _: None,  # a copy has other addresses
        "__getattr__": hold_numbers,  # called once, since the numbers are an attribute from then on
    }
    kept = type(made.__name__, (made,), more)

    @typeof_impl.register(kept)
    def find_type(value: Any, context: Any) -> Reference:
        if (kind := value.__dict__.get("kind")) is None:
            fields = tuple(typeof_impl(field, context) for field in value)
            kind = value.__dict__["kind"] = Reference(kept, fields)
        return kind

    return kept


def hold_numbers(value: Any, name: str) -> bytes:
    """Write out the numbers of a named tuple as its attribute `_held`; it must outlive them.

    No field can have this name: those of named tuples do not begin with an underscore.
    """
    if name != "_held":
        raise AttributeError(f"{type(value).__name__!r} has no attribute {name!r}")
    held = b"".join(field._held if hasattr(field, "__dict__") else pack(field) for field in value)
    value.__dict__["_held"] = held
    return held


def pack(value: Any) -> bytes:
    """Return the numbers of an array, a number or a plain tuple of these in memory."""
    if isinstance(value, np.ndarray):
        place = (0, 0, value.size, value.itemsize, value.ctypes.data)
        return struct.pack(f"{5 + 2 * value.ndim}q", *place, *value.shape, *value.strides)
    if isinstance(value, tuple):
        return b"".join(map(pack, value))
    return struct.pack("d" if isinstance(value, float) else "q", value)


def width(context: Any, kind: types.Type) -> int:
    """Return how many numbers a field has."""
    if isinstance(kind, Reference):
        return sum(width(context, field) for field in kind.fields.values())
    return len(context.get_arg_packer((kind,)).argument_types)


@register_model(Reference)
class ReferenceModel(models.PrimitiveModel):
    """A reference is an address."""

    def __init__(self, manager: Any, kind: Reference) -> None:
        super().__init__(manager, kind, cgutils.voidptr_t)


@infer_getattr
class ReferenceFields(AttributeTemplate):
    """The types of the fields."""

    key = Reference

    def generic_resolve(self, kind: Reference, name: str) -> types.Type | None:
        """Return the type of a field; None if there is none of this name."""
        return kind.fields.get(name)


@lower_getattr_generic(Reference)
def read_field(context: Any, builder: Any, kind: Reference, address: Any, name: str) -> Any:
    """Read a field. Nothing changes it during a call, so that loops may read it once."""
    names = list(kind.fields)
    before = names[: names.index(name)]
    first = sum(width(context, kind.fields[field]) for field in before)

    def place(slot: int) -> Any:
        return builder.gep(address, [ir.Constant(ir.IntType(64), SLOT * (first + slot))], True)

    field = kind.fields[name]
    if isinstance(field, Reference):
        return place(0)
    packer = context.get_arg_packer((field,))
    read = []
    for slot, type_read in enumerate(packer.argument_types):
        pointer = builder.bitcast(place(slot), type_read.as_pointer())
        read.append(builder.load(pointer))
        read[-1].set_metadata("invariant.load", builder.module.add_metadata([]))
    return packer.from_arguments(builder, read)[0]


@unbox(Reference)
def take_address(kind: Reference, value: Any, c: Any) -> NativeValue:
    """Hold the numbers of a named tuple for the time of a call."""
    held = c.pyapi.object_getattr_string(value, "_held")
    failed = cgutils.is_null(c.builder, held)
    address = cgutils.alloca_once_value(c.builder, ir.Constant(cgutils.voidptr_t, None))
    with c.builder.if_then(c.builder.not_(failed)):
        c.builder.store(c.pyapi.bytes_as_string(held), address)
    return NativeValue(
        c.builder.load(address), is_error=failed, cleanup=lambda: c.pyapi.decref(held)
    )
