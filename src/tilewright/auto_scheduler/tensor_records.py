"""Computations as plain lists, from which another process, or a reader of a file, rebuilds the tensors.

::

    record  ::= {"nodes": [node*], "tensors": [value*]}
    node    ::= [class, value*]                       the fields of a node, whose parts come before it
    value   ::= number | text | null | ["n", index] | ["t", value*] | ["d", [text, value]*] | ["o", operator]

Classes are found in a fixed table: data never names code to run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir import iter_var, prim_expr, walk
from tilewright.ir.attrs import DictAttrs
from tilewright.ir.errors import TilewrightError
from tilewright.ir.node import Node, node_of_fields
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import Var
from tilewright.te.operation import ComputeOp, PlaceholderOp
from tilewright.te.tensor import Tensor
from tilewright.tir.expr import IterVar, IterVarType, ProducerLoad

_CLASSES: dict[str, type[Node]] = {
    name: cls
    for module in (prim_expr, iter_var)
    for name, cls in vars(module).items()
    if isinstance(cls, type(Node)) and issubclass(cls, Node) and cls.__module__ == module.__name__
}
_CLASSES |= {cls.__name__: cls for cls in (DictAttrs, ComputeOp, PlaceholderOp, Tensor, ProducerLoad)}


def tensors_to_record(tensors: Sequence[Tensor]) -> dict[str, Any]:
    """The tensors and all that they are computed from."""
    nodes = walk.post_order(tensors, lambda node: _nodes_in(_values_of(node)))
    index = {node: i for i, node in enumerate(nodes)}
    written = [[type(n).__name__, *[_write(v, index) for v in _values_of(n)]] for n in nodes]
    return {"nodes": written, "tensors": [_write(t, index) for t in tensors]}


def tensors_from_record(record: Mapping[str, Any]) -> list[Tensor]:
    """Return the tensors of a record; raises TilewrightError for unknown parts."""
    nodes: list[Any] = []
    for name, *values in record["nodes"]:
        cls = _CLASSES.get(name)
        if cls is None:
            raise TilewrightError(f"a computation's record has a {name}, which is not part of tensor expressions")
        nodes.append(_read_node(cls, [_read(v, nodes) for v in values]))
    return [_read(v, nodes) for v in record["tensors"]]


def _values_of(node: Node) -> list[Any]:
    """The fields that matter: of a tensor its operation and number, of a variable its name and dtype."""
    if isinstance(node, Tensor):
        return [node.op, node.value_index]
    if isinstance(node, Var):
        return [node.name, node.dtype]
    values = [value for _, value in node.field_values()]
    if isinstance(node, ComputeOp):
        values[node._fields.index("parts")] = None  # for hand-written schedules only
    return values


def _read_node(cls: type[Node], values: list[Any]) -> Any:
    if cls is Tensor:
        op, index = values
        return op.output(index)
    if issubclass(cls, Var):
        return cls(*values)
    if cls is IterVar:
        values[cls._fields.index("iter_type")] = IterVarType(values[cls._fields.index("iter_type")])
    return node_of_fields(cls, values)


def _nodes_in(values: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, Op):
            continue
        if isinstance(value, Node):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found += _nodes_in(value)
        elif isinstance(value, Mapping):
            found += _nodes_in(list(value.values()))
    return found


def _write(value: Any, index: Mapping[Any, int]) -> Any:
    if isinstance(value, Op):
        return ["o", value.name]
    if isinstance(value, Node):
        return ["n", index[value]]
    if isinstance(value, (tuple, list)):
        return ["t", *[_write(v, index) for v in value]]
    if isinstance(value, Mapping):
        return ["d", *[[k, _write(v, index)] for k, v in value.items()]]
    if isinstance(value, IterVarType):
        return int(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TilewrightError(f"a {type(value).__name__} cannot be part of a computation's record")


def _read(value: Any, nodes: Sequence[Any]) -> Any:
    if not isinstance(value, list):
        return value
    kind, *rest = value
    if kind == "n":
        return nodes[rest[0]]
    if kind == "o":
        return Op.get(rest[0])
    if kind == "t":
        return tuple(_read(v, nodes) for v in rest)
    return {k: _read(v, nodes) for k, v in rest}
