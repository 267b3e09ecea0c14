"""The graph executor under TVM 0.8's name: ``from tilewright.contrib import graph_executor``."""

from tilewright.runtime.executor.graph import GraphModule, create

__all__ = ["GraphModule", "create"]
