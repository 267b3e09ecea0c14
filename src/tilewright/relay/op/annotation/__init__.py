"""``relay.annotation``: marks that passes read and remove."""

from tilewright.relay.op.annotation.devices import function_on_device, on_device
from tilewright.relay.op.annotation.marks import cast_hint, checkpoint, compiler_begin, compiler_end, stop_fusion

__all__ = [
    "cast_hint",
    "checkpoint",
    "compiler_begin",
    "compiler_end",
    "function_on_device",
    "on_device",
    "stop_fusion",
]
