"""``tvm.relay.base``: the names of what all nodes of Relay have."""

from tilewright.ir.node import Node as RelayNode
from tilewright.ir.span import SourceName, Span

__all__ = ["RelayNode", "SourceName", "Span"]
