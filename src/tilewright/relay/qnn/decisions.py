"""Which operators of a quantized network are computed on integers, and why the others are not.

``CanonicalizeOps`` decides; whoever builds collects what it decided::

    with collecting() as decisions:
        mod = CanonicalizeOps()(mod)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.relay.collector import Collector
from tilewright.relay.expr import Call, Constant, Function, Tuple
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.op.nn.conv1d import conv1d
from tilewright.relay.op.nn.conv2d import conv2d
from tilewright.relay.op.nn.conv3d import conv3d
from tilewright.relay.op.nn.conv_transpose import conv2d_transpose
from tilewright.relay.op.nn.dense import batch_matmul, dense
from tilewright.relay.qnn.groups import dequantized, has_form
from tilewright.relay.qnn.op import Dequantize, Quantize
from tilewright.relay.transform.common import open_children, pattern_of, trait_of
from tilewright.relay.visitor import post_order

_BYTES = ("int8", "uint8")


@dataclass(frozen=True)
class Decision:
    """An operator of a quantized network: the node's name, Relay's operator, and why it computes in float32, or ""."""

    node: str
    operator: str
    reason: str = ""


_decisions = Collector[Decision]("quantization_decisions")
collecting = _decisions.collecting


def note_decisions(func: Function, integers: Collection[Call]) -> None:
    """Note, where somebody collects, what became of the quantized operators of a typed function.

    Args:
        integers: the calls that are computed on integers.
    """
    found = _decisions.open_list()
    if found is None:
        return
    users: dict[RelayExpr, list[RelayExpr]] = defaultdict(list)
    calls: list[Call] = []
    for node in post_order(func, open_children):
        for child in open_children(node):
            users[child].append(node)
        if isinstance(node, Call) and isinstance(node.op, Op) and _reads_quantized(node):
            calls.append(node)
    for call in calls:
        reason = "" if call in integers else _reason(call, users)
        found.append(Decision(_name(call), call.op.name, reason))  # type: ignore[attr-defined]


def _name(call: Call) -> str:
    return call.span.source_name.name if call.span is not None else call.op.name  # type: ignore[attr-defined]


def _operands(call: Call) -> list[RelayExpr]:
    """Return the operands of a call, through operators that only move data."""
    found = [field for arg in call.args for field in (arg.fields if isinstance(arg, Tuple) else [arg])]
    for i, expr in enumerate(found):
        while isinstance(expr, Call) and trait_of(expr, "TMovesData") and len(expr.args) == 1:
            expr = expr.args[0]
        found[i] = expr
    return found


def _is_dequantize(expr: RelayExpr) -> bool:
    return isinstance(expr, Call) and expr.op is Dequantize.op


def _reads_quantized(call: Call) -> bool:
    """Whether a call computes with numbers that integers stand for; what only moves them does not."""
    if call.op in (Quantize.op, Dequantize.op) or trait_of(call, "TMovesData"):
        return False
    found = [arg for arg in _operands(call) if _is_dequantize(arg)]
    return any(not isinstance(arg.args[0], Constant) for arg in found) or (  # type: ignore[attr-defined]
        bool(found) and trait_of(call, "TFactors", 0) > 1
    )


def _reason(call: Call, users: dict[RelayExpr, list[RelayExpr]]) -> str:
    return _of_operands(call) or _of_result(call, users) or _of_operator(call)


def _of_operands(call: Call) -> str:
    """Return why the operands keep a call from integers, or ""."""
    for arg in _operands(call):
        if isinstance(arg, Call) and arg.op is Dequantize.op:
            data, *parameters = arg.args
            dtype = data.checked_type.dtype  # type: ignore[attr-defined]
            if dtype not in _BYTES and not isinstance(data, Constant):
                return f"its data are {dtype}, and sums of products are exact of 8 bits"
            if not all(isinstance(p, Constant) for p in parameters):
                return "its scales are known only when it runs"
            if not isinstance(data, Constant) and dequantized(arg) is None:
                return "its data have a scale for each entry of an axis"
        elif not isinstance(arg, Constant) and trait_of(call, "TFactors", 0) > 1:
            return "one of its operands is not quantized"
    return ""


def _of_result(call: Call, users: dict[RelayExpr, list[RelayExpr]]) -> str:
    """Return why the result keeps a call from integers, or "": through element-wise operators it must be quantized,
    and only that.
    """
    value: RelayExpr = call
    while True:
        readers = users[value]
        if len(readers) > 1:
            return "its result is read in float32 too"
        reader = readers[0] if readers else None
        if isinstance(reader, Call) and reader.op is Quantize.op:
            attrs: Any = reader.attrs
            return "" if attrs.out_dtype in _BYTES else f"its result is {attrs.out_dtype}"
        if not isinstance(reader, Call) or pattern_of(reader) > OpPattern.BROADCAST:
            return "its result is not quantized"
        value = reader


def _of_operator(call: Call) -> str:
    if has_form(call):
        return "its form is none that relay.qnn.groups describes"
    return f"{call.op.name} has no form on integers"  # type: ignore[attr-defined]


def summary(decisions: Collection[Decision], most: int = 3) -> list[str]:
    """Return what was decided as lines: how many operators of each kind, and the reason of the first in float32."""
    if not decisions:
        return []
    total: dict[str, int] = defaultdict(int)
    done: dict[str, int] = defaultdict(int)
    for decision in decisions:
        kind = _KINDS.get(decision.operator, "others")
        total[kind] += 1
        done[kind] += not decision.reason
    counts = ", ".join(f"{done[kind]} of {total[kind]} {kind}" for kind in sorted(total, key=_ORDER.index))
    left = [d for d in decisions if d.reason]
    lines = [f"{counts} on integers"]
    lines += [f"{d.node} ({d.operator}) computes in float32: {d.reason}" for d in left[:most]]
    return lines if len(left) <= most else [*lines, f"and {len(left) - most} more in float32"]


_KINDS = {
    **dict.fromkeys((build.op.name for build in (conv1d, conv2d, conv3d, conv2d_transpose)), "convolutions"),
    **dict.fromkeys((build.op.name for build in (dense, batch_matmul)), "matrix products"),
}
_ORDER = ("convolutions", "matrix products", "others")
