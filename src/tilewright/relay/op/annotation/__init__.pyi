# Written by `python -m tests.relay.op.builder_stubs`; a test compares it.
from tilewright.relay.expr import Call
from tilewright.relay.op.annotation.devices import function_on_device as function_on_device, on_device as on_device
from tilewright.relay.op.attributes import Operand

__all__ = ['cast_hint', 'checkpoint', 'compiler_begin', 'compiler_end', 'function_on_device', 'on_device', 'stop_fusion']

def cast_hint(data: Operand, dtype: str) -> Call: '``data``, which may be kept as ``dtype``.'
def checkpoint(data: Operand) -> Call: '``data``, which is worked out again where gradients need it, instead of being kept.'
def compiler_begin(data: Operand, compiler: str) -> Call: '``data`` entering the region of an external compiler.'
def compiler_end(data: Operand, compiler: str) -> Call: '``data`` leaving the region of an external compiler.'
def stop_fusion(data: Operand) -> Call: '``data``, with which what comes after does not fuse.'
