"""Executors: ``graph.py`` runs a compiled graph, ``factory.py`` has the result of ``relay.build``.

``debug.py`` runs a graph operator by operator, ``debug_result.py`` has its results.
"""

from .factory import GraphExecutorFactoryModule
from .graph import GraphModule, create

__all__ = ["GraphExecutorFactoryModule", "GraphModule", "create"]
