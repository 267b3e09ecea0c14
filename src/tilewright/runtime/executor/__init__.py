"""Executors: ``graph.py`` runs a compiled graph, ``factory.py`` is what ``relay.build`` returns.

``debug.py`` runs a graph operator by operator, ``debug_result.py`` is what that finds.
"""

from .factory import GraphExecutorFactoryModule
from .graph import GraphModule, create

__all__ = ["GraphExecutorFactoryModule", "GraphModule", "create"]
