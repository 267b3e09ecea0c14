"""Branches and loops of a TorchScript graph: taken and unrolled while tracing, or left to the exported program.

A branch whose condition is known is taken, a loop whose number of turns is known is unrolled. Else the branch becomes
``torch.cond``, the loop ``while_loop``; tensors that they read from outside are their operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.while_loop import while_loop_op
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from tilewright.relay.frontend.pytorch.values import Known, Truth, as_tensors

if TYPE_CHECKING:
    from tilewright.relay.frontend.pytorch.evaluator import Evaluator


def branch(evaluator: Evaluator, node: Any, condition: Any, values: dict[str, Any]) -> list[Any]:
    """Return the results of ``prim::If``."""
    blocks = list(node.blocks())
    if isinstance(condition, torch.SymBool) and not isinstance(condition, bool):
        known = [b for b, test in enumerate((condition, ~condition)) if statically_known_true(test)]
        if not known:
            condition = Truth(_truth_of(condition))
        else:
            condition = known[0] == 0
    if not isinstance(condition, Truth):
        return evaluator.block(blocks[0 if condition else 1], values)
    operands, rebuild = _operands(evaluator, blocks, values)

    def side(block: Any) -> Callable[..., Any]:
        def run(*tensors: Any) -> Any:
            return tuple(map(_tensor, evaluator.block(block, rebuild(tensors))))

        return run

    predicate = condition.tensor.reshape(()) != 0
    made = cond_op(predicate, side(blocks[0]), side(blocks[1]), tuple(operands))
    return [_typed(value, output) for value, output in zip(made, node.outputs(), strict=True)]


def loop(evaluator: Evaluator, node: Any, arguments: list[Any], values: dict[str, Any]) -> list[Any]:
    """Return the results of ``prim::Loop``: at most ``arguments[0]`` turns while the condition is true."""
    turns, condition, *carried = arguments
    body = next(iter(node.blocks()))
    names = [value.debugName() for value in body.inputs()]
    turn = 0
    while turn < turns and condition is True:
        inner = {**values, **dict(zip(names, [turn, *carried], strict=True))}
        condition, *carried = evaluator.block(body, inner)
        turn += 1
    if turn < turns and isinstance(condition, Truth):
        return _run_time_loop(evaluator, node, [turn, turns, condition, *carried], values)
    return carried


def _run_time_loop(evaluator: Evaluator, node: Any, start: list[Any], values: dict[str, Any]) -> list[Any]:
    turn, turns, condition, *carried = start
    body = next(iter(node.blocks()))
    names = [value.debugName() for value in body.inputs()]
    operands, rebuild = _operands(evaluator, [body], values)
    count = len(carried)
    kinds = list(node.outputs())

    def again(index: Any, go: Any, *rest: Any) -> Any:
        return torch.logical_and(go, index < turns)

    def step(index: Any, go: Any, *rest: Any) -> Any:
        own = [value.clone() for value in rest[:count]] if _writes(body) else rest[:count]
        now = [_typed(value, kind) for value, kind in zip(own, kinds, strict=True)]
        inner = {**rebuild(rest[count:]), **dict(zip(names, [index, *now], strict=True))}
        following, *after = evaluator.block(body, inner)
        return (index + 1, _tensor(following).reshape(()) != 0, *map(_tensor, after))

    first = torch.full((), turn, dtype=torch.int64)
    state = (first, condition.tensor.reshape(()) != 0, *map(_tensor, carried))
    made = while_loop_op(again, step, state, tuple(operands))
    return [_typed(value, kind) for value, kind in zip(made[2:], kinds, strict=True)]


def _operands(
    evaluator: Evaluator, blocks: Sequence[Any], values: dict[str, Any]
) -> tuple[list[torch.Tensor], Callable[[Any], dict[str, Any]]]:
    """Return the tensors that blocks read from outside, and what makes the values of tensors in their place."""
    for block in blocks:
        _read_attributes(evaluator, block, values)
    names = {name: None for block in blocks for name in _read(block)}
    seen = {name: values[name] for name in names if name in values}
    leaves, spec = pytree.tree_flatten(seen)
    writes = any(_writes(block) for block in blocks)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (torch.Tensor, Truth))]
    operands = {id(as_tensors(leaves[i])): as_tensors(leaves[i]) for i in places}  # each once

    def rebuild(tensors: Any) -> dict[str, Any]:
        given = dict(zip(operands, tensors, strict=True))
        changed = list(leaves)
        for place in places:
            tensor = given[id(as_tensors(leaves[place]))]
            tensor = tensor.clone() if writes else tensor
            changed[place] = Truth(tensor) if isinstance(leaves[place], Truth) else tensor
        return dict(pytree.tree_unflatten(changed, spec))

    return list(operands.values()), rebuild


def _read_attributes(evaluator: Evaluator, block: Any, values: dict[str, Any]) -> None:
    """Read the attributes of modules that a block names, so that parameters are operands."""
    for node in block.nodes():
        if node.kind() == "prim::GetAttr" and node.input().debugName() in values:
            values[node.output().debugName()] = values[node.input().debugName()].get(node.s("name"))
        for inner in node.blocks():
            _read_attributes(evaluator, inner, values)


def _writes(block: Any) -> bool:
    """Return whether an operator of a block writes to an operand, which may be one of the branch or loop."""
    return any(node.kind().endswith("_") or any(map(_writes, node.blocks())) for node in block.nodes())


def _read(block: Any) -> list[str]:
    """Return the names of values that a block uses, whether they are made in it or not."""
    names = [value.debugName() for value in block.outputs()]
    for node in block.nodes():
        names += [value.debugName() for value in [*node.inputs(), *node.outputs()]]
        for inner in node.blocks():
            names += _read(inner)
    return names


def _truth_of(condition: torch.SymBool) -> torch.Tensor:
    return torch.scalar_tensor(torch.sym_ite(condition, 1, 0), dtype=torch.int64)


def _tensor(value: Any) -> Any:
    """Return a value of a branch as a tensor of its own memory."""
    value = as_tensors(value)
    if isinstance(value, torch.Tensor):
        return value.clone()
    kinds: Mapping[type, torch.dtype] = {bool: torch.bool, int: torch.int64, float: torch.float64}
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return torch.scalar_tensor(value, dtype=torch.int64 if isinstance(value, torch.SymInt) else torch.float64)
    if type(value) not in kinds:
        raise TypeError(f"a branch or loop that depends on values gives a {type(value).__name__}; it can give tensors")
    return torch.full((), value, dtype=kinds[type(value)])


def _typed(value: Any, output: Any) -> Any:
    """Return the tensor that a branch gave as what TorchScript's type says."""
    kind = output.type().kind()
    if kind == "BoolType":
        return Truth(value)
    if kind in ("IntType", "FloatType"):
        return value.item()
    return Known(value) if isinstance(value, (int, float)) else value
