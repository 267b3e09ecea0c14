"""TVM 0.8's helpers under their names: ``graph_executor``, ``cc`` (compilers), ``utils`` (temporary folders)."""
