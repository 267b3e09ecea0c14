"""``graph_executor`` under the name that it had before TVM 0.8."""

from tilewright.contrib.graph_executor import GraphModule, create

__all__ = ["GraphModule", "create"]
