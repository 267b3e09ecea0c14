"""``relay.annotation``: marks that passes read and remove."""

from tilewright.relay.op.annotation import devices, marks  # noqa: F401
from tilewright.relay.op.builder import exports as _exports

__all__ = _exports(globals())
