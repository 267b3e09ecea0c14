"""nn.fifo_buffer: a queue of fixed length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.type import Type
from tilewright.relay.op import relations
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array


class FIFOBufferAttrs(Attrs):
    """The dimension along which the queue moves."""

    axis: int = 0


class FIFOBuffer(OpDef[FIFOBufferAttrs]):
    """``buffer`` shifted along ``axis`` by the extent of ``data``, with ``data`` appended at its end."""

    name = "nn.fifo_buffer"
    inputs = ("data", "buffer")
    pattern = OpPattern.INJECTIVE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: FIFOBufferAttrs, solver: TypeSolver) -> Type | None:
        found = relations.tensors(types, FIFOBuffer.inputs)
        data, buffer = found
        relations.require_same_dtype(found, "data and buffer")
        relations.require_rank(data, len(buffer.shape), "data")
        axis = relations.normalize_axis(attrs.axis, len(buffer.shape))
        for k, (have, want) in enumerate(zip(data.shape, buffer.shape, strict=True)):
            if k != axis:
                solver.assert_equal(want, have, f"dimension {k} of the data")
                continue
            new, length = relations.known(have), relations.known(want)
            fits = new is None or length is None or new <= length
            relations.require(fits, f"{new} elements are more than the buffer holds, {length}")
        return buffer

    @staticmethod
    def compute(attrs: FIFOBufferAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.nn.fifo_buffer(inputs[0], inputs[1], attrs.axis)]

    @staticmethod
    def evaluate(attrs: FIFOBufferAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, buffer = inputs
        row = np.concatenate([buffer, data], attrs.axis)
        length = buffer.shape[attrs.axis]
        return [np.take(row, np.arange(row.shape[attrs.axis] - length, row.shape[attrs.axis]), attrs.axis)]


fifo_buffer = builder(FIFOBuffer, axis=...)
