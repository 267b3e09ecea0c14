"""``relay.random``: random numbers as functions of a key, which is used once and gives the next one."""

from tilewright.relay.op.random.threefry import threefry_generate, threefry_key, threefry_split, uniform

__all__ = ["threefry_generate", "threefry_key", "threefry_split", "uniform"]
