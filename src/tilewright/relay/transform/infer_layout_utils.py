"""TVM's name of ``relay.op.layout_rules``: the results of operators' layout rules."""

from tilewright.relay.op.layout_rules import InferCorrectLayoutOutput

__all__ = ["InferCorrectLayoutOutput"]
