# Written by `python -m tests.relay.op.builder_stubs`; a test compares it.
from tilewright.relay.expr import Call
from tilewright.relay.op.attributes import Operand
from tilewright.relay.op.random.threefry import threefry_generate as threefry_generate, threefry_key as threefry_key, uniform as uniform

__all__ = ['threefry_generate', 'threefry_key', 'threefry_split', 'uniform']

def threefry_split(key: Operand) -> Call: 'Two keys, for two independent streams of random numbers. Do not use ``key`` again.'
