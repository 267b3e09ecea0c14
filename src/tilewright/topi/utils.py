"""Helpers shared by computes and schedules: constant shapes, walks over operation graphs, padding, index arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright import te, tir
from tilewright.arith import Analyzer
from tilewright.ir import walk
from tilewright.ir.errors import InvalidShapeError as InvalidShapeError
from tilewright.ir.prim_expr import IntImm, PrimExpr, Select, Var
from tilewright.ir.prim_ops import as_expr, cast, const, maximum
from tilewright.tir.layout import layout_conversion
from tilewright.topi import tag


def simplify(expr: Any) -> Any:
    """Simplify an expression, a number or a tuple of expressions."""
    if isinstance(expr, (list, tuple)):
        return type(expr)(simplify(e) for e in expr)
    if isinstance(expr, IntImm | Var):
        return expr
    return Analyzer().simplify(expr) if isinstance(expr, PrimExpr) else expr


def largest_divisor(n: int, limit: int) -> int:
    """Return the largest divisor of ``n`` that is at most ``limit``."""
    return max((d for d in range(1, min(n, limit) + 1) if n % d == 0), default=1)


def pixel_of(value: PrimExpr, most: int = 1 << 29) -> PrimExpr:
    """A floating-point coordinate as int32; far outside, at ``-most``, where it is beyond +-``most`` or no number.

    What such a number would convert to is not defined, and not even the same for a check of the index and its use.
    """
    wide = value if value.dtype.startswith("float64") else cast("float32", value)
    known = tir.all(wide >= float(-most), wide <= float(most))
    return cast("int32", Select(known, wide, const(-most, wide.dtype)))


def steps_over(extent: Any, step: int) -> Any:
    """Return in how many steps ``extent``, a number or an expression, is covered: the quotient rounded up."""
    return simplify((extent + (step - 1)) // step)


def rounded(extent: Any, step: int) -> Any:
    """Round ``extent``, a number or an expression, up to a multiple of ``step``."""
    return steps_over(extent, step) * step


def get_const_int(expr: Any) -> int:
    """Return ``expr`` as an int; raises ValueError when it is not a constant."""
    if isinstance(expr, int):
        return expr
    value = simplify(as_expr(expr))
    if not isinstance(value, IntImm):
        raise ValueError(f"expected a constant integer, found {expr}")
    return int(value)


def get_const_float(expr: Any) -> float:
    """Return ``expr`` as a float; raises ValueError when it is not a constant."""
    if isinstance(expr, (int, float)):
        return float(expr)
    value = simplify(as_expr(expr))
    if not isinstance(value, tir.FloatImm | IntImm):
        raise ValueError(f"expected a constant number, found {expr}")
    return float(value)


def equal_const_int(expr: Any, value: int) -> bool:
    """Return whether ``expr`` is the constant integer ``value``."""
    found = expr if isinstance(expr, int) else simplify(as_expr(expr))
    return isinstance(found, int | IntImm) and int(found) == value


def get_const_tuple(in_tuple: Sequence[Any]) -> tuple[Any, ...]:
    """Return ``in_tuple`` with every constant dimension as an int; unknown dimensions stay expressions."""
    result: list[Any] = []
    for dim in in_tuple:
        value = dim if isinstance(dim, int) else simplify(as_expr(dim))
        result.append(int(value) if isinstance(value, int | IntImm) else value)
    return tuple(result)


def get_shape(src_shape: Sequence[Any], src_layout: str, dst_layout: str) -> tuple[Any, ...]:
    """Convert a shape from ``src_layout``, such as NCHW16c, to ``dst_layout``."""
    if src_layout == dst_layout:
        return get_const_tuple(src_shape)
    return get_const_tuple(layout_conversion(src_layout, dst_layout).forward_shape(src_shape))


def get_float_tuple(in_tuple: Sequence[Any]) -> tuple[float, ...]:
    """Return ``in_tuple`` as floats."""
    return tuple(get_const_float(v) for v in in_tuple)


def operations(outs: Any) -> Iterator[Any]:
    """Yield the operations that compute ``outs`` (operations or tensors), consumers before their producers."""
    roots = [getattr(out, "op", out) for out in as_list(outs)]
    return reversed(walk.post_order(roots, lambda op: [t.op for t in op.input_tensors]))


def traverse_inline(s: te.Schedule, final_op: Any, callback: Callable[[Any], None]) -> None:
    """Inline every injective producer of ``final_op`` that is no output, and call ``callback`` on each operation.

    ``callback`` sees consumers first; it schedules the anchor (a convolution, a reduction) when it meets it.
    """
    for op in operations(final_op):
        if tag.is_injective(op.tag) and op not in s.outputs and isinstance(op, te.ComputeOp):
            s[op].compute_inline()
        callback(op)


def as_list(value: Any) -> list[Any]:
    """Return a list, tuple or single value as a list."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def get_pad_tuple1d(padding: Any, kernel: Sequence[Any]) -> tuple[Any, Any]:
    """Return the padding before and after for an int, a pair, "VALID" or "SAME" (for stride 1)."""
    return _pad_tuple(padding, kernel, 1)


def get_pad_tuple(padding: Any, kernel: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
    """Return the padding (top, left, bottom, right) for an int, 2 or 4 ints, "VALID" or "SAME" (for stride 1)."""
    return _pad_tuple(padding, kernel, 2)


def get_pad_tuple3d(padding: Any, kernel: Sequence[Any]) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Return the padding (front, top, left, back, bottom, right) for an int, 3 or 6 ints, "VALID" or "SAME"."""
    return _pad_tuple(padding, kernel, 3)


def _pad_tuple(padding: Any, kernel: Sequence[Any], dims: int) -> tuple[Any, ...]:
    if isinstance(padding, str):
        if padding == "VALID":
            return (0,) * (2 * dims)
        if padding == "SAME":
            total = [k - 1 for k in kernel]
            before = [(t + 1) // 2 for t in total]
            return (*before, *(t - b for t, b in zip(total, before, strict=True)))
        raise ValueError(f"padding is numbers, 'VALID' or 'SAME'; found {padding!r}")
    if isinstance(padding, (int, PrimExpr)):
        return (padding,) * (2 * dims)
    padding = tuple(padding)
    if len(padding) == 1:
        return padding * (2 * dims)
    if len(padding) == dims:
        return padding * 2
    if len(padding) == 2 * dims:
        return padding
    raise ValueError(f"padding of {dims} spatial dimensions takes 1, {dims} or {2 * dims} values; found {padding}")


def unravel_index(idx: Any, shape: Sequence[Any]) -> list[Any]:
    """Return the coordinates in ``shape`` of the flat row-major index ``idx``."""
    indices: list[Any] = []
    for i, dim in enumerate(reversed(shape)):
        if i == len(shape) - 1:
            indices.append(idx)
        else:
            indices.append(tir.indexmod(idx, dim))
            idx = tir.indexdiv(idx, dim)
    return indices[::-1]


def ravel_index(indices: Sequence[Any], shape: Sequence[Any]) -> Any:
    """Return the flat row-major index of the coordinates ``indices`` in ``shape``."""
    flat: Any = 0
    for index, dim in zip(indices, shape, strict=True):
        flat = flat * dim + index
    return flat


def prod(x: Sequence[Any]) -> Any:
    """Return the product of dimensions: an int when all are known."""
    result: Any = 1
    for value in x:
        result = result * value
    return result


def ceil_div(a: Any, b: Any) -> Any:
    """Divide ``a`` by ``b``, rounding up: numbers or expressions, ``b`` positive."""
    return simplify(tir.floordiv(as_expr(a) + (as_expr(b) - 1), as_expr(b)))


def swap(arr: Sequence[Any], axis: int) -> list[Any]:
    """Swap the elements of ``arr`` at ``axis`` and at the end."""
    result = list(arr)
    result[axis], result[-1] = result[-1], result[axis]
    return result


def at_least_one(extent: Any) -> Any:
    """Return ``extent``, or 1 where it is 0: a buffer has at least one element."""
    return max(extent, 1) if isinstance(extent, int) else maximum(extent, 1)


def nchw_pack_layout(layout_info: str) -> bool:
    """Return whether the layout is NCHW with packed channels and batch, such as ``NCHW1n16c``."""
    return layout_info[:4] == "NCHW" and "c" in layout_info and "n" in layout_info


def nchw_xc_layout(layout_info: str) -> bool:
    """Return whether the layout is NCHW with packed channels, such as ``NCHW16c``."""
    return layout_info[:4] == "NCHW" and "c" in layout_info and layout_info[4:-1].isnumeric()


def ncw_pack_layout(layout_info: str) -> bool:
    """Return whether the layout is NCW with packed channels and batch, such as ``NCW1n16c``."""
    return layout_info[:3] == "NCW" and "c" in layout_info and "n" in layout_info


def ncw_xc_layout(layout_info: str) -> bool:
    """Return whether the layout is NCW with packed channels, such as ``NCW16c``."""
    return layout_info[:3] == "NCW" and "c" in layout_info and layout_info[3:-1].isnumeric()


def get_max_power2_factor(n: int, max_value: int | None = None) -> int:
    """Return the largest power of two that divides ``n`` and is at most ``max_value``."""
    factor = 1
    while n % (2 * factor) == 0 and (max_value is None or 2 * factor <= max_value):
        factor *= 2
    return factor


def const_vector(vector: Any, name: str = "const_vector") -> te.Tensor:
    """Return a small numpy vector as a tensor, whose elements are selected by index, for loops that are unrolled."""
    dtype = str(vector.dtype)

    def element(i: Any) -> Any:
        chosen: Any = const(0.0, dtype)
        for position, value in enumerate(vector):
            chosen = Select(i % len(vector) == position, const(float(value), dtype), chosen)
        return chosen

    made: te.Tensor = te.compute(
        vector.shape, element, name=name, attrs={"const_vector": True, "schedule_rule": "None"}
    )
    return made


def is_empty_shape(shape: Sequence[Any]) -> bool:
    """Return whether some dimension is the constant 0."""
    return any(equal_const_int(dim, 0) for dim in shape)


def const_matrix(matrix: Any, name: str = "const_matrix") -> te.Tensor:
    """Return a small numpy matrix as a tensor, whose elements are selected by index, for loops that are unrolled."""
    rows, columns = matrix.shape
    dtype = str(matrix.dtype)

    def element(i: Any, j: Any) -> Any:
        chosen: Any = const(0.0, dtype)
        for row in range(rows):
            for column in range(columns):
                here = te.all(i % rows == row, j % columns == column)
                chosen = Select(here, const(float(matrix[row, column]), dtype), chosen)
        return chosen

    made: te.Tensor = te.compute(
        (rows, columns), element, name=name, attrs={"const_matrix": True, "schedule_rule": "None"}
    )
    return made
