"""Matrix products by the BLAS that numpy brings: ``te.extern`` calls packed functions of the names that TVM 0.8 has.

A library built with them needs Python, and this module imported, in the process that runs it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te, tir
from tilewright.runtime import NDArray, register_func


@register_func("tvm.contrib.cblas.matmul", override=True)
@register_func("tvm.contrib.cblas.batch_matmul", override=True)
@register_func("tvm.contrib.cblas.batch_matmul_iterative", override=True)
def _multiply(lhs: NDArray, rhs: NDArray, out: NDArray, transa: bool, transb: bool) -> None:
    a, b = lhs.numpy(), rhs.numpy()
    out.copyfrom(np.matmul(a.swapaxes(-1, -2) if transa else a, b.swapaxes(-1, -2) if transb else b))


def matmul(lhs: te.Tensor, rhs: te.Tensor, transa: bool = False, transb: bool = False, **kwargs: Any) -> te.Tensor:
    """The product of two matrices.

    Args:
        lhs: of shape (n, k), or (k, n) if ``transa``.
        rhs: of shape (k, m), or (m, k) if ``transb``.
        transa, transb: whether an operand is transposed.
        kwargs: for ``te.extern``.

    Returns:
        A tensor of shape (n, m).
    """
    return _extern("tvm.contrib.cblas.matmul", [lhs, rhs], transa, transb, kwargs)


def batch_matmul(
    lhs: te.Tensor, rhs: te.Tensor, transa: bool = False, transb: bool = False, iterative: bool = False, **kwargs: Any
) -> te.Tensor:
    """The products of two batches of matrices, of shapes as :func:`matmul` has them after the batch.

    ``iterative`` says by which of BLAS's functions, which numpy decides; it is there for TVM's programs.
    """
    name = "tvm.contrib.cblas.batch_matmul" + ("_iterative" if iterative else "")
    return _extern(name, [lhs, rhs], transa, transb, kwargs)


def _extern(name: str, operands: list[te.Tensor], transa: bool, transb: bool, kwargs: dict[str, Any]) -> te.Tensor:
    lhs, rhs = operands
    rows = lhs.shape[-1] if transa else lhs.shape[-2]
    columns = rhs.shape[-2] if transb else rhs.shape[-1]
    call = lambda ins, outs: tir.call_packed(name, ins[0], ins[1], outs[0], transa, transb)  # noqa: E731
    return te.extern((*lhs.shape[:-2], rows, columns), operands, call, **{"name": "C", **kwargs})
