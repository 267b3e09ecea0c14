"""What layout rules of operators answer, under TVM's module name; it lives in ``relay.op.layout_rules``."""

from tilewright.relay.op.layout_rules import InferCorrectLayoutOutput

__all__ = ["InferCorrectLayoutOutput"]
