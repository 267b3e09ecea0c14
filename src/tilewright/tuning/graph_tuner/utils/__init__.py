"""A network as a list of nodes (``traverse_graph.py``), and questions about one of them (``utils.py``)."""

from tilewright.tuning.graph_tuner.utils import traverse_graph, utils
from tilewright.tuning.graph_tuner.utils.traverse_graph import (
    expr2graph,
    get_direct_ancestor,
    get_in_nodes,
    get_out_nodes,
)  # fmt: skip
from tilewright.tuning.graph_tuner.utils.utils import (
    bind_inputs,
    has_multiple_inputs,
    is_boundary_node,
    is_skipped_node,
)  # fmt: skip

__all__ = [
    "bind_inputs", "expr2graph", "get_direct_ancestor", "get_in_nodes", "get_out_nodes", "has_multiple_inputs",
    "is_boundary_node", "is_skipped_node", "traverse_graph", "utils",
]  # fmt: skip
