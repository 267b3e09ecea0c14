"""The graph executor: how ``relay.build`` compiles for it.

A graph is data flow between tensors of known shapes: a list of calls in planned memory (``graph_codegen.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.ir.type import is_dynamic
from tilewright.relay.backend.executor_choice import check_data_flow
from tilewright.relay.backend.executors import ExecutorCodegen, LoweredProgram, register_executor
from tilewright.relay.backend.function_metadata import function_metadata
from tilewright.relay.backend.graph_codegen import Graph, GraphCodegen
from tilewright.relay.backend.lowered import kernels
from tilewright.relay.backend.progress import BuildReport
from tilewright.relay.backend.target_map import TargetMap
from tilewright.relay.expr import Function
from tilewright.relay.function_attributes import GLOBAL_SYMBOL, IMPLEMENTATION, OUTPUT_NAMES, SCHEDULE, SCHEDULE_REASON
from tilewright.relay.op.views import tensor_bytes
from tilewright.relay.options import RUNTIMES
from tilewright.relay.transform.fusion.count_weights import CountWeights
from tilewright.relay.transform.fusion.label_ops import LabelOps
from tilewright.relay.transform.layout.merge_rows import MergeRows
from tilewright.relay.transform.memory.plan_views import PlanViews
from tilewright.relay.type_infer import infer_module
from tilewright.runtime.executor.factory import GraphExecutorFactoryModule
from tilewright.runtime.module import Module
from tilewright.runtime.ndarray import numpy_view
from tilewright.target.codegen.c.generator import link_params
from tilewright.target.target import Target
from tilewright.tir.function import PrimFunc
from tilewright.version import __version__

_REMEDY = (
    "The graph executor runs known shapes: give numbers, or compile for the virtual machine, "
    "relay.vm.compile(mod, target, params=params)"
)

_C_RUNTIME = {**RUNTIMES["tvm-0.8"], "relay.conv2d.winograd": "off"}


def _check_shapes(mod: IRModule, ctx: PassContext) -> IRModule:
    """Refuse a module whose ``main`` has parameters or results of unknown shapes, or a loop of unknown length."""
    check_data_flow(mod)
    typed = infer_module(mod)
    main = typed["main"]
    if isinstance(main, Function):
        for param in main.params:
            if is_dynamic(param.checked_type):
                raise UnsupportedError(f"main's parameter {param.name_hint} is a {param.checked_type}. {_REMEDY}")
        if is_dynamic(main.body.checked_type):
            raise UnsupportedError(f"main returns {main.body.checked_type}. {_REMEDY}")
    return typed


class GraphExecutorBuild(ExecutorCodegen):
    """Code generator that makes a ``GraphExecutorFactoryModule``."""

    def pass_options(self, target: Target) -> Mapping[str, Any]:
        """Return what graph executors of C runtimes for boards need: tensors at the beginning of storages, and weights
        that take no more room than the network's.
        """
        return _C_RUNTIME if target.attrs.get("runtime", "c++") == "c" else {}

    def optimization_passes(self, passes: list[Pass]) -> list[Pass]:
        """Return the passes of all builds after a check that every shape is known."""
        return [ModulePass(_check_shapes, PassInfo(0, "CheckShapes")), *passes]

    def prepare_passes(self) -> list[Pass]:
        """Return the passes that label kernels, plan views, merge rows of convolutions, and count the weights'
        bytes.
        """
        return [LabelOps(), PlanViews(), MergeRows(), CountWeights()]

    def generate(self, program: LoweredProgram) -> Callable[[Module], GraphExecutorFactoryModule]:
        """Generate the graph, its report and its metadata; return what makes the factory of a library."""
        targets = program.targets
        graph = GraphCodegen(program.lowered, targets.default_device).codegen()
        graph.metadata = library_metadata(program.fused, graph, targets)

        def finish(library: Module) -> GraphExecutorFactoryModule:
            linked = bool(program.target.attrs.get("link-params", False))
            if linked:
                link_params(library, program.target, _linked(graph))
            functions = list(kernels(program.lowered).values())
            fill_report(program.report, graph, functions)
            factory = GraphExecutorFactoryModule(
                program.source,
                targets.default if targets.single else targets.targets,
                "graph",
                graph.to_json(),
                library,
                program.name,
                graph.params,
                function_metadata(program.fused, program.lowered, graph, targets),
                linked,
            )
            factory.build_report = program.report
            return factory

        return finish


def _linked(graph: Graph) -> Iterator[tuple[int, str, np.ndarray[Any, Any], str]]:
    """Yield the parameters of a graph: storage, name, elements and data type."""
    rows = graph.rows()
    for index, node in enumerate(graph.nodes):
        if node.name in graph.params:
            value = numpy_view(graph.params[node.name])
            yield graph.storage.storage[rows[index]], node.name, value, node.types[0].dtype


def library_metadata(module: IRModule, graph: Graph, targets: TargetMap) -> dict[str, Any]:
    """Return the library's metadata: version and target, and the outputs' names, where the importer recorded them."""
    made = {"made_by": f"Tilewright {__version__}", "target": str(targets)}
    names = OUTPUT_NAMES.get(module, ())
    return {"outputs": [str(name) for name in names]} | made if len(names) == len(graph.heads) else made


def convolution_algorithm(implementation: str) -> str:
    """Return the report's name for the algorithm of a convolution's implementation; "" for other operators."""
    name = implementation.partition(".")[0]
    if "conv" not in name:
        return ""
    _, winograd, tile = name.partition("_winograd")
    if winograd:
        return f"Winograd F({tile})"
    return next((kind for kind in ("depthwise", "transpose") if kind in name), "direct")


def dense_algorithm(implementation: str) -> str:
    """Return the report's name for the algorithm of a dense layer's implementation; "" for other operators."""
    if not implementation.startswith("dense"):
        return ""
    return "Strassen" if implementation.startswith("dense_strassen") else "direct"


def _count(algorithms: Sequence[str]) -> dict[str, int]:
    return {a: algorithms.count(a) for a in sorted(set(algorithms)) if a}


def fill_report(report: BuildReport, graph: Graph, functions: Sequence[PrimFunc]) -> None:
    """Complete the report of a build whose program is a graph."""
    report.kernels = len(functions)
    report.implementations = {GLOBAL_SYMBOL.of(f): IMPLEMENTATION.of(f) for f in functions}
    report.schedules = {GLOBAL_SYMBOL.of(f): SCHEDULE.of(f) for f in functions}
    report.schedule_reasons = {GLOBAL_SYMBOL.of(f): SCHEDULE_REASON.of(f) for f in functions}
    names = [n.attrs["func_name"] for n in graph.nodes if n.op != "null" and not n.alias and not n.once]
    implementations = [report.implementations[name] for name in names if name in report.implementations]
    report.kernel_calls = len(implementations)
    report.convolutions = _count([convolution_algorithm(name) for name in implementations])
    report.dense_layers = _count([dense_algorithm(name) for name in implementations])
    report.activation_bytes = graph.storage.activation_bytes
    report.parameter_bytes = sum(p.nbytes for p in graph.params.values())
    report.prepared_bytes = sum(tensor_bytes(t) for n in graph.nodes if n.once for t in n.types)


register_executor("graph", codegen=GraphExecutorBuild)
