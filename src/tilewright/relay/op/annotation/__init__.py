"""``relay.annotation``: marks that passes read and remove."""

from tilewright.relay.op.annotation.marks import cast_hint, compiler_begin, compiler_end, on_device, stop_fusion

__all__ = ["cast_hint", "compiler_begin", "compiler_end", "on_device", "stop_fusion"]
