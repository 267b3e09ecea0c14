"""Control flow: branches, loops and scans, whose bodies are nested graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.onnx.run_time_control import branches, rounds
from tilewright.relay.frontend.torch import scalars
from tilewright.relay.frontend.torch.context import TorchContext, is_tensor
from tilewright.relay.frontend.torch.registry import converter, find_converter
from tilewright.relay.frontend.torch.symbols import Size

_HIGHER = "higher_order::"


def _run(ctx: TorchContext, graph: torch.fx.GraphModule, values: Sequence[Any]) -> list[RelayExpr]:
    """Return the tensors that a nested graph returns for values."""
    made = ctx.importer.run(graph, values)
    found = [scalars.as_tensor(ctx, v) for v in (made if isinstance(made, list) else [made])]
    if not all(map(is_tensor, found)):
        ctx.unsupported("a nested function that returns something other than tensors")
    return [typed(v) for v in found]


def _condition(ctx: TorchContext, value: Any) -> RelayExpr:
    return ctx.reshape(ctx.number(value, "bool"), [])


def _as_sizes(ctx: TorchContext, stated: Any, values: Sequence[RelayExpr]) -> list[Any]:
    """Return results, those that are numbers of Python as sizes."""
    return [Size(None, v) if isinstance(s, torch.SymInt) else v for s, v in zip(stated, values, strict=True)]


@converter(f"{_HIGHER}cond")
def convert_cond(ctx: TorchContext, condition: Any, yes: Any, no: Any, operands: Sequence[Any] = ()) -> list[Any]:
    """One of two graphs, of the same operands."""
    if isinstance(condition, bool):
        return _run(ctx, yes if condition else no, operands)
    flag = _condition(ctx, condition)
    known = ctx.constant_or_none(flag)
    if known is not None:
        return _run(ctx, yes if known.item() else no, operands)
    host: Any = ctx
    made = branches(host, flag, _run(ctx, yes, operands), _run(ctx, no, operands))
    return _as_sizes(ctx, ctx.meta(), made)


@converter(f"{_HIGHER}while_loop")
def convert_while_loop(
    ctx: TorchContext, test: Any, body: Any, carried: Sequence[Any], others: Sequence[Any] = ()
) -> list[Any]:
    """A graph applied to values as long as another one holds."""
    first = [typed(scalars.as_tensor(ctx, _as_value(ctx, v))) for v in carried]

    def holds(values: Sequence[RelayExpr]) -> RelayExpr:
        return _condition(ctx, _run(ctx, test, [*_in_kind(carried, values), *others])[0])

    def step(_: RelayExpr, values: Sequence[RelayExpr]) -> tuple[RelayExpr, list[RelayExpr], list[RelayExpr]]:
        after = _run(ctx, body, [*_in_kind(carried, values), *others])
        return holds(after), after, []

    host: Any = ctx
    final, _ = rounds(host, step, first, None, holds(first), [])
    return _as_sizes(ctx, ctx.meta(), final)


def _as_value(ctx: TorchContext, value: Any) -> Any:
    return ctx.scalar(value) if isinstance(value, int) else value


def _in_kind(like: Sequence[Any], values: Sequence[RelayExpr]) -> list[Any]:
    """Return values as what they stand for: tensors, or numbers of Python."""
    return [v if is_tensor(k) else Size(None, v) for k, v in zip(like, values, strict=True)]


def _over_slices(
    ctx: TorchContext, graph: Any, states: Sequence[RelayExpr], scanned: Sequence[RelayExpr], others: Sequence[Any],
    reverse: bool = False,
) -> tuple[list[RelayExpr], list[RelayExpr]]:  # fmt: skip
    """Apply a graph to states and each slice of tensors; return the last states, and the stacked results."""
    length = ctx.scalar(ctx.dim_size(scanned[0], 0))
    rows = sum(1 for _ in _results(graph)) - len(states)

    def step(number: RelayExpr, values: Sequence[RelayExpr]) -> tuple[None, list[RelayExpr], list[RelayExpr]]:
        at = relay_op.subtract(length, relay_op.add(number, ctx.scalar(1))) if reverse else number
        slices = [typed(relay_op.take(x, at, axis=0)) for x in scanned]
        made = _run(ctx, graph, [*values, *slices, *others])
        return None, made[: len(states)], made[len(states) :]

    host: Any = ctx
    first = [typed(s) for s in states]
    final, stacked = rounds(host, step, first, length, const(True, "bool"), [reverse] * rows)
    return list(final), list(stacked)


def _results(graph: torch.fx.GraphModule) -> Sequence[Any]:
    out = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    return out if isinstance(out, (list, tuple)) else [out]


@converter(f"{_HIGHER}map_impl", f"{_HIGHER}map")
def convert_map(
    ctx: TorchContext, graph: Any, scanned: Sequence[RelayExpr], others: Sequence[Any] = ()
) -> list[RelayExpr]:
    """A graph applied to each slice of tensors, whose results are stacked."""
    return _over_slices(ctx, graph, [], scanned, others)[1]


@converter(f"{_HIGHER}scan")
def convert_scan(
    ctx: TorchContext, graph: Any, states: Sequence[RelayExpr], scanned: Sequence[RelayExpr], *rest: Any
) -> list[RelayExpr]:
    """A graph applied to states and each slice of tensors: the last states, and the stacked results."""
    others = next((r for r in rest if isinstance(r, list)), [])
    reverse = any(r is True for r in rest)
    final, stacked = _over_slices(ctx, graph, states, scanned, others, reverse)
    return [*final, *stacked]


@converter(f"{_HIGHER}wrap_with_set_grad_enabled", f"{_HIGHER}invoke_subgraph", f"{_HIGHER}wrap_with_autocast",
           f"{_HIGHER}wrap", f"{_HIGHER}tag_activation_checkpoint", f"{_HIGHER}hints_wrapper")  # fmt: skip
def convert_wrapped(ctx: TorchContext, *args: Any) -> Any:
    """A nested graph, in place."""
    at = next(i for i, a in enumerate(args) if isinstance(a, torch.fx.GraphModule))
    operands = [a for a in args[at + 1 :] if not isinstance(a, str)]
    return ctx.importer.run(args[at], operands)


@converter(f"{_HIGHER}with_effects")
def convert_with_effects(ctx: TorchContext, token: Any, target: Any, *args: Any) -> list[Any]:
    """An operator whose effects are in order: the token that stands for them, which is empty, and its results."""
    convert = find_converter(target._schema.name, target._overloadname)
    if convert is None:
        ctx.unsupported(f"the operator {target}")
    made = convert(ctx, *args)
    return [
        const(np.empty(0, "float32")),
        *(made if isinstance(made, (list, tuple)) else [] if made is None else [made]),
    ]
