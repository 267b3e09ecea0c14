"""vm.*: calls of kernels and views of tensors in programs for the virtual machine.

::

    let %_ = vm.invoke_tvm_op(%kernel, (%x,), (%out,));    the kernel writes %out
    let %s = vm.shape_of(%x, dtype="int64");               a vector, on the host
    let %y = vm.reshape_tensor(%x, %s, newshape=[2, ?]);   the same memory, with another shape
    let %z = vm.append(%x, %more, axis=0);                 concatenated, in the memory of %x where its capacity allows
    let %w = vm.write_rows(%x, %rows, %starts, axis=1);    %x with new rows, in its memory where nobody else holds it

``relay.transform.ManifestAlloc`` inserts these operators beside those of ``memory``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import IncompleteType, TensorType, TupleType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op.attributes import call
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import HOST, Place, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.memory import UNIT, MemoryDef
from tilewright.relay.op.transform.join import Concatenate, ConcatenateAttrs
from tilewright.relay.op.transform.rows import WriteRows, WriteRowsAttrs


class ShapeOfAttrs(Attrs):
    """The dtype of the extents."""

    dtype: str = "int64"


class ShapeFuncAttrs(Attrs):
    """For each input whether it is the value itself; otherwise it is the shape."""

    is_input: tuple[bool, ...]


class ReshapeTensorAttrs(Attrs):
    """The known dimensions of the new shape."""

    newshape: tuple[Any, ...]


class AppendAttrs(Attrs):
    """The dimension along which tensors are appended."""

    axis: int = 0


class ShapeOf(MemoryDef):
    """The shape of a tensor, as a vector on the host."""

    name = "vm.shape_of"
    inputs = ("tensor",)
    attrs_type = ShapeOfAttrs
    stateful = False
    reads_shape = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: ShapeOfAttrs, solver: TypeSolver) -> Type | None:
        """A vector of (rank,) extents."""
        if not isinstance(types[0], TensorType):
            raise TypeInferenceError(f"vm.shape_of: expected a tensor, found {types[0]}")
        return TensorType((len(types[0].shape),), attrs.dtype)

    @staticmethod
    def evaluate(attrs: ShapeOfAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [np.array(inputs[0].shape, attrs.dtype)]

    @staticmethod
    def places(attrs: ShapeOfAttrs) -> Sequence[Place]:
        """A shape is on the host."""
        return "tensor", HOST


class _Invocation(MemoryDef):
    """Base of calls that write the tensors in ``outputs``."""

    inputs = ("func", "inputs", "outputs")

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        for what, found in zip(("inputs", "outputs"), types[1:], strict=True):
            if not isinstance(found, (TupleType, IncompleteType)):
                raise TypeInferenceError(f"the {what} of a kernel should be a tuple of tensors, found {found}")
        return UNIT


class InvokeTVMOp(_Invocation):
    """Run a primitive function's kernel on a tuple of inputs and write a tuple of outputs."""

    name = "vm.invoke_tvm_op"


invoke_tvm_op = builder(InvokeTVMOp)


class ShapeFunc(_Invocation):
    """Compute the shapes of a primitive function's results, from shapes and values, and write them to ``outputs``."""

    name = "vm.shape_func"
    attrs_type = ShapeFuncAttrs

    @staticmethod
    def places(attrs: ShapeFuncAttrs) -> Sequence[Place]:
        """Shapes are on the host."""
        return "kernel", HOST, HOST, HOST


class ReshapeTensor(MemoryDef):
    """A tensor of another shape in the same memory."""

    name = "vm.reshape_tensor"
    inputs = ("data", "shape")
    attrs_type = ReshapeTensorAttrs

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: ReshapeTensorAttrs, solver: TypeSolver) -> Type | None:
        if not isinstance(types[0], TensorType):
            raise TypeInferenceError(f"vm.reshape_tensor: expected a tensor, found {types[0]}")
        return TensorType(attrs.newshape, types[0].dtype)

    @staticmethod
    def evaluate(attrs: ReshapeTensorAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [inputs[0].reshape(inputs[1])]

    @staticmethod
    def places(attrs: ReshapeTensorAttrs) -> Sequence[Place]:
        """The shape is on the host."""
        return "memory", HOST, "memory"


class Append(MemoryDef):
    """``more`` appended to ``past``, in place where the memory of ``past`` has the capacity (``AppendInPlace``)."""

    name = "vm.append"
    inputs = ("past", "more")
    attrs_type = AppendAttrs
    stateful = False

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: AppendAttrs, solver: TypeSolver) -> Type | None:
        return Concatenate.infer_type([TupleType(types)], ConcatenateAttrs(attrs.axis), solver)

    @staticmethod
    def evaluate(attrs: AppendAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [np.concatenate(inputs, attrs.axis)]


append = builder(Append, axis=...)


class VMWriteRows(MemoryDef):
    """``write_rows``, in the memory of ``data`` where nobody else holds it (``WriteInPlace``)."""

    name = "vm.write_rows"
    inputs = WriteRows.inputs
    attrs_type = WriteRowsAttrs
    stateful = False

    infer_type = staticmethod(WriteRows.infer_type)
    evaluate = staticmethod(WriteRows.evaluate)


def shape_of(expr: RelayExpr) -> Call:
    """Return the shape of a tensor, a vector of int64 on the host."""
    return call("vm.shape_of", [expr], ShapeOfAttrs())


def shape_func(func: RelayExpr, inputs: RelayExpr, outputs: RelayExpr, is_inputs: Sequence[bool]) -> Call:
    """Compute the shapes of a primitive function's results.

    Parameters
    ----------
    inputs : a tuple of shapes, or values where ``is_inputs`` says so, one for each parameter.
    outputs : a tuple of vectors of int64, which are written.
    """
    return call("vm.shape_func", [func, inputs, outputs], ShapeFuncAttrs(tuple(map(bool, is_inputs))))


def reshape_tensor(data: RelayExpr, shape: RelayExpr, newshape: Sequence[Any]) -> Call:
    """Return ``data`` in the same memory, with the shape ``newshape``, which the vector ``shape`` holds at run
    time.
    """
    return call("vm.reshape_tensor", [data, shape], ReshapeTensorAttrs(tuple(newshape)))
