"""``GraphExecutorCodegen``: a fused function to a graph and kernels, by TVM 0.8's interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Sequential
from tilewright.relay.backend.graph_codegen import GraphCodegen
from tilewright.relay.backend.graph_executor import GraphExecutorBuild
from tilewright.relay.backend.lower_te import LowerTE
from tilewright.relay.backend.lowered import kernels
from tilewright.relay.expr import Function
from tilewright.runtime.ndarray import NDArray
from tilewright.target.target import Target


class GraphExecutorCodegen:
    """Generates graphs for one target; ``mod`` is accepted as in TVM, which asks for it and does not use it."""

    def __init__(self, mod: Any, target: Any) -> None:
        targets = list(target.values()) if isinstance(target, Mapping) else [target]
        if len(targets) != 1:
            raise TilewrightError(f"a graph runs on one target here; got {len(targets)}")
        self.target = Target(targets[0])

    def codegen(self, func: Function) -> tuple[str, dict[Target, IRModule], dict[str, NDArray]]:
        """The graph of a fused function (``relay.transform.FuseOps``), its kernels by target, and its parameters."""
        with self.target:
            passes = [*GraphExecutorBuild().prepare_passes(), LowerTE(self.target)]
            lowered = Sequential(passes, name="relay.lower")(IRModule.from_expr(func))
        graph = GraphCodegen(lowered).codegen()
        by_target: dict[Target, IRModule] = {}
        for var, kernel in kernels(lowered).items():
            by_target.setdefault(kernel.attrs["target"], IRModule())[var] = kernel
        return graph.to_json(), by_target, graph.params
