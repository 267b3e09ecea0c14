"""Schedules for the key ``vecvm``: the innermost loop of an output becomes vectors of ``-lanes`` lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, topi
from tilewright.relay.op import strategy
from tilewright.relay.op.strategy import OpStrategy, wrap_compute_dense
from tilewright.target import Target


def _vectorize(s: te.Schedule, stage: te.Tensor, lanes: int) -> Any:
    """Make the innermost axis of a stage vectors; gives the axis of the vectors."""
    *_, last = s[stage].op.axis
    outer, inner = s[stage].split(last, factor=lanes)
    s[stage].vectorize(inner)
    return outer


def schedule_injective(attrs: Any, outs: Sequence[te.Tensor], target: Target) -> te.Schedule:
    """Element-wise kernels: rows are vectors, as far as they go."""
    s = topi.generic.schedule_injective(outs)
    for out in outs:
        if out.shape:
            _vectorize(s, out, target.attrs["lanes"])
    return s


def schedule_dense(attrs: Any, outs: Sequence[te.Tensor], target: Target) -> te.Schedule:
    """A dense layer, with what is fused behind it: the columns of a row are summed as one vector."""
    s = topi.generic.schedule_injective(outs)
    for stage in s.stages:
        op = stage.op
        if isinstance(op, te.ComputeOp) and op.reduce_axis:
            row, column = op.axis
            outer, inner = stage.split(column, factor=target.attrs["lanes"])
            (summed,) = op.reduce_axis
            stage.reorder(row, outer, summed, inner)
            stage.vectorize(inner)
        elif op in s.outputs:
            _vectorize(s, op.output(0), target.attrs["lanes"])
    return s


def dense_strategy(attrs: Any, inputs: Sequence[te.Tensor], out_type: Any, target: Target) -> OpStrategy:
    """``nn.dense``: one implementation."""
    made = OpStrategy()
    made.add_implementation(wrap_compute_dense(topi.nn.dense), schedule_dense, "dense.vecvm")
    return made


def register() -> None:
    """Register both; the package's entry point calls it."""
    strategy.schedule_injective.register("vecvm", schedule_injective, override=True)
    strategy.dense_strategy.register("vecvm", dense_strategy, override=True)
