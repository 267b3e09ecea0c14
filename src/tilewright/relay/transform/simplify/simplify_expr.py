"""SimplifyExpr: small algebraic simplifications of the graph, from a table.

Before::

    %0 = transpose(%x, axes=[0, 2, 3, 1]);
    %1 = layout_transform(%0, src_layout="NHWC", dst_layout="NCHW");
    %2 = zeros_like(%1);
    add(%1, %2)

after::

    %x

``-like`` operators become those with attributes where the types are known, so that no operand is kept for its shape
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir.dtype import is_custom
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.transform import Pass
from tilewright.ir.type import TensorType
from tilewright.relay import op
from tilewright.relay.dataflow_pattern import is_filled, is_op, is_scalar, wildcard
from tilewright.relay.expr import Call, const
from tilewright.relay.op.transform.axes import TransposeAttrs
from tilewright.relay.transform.common import concrete_shape, known_dims
from tilewright.relay.transform.rules import ALL, Match, Rule, RuleTable, is_static, same_type
from tilewright.relay.transform.simplify.extents import known_extents
from tilewright.tir.layout import Layout, layout, layout_conversion

_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


def _permutation(call: Call) -> list[int] | None:
    """Return the original axis of each axis of the result of a transpose, or of a conversion without blocks."""
    attrs: Any = call.attrs
    if isinstance(attrs, TransposeAttrs):
        rank = len(call.args[0].checked_type.shape)  # type: ignore[attr-defined]
        return [int(a) % rank for a in attrs.axes] if attrs.axes is not None else list(range(rank))[::-1]
    source, target = layout(attrs.src_layout), layout(attrs.dst_layout)
    if not (source.is_primal and target.is_primal):
        return None
    return [source.index_of(letter) for letter, _ in target.axes]


def _permuted(name: str, axes: Sequence[int]) -> str:
    """Return the layout whose axis i is axis ``axes[i]`` of the layout ``name``."""
    parts = layout(name).axes
    return "".join(f"{factor or ''}{letter}" for letter, factor in (parts[a] for a in axes))


def _is_identity(m: Match) -> bool:
    axes = _permutation(m.root)
    return m.attrs.src_layout == m.attrs.dst_layout if axes is None else axes == sorted(axes)


def _merge_permutations(m: Match) -> RelayExpr | None:
    first, second = _permutation(m[MOVED]), _permutation(m.root)
    if first is None or second is None:
        return None
    axes = [first[a] for a in second]
    return m[x] if axes == sorted(axes) else op.transpose(m[x], axes=axes)


def _convert_permuted(m: Match) -> RelayExpr | None:
    axes = _permutation(m[TRANSPOSED])
    assert axes is not None
    return _conversion(m, _permuted(m.attrs.src_layout, np.argsort(axes).tolist()), m.attrs.dst_layout)


def _permute_converted(m: Match) -> RelayExpr | None:
    axes = _permutation(m.root)
    assert axes is not None
    return _conversion(m, m[CONVERTED].attrs.src_layout, _permuted(m[CONVERTED].attrs.dst_layout, axes))


def _merge_conversions(m: Match) -> RelayExpr | None:
    inner, outer = m[CONVERTED].attrs, m.attrs
    return _conversion(m, inner.src_layout, outer.dst_layout) if inner.dst_layout == outer.src_layout else None


def _conversion(m: Match, source: str, target: str) -> RelayExpr | None:
    """Convert x in one step; None where that changes the shape, since the steps had padded it."""
    if source == target:
        return m[x] if same_type(x)(m) else None
    shape = concrete_shape(m[x])
    if shape is None or not isinstance(m.type, TensorType):
        return None
    try:
        found = layout_conversion(Layout(source), Layout(target)).forward_shape(shape)
    except TilewrightError:
        return None
    return op.layout_transform(m[x], source, target) if TensorType(found, m.dtype) == m.type else None


def _loses_nothing(m: Match) -> bool:
    """Return whether the inner cast is between dtypes of numpy, and lossless."""
    try:
        return np.can_cast(_dtype(m[x]), _dtype(m[WIDE]), "safe")
    except TypeError:
        return False


def _is_undone(m: Match) -> bool:
    return _dtype(m[x]) == m.dtype and _loses_nothing(m)


def _is_not_needed(m: Match) -> bool:
    """Return whether the outer cast may read x.

    It may not where x is a float and the inner cast an integer: a float converted to a small integer at once differs.
    """
    kinds = {_dtype(m[x]), _dtype(m[WIDE])}
    return (kinds <= _INTEGERS or not kinds & _INTEGERS) and _loses_nothing(m)


def _dtype(expr: RelayExpr) -> str:
    assert isinstance(expr.checked_type, TensorType)
    return expr.checked_type.dtype


def _with_scalar(m: Match, index: int) -> RelayExpr | None:
    """Replace operand ``index``, a tensor filled with a number, by the number; the bits of users' types are unknown."""
    number = m[value].data.numpy().reshape(()) if FULL in m else int(ONES in m)
    args = list(m.root.args)
    if is_custom(_dtype(args[index])):
        return None
    args[index] = const(number, _dtype(args[index]))
    return Call(m.root.op, args, m.root.attrs, m.root.type_args, m.root.span)


def _shaped(make: Callable[[RelayExpr, tuple[int, ...]], RelayExpr]) -> Callable[[Match], RelayExpr]:
    """Reshape x to the shape of the result."""
    return lambda m: make(m[x], m.shape)


def _cast(m: Match) -> RelayExpr:
    return op.cast(m[x], m.dtype)


def _repeated(m: Match) -> RelayExpr | None:
    """Return x repeated along the axis before the new one, if the reshape joins these two."""
    found = [known_extents(known_dims(e)) for e in (m[x], m[SPREAD], m.root)]
    known = [extents for extents in found if extents is not None]
    attrs: Any = m[APART].attrs
    if len(known) != len(found) or attrs.num_newaxis != 1:
        return None
    shape, wide, joined = known
    axis = int(attrs.axis) % len(wide)
    count, rest = wide[axis], shape[axis:]
    if not axis or count.names or wide != [*shape[:axis], count, *rest]:
        return None
    fits = joined == [*shape[: axis - 1], shape[axis - 1] * count, *rest]
    return op.repeat(m[x], count.number, axis - 1) if fits else None


x, y = wildcard(), wildcard()
value = is_scalar()
ZERO, ONE = is_filled(0), is_filled(1)
ZEROS, ONES, FULL = is_op("zeros")(), is_op("ones")(), is_op("full")(value)
FILLED = ZEROS | ONES | FULL
VIEW, VIEWED = [is_op("reshape") | is_op("contrib_reverse_reshape") for _ in range(2)]
TRANSPOSED, CONVERTED = is_op("transpose")(x), is_op("layout_transform")(x)
MOVE, MOVED = is_op("transpose") | is_op("layout_transform"), TRANSPOSED | CONVERTED
MAY_DO_NOTHING = VIEW | is_op("cast") | is_op("squeeze") | is_op("broadcast_to") | is_op("copy")
APART = is_op("expand_dims")(x)
SPREAD = is_op("repeat")(APART) | is_op("broadcast_to")(APART)
JOINED = VIEW(SPREAD)
ARITHMETIC = is_op("add") | is_op("subtract") | is_op("multiply") | is_op("divide")
WIDE = is_op("cast")(x)
BROADCAST_LIKE, SUM_LIKE = is_op("broadcast_to_like")(x, y), is_op("collapse_sum_like")(x, y)

RULES = RuleTable("SimplifyExpr", [
    Rule("transpose(transpose(x)) -> transpose(x)", MOVE(MOVED), _merge_permutations, free=ALL),
    Rule("NCHW4c(transpose(x)) -> NCHW4c(x)", is_op("layout_transform")(TRANSPOSED), _convert_permuted, free=ALL),
    Rule("transpose(NCHW4c(x)) -> CNHW4c(x)", is_op("transpose")(CONVERTED), _permute_converted, free=ALL),
    Rule("NCHW4c(NHWC(x)) -> NCHW4c(x)", is_op("layout_transform")(CONVERTED), _merge_conversions, free=ALL),
    Rule("transpose(x, [0, 1, 2]) -> x", MOVE(x), x, _is_identity),
    Rule("reshape(reshape(x)) -> reshape(x)", VIEW(VIEWED(x)), _shaped(op.reshape), is_static, ALL),
    Rule("reshape(repeat(expand_dims(x))) -> repeat(x)", JOINED, _repeated, free=ALL),
    Rule("reshape(x, shape of x) -> x", MAY_DO_NOTHING(x), x, same_type(x)),
    Rule("cast(cast(x)) -> x", is_op("cast")(WIDE), x, _is_undone, ALL),
    Rule("cast(cast(x)) -> cast(x)", is_op("cast")(WIDE), _cast, _is_not_needed, ALL),
    Rule("zeros + x -> 0 + x", ARITHMETIC(FILLED, x), lambda m: _with_scalar(m, 0), same_type(x), ALL),
    Rule("x + zeros -> x + 0", ARITHMETIC(x, FILLED), lambda m: _with_scalar(m, 1), same_type(x), ALL),
    Rule("x + 0 -> x", is_op("add")(x, ZERO), x, same_type(x)),
    Rule("x - 0 -> x", is_op("subtract")(x, ZERO), x, same_type(x)),
    Rule("x * 1 -> x", is_op("multiply")(x, ONE), x, same_type(x)),
    Rule("x / 1 -> x", is_op("divide")(x, ONE), x, same_type(x)),
    # What has the form of another tensor, made concrete
    Rule("cast_like(x, y) -> cast(x)", is_op("cast_like")(x, y), _cast),
    Rule("reshape_like(x, y) -> reshape(x)", is_op("reshape_like")(x, y), _shaped(op.reshape), is_static),
    Rule("x broadcast like y -> broadcast_to(x)", BROADCAST_LIKE, _shaped(op.broadcast_to), is_static),
    Rule("x summed like y -> collapse_sum_to(x)", SUM_LIKE, _shaped(op.collapse_sum_to), is_static),
    Rule("zeros_like(x) -> zeros", is_op("zeros_like")(x), lambda m: op.zeros(m.shape, m.dtype), is_static),
    Rule("ones_like(x) -> ones", is_op("ones_like")(x), lambda m: op.ones(m.shape, m.dtype), is_static),
    Rule("full_like(x, y) -> full(y)", is_op("full_like")(x, y), lambda m: op.full(m[y], m.shape, m.dtype), is_static),
])  # fmt: skip


def SimplifyExpr() -> Pass:
    """Apply the table."""
    return RULES.as_pass("SimplifyExpr", 0)
