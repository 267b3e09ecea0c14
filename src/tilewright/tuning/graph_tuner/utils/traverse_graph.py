"""A network as a list of nodes, with the edges that matter for layouts."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, TupleType
from tilewright.relay.expr import Call, Constant, Function, Tuple, TupleGetItem, Var
from tilewright.relay.op.strategy.wrappers import conv2d_task
from tilewright.relay.transform.infer_type import infer_type
from tilewright.relay.visitor import post_order
from tilewright.tuning.graph_tuner._base import OPT_OUT_OP
from tilewright.tuning.graph_tuner.utils.utils import Node, has_multiple_inputs, is_boundary_node, is_skipped_node


def expr2graph(
    expr: RelayExpr, target_ops: Collection[Any], node_dict: dict[Any, int], node_list: list[Node], tvm_target: Any
) -> None:
    """Append the nodes of a function to ``node_list``, inputs first, and to ``node_dict`` their numbers.

    A node is a dictionary: "node" is the expression, "op" its operator or None, "inputs" are [node, field, 0], "types"
    its tensors, "name" that of a variable. Operators of ``target_ops`` have "workloads" and "topi_op" too, the records
    they look for; None where there is no such task.
    """
    given = expr if expr.checked_type_or_none is not None else infer_type(expr)
    body: Any = given
    for node in [*body.params, *post_order(body.body)] if isinstance(given, Function) else post_order(given):
        if isinstance(node, (Call, Var, Constant, Tuple, TupleGetItem)) and node not in node_dict:
            entry = _entry(node, node_dict, node_list, len(node_list))
            if entry["op"] is not None and entry["op"] in target_ops:
                _add_workload(entry)
            node_dict[node] = len(node_list)
            node_list.append(entry)


def _entry(node: Any, node_dict: Mapping[Any, int], node_list: Sequence[Node], number: int) -> Node:
    def read(values: Sequence[Any]) -> list[list[int]]:
        """Return the sources of values; tuples and their fields are looked through."""
        found: list[list[int]] = []
        for value in values:
            inner = isinstance(value, (Tuple, TupleGetItem))
            found += node_list[node_dict[value]]["inputs"] if inner else [[node_dict[value], 0, 0]]
        return found

    entry: Node = {"node": node, "inputs": [], "types": _tensors(node.checked_type), "op": None, "name": None}
    if isinstance(node, Call):
        entry["op"], entry["inputs"] = node.op, read(node.args)
    elif isinstance(node, Var):
        entry["name"] = node.name_hint
    elif isinstance(node, Constant):
        entry["name"] = f"Constant_{number}"
    elif isinstance(node, TupleGetItem):
        entry["inputs"] = [[node_dict[node.tuple_value], node.index, 0]]
    else:
        entry["inputs"] = read(node.fields)
    return entry


def _tensors(type_: Any) -> list[TensorType]:
    fields = type_.fields if isinstance(type_, TupleType) else [type_]
    if not all(isinstance(f, TensorType) for f in fields):
        raise TilewrightError(f"graph tuning knows tensors and tuples of them, found a value of type {type_}")
    return list(fields)


def _add_workload(entry: Node) -> None:
    call = entry["node"]
    if call.op.name != "nn.conv2d":
        raise TilewrightError(
            f"graph tuning chooses the layouts of nn.conv2d; {call.op.name} has none to choose. "
            'Leave it out of target_ops: [relay.op.get("nn.conv2d")]'
        )
    workload = conv2d_task(call.attrs, *(a.checked_type for a in call.args))
    entry["workloads"] = [workload]
    entry["topi_op"] = [workload[0] if workload else None]


def get_direct_ancestor(
    node_list: Sequence[Node],
    visited_dict: dict[int, list[int]],
    target_ops: Collection[Any],
    node_idx: int,
    input_names: Collection[str],
) -> list[int]:
    """Return the nearest choosing nodes at or above a node: target operators, joins of several values, boundaries."""
    pending = [node_idx]
    while pending:
        index = pending[-1]
        node = node_list[index]
        if index in visited_dict or is_boundary_node(node, input_names):
            pending.pop()
            continue
        above = [i for i, *_ in node["inputs"]]
        passed = [i for i in above if not _chooses(node_list, i, target_ops, input_names)]
        unknown = [i for i in passed if i not in visited_dict and not is_boundary_node(node_list[i], input_names)]
        if unknown:
            pending += unknown
            continue
        found: list[int] = []
        for i in above:
            found += [i] if i not in passed else visited_dict.get(i, [i])
        visited_dict[index] = list(dict.fromkeys(found))
        pending.pop()
    return visited_dict.get(node_idx, [node_idx])


def _chooses(node_list: Sequence[Node], index: int, target_ops: Collection[Any], input_names: Collection[str]) -> bool:
    op = node_list[index]["op"]
    return (op is not None and op in target_ops) or has_multiple_inputs(node_list, index, input_names, OPT_OUT_OP)


def get_in_nodes(
    node_list: Sequence[Node], target_ops: Collection[Any], input_names: Collection[str]
) -> dict[int, list[int]]:
    """Return, for each target operator and each node with several inputs, the nearest choosing nodes above it; nodes
    without any are left out.
    """
    visited: dict[int, list[int]] = {}
    for i, node in enumerate(node_list):
        if not is_boundary_node(node, input_names) and not is_skipped_node(node):
            get_direct_ancestor(node_list, visited, target_ops, i, input_names)
    found: dict[int, list[int]] = {}
    for i in sorted(visited):
        node, above = node_list[i], visited[i]
        if node["op"] is not None and node["op"] in target_ops:
            known = [a for a in above if a in found or is_boundary_node(node_list[a], input_names)]
            if known:
                found[i] = known
        elif has_multiple_inputs(node_list, i, input_names, OPT_OUT_OP):
            chosen = [a for a in above if a in found]
            if chosen:
                found[i] = chosen
    return found


def get_out_nodes(in_node_dict: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    """Invert ``in_node_dict``: return the nodes below each node."""
    found: dict[int, list[int]] = {node: [] for node in in_node_dict}
    for node, above in in_node_dict.items():
        for index in above:
            found.setdefault(index, []).append(node)
    return found


def _replace_device_with_tracing(target: Any) -> str:
    """Return the target's text with ``-device=tracing``, as TVM's tools expect it."""
    text = str(target)
    if "-device" not in text:
        return f"{text} -device=tracing"
    return re.sub(r"-device=[^-]+", "-device=tracing ", text).strip()
