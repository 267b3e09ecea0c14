"""Questions about nodes of a network, which are dictionaries as ``expr2graph`` makes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Function, Tuple, Var
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import bind

Node = dict[str, Any]

_LAYOUT_FIXED = {
    "nn.batch_flatten", "transpose", "reshape", "vision.multibox_prior", "vision.multibox_transform_loc", "where",
    "vision.non_max_suppression", "strided_slice",
}  # fmt: skip


def has_multiple_inputs(
    node_list: Sequence[Node], node_idx: int, input_names: Collection[str], opt_out_op: Collection[str]
) -> bool:
    """Return whether a node reads several values that are no parameters; what reads through ``opt_out_op`` counts once,
    and only where that has several itself.
    """
    count = 0
    for index, *_ in node_list[node_idx]["inputs"]:
        node = node_list[index]
        if node["op"] is None:
            count += node["name"] in input_names
        elif operator_name(node) in opt_out_op:
            inner = [has_multiple_inputs(node_list, i, input_names, opt_out_op) for i, *_ in node["inputs"]]
            count += any(inner)
        else:
            count += 1
    return count > 1


def is_boundary_node(node_entry: Node, input_names: Collection[str]) -> bool:
    """Return whether layouts begin anew at a node: a network input, or an operator that needs its own layout."""
    return operator_name(node_entry) in _LAYOUT_FIXED or node_entry.get("name") in input_names


def operator_name(node_entry: Node) -> str:
    """The operator that a node calls; nothing of others."""
    return str(getattr(node_entry["op"], "name", ""))


def is_skipped_node(node_entry: Node) -> bool:
    """Return whether a node is none of its own: its readers read its fields."""
    return isinstance(node_entry["node"], Tuple)


def bind_inputs(
    expr: RelayExpr,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    input_dtypes: str | Mapping[str, str] = "float32",
) -> RelayExpr:
    """A typed function, its inputs of these names being of these shapes and dtypes."""
    if input_shapes is None:
        return expr
    dtypes = dict.fromkeys(input_shapes, input_dtypes) if isinstance(input_dtypes, str) else input_dtypes
    named = {p.name_hint: p for p in expr.params} if isinstance(expr, Function) else {}
    new = {named[n]: Var(n, TensorType(tuple(s), dtypes[n])) for n, s in input_shapes.items() if n in named}
    if isinstance(expr, Function):
        params = [new.get(p, p) for p in expr.params]
        body = bind(expr.body, new)
        expr = Function(params, body, None, expr.type_params, expr.attrs)
    typed = InferType()(IRModule.from_expr(expr))["main"]
    assert isinstance(typed, Function)
    return typed
