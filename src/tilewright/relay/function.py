"""``tvm.relay.function``: functions, under the module's name that programs for TVM 0.8 import."""

from tilewright.relay.expr import Function

__all__ = ["Function"]
