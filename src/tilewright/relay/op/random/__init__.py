"""``relay.random``: random numbers as functions of a key; each key is used once and yields the next one."""

from tilewright.relay.op.builder import exports as _exports
from tilewright.relay.op.random import threefry  # noqa: F401

__all__ = _exports(globals())
