"""Reductions, and what looks for the largest or runs along an axis."""

from __future__ import annotations

import numpy as np
from tests.random_operators.case import EXACT, Graph, Tolerance, generator
from tests.random_operators.draw import FLOATS

REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2",
              "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")  # fmt: skip


@generator(*REDUCTIONS)
def reduction(g: Graph) -> Tolerance:
    dtype = g.dtype()
    shape = g.draw.shape()
    # Where products overflow depends on their order; integers must not overflow at all.
    whole = dtype not in FLOATS and g.operator not in ("ReduceMax", "ReduceMin")
    kinds = "mild" if whole or g.operator == "ReduceProd" else "any"
    if whole and "Log" in g.operator:  # logarithms that are numbers
        names = [g.input(g.draw.integers(dtype, shape, 1, 40))]
    elif whole and g.operator == "ReduceProd":
        names = [g.input(g.draw.integers(dtype, shape, 0 if dtype.startswith("u") else -1, 3))]
    else:
        names = [g.data(dtype, shape, kinds)]
    attributes = {"keepdims": g.draw.of(0, 1)} if g.draw.of(False, True) else {}
    axes = [a if g.draw.of(True, False) else a - len(shape) for a in g.draw.some(range(len(shape)))]
    if axes or g.draw.chance(6):
        if g.has("axes"):
            attributes |= {"axes": axes} if axes else {}
        else:
            names.append(g.ints(*axes))
    if g.has("noop_with_empty_axes") and g.draw.chance(4):
        attributes["noop_with_empty_axes"] = g.draw.of(0, 1)
    g.emit(names, **attributes)
    if whole and (g.operator == "ReduceL2" or "Log" in g.operator):
        return Tolerance("truncated")
    if g.operator in ("ReduceMax", "ReduceMin") or dtype not in FLOATS:
        return EXACT
    if g.operator in ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare"):
        return Tolerance("linear", 32)
    return Tolerance("ulp", 64) if g.operator == "ReduceProd" else Tolerance("close", 32)


@generator("ArgMax", "ArgMin")
def arg_reduction(g: Graph) -> Tolerance:
    dtype = g.dtype()
    shape = g.draw.shape(1, 4)
    attributes = {"keepdims": g.draw.of(0, 1)} if g.draw.of(False, True) else {}
    if g.draw.of(False, True):
        attributes["axis"] = g.draw.between(-len(shape), len(shape) - 1)
    if g.has("select_last_index") and g.draw.of(False, True):
        attributes["select_last_index"] = g.draw.of(0, 1)
    g.emit([g.data(dtype, shape)], **attributes)
    return EXACT


@generator("CumSum")
def cumsum(g: Graph) -> Tolerance:
    dtype = g.dtype()
    shape = g.draw.shape(1, 4)
    axis = g.ints(g.draw.between(-len(shape), len(shape) - 1), dtype=g.draw.of("int64", "int32"))
    if g.draw.of(True, False):
        g.constants[axis] = g.constants[axis].reshape(())
    attributes = {name: g.draw.of(0, 1) for name in g.draw.some(("exclusive", "reverse"))}
    # Where sums overflow depends on the order.
    g.emit([g.data(dtype, shape, "mild"), axis], **attributes)
    return Tolerance("linear", 32) if dtype in FLOATS else EXACT


@generator("CumProd")
def cumprod(g: Graph) -> Tolerance:
    dtype = g.dtype(0, ("float32", "float64", "int32", "int64"))
    shape = g.draw.shape(1, 3, (1, 2, 3, 5, 7))
    axis = g.fixed(np.array(g.draw.between(-len(shape), len(shape) - 1)))
    attributes = {name: g.draw.of(0, 1) for name in g.draw.some(("exclusive", "reverse"))}
    g.emit([g.data(dtype, shape, "mild"), axis], **attributes)
    return Tolerance("ulp", 16) if dtype in FLOATS else EXACT


@generator("TopK")
def top_k(g: Graph) -> Tolerance:
    dtype = g.dtype()
    shape = g.draw.shape(1, 4)
    axis = g.draw.between(-len(shape), len(shape) - 1)
    k = g.draw.between(0, shape[axis])
    attributes = {"axis": axis} if axis != -1 or g.draw.of(False, True) else {}
    for name in ("largest", "sorted"):
        if g.has(name) and g.draw.of(False, True):
            # Without sorted=1 any order is right.
            attributes[name] = 1 if name == "sorted" else g.draw.of(0, 1)
    data = g.draw.array(dtype, shape)
    if dtype in FLOATS:
        data = np.where(np.isnan(data), 0, data).astype(data.dtype)
    names = [g.input(data)]
    if g.has("k"):
        attributes["k"] = k
    else:
        names.append(g.ints(k))
    g.emit(names, 2, **attributes)
    return EXACT
