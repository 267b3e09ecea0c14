"""Executors: ``graph.py`` runs a compiled graph, ``factory.py`` is what ``relay.build`` returns."""

from .factory import GraphExecutorFactoryModule
from .graph import GraphModule, create

__all__ = ["GraphExecutorFactoryModule", "GraphModule", "create"]
