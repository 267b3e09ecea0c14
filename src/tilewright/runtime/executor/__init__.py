"""Executors: ``graph.py`` runs a compiled graph, ``factory.py`` has the result of ``relay.build``.

``debug.py`` runs a graph operator by operator, ``debug_result.py`` has its results. ``aot.py`` runs ahead-of-time
programs. ``access.py`` reads and writes the values of an executor, here or on another machine.
"""

from .factory import GraphExecutorFactoryModule
from .graph import GraphModule, create

__all__ = ["GraphExecutorFactoryModule", "GraphModule", "create"]
