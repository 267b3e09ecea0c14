"""HalveWeights: keep the weights of products, and tables, in float16 or bfloat16; what is computed stays float32.

Before::

    %0 = nn.dense(%x, meta[relay.Constant][0]);             // float32
    take(meta[relay.Constant][1], %i, axis=0)

after, with the option ``relay.precision`` "bf16"::

    %0 = nn.dense(%x, meta[relay.Constant][0], out_dtype="float32");     // the constant: bfloat16
    %1 = take(meta[relay.Constant][1], %i, axis=0);
    cast(%1, dtype="float32")

The pass comes after constants are folded and scales are folded into weights, so that each weight is rounded once.
These weights stay: of the nodes that ``relay.precision.keep`` names; of the last layer, where it has at most a tenth of
all; small ones, which take no time; those with numbers that float16 does not have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError, did_you_mean
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.span import source_names
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType
from tilewright.relay.collector import Collector
from tilewright.relay.expr import Call, Constant, Function
from tilewright.relay.facts import all_are
from tilewright.relay.op.nn.conv2d import Conv2D
from tilewright.relay.op.tensor.unary import cast
from tilewright.relay.op.transform.indexing import Take
from tilewright.relay.transform.common import concrete_shape, open_children, trait_of, typed_function_pass
from tilewright.relay.transform.precision import bfloat16_gain
from tilewright.relay.transform.precision.to_mixed_precision import convert
from tilewright.relay.transform.simplify.fold_constant import evaluated
from tilewright.relay.visitor import ExprRewriter, direct_children, post_order
from tilewright.runtime.ndarray import numpy_view
from tilewright.target.features import features
from tilewright.target.target import Target

PRECISION, KEEP = "relay.precision", "relay.precision.keep"
FLOAT32, MIXED, AUTO = "float32", "mixed", "auto"
_HALVES = {"fp16": "float16", "bf16": "bfloat16", MIXED: "float16"}
PRECISIONS = (FLOAT32, *_HALVES, AUTO)
SEPARATOR = "\n"  # between the names of KEEP
_LEAST = 1 << 12  # elements of a weight that is halved
_LEAST_PRODUCTS = 1 << 18  # with a smaller weight of a convolution, which tiles of bfloat16 multiply
_LAST_SHARE = 10  # the last layer stays where it has one part in so many of all weights, or less
_NAMED = 3


@dataclass(frozen=True)
class Halved:
    """A weight that the pass looked at: its node, bytes before, its new data type or why it keeps its own."""

    node: str
    bytes: int
    dtype: str
    reason: str = ""


_halved = Collector[Halved]("halved_weights")
collecting = _halved.collecting


def summary(found: Sequence[Halved]) -> list[str]:
    """Return lines that tell how many weights are halved, and which are not."""
    halved = [one for one in found if not one.reason]
    lines = []
    for dtype in dict.fromkeys(one.dtype for one in halved):
        lines.append(f"{sum(one.dtype == dtype for one in halved)} of {len(found)} large weights in {dtype}")
    for reason in dict.fromkeys(one.reason for one in found if one.reason):
        nodes = [one.node for one in found if one.reason == reason]
        more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
        lines.append(f"float32 ({reason}): {', '.join(nodes[:_NAMED])}{more}")
    return lines


def check_precision(mod: IRModule) -> None:
    """Raise a TilewrightError where the options ask for an unknown precision, or keep a node that is not there."""
    option = PassContext.current().option
    asked, kept = str(option(PRECISION)), _kept()
    if asked not in PRECISIONS:
        raise TilewrightError(f"the precision is one of {', '.join(PRECISIONS)}, not {asked!r}")
    if not kept:
        return
    if asked == FLOAT32:
        raise TilewrightError("nodes are kept in float32 where the precision is another: give --precision fp16 or bf16")
    functions = [func for _, func in mod.items() if isinstance(func, Function)]
    names = {
        name for func in functions for node in post_order(func) for name in source_names(getattr(node, "span", None))
    }
    for name in sorted(kept - names):
        raise TilewrightError(f"the model has no node {name!r} to keep in float32{did_you_mean(name, sorted(names))}")


def precision_config(precision: str, keep: Sequence[str] = ()) -> dict[str, Any]:
    """Return the options of PassContext for a precision and the names of nodes that stay float32."""
    if precision not in PRECISIONS:
        raise TilewrightError(f"the precision is one of {', '.join(PRECISIONS)}, not {precision!r}")
    asked = {PRECISION: precision} if precision != FLOAT32 else {}
    return asked | ({KEEP: SEPARATOR.join(keep)} if keep else {})


def _kept() -> set[str]:
    return {name for name in str(PassContext.current().option(KEEP)).split(SEPARATOR) if name}


def half_dtype() -> str | None:
    """Return the data type that the options ask for under the current target; None for float32."""
    asked = str(PassContext.current().option(PRECISION))
    if asked != AUTO:
        return _HALVES.get(asked)
    target = Target.current()
    machine_code = target is None or target.kind.capabilities.machine_code
    fast = machine_code and any(map(features(target).has, ("avx512bf16", "amx-bf16")))
    return "bfloat16" if fast else None


def is_kept(expr: Call) -> bool:
    """Return whether the options keep the node of a call in float32."""
    return _is_kept(expr, _kept())


def _is_kept(expr: Call, kept: set[str]) -> bool:
    return not kept.isdisjoint(source_names(expr.span))


class _Halver(ExprRewriter):
    def __init__(self, dtype: str, chosen: dict[Call, int]) -> None:
        super().__init__()
        self.dtype, self.chosen = dtype, chosen
        self.made: dict[RelayExpr, RelayExpr] = {}

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        index = self.chosen.get(pre)
        if index is None:
            return post
        weight = post.args[index]
        args = [self._halved(arg) if arg is weight else arg for arg in post.args]
        if pre.op is Take.op:
            return cast(Call(post.op, args, post.attrs, post.type_args, post.span), FLOAT32)
        attrs: Any = post.attrs
        return Call(post.op, args, attrs.replace(out_dtype=FLOAT32), post.type_args, post.span)

    def _halved(self, weight: RelayExpr) -> RelayExpr:
        if weight not in self.made:
            self.made[weight] = _rounded(weight, self.dtype)
        return self.made[weight]


def _rounded(weight: RelayExpr, dtype: str) -> RelayExpr:
    assert isinstance(weight, Constant)
    type_ = TensorType(weight.checked_type.shape, dtype)  # type: ignore[attr-defined]
    return evaluated(cast(weight, dtype), [numpy_view(weight.data)], type_)


def _weights(func: Function, dtype: str) -> dict[Call, int]:
    """Return the calls that multiply with a large constant of float32, or look it up, and which argument it is."""
    found: dict[Call, int] = {}
    for node in post_order(func, open_children):
        factors = trait_of(node, "TFactors", 0)
        if not isinstance(node, Call):
            continue
        product = factors and getattr(node.attrs, "out_dtype", None) in ("", FLOAT32)
        count = factors if product else int(node.op is Take.op)
        large = [i for i, arg in enumerate(node.args[:count]) if _is_large(arg) or (i and _is_often_read(node, dtype))]
        if len(large) == 1 and _float32(node):
            found[node] = large[0]
    return found


def _float32(expr: RelayExpr) -> bool:
    type_ = expr.checked_type
    return isinstance(type_, TensorType) and type_.dtype == FLOAT32


def _is_large(expr: RelayExpr) -> bool:
    return isinstance(expr, Constant) and _float32(expr) and _size(expr) >= _LEAST


def _is_often_read(call: Call, dtype: str) -> bool:
    """Return whether ``call`` is a convolution that tiles of bfloat16 may take, of a small weight and a large image."""
    weight, result = call.args[1], concrete_shape(call)
    if call.op is not Conv2D.op or dtype != _HALVES["bf16"] or not isinstance(weight, Constant) or result is None:
        return False
    attrs: Any = call.attrs
    per_channel = _size(weight) // max(1, weight.data.shape[0])
    whole = attrs.groups in (1, weight.data.shape[0])  # or depthwise
    return _float32(weight) and whole and math.prod(result) * per_channel >= _LEAST_PRODUCTS


def _size(weight: RelayExpr) -> int:
    assert isinstance(weight, Constant)
    return int(np.prod(weight.data.shape))


def _last_layers(func: Function, weights: dict[Call, int]) -> set[Call]:
    """Return the products whose results reach no other product."""
    read: set[RelayExpr] = set()  # what reaches a product
    last: set[Call] = set()
    for node in reversed(post_order(func, open_children)):
        is_product = isinstance(node, Call) and node in weights and node.op is not Take.op
        if is_product and node not in read:
            last.add(node)  # type: ignore[arg-type]
        if is_product or node in read:
            read.update(direct_children(node))
    return last


def _chosen(func: Function, dtype: str) -> dict[Call, int]:
    """Return which weights are halved; note what becomes of each."""
    weights, kept = _weights(func, dtype), _kept()
    last = _last_layers(func, weights)
    distinct = {call.args[i]: None for call, i in weights.items()}
    small = sum(_size(call.args[weights[call]]) for call in last) * _LAST_SHARE <= sum(map(_size, distinct))
    chosen: dict[Call, int] = {}
    notes = _halved.open_list()
    for call, index in weights.items():
        reason = "--keep" if _is_kept(call, kept) else "the last layer" if small and call in last else ""
        weight = call.args[index]
        reason = reason or ("beyond float16" if dtype == "float16" and not _fits(weight) else "")
        if not reason:
            chosen[call] = index
        if notes is not None:
            size = _size(weight) * dt.nbytes(FLOAT32)
            notes.append(Halved(_name(call), size, FLOAT32 if reason else dtype, reason))
    return chosen


def _fits(weight: RelayExpr) -> bool:
    """Return whether every finite number of a weight is finite in float16."""
    assert isinstance(weight, Constant)
    most = float(np.finfo(np.float16).max) + 16.0
    return all_are(weight, "float16", lambda part: (np.abs(part) < most) | ~np.isfinite(part))


def _note_mixed(func: Function) -> None:
    """Note the weights that MixPrecision made halves, where somebody collects."""
    notes = _halved.open_list()
    for node in post_order(func, open_children) if notes is not None else ():
        if not isinstance(node, Call) or not (trait_of(node, "TFactors", 0) or node.op is Take.op):
            continue
        for arg in node.args:
            if isinstance(arg, Constant) and dt.is_half(str(arg.data.dtype)) and _size(arg) >= _LEAST:
                size = _size(arg) * dt.nbytes(FLOAT32)
                notes.append(Halved(_name(node), size, str(arg.data.dtype)))  # type: ignore[union-attr]


def _name(call: Call) -> str:
    return call.span.source_name.name if call.span else str(call.op)


def HalveWeights() -> Pass:
    """Keep weights in the precision that the options ask for; float32 changes nothing."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        dtype = half_dtype()
        if ctx.option(PRECISION) == MIXED:
            _note_mixed(func)
        if ctx.option(PRECISION) == FLOAT32:
            bfloat16_gain.note(func)
        chosen = _chosen(func, dtype) if dtype is not None else {}
        return _Halver(dtype, chosen).visit(func) if dtype is not None and chosen else func

    return typed_function_pass(run, "HalveWeights")


def MixPrecision() -> Pass:
    """Round tensors between operators to float16 as ToMixedPrecision does, where the options ask for it."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        if ctx.option(PRECISION) != MIXED:
            return func
        kept = _kept()
        return convert(func, mod, "float16", lambda call: _is_kept(call, kept))

    return typed_function_pass(run, "MixPrecision")
