"""Convolutions whose weights are mostly blocks of zeros."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.type import TensorType
from tilewright.relay.data_dep_optimization.blocks import in_blocks, shape_of
from tilewright.relay.expr import Call, Constant, Function, Var
from tilewright.relay.op.nn.conv2d import Conv2D
from tilewright.relay.transform.simplify.sparse_weights import Conv2dToSparse, conv2d_weight
from tilewright.relay.visitor import ExprMutator, bind, post_order
from tilewright.runtime.ndarray import NDArray


def convert(
    func: Function,
    params: Mapping[str, NDArray],
    blocksize: Sequence[int],
    sparsity_threshold: float,
    layout: str = "NHWC",
    kernel_size: int = 1,
) -> tuple[Function, dict[str, NDArray]]:
    """Replace convolutions with sparse weights in ``func`` by ``nn.sparse_conv2d``; return it with new parameters.

    Args:
        blocksize: rows and columns of a block of the matrix (output channels, elements of a window).
        sparsity_threshold: the least share of a weight in blocks of zeros, from 0 to 1, for the layer to be changed.
        layout: NHWC (weights HWIO) or NCHW (OIHW); TilewrightError for others.
        kernel_size: height and width of the windows, which is odd; strides are 1, and results as large as the data.
    """
    if layout not in ("NHWC", "NCHW"):
        raise TilewrightError(f"sparse convolutions are of layout NHWC or NCHW, not {layout!r}")
    find = conv2d_weight(layout, kernel_size)
    found = [find(e) for e in post_order(func)]
    sparse: dict[str, dict[str, NDArray]] = {}
    for name in dict.fromkeys(v.name_hint for v in found if v is not None and v.name_hint in params):
        matrix = _as_matrix(params[name].numpy(), layout, kernel_size)
        parts = None if matrix is None else in_blocks(name, matrix, blocksize, sparsity_threshold)
        if parts is not None:
            sparse[name] = parts
    shapes = [shape_of(n, p) for n, p in sparse.items()]
    made = Conv2dToSparse(list(sparse), shapes, layout, kernel_size)(IRModule.from_expr(func))["main"]
    assert isinstance(made, Function)
    used = {p.name_hint for p in made.params}
    kept = {name: value for name, value in params.items() if name not in sparse or name in used}
    return made, kept | {n: value for parts in sparse.values() for n, value in parts.items()}


def convert2(
    func: Function,
    params: Mapping[str, NDArray],
    blocksize: Sequence[int],
    sparsity_threshold: float,
    layout: str,
    kernel_size: int,
) -> tuple[Function, dict[str, NDArray]]:
    """Same as ``convert`` for convolutions whose weights are constants of ``func``; the arguments are those of it."""
    constants = [e.args[1] for e in post_order(func) if isinstance(e, Call) and e.op is Conv2D.op]
    taken = {p.name_hint for p in func.params} | set(params)
    names = (name for name in (f"weight_{i}" for i in itertools.count()) if name not in taken)
    lifted: dict[RelayExpr, Var] = {}
    values: dict[str, Constant] = {}
    for constant in dict.fromkeys(c for c in constants if isinstance(c, Constant)):
        lifted[constant] = var = Var(next(names), TensorType(constant.data.shape, constant.data.dtype))
        values[var.name_hint] = constant
    body = _Lifted(lifted).visit(func.body)
    opened = Function([*func.params, *lifted.values()], body, None, func.type_params, func.attrs, func.span)
    given = {**params, **{name: constant.data for name, constant in values.items()}}
    made, kept = convert(opened, given, blocksize, sparsity_threshold, layout, kernel_size)
    closed = bind(made, {p: values[p.name_hint] for p in made.params if p.name_hint in values})
    assert isinstance(closed, Function)
    return closed, {name: value for name, value in kept.items() if name not in values}


class _Lifted(ExprMutator):
    """Replaces constants by variables."""

    def __init__(self, variables: Mapping[RelayExpr, Var]) -> None:
        super().__init__()
        self.variables = variables

    def visit_constant(self, expr: Constant) -> RelayExpr:
        """Return the variable of a constant that has one."""
        return self.variables.get(expr, expr)


def _as_matrix(weight: np.ndarray[Any, Any], layout: str, kernel_size: int) -> np.ndarray[Any, Any] | None:
    """Return the weight with a row for each output channel; None where its windows have another size."""
    window = weight.shape[:2] if layout == "NHWC" else weight.shape[2:]
    if window != (kernel_size, kernel_size):
        return None
    if layout == "NHWC":
        return weight.reshape(-1, weight.shape[-1]).T  # columns (kh, kw, C)
    return weight.reshape(weight.shape[0], -1)  # columns (C, kh, kw)
