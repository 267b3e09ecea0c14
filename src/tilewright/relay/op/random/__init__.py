"""``relay.random``: random numbers as functions of a key, which is used once and gives the next one."""

from tilewright.relay.op.builder import exports as _exports
from tilewright.relay.op.random import threefry  # noqa: F401

__all__ = _exports(globals())
