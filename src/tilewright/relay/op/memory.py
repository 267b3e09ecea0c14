"""memory.*: storage, and tensors in it, as values of a program for the virtual machine.

::

    let %storage = memory.alloc_storage(24i64, 64i64, dtype="float32", device_id=0, device_type=1);
    let %out = memory.alloc_tensor(%storage, 0i64, meta[relay.Constant][0], ...);

The type of a piece of memory is ``Storage`` of the library's part "core.rly". ``relay.transform.ManifestAlloc`` inserts
these operators, ``MemoryPlan`` merges storage, and the bytecode compiler turns each into one instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.type import GlobalTypeVar, TensorType, TupleType, Type, TypeCall, flat_types
from tilewright.relay.expr import Call, Constant, Tuple, TupleGetItem
from tilewright.relay.op.attributes import call
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import HOST, OpDef, OpPattern, Place, TypeSolver

STORAGE = TypeCall(GlobalTypeVar("Storage"), ())
UNIT = TupleType(())


class AllocStorageAttrs(Attrs):
    """The device of the memory and the dtype of its elements."""

    dtype: str = "float32"
    device_id: int = 0
    device_type: int = 1


class AllocTensorAttrs(Attrs):
    """The shape: a constant, or (``assert_shape``) the known dimensions of a computed one."""

    const_shape: Constant | None = None
    assert_shape: tuple[Any, ...] | None = None
    dtype: str = "float32"


class MemoryDef(OpDef):
    """Base of operators that are instructions of the virtual machine, not kernels."""

    pattern = OpPattern.OPAQUE
    non_computational = True
    stateful = True
    machine = True


def expect(op: str, what: str, found: Type, wanted: Type) -> None:
    """Raise TypeInferenceError unless an argument has the type that the operator takes."""
    if found != wanted:
        raise TypeInferenceError(f"{op}: {what} should be {wanted}, found {found}")


def expect_number(op: str, what: str, found: Type) -> None:
    """Raise TypeInferenceError unless an argument is an integer."""
    if not isinstance(found, TensorType) or found.shape or not found.dtype.startswith(("int", "uint")):
        raise TypeInferenceError(f"{op}: {what} should be an integer scalar, found {found}")


class AllocStorage(MemoryDef):
    """``size`` bytes of memory, aligned to ``alignment`` bytes."""

    name = "memory.alloc_storage"
    inputs = ("size", "alignment")
    attrs_type = AllocStorageAttrs

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: AllocStorageAttrs, solver: TypeSolver) -> Type | None:
        for what, type_ in zip(("the size", "the alignment"), types, strict=True):
            expect_number("memory.alloc_storage", what, type_)
        return STORAGE

    @staticmethod
    def places(attrs: AllocStorageAttrs) -> Sequence[Place]:
        """The numbers are on the host, the memory on the device in the attributes."""
        return HOST, HOST, attrs.device_type


class AllocTensor(MemoryDef):
    """A tensor in storage, from byte ``offset`` on; ``shape`` is a vector of integers."""

    name = "memory.alloc_tensor"
    inputs = ("storage", "offset", "shape")
    attrs_type = AllocTensorAttrs

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: AllocTensorAttrs, solver: TypeSolver) -> Type | None:
        """A tensor of the shape in the attributes, of unknown dimensions where there is none."""
        storage, offset, shape = types
        expect("memory.alloc_tensor", "the storage", storage, STORAGE)
        expect_number("memory.alloc_tensor", "the offset", offset)
        if not isinstance(shape, TensorType) or len(shape.shape) != 1:
            raise TypeInferenceError(f"memory.alloc_tensor: the shape should be a vector of integers, found {shape}")
        if attrs.const_shape is not None:
            return TensorType([int(extent) for extent in attrs.const_shape.data.numpy()], attrs.dtype)
        if attrs.assert_shape:
            return TensorType(attrs.assert_shape, attrs.dtype)
        if not isinstance(shape.shape[0], IntImm):
            raise TypeInferenceError("memory.alloc_tensor: how many dimensions the shape has must be known")
        return TensorType([AnyDim() for _ in range(shape.shape[0].value)], attrs.dtype)

    @staticmethod
    def places(attrs: AllocTensorAttrs) -> Sequence[Place]:
        """The tensor is on the device of its storage."""
        return "memory", HOST, HOST, "memory"


class Kill(MemoryDef):
    """The end of a value's life: it is not used afterwards, and its memory may be reused."""

    name = "memory.kill"
    inputs = ("to_free",)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        return UNIT


kill = builder(Kill)


def alloc_storage(size: RelayExpr, alignment: RelayExpr, device: Any, dtype_hint: str = "float32") -> Call:
    """Allocate ``size`` bytes of memory on ``device`` (a ``Device``)."""
    attrs = AllocStorageAttrs(dtype_hint, int(device.device_id), int(device.device_type))
    return call("memory.alloc_storage", [size, alignment], attrs)


def alloc_tensor(
    storage: RelayExpr,
    offset: RelayExpr,
    shape: RelayExpr,
    dtype: str = "float32",
    assert_shape: Sequence[Any] | None = None,
) -> Call:
    """Return a tensor in ``storage``, from byte ``offset`` on.

    Parameters
    ----------
    shape : a vector of integers; a constant makes the shape of the result known.
    assert_shape : the known dimensions of a computed shape.
    """
    known = shape if isinstance(shape, Constant) else None
    asserted = tuple(assert_shape) if assert_shape is not None else None
    return call("memory.alloc_tensor", [storage, offset, shape], AllocTensorAttrs(known, asserted, dtype))


def flatten_tuple_type(ty: Type) -> list[Type]:
    """Return the types of the tensors in a value of the type ``ty``, in order."""
    return list(flat_types(ty))


def from_tuple_type(ty: Type, expr: RelayExpr) -> list[RelayExpr]:
    """Return the tensors in a value of the type ``ty`` as expressions, in order."""
    if not isinstance(ty, TupleType):
        return [expr]
    fields = (TupleGetItem(expr, index) for index in range(len(ty.fields)))
    return [e for field, type_ in zip(fields, ty.fields, strict=True) for e in from_tuple_type(type_, field)]


def to_tuple_type(ty: Type, exprs: Sequence[RelayExpr]) -> RelayExpr:
    """Build a value of the type ``ty`` from tensors in order.

    Raises:
        ValueError: the number of tensors is not that of the type.
    """
    wanted = len(flatten_tuple_type(ty))
    if wanted != len(exprs):
        raise ValueError(f"{ty} is made of {wanted} tensors, got {len(exprs)}")
    rest = iter(exprs)

    def packed(type_: Type) -> RelayExpr:
        return Tuple([packed(field) for field in type_.fields]) if isinstance(type_, TupleType) else next(rest)

    return packed(ty)
