"""Tensor intrinsics: hardware operations declared by the loops that they replace.

>>> def gemv(m, l):
...     a = te.placeholder((l,), name="a")
...     b = te.placeholder((m, l), name="b")
...     k = te.reduce_axis((0, l), name="k")
...     c = te.compute((m,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
...     def emit(ins, outs):
...         return tvm.tir.call_extern("int32", "gemv_update", outs[0].access_ptr("w"), ...)
...     return te.decl_tensor_intrin(c.op, emit)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.memory import Buffer, decl_buffer
from tilewright.ir.node import Node
from tilewright.ir.prim_expr import PrimExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.te.operation import Operation, TensorComputeOp, as_attrs
from tilewright.te.tensor import Tensor, TensorSlice
from tilewright.tir.expr import IterVar, IterVarType, ProducerLoad, Range
from tilewright.tir.stmt import Evaluate, Stmt


class TensorIntrin(Node):
    """A hardware operation: ``op`` defines its result, ``body`` is the code.

    For a reduction, ``reduce_init`` clears the result and ``reduce_update`` adds to it; ``body`` does both at once.
    """

    name: str
    op: Operation
    inputs: tuple[Tensor, ...]
    buffers: tuple[Buffer, ...]
    scalar_params: tuple[PrimExpr, ...]
    body: Stmt | None
    reduce_init: Stmt | None
    reduce_update: Stmt | None

    def __call__(
        self,
        *args: TensorSlice | PrimExpr,
        reduce_axis: IterVar | Sequence[IterVar] | None = None,
        scalar_inputs: Sequence[PrimExpr] | None = None,
    ) -> TensorIntrinCall:
        """Use the intrinsic as the body of a ``te.compute`` whose function takes only the outer indices.

        Scalar arguments, which may stand between the slices, are bound to the intrinsic's ``scalar_params`` in order.
        """
        elements = [TensorSlice(t.producer, t.indices) if isinstance(t, ProducerLoad) else t for t in args]
        pieces = [t for t in elements if not isinstance(t, PrimExpr)]
        scalars = tuple(t for t in elements if isinstance(t, PrimExpr)) + tuple(scalar_inputs or ())
        regions = [_region(t, self.inputs[k]) for k, t in enumerate(pieces)]
        axes = tuple(reduce_axis) if isinstance(reduce_axis, (list, tuple)) else (reduce_axis,) if reduce_axis else ()
        return TensorIntrinCall(self, tuple(t.tensor for t in pieces), tuple(regions), axes, scalars)


class TensorIntrinCall(Node):
    """An application of an intrinsic to regions of tensors."""

    intrin: TensorIntrin
    tensors: tuple[Tensor, ...]
    regions: tuple[tuple[Range, ...], ...]
    reduce_axis: tuple[IterVar, ...]
    scalar_inputs: tuple[PrimExpr, ...]

    def as_compute(self, name: str, tag: str, attrs: Any, axis: Sequence[IterVar], shape: Sequence[PrimExpr]) -> Any:
        """The tensor, or list of tensors, of a ``te.compute`` whose body is this call: its body is a block."""
        block = [
            IterVar(Range(0, extent), f"ax{d}", IterVarType.Opaque)
            for d, extent in enumerate(shape[len(axis) :], len(axis))
        ]
        op = TensorComputeOp(
            name, tag, as_attrs(attrs), (*axis, *block), self.reduce_axis, len(axis), self.intrin, self.tensors,
            self.regions, self.scalar_inputs,
        )  # fmt: skip
        return op.output(0) if op.num_outputs == 1 else list(op.outputs)


def _region(piece: Any, declared: Tensor) -> tuple[Range, ...]:
    if not isinstance(piece, TensorSlice):
        raise TilewrightError(f"a tensor intrinsic takes tensor slices such as A[i, 0:16], got {type(piece).__name__}")
    ranges: list[Range] = []
    for index in piece.indices:
        if isinstance(index, slice):
            if index.step is not None:
                raise TilewrightError("a slice in a tensor intrinsic call has no step")
            ranges.append(Range(index.start, index.stop))
        else:
            ranges.append(Range.from_min_extent(as_expr(index), 1))
    ranges += [Range(0, d) for d in piece.tensor.shape[len(ranges) :]]
    return tuple(ranges)


def decl_tensor_intrin(
    op: Operation,
    fcompute: Callable[..., Any],
    name: str = "tensor_intrin",
    binds: Mapping[Tensor, Buffer] | None = None,
    scalar_params: Sequence[PrimExpr] | None = None,
    default_buffer_params: Mapping[str, Any] | None = None,
) -> TensorIntrin:
    """Declare a tensor intrinsic.

    Parameters
    ----------
    op : the compute that the intrinsic stands for, over placeholders
    fcompute : (input buffers, output buffers[, scalars]) -> statement or call, or a tuple
        (body, reduce_init, reduce_update) of them for a reduction
    binds : buffers to use for tensors, for example with strides
    default_buffer_params : arguments of ``decl_buffer`` for the tensors that ``binds`` does not have
    """
    inputs = op.input_tensors
    tensors = [*inputs, *op.outputs]
    bound = dict(binds or {})
    params = dict(default_buffer_params or {})
    buffers = [
        bound.get(t) or decl_buffer(t.shape, t.dtype, t.op.name, **({"offset_factor": 1} | params)) for t in tensors
    ]
    scalars = tuple(scalar_params or ())
    ins, outs = buffers[: len(inputs)], buffers[len(inputs) :]
    body = fcompute(ins, outs, list(scalars)) if scalars else fcompute(ins, outs)
    parts = list(body) if isinstance(body, (tuple, list)) else [body]
    if not 1 <= len(parts) <= 3:
        raise TilewrightError(f"tensor intrinsic {name}: the function gives {len(parts)} statements, expected 1 to 3")
    stmts = [Evaluate(p) if isinstance(p, PrimExpr) else p for p in parts]
    stmts += [None] * (3 - len(stmts))
    return TensorIntrin(name, op, tuple(inputs), tuple(buffers), scalars, *stmts)
