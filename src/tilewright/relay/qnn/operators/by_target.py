"""Rewrites of quantized operators by targets, for the pass ``relay.qnn.transform.Legalize``.

A target plugs in by registering for its key::

    @qnn_conv2d_legalize.register("my_key")
    def qnn_conv2d_legalize_my_key(attrs, inputs, types):
        return relay.qnn.op.conv2d(...)

The functions take attributes, arguments, and the arguments' types with the result's as the last. They return an
expression of the same value, or None to leave the operator.
"""

from __future__ import annotations

from typing import Any

from tilewright.relay.op.op import register_op_attr
from tilewright.target.generic_func import generic_func, implemented_in


@generic_func
def qnn_conv2d_legalize(attrs: Any, inputs: Any, types: Any) -> Any:
    """Return Legalize's replacement of ``qnn.conv2d``."""
    return None


@generic_func
def qnn_conv2d_transpose_legalize(attrs: Any, inputs: Any, types: Any) -> Any:
    """Return Legalize's replacement of ``qnn.conv2d_transpose``."""
    return None


@generic_func
def qnn_dense_legalize(attrs: Any, inputs: Any, types: Any) -> Any:
    """Return Legalize's replacement of ``qnn.dense``."""
    return None


def register_qnn_legalize(op_name: str, legal_op: Any = None, level: int = 10) -> Any:
    """Set what ``qnn.transform.Legalize`` makes of an operator: ``(attrs, args, types) -> Expr | None``."""
    return register_op_attr(op_name, "FTVMQnnLegalize", legal_op, level)


for _key in ("cpu", "arm_cpu", "cuda"):
    implemented_in(_key, "tilewright.relay.qnn.operators.legalize")
