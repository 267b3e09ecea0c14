"""write_rows: a buffer with new rows, as caches of a fixed length are written. Not in TVM 0.8."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright import te, tir
from tilewright.ir.attrs import Attrs
from tilewright.ir.type import Type
from tilewright.relay.op import relations
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.topi import tag


class WriteRowsAttrs(Attrs):
    """The dimension along which rows follow one another."""

    axis: int = 1


class WriteRows(OpDef[WriteRowsAttrs]):
    """``data`` with ``rows`` in it along ``axis``, from ``starts[i]`` on in item i of the batch, the first dimension.

    data (batch, ..., capacity, ...), rows (batch, ..., length, ...), starts int32 or int64 (batch) or (1). Rows must
    lie within the buffer: the interpreter and the virtual machine raise an error, kernels leave out those that do not.
    """

    name = "write_rows"
    inputs = ("data", "rows", "starts")
    pattern = OpPattern.INJECTIVE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: WriteRowsAttrs, solver: TypeSolver) -> Type | None:
        found = relations.tensors(types, WriteRows.inputs)
        data, rows, starts = found
        relations.require_same_dtype((data, rows), "data and rows")
        relations.require_rank(rows, len(data.shape), "rows")
        relations.require_rank(starts, 1, "starts")
        axis = relations.normalize_axis(attrs.axis, len(data.shape))
        relations.require(axis > 0, "the first dimension is the batch: rows follow one another along a later one")
        relations.require(starts.dtype in ("int32", "int64"), f"starts are int32 or int64, not {starts.dtype}")
        items, batch = relations.known(starts.shape[0]), relations.known(data.shape[0])
        relations.require(items in (None, 1, batch) or batch is None, f"{items} starts for a batch of {batch}")
        for k, (have, want) in enumerate(zip(rows.shape, data.shape, strict=True)):
            if k != axis:
                solver.assert_equal(want, have, f"dimension {k} of the rows")
                continue
            new, length = relations.known(have), relations.known(want)
            fits = new is None or length is None or new <= length
            relations.require(fits, f"{new} rows are more than the buffer holds, {length}")
        return data

    @staticmethod
    def compute(attrs: WriteRowsAttrs, inputs: Sequence[te.Tensor], out_type: Type) -> list[te.Tensor]:
        data, rows, starts = inputs
        axis, length = attrs.axis % len(data.shape), rows.shape[attrs.axis]
        one = isinstance(starts.shape[0], tir.IntImm) and starts.shape[0].value == 1

        def element(*index: tir.PrimExpr) -> tir.PrimExpr:
            offset = index[axis] - starts(0 if one else index[0]).astype("int32")
            new = rows(*(offset if k == axis else i for k, i in enumerate(index)))
            return tir.if_then_else(tir.all(offset >= 0, offset < length), new, data(*index))

        return [te.compute(data.shape, element, name="write_rows", tag=tag.INJECTIVE)]

    @staticmethod
    def evaluate(attrs: WriteRowsAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, rows, starts = inputs
        result, length = data.copy(), rows.shape[attrs.axis]
        for item, start in enumerate(np.broadcast_to(starts, len(data))):
            if not 0 <= start <= data.shape[attrs.axis] - length:
                raise ValueError(f"{length} rows from {start} on do not fit {data.shape[attrs.axis]}")
            whole = np.moveaxis(result[item], attrs.axis - 1 if attrs.axis > 0 else attrs.axis, 0)
            whole[start : start + length] = np.moveaxis(rows[item], attrs.axis - 1 if attrs.axis > 0 else attrs.axis, 0)
        return [result]


write_rows = builder(WriteRows, axis=...)
