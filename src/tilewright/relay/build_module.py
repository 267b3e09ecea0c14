"""``relay.build``: a Relay module to a library that runs it.

The pipeline is ``optimize`` (graph passes, fusion), lowering of every fused function to TIR, code generation in
worker processes, and a graph for the executor.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Sequential
from tilewright.relay import transform
from tilewright.relay.backend.function_metadata import FunctionInfo, function_metadata
from tilewright.relay.backend.graph_codegen import Graph, GraphCodegen
from tilewright.relay.backend.lower_te import LowerTE
from tilewright.relay.backend.lowered import is_external, kernels
from tilewright.relay.backend.plan_views import PlanViews
from tilewright.relay.backend.progress import BuildReport
from tilewright.relay.expr import Call, Function, const
from tilewright.relay.op.views import tensor_bytes
from tilewright.relay.visitor import bind, post_order
from tilewright.runtime.executor.factory import GraphExecutorFactoryModule
from tilewright.runtime.interrupt import heard_interrupts
from tilewright.runtime.module import Module
from tilewright.runtime.ndarray import NDArray
from tilewright.target.build import ModuleBuilder
from tilewright.target.features import features
from tilewright.target.target import Target
from tilewright.tir.function import PrimFunc
from tilewright.version import __version__

_MOST_NAMED = 5  # names of parameters in one message

TargetLike = str | Target | Mapping[Any, Any]


def bind_params_by_name(func: Function, params: Mapping[str, Any]) -> Function:
    """``func`` with the parameters of the given names replaced by constants.

    A name that no parameter has is ignored, as in TVM; a name that two parameters share is an error.
    """
    by_name: dict[str, Any] = {}
    for param in func.params:
        if param.name_hint in by_name and param.name_hint in params:
            raise TilewrightError(f"main has two parameters named {param.name_hint!r}; params cannot tell them apart")
        by_name[param.name_hint] = param
    binds: dict[Any, RelayExpr] = {}
    for name, value in params.items():
        if name in by_name:
            array = value if isinstance(value, NDArray) else const(value).data
            _check_param(by_name[name], array)
            binds[by_name[name]] = const(array)
    bound = bind(func, binds)
    assert isinstance(bound, Function)
    return bound


def _check_param(param: Any, array: NDArray) -> None:
    expected = param.type_annotation
    if expected is None or not hasattr(expected, "shape"):
        return
    shape = tuple(str(d) for d in expected.shape)
    if (len(shape) != len(array.shape)) or any(a not in ("?", str(b)) for a, b in zip(shape, array.shape, strict=True)):
        raise TilewrightError(
            f"parameter {param.name_hint!r}: expected shape ({', '.join(shape)}), got {tuple(array.shape)}"
        )
    if expected.dtype != str(array.dtype):
        raise TilewrightError(f"parameter {param.name_hint!r}: expected {expected.dtype}, got {array.dtype}")


def optimization_passes() -> list[Any]:
    """The graph passes of a build, in order, before fusion; each runs from its own opt level on."""
    return [
        transform.InferType(),
        transform.RemoveUnusedFunctions(),
        transform.FoldEmpty(),
        transform.ComputeInFloat32(),
        transform.Legalize(),
        transform.SimplifyInference(),
        transform.InlineFunctions(),
        transform.ToGraphNormalForm(),
        transform.LiftConv1D(),
        transform.LiftConv3D(),
        transform.EliminateCommonSubexpr(),
        transform.SimplifyExpr(),
        transform.CombineParallelConv2D(3),
        transform.CombineParallelDense(3),
        transform.FoldConstant(),
        transform.FoldScaleAxis(),
        transform.CanonicalizeCast(),
        transform.CanonicalizeOps(),
        transform.FoldConstant(),
        transform.FoldExplicitPadding(),
        transform.RecognizeLayerNorm(),
        transform.RecognizeActivations(),
        transform.RecognizeAttention(),
        transform.MergeTransposes(),
        transform.BubbleUpSlice(),
        transform.SinkReshape(),
        transform.PadChannels(),
        transform.AlterOpLayout(),
        transform.FastMath(),
        transform.FoldConstant(),
        transform.SharePackedWeights(),
        transform.DeadCodeElimination(),
    ]


def optimize(
    mod: IRModule | Function, target: TargetLike = "llvm", params: Mapping[str, Any] | None = None
) -> tuple[IRModule, dict[str, Any]]:
    """The module after the graph passes, before fusion; ``params`` are bound as constants."""
    chosen = _single_target(target, None)
    module = _as_module(mod, params)
    with chosen:
        return Sequential(optimization_passes(), name="relay.optimize")(module), {}


@heard_interrupts()
def build(
    ir_mod: IRModule | Function,
    target: TargetLike | None = None,
    target_host: str | Target | None = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
) -> GraphExecutorFactoryModule:
    """Compile a model.

    Parameters
    ----------
    ir_mod : the module; its ``main`` is compiled.
    target : ``"llvm"`` (this machine's CPU), ``"c"``, a ``Target``, or a mapping of device to target.
    params : arrays for parameters of ``main`` by name; they become constants of the library. Names
        that main has no parameter for are warned of, once.
    mod_name : prefix of the kernels' names.

    Returns
    -------
    The executor factory: ``lib["default"](device)`` makes an executor; unpacks as ``graph, lib, params``;
    ``lib.build_report`` is the ``BuildReport``, ``lib.function_metadata`` tells of each function
    (``FunctionInfo``), ``lib.ir_mod`` is the module that was given.

    Raises
    ------
    TilewrightError for a module that does not type-check or uses what the target cannot run.
    """
    chosen = _single_target(target, target_host)
    report = BuildReport()
    module = _as_module(ir_mod, params)
    with chosen:
        with report.stage("optimize"):
            module = Sequential(optimization_passes(), name="relay.optimize")(module)
        report.operators = _count_operators(module["main"])
        with report.stage("fuse"):
            module = Sequential([transform.IsolateViews(), transform.FuseOps()], name="relay.fuse")(module)
        with report.stage("lower"):
            builder = ModuleBuilder(chosen)
            passes = [transform.LabelOps(), PlanViews(), transform.MergeRows()]
            module = Sequential(passes, name="relay.prepare")(module)
            lowered = LowerTE(chosen, mod_name, builder.add)(module)
            _refuse_external(lowered)
            graph = GraphCodegen(lowered).codegen()
    with report.stage("codegen"):
        library = builder.finish()
    _fill_report(report, graph, list(kernels(lowered).values()), chosen)
    graph.metadata = _metadata(module, graph, chosen)
    metadata = function_metadata(module, lowered, graph, chosen)
    given = ir_mod if isinstance(ir_mod, IRModule) else IRModule.from_expr(ir_mod)
    factory = GraphExecutorFactoryModule(
        given, chosen, "graph", graph.to_json(), library, mod_name, graph.params, metadata
    )
    factory.build_report = report
    return factory


class BuildModule:
    """Builds in steps, by TVM 0.8's interface: parameters are set, a module is built, results are asked for."""

    def __init__(self) -> None:
        self._params: dict[str, Any] = {}
        self._factory: GraphExecutorFactoryModule | None = None

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Parameters of main by name, for the next ``build`` or ``optimize``."""
        self._params = dict(params)

    def build(
        self,
        mod: IRModule,
        target: TargetLike | None = None,
        target_host: str | Target | None = None,
        params: Mapping[str, Any] | None = None,
        executor: str = "graph",
        mod_name: str | None = None,
    ) -> tuple[str, Module, dict[str, NDArray]]:
        """Compile; gives the graph JSON, the library and the parameters of the graph."""
        if executor != "graph":
            raise UnsupportedError(f'there is no executor {executor!r} to build for; there is "graph"')
        if params:
            self.set_params(params)
        self._factory = build(mod, target, target_host, self._params, mod_name or "default")
        return self.get_graph_json(), self.get_module(), self.get_params()

    def optimize(
        self, mod: IRModule, target: TargetLike | None = None, params: Mapping[str, Any] | None = None
    ) -> tuple[IRModule, dict[str, Any]]:
        """``relay.optimize`` with the parameters that were set."""
        if params:
            self.set_params(params)
        return optimize(mod, _single_target(target, None), self._params)

    def get_graph_json(self) -> str:
        """The graph of what was built."""
        return self._built().get_graph_json()

    get_json = get_graph_json

    def get_module(self) -> Module:
        """The compiled functions."""
        return self._built().get_lib()

    def get_params(self) -> dict[str, NDArray]:
        """The parameters of the graph."""
        return self._built().get_params()

    def get_function_metadata(self) -> dict[str, FunctionInfo]:
        """Each function by name, and ``__tvm_main__``."""
        metadata: dict[str, FunctionInfo] = self._built().function_metadata
        return metadata

    def _built(self) -> GraphExecutorFactoryModule:
        if self._factory is None:
            raise TilewrightError("nothing has been built; call build(mod, target) first")
        return self._factory


def _as_module(mod: IRModule | Function, params: Mapping[str, Any] | None) -> IRModule:
    if isinstance(mod, Function):
        mod = IRModule.from_expr(mod)
    if not isinstance(mod, IRModule):
        raise TilewrightError(f"relay.build takes an IRModule or a Function, got {type(mod).__name__}")
    if params is not None and not isinstance(params, Mapping):
        raise TilewrightError(f"params is a mapping of names to arrays, not {type(params).__name__}")
    module = mod.copy()
    if params:
        _warn_of_unknown(module["main"], params)
        module["main"] = bind_params_by_name(module["main"], params)
    return module


def _warn_of_unknown(func: Function, params: Mapping[str, Any]) -> None:
    """TVM passes over names in ``params`` that ``main`` has no parameter for; a misspelt one then stays unset."""
    names = [param.name_hint for param in func.params]
    unknown = [name for name in params if name not in names]
    if not unknown:
        return
    shown = [_with_hint(name, names) for name in unknown[:_MOST_NAMED]]
    more = f" and {len(unknown) - _MOST_NAMED} more" if len(unknown) > _MOST_NAMED else ""
    text = f"main has no parameters of these names in params, which have no effect: {', '.join(shown)}{more}"
    warnings.warn(text, UserWarning, stacklevel=4)


def _with_hint(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(str(name), names, n=1)
    return f"{name!r} (did you mean {close[0]!r}?)" if close else repr(name)


def _single_target(target: Any, target_host: Any) -> Target:
    if target is None:
        target = Target.current(allow_none=True)
        if target is None:
            raise TilewrightError('relay.build needs a target, for example target="llvm"')
    if isinstance(target, Mapping) and not {"kind"} & set(target):
        targets = list(target.values())
        if len({str(Target(t)) for t in targets}) != 1:
            raise TilewrightError(
                "one model runs on one target here; got " + ", ".join(str(Target(t)) for t in targets)
            )
        target = targets[0]
    return Target(target, host=target_host) if target_host is not None else Target(target)


def _metadata(module: IRModule, graph: Graph, target: Target) -> dict[str, Any]:
    """What a library tells of itself: its outputs' names, where the importer gave them, and what made it for what."""
    made = {"made_by": f"Tilewright {__version__}", "target": str(target)}
    names = module.attrs.get("output_names", ())
    return {"outputs": [str(name) for name in names]} | made if len(names) == len(graph.heads) else made


def _refuse_external(lowered: IRModule) -> None:
    for var, func in lowered.items():
        if is_external(func):
            raise UnsupportedError(
                f"@{var.name_hint} is for the external compiler {func.get_attrs()['Compiler']!r}, and building "
                "calls none yet; leave its operators unpartitioned"
            )


def _count_operators(func: Function) -> int:
    return sum(isinstance(e, Call) and isinstance(e.op, Op) for e in post_order(func))


def convolution_algorithm(implementation: str) -> str:
    """What the report calls the algorithm of a convolution's implementation; "" for other operators."""
    name = implementation.partition(".")[0]
    if "conv" not in name:
        return ""
    _, winograd, tile = name.partition("_winograd")
    if winograd:
        return f"Winograd F({tile})"
    return next((kind for kind in ("depthwise", "transpose") if kind in name), "direct")


def dense_algorithm(implementation: str) -> str:
    """What the report calls the algorithm of a dense layer's implementation; "" for other operators."""
    if not implementation.startswith("dense"):
        return ""
    return "Strassen" if implementation.startswith("dense_strassen") else "direct"


def _count(algorithms: Sequence[str]) -> dict[str, int]:
    return {a: algorithms.count(a) for a in sorted(set(algorithms)) if a}


def _fill_report(report: BuildReport, graph: Graph, functions: Sequence[PrimFunc], target: Target) -> None:
    if target.kind.name == "llvm":  # what C source needs is up to the compiler it is given to
        report.cpu_features = features(target).names
    report.kernels = len(functions)
    report.implementations = {f.attrs["global_symbol"]: f.attrs["implementation"] for f in functions}
    report.schedules = {f.attrs["global_symbol"]: f.attrs["schedule"] for f in functions}
    calls = [n.attrs["func_name"] for n in graph.nodes if n.op != "null" and not n.alias and not n.once]
    report.kernel_calls = len(calls)
    implementations = [report.implementations[name] for name in calls]
    report.convolutions = _count([convolution_algorithm(name) for name in implementations])
    report.dense_layers = _count([dense_algorithm(name) for name in implementations])
    report.activation_bytes = graph.placement.activation_bytes
    report.parameter_bytes = sum(p.nbytes for p in graph.params.values())
    report.prepared_bytes = sum(tensor_bytes(t) for n in graph.nodes if n.once for t in n.types)
