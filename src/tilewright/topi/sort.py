"""Sorting: a stable bottom-up merge sort of indices, written as loops; rows run in parallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir import ir_builder
from tilewright.topi.transform import normalize_axis
from tilewright.topi.utils import InvalidShapeError, get_const_int, get_const_tuple, prod

PARALLEL_ELEMENTS = 16384  # below this, starting threads costs more than it saves


def row_kind(rows: Any, elements: Any) -> str:
    """Whether a loop over ``rows`` that touches ``elements`` is worth running on several threads."""
    known = isinstance(elements, int) and isinstance(rows, int)
    return "parallel" if known and rows > 1 and elements >= PARALLEL_ELEMENTS else "serial"


def split_shape(shape: Any, axis: int) -> tuple[Any, Any, Any]:
    """Number of elements before, along and after ``axis``."""
    dims = get_const_tuple(shape)
    return prod(dims[:axis]), dims[axis], prod(dims[axis + 1 :])


def _merge_sort(
    ib: Any, n: int, first: Any, second: Any, begin: PrimExpr, before: Callable[[Any, Any], PrimExpr]
) -> Any:
    """Sort the indices ``first[begin .. begin + n]``; gives the array, first or second, that ends up sorted.

    ``before(a, b)`` says that index ``a`` may stay left of index ``b``.
    """
    source, target = first, second
    width = 1
    while width < n:
        runs = (n + 2 * width - 1) // (2 * width)
        with ib.for_range(0, runs, name="run") as run:
            low = run * (2 * width)
            middle, high = ops.minimum(low + width, n), ops.minimum(low + 2 * width, n)
            left = ib.allocate("int32", (1,), name="left", scope="local")
            right = ib.allocate("int32", (1,), name="right", scope="local")
            left[0], right[0] = low, middle
            with ib.for_range(0, high - low, name="step") as step:
                # Both branches of if_then_else are lazy, so an exhausted run is not read.
                take_left = tir.if_then_else(
                    left[0] >= middle,
                    ops.const(False, "bool"),
                    tir.if_then_else(
                        right[0] >= high,
                        ops.const(True, "bool"),
                        before(source[begin + left[0]], source[begin + right[0]]),
                    ),
                )
                with ib.if_scope(take_left):
                    target[begin + low + step] = source[begin + left[0]]
                    left[0] = left[0] + 1
                with ib.else_scope():
                    target[begin + low + step] = source[begin + right[0]]
                    right[0] = right[0] + 1
        source, target = target, source
        width *= 2
    return source


def _sorted_rows(
    data: te.Tensor,
    axis: int,
    is_ascend: Any,
    limit: int,
    dtypes: tuple[str, ...],
    values: tuple[bool, ...],
    name: str,
    valid_count: te.Tensor | None = None,
) -> Any:
    """The first ``limit`` elements of each sorted row.

    There is an output for each of ``dtypes``; ``values`` says whether it holds the elements or their indices.
    """
    axis = normalize_axis(axis, data.ndim)
    outer, n, inner = split_shape(data.shape, axis)
    if not isinstance(n, int):
        raise InvalidShapeError(f"{name}: the sorted dimension must be known while compiling")
    shape = [limit if k == axis else d for k, d in enumerate(data.shape)]

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        source = ib.buffer_ptr(ins[0])
        targets = [ib.buffer_ptr(o) for o in outs]
        counts = ib.buffer_ptr(ins[1]) if valid_count is not None else None
        rows = outer * inner
        with ib.for_range(0, rows, name="row", kind=row_kind(rows, rows * n)) as row:
            before_axis, after_axis = tir.indexdiv(row, inner), tir.indexmod(row, inner)
            base = before_axis * (n * inner) + after_axis
            first = ib.allocate("int32", (max(n, 1),), name="order", scope="global")
            second = ib.allocate("int32", (max(n, 1),), name="order_swap", scope="global")
            with ib.for_range(0, n, name="k") as k:
                first[k] = k

            def before(a: Any, b: Any) -> PrimExpr:
                x, y = source[base + a * inner], source[base + b * inner]
                ordered = x <= y if is_ascend else x >= y
                if counts is None:
                    return ordered
                count = ops.cast("int32", counts[row])  # elements beyond the count keep their places at the end
                return tir.if_then_else(b >= count, ops.const(True, "bool"),
                                        tir.if_then_else(a >= count, ops.const(False, "bool"), ordered))  # fmt: skip

            order = _merge_sort(ib, n, first, second, ops.const(0, "int32"), before)
            with ib.for_range(0, limit, name="k") as k:
                at = before_axis * (limit * inner) + k * inner + after_axis
                for target, dtype, holds_values in zip(targets, dtypes, values, strict=True):
                    index = order[k]
                    target[at] = ops.cast(dtype, source[base + index * inner] if holds_values else index)
        return ib.get()

    inputs = [data] if valid_count is None else [data, valid_count]
    return te.extern([tuple(shape)] * len(dtypes), inputs, loops, dtype=list(dtypes), name=name, tag=name)


def sort(data: te.Tensor, axis: int = -1, is_ascend: Any = 1) -> te.Tensor:
    """The elements in rising (or falling) order along ``axis``; equal elements keep their order."""
    n = get_const_int(data.shape[normalize_axis(axis, data.ndim)])
    return _sorted_rows(data, axis, is_ascend, n, (data.dtype,), (True,), "sort_cpu")


def argsort(
    data: te.Tensor, valid_count: te.Tensor | None = None, axis: int = -1, is_ascend: Any = 1, dtype: str = "float32"
) -> te.Tensor:
    """The indices that sort ``data`` along ``axis``; with ``valid_count``, only the first elements of each row sort."""
    n = get_const_int(data.shape[normalize_axis(axis, data.ndim)])
    return _sorted_rows(data, axis, is_ascend, n, (dtype,), (False,), "argsort_cpu", valid_count)


def topk(
    data: te.Tensor, k: Any = 1, axis: int = -1, ret_type: str = "both", is_ascend: Any = False, dtype: str = "int64"
) -> Any:
    """The ``k`` largest (or smallest) elements along ``axis`` in order, all of them for k < 1.

    ``ret_type`` is "both" (values, indices), "values" or "indices"; ``dtype`` is that of the indices.
    """
    n = get_const_int(data.shape[normalize_axis(axis, data.ndim)])
    limit = get_const_int(k)
    limit = n if limit < 1 else limit
    if limit > n:
        raise InvalidShapeError(f"topk takes {limit} elements of a dimension that has {n}")
    kinds = {
        "both": ((data.dtype, dtype), (True, False)),
        "values": ((data.dtype,), (True,)),
        "indices": ((dtype,), (False,)),
    }
    if ret_type not in kinds:
        raise InvalidShapeError(f"topk ret_type is both, values or indices, found {ret_type!r}")
    dtypes, values = kinds[ret_type]
    return _sorted_rows(data, axis, is_ascend, limit, dtypes, values, "topk_cpu")


__all__ = [
    "argsort", "sort", "topk",
]  # fmt: skip
