"""What oneDNN takes, under its old name: operators and patterns as TVM 0.8 registers them."""

from __future__ import annotations

from tilewright.ir.op import register_op_attr
from tilewright.relay.dataflow_pattern import CallPattern, is_op, wildcard
from tilewright.relay.op.contrib.register import PatternTable, register_pattern_table

_OPERATORS = ("add", "multiply", "nn.batch_norm", "nn.conv2d", "nn.dense", "nn.relu")


for _name in _OPERATORS:
    register_op_attr(_name, "target.dnnl", lambda call: True)


def make_pattern(with_bias: bool = True) -> CallPattern:
    """A convolution, with a sum where ``with_bias``, and relu."""
    conv = is_op("nn.conv2d")(wildcard(), wildcard())
    return is_op("nn.relu")(is_op("add")(conv, wildcard()) if with_bias else conv)


@register_pattern_table("dnnl")
def pattern_table() -> PatternTable:
    """The larger pattern first: of two that match, the first in the table wins."""
    return [
        ("dnnl.conv2d_bias_relu", make_pattern(with_bias=True)),
        ("dnnl.conv2d_relu", make_pattern(with_bias=False)),
    ]
