"""``GraphExecutorCodegen``: a fused function to a graph and kernels, by TVM 0.8's interface."""

from __future__ import annotations

from typing import Any

from tilewright.ir.module import IRModule
from tilewright.ir.transform import Sequential
from tilewright.relay.backend.graph_codegen import GraphCodegen
from tilewright.relay.backend.graph_executor import GraphExecutorBuild
from tilewright.relay.backend.lower_te import LowerTE
from tilewright.relay.backend.lowered import kernels
from tilewright.relay.backend.target_map import TargetMap
from tilewright.relay.expr import Function
from tilewright.relay.function_attributes import TARGET
from tilewright.runtime.ndarray import NDArray
from tilewright.target.target import Target


class GraphExecutorCodegen:
    """Generator of graphs; ``mod`` is accepted as in TVM, which asks for it and does not use it.

    ``target`` is a target, or a mapping from devices to targets for a function that ``PlanDevices`` has planned.
    """

    def __init__(self, mod: Any, target: Any) -> None:
        self.targets = TargetMap.of(target)

    def codegen(self, func: Function) -> tuple[str, dict[Target, IRModule], dict[str, NDArray]]:
        """Return the graph of a fused function (``relay.transform.FuseOps``), its kernels by target, and its
        parameters.
        """
        with self.targets.default:
            mod = self.targets.run([], IRModule.from_expr(func), "relay.plain_copies")
            passes = [*GraphExecutorBuild().prepare_passes(), LowerTE(self.targets.default)]
            lowered = Sequential(passes, name="relay.lower")(mod)
        graph = GraphCodegen(lowered, self.targets.default_device).codegen()
        by_target: dict[Target, IRModule] = {}
        for var, kernel in kernels(lowered).items():
            by_target.setdefault(TARGET.of(kernel), IRModule())[var] = kernel
        return graph.to_json(), by_target, graph.params
