"""``relay.build``: a Relay module to a library that runs it.

The pipeline is ``optimize`` (graph passes, fusion), lowering of every fused function to TIR, code generation in
worker processes, and a graph for the executor.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, overload

import tilewright.relay.backend.aot
import tilewright.relay.backend.conv2d_task
import tilewright.relay.backend.dense_task
import tilewright.relay.backend.kernel_task
import tilewright.relay.backend.vm_build
from tilewright.autotvm.store import records_in_force
from tilewright.ir.collection import rare_collections
from tilewright.ir.errors import TilewrightError, did_you_mean
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import ModulePass, PassContext, PassInfo, Sequential
from tilewright.relay import transform
from tilewright.relay.backend.executor_choice import AUTO, needed_executor
from tilewright.relay.backend.executors import DEFAULT_EXECUTOR, ExecutorCodegen, LoweredProgram, codegen_for
from tilewright.relay.backend.external import compile_external
from tilewright.relay.backend.function_metadata import FunctionInfo
from tilewright.relay.backend.lower_te import LowerTE
from tilewright.relay.backend.progress import BuildReport
from tilewright.relay.backend.runtime import Executor, Runtime, target_options
from tilewright.relay.backend.target_map import TargetMap
from tilewright.relay.backend.te_compiler import auto_scheduled
from tilewright.relay.backend.vm_build import NAME as VM
from tilewright.relay.backend.vm_specialize import OPTION as SPECIALIZE
from tilewright.relay.budget import in_budget
from tilewright.relay.expr import Call, Function
from tilewright.relay.function_attributes import INLINE
from tilewright.relay.qnn.decisions import collecting
from tilewright.relay.qnn.transform import CanonicalizeOps as CanonicalizeQnn
from tilewright.relay.qnn.transform import Legalize as LegalizeQnn
from tilewright.relay.transform.bind_params import Lent, with_params
from tilewright.relay.transform.bind_params import bind_params_by_name as bind_params_by_name
from tilewright.relay.transform.devices.control_on_devices import PlainControlFlow, has_control_flow
from tilewright.relay.transform.devices.for_each_device import names_devices
from tilewright.relay.transform.precision import bfloat16_gain, halve_weights
from tilewright.relay.visitor import is_closed, post_order
from tilewright.runtime.executor.factory import GraphExecutorFactoryModule
from tilewright.runtime.interrupt import heard_interrupts
from tilewright.runtime.mapped_files import check_mapped_files
from tilewright.runtime.module import Module
from tilewright.runtime.ndarray import NDArray
from tilewright.target.build import ModuleBuilder
from tilewright.target.features import features
from tilewright.target.target import Target

_MOST_NAMED = 5  # names of parameters in one message

TargetLike = str | Target | Mapping[Any, Any]


def optimization_passes() -> list[Any]:
    """Return the graph passes of a build, in order, before fusion; each runs from its own opt level on."""
    return [
        transform.InferType(),
        transform.RemoveUnusedFunctions(),
        transform.FoldEmpty(),
        transform.CheckIndices(),
        LegalizeQnn(),
        CanonicalizeQnn(),
        transform.MixPrecision(),
        transform.ComputeInFloat32(),
        transform.Legalize(),
        transform.SimplifyInference(),
        transform.InlineFunctions(),
        transform.ToGraphNormalForm(),
        transform.TrimWindows(),
        transform.LiftConv1D(),
        transform.LiftConv3D(),
        transform.EliminateCommonSubexpr(),
        transform.SimplifyExpr(),
        transform.CombineParallelConv2D(3, with_elementwise=False),
        transform.CombineParallelDense(3, to_batch=False, with_elementwise=False, few_bits_from=3),
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
        transform.HalveWeights(),
        transform.ComputeInBands(),
        *([] if auto_scheduled() else layout_passes()),
        transform.FastMath(),
        transform.KeepHalfPrecision(),
        transform.FoldConstant(),
        transform.SharePackedWeights(),
        transform.DeadCodeElimination(),
    ]


def layout_passes() -> list[Any]:
    """Return the passes that choose layouts of tensors and weights."""
    return [
        transform.PadChannels(),
        transform.NarrowFactors(),
        transform.ShareHalves(),
        transform.WidenWeights(),
        transform.AlterOpLayout(),
        transform.PackNarrow(),
    ]


def fusion_passes() -> list[Any]:
    """Return the passes of a build that make primitive functions, each of which becomes a kernel."""
    packed = [transform.AutoSchedulerLayoutRewrite()] if auto_scheduled() else []
    return [transform.IsolateViews(), transform.FuseOps(), *packed, transform.InlineExternal()]


def optimize(
    mod: IRModule | Function,
    target: TargetLike | None = None,
    params: Mapping[str, Any] | None = None,
    fuse: bool = True,
) -> tuple[IRModule, dict[str, Any]]:
    """Return the module after the graph passes.

    Parameters
    ----------
    mod : the module, or ``main``.
    target : the target of the build; the current target by default.
    params : arrays for parameters of ``main`` by name; they become constants.
    fuse : whether operators are fused to the functions that become kernels, as in TVM; without it the module is that
        before fusion.

    Returns
    -------
    The module, and an empty dictionary: the parameters are in the module.
    """
    targets = TargetMap.of(target)
    module = _as_module(mod, params)
    passes = optimization_passes() + (fusion_passes() if fuse else [])
    with targets.default:
        return targets.run(passes, _placed(module, targets), "relay.optimize"), {}


def _marked_inline(mod: IRModule, ctx: PassContext) -> IRModule:
    """Mark the callees of main for inlining; external functions stay."""
    marked = mod.copy()
    for var, func in mod.items():
        if var.name_hint != "main" and isinstance(func, Function):
            marked[var] = func.with_attr(INLINE.key, int(not is_closed(func)))
    return marked


def _placed(mod: IRModule, targets: TargetMap, control_flow: bool = False) -> IRModule:
    """Plan the devices of the module, where there are several or the program names some.

    Main must then be data flow, unless its executor runs ``control_flow`` and it has some.
    """
    if targets.single and not names_devices(mod):
        return mod
    inline = transform.Inline()
    assert isinstance(inline, ModulePass)
    plan = [transform.RemoveUnusedFunctions(), ModulePass(_marked_inline, PassInfo(0, "MarkInline"))]
    plan.append(replace(inline, info=PassInfo(0, inline.info.name)))
    if targets.places_operators:
        plan += [transform.ToGraphNormalForm(), transform.PlaceOperators(targets.default_device)]
    plan.append(transform.PlanDevices(targets.default_device))
    planned = Sequential(plan, name="relay.plan_devices")(mod)
    if control_flow and has_control_flow(planned):
        return PlainControlFlow()(planned)
    data_flow = [transform.InlineFunctions(), transform.ToGraphNormalForm()]
    return Sequential(data_flow, name="relay.plan_devices")(planned)


@overload
def build(
    ir_mod: IRModule | Function,
    target: TargetLike | None = None,
    target_host: str | Target | None = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
    executor: None = None,
    runtime: Runtime | None = None,
) -> GraphExecutorFactoryModule: ...


@overload
def build(
    ir_mod: IRModule | Function,
    target: TargetLike | None = None,
    target_host: str | Target | None = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
    *,
    executor: str | Executor | None,
    runtime: Runtime | None = None,
) -> Any: ...


@heard_interrupts()
@in_budget()
@rare_collections()
def build(
    ir_mod: IRModule | Function,
    target: TargetLike | None = None,
    target_host: str | Target | None = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
    executor: str | Executor | None = None,
    runtime: Runtime | None = None,
) -> Any:
    """Compile a model.

    Parameters
    ----------
    ir_mod : the module; its ``main`` is compiled.
    target : ``"llvm"`` (this machine's CPU), ``"c"``, a ``Target``, or a mapping from devices to targets: operators
    marked
        by ``relay.annotation.on_device`` run on the device that the mark names, all others on the CPU or on the device
        of the option ``relay.fallback_device_type``. With ``{"cpu": ..., "gpu": ...}`` all others run on the GPU,
        except operators that are slow there.
    target_host : the target of the code that launches kernels; the CPU's.
    params : arrays for parameters of ``main`` by name; they become constants of the library. One warning lists names
        of which main has no parameter.
    mod_name : prefix of the kernels' names.
    executor : what it will run on (``relay.backend.executors``); by default the target's ``-executor=``, or "graph".
        "auto" is the target's, or what the program needs (``relay.backend.executor_choice``), or "vm" where the option
        ``relay.vm.specialize`` asks for specializations, which are the virtual machine's. An ``Executor`` has options
        with it.
    runtime : the runtime behind the library, and its options; by default what the target says.

    Returns
    -------
    The result of the executor. For "graph" it is the executor factory: ``lib["default"](device)`` makes an executor;
    it unpacks as ``graph, lib, params``; ``lib.build_report`` is the ``BuildReport``, ``lib.function_metadata``
    describes each function (``FunctionInfo``), ``lib.ir_mod`` is the module that was passed.

    Raises
    ------
    TilewrightError for a module that does not type-check or uses what the target cannot run; UnsupportedError for an
    unknown executor; BudgetError where it exceeds a ``relay.budget.*`` of the PassContext.
    """
    targets = TargetMap.of(target, target_host).with_options(target_options(executor, runtime))
    check_mapped_files()
    lent = Lent()
    module = _as_module(ir_mod, params, lent)
    codegen = codegen_for(_executor(executor, targets.default, module))
    asked, targets = targets, targets.with_options(codegen.target_options)
    report = BuildReport()
    context = PassContext.current()
    needed = codegen.required_passes(module, targets.default, context.opt_level)
    defaults = context.with_defaults(codegen.pass_options(targets.default), needed)
    with targets.default, defaults, records_in_force(targets.default):
        module = _to_kernels(module, targets, codegen, report, lent)
        report.cpu_features = _cpu_features(targets)
        with report.stage("lower"):
            builder = ModuleBuilder(targets.default, targets.host)
            process = lambda kernel: builder.add(codegen.kernel(kernel))  # noqa: E731
            lowered = LowerTE(targets.default, mod_name, process, codegen.kernel_prefix)(module)
            given = ir_mod if isinstance(ir_mod, IRModule) else IRModule.from_expr(ir_mod)
            program = LoweredProgram(given, module, lowered, targets, asked, builder, mod_name, report)
            finish = codegen.generate(program)
            external = compile_external(lowered)
    with report.stage("codegen"):
        library = external.link(builder.finish())
    return finish(library)


def _cpu_features(targets: TargetMap) -> tuple[str, ...]:
    """Return the processor features that the library requires; those of C source depend on its compiler."""
    needed = [name for t in targets.targets.values() if t.kind.capabilities.machine_code for name in features(t).names]
    return tuple(dict.fromkeys(needed))


def _to_kernels(
    module: IRModule, targets: TargetMap, codegen: ExecutorCodegen, report: BuildReport, lent: Lent
) -> IRModule:
    """Optimize, fuse and prepare for an executor; the primitive functions of the result become kernels.

    What the caller's arrays have ``lent`` is the module's own in the end.
    """
    halve_weights.check_precision(module)
    notes = collecting(), halve_weights.collecting(), bfloat16_gain.collecting()
    with report.stage("optimize"), notes[0] as decisions, notes[1] as halved, notes[2] as gains:
        passes = codegen.optimization_passes(optimization_passes())
        module = targets.run(passes, _placed(module, targets, codegen.control_flow), "relay.optimize")
    report.operators = _count_operators(module["main"])
    report.quantized, report.halved = tuple(dict.fromkeys(decisions)), tuple(halved)
    report.bfloat16_gains = tuple(gains)
    with report.stage("fuse"):
        module = lent.with_copies(targets.fused(fusion_passes(), module))
    with report.stage("lower"):
        return Sequential(codegen.prepare_passes(), name="relay.prepare")(module)


def to_kernels(
    mod: IRModule | Function, target: TargetLike | None = None, params: Mapping[str, Any] | None = None
) -> IRModule:
    """Return the module that ``build`` lowers for the graph executor: its primitive functions become kernels."""
    targets = TargetMap.of(target)
    with targets.default:
        return _to_kernels(_as_module(mod, params), targets, codegen_for(DEFAULT_EXECUTOR), BuildReport(), Lent())


def _executor(asked: str | Executor | None, target: Target, module: IRModule) -> str:
    """Return the executor's name: as asked for, or that of the target or its host, or what the program needs."""
    if asked not in (None, AUTO):
        return str(asked)
    for part in (target.host, target):
        if part is not None and "executor" in part.attrs:
            return str(part.attrs["executor"])
    if asked is None:
        return DEFAULT_EXECUTOR
    return VM if PassContext.current().config.get(SPECIALIZE) else needed_executor(module)


class BuildModule:
    """Builder in steps, by TVM 0.8's interface: set parameters, build a module, get the results."""

    def __init__(self) -> None:
        self._params: dict[str, Any] = {}
        self._factory: GraphExecutorFactoryModule | None = None

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Set parameters of main by name, for the next ``build`` or ``optimize``."""
        self._params = dict(params)

    def build(
        self,
        mod: IRModule,
        target: TargetLike | None = None,
        target_host: str | Target | None = None,
        params: Mapping[str, Any] | None = None,
        executor: str | None = None,
        mod_name: str | None = None,
    ) -> tuple[str, Module, dict[str, NDArray]]:
        """Compile for the graph executor; return the graph JSON, the library and the parameters of the graph.

        The function ``relay.build`` serves other executors.
        """
        if params:
            self.set_params(params)
        made = build(mod, target, target_host, self._params, mod_name or "default", executor=executor)
        if not isinstance(made, GraphExecutorFactoryModule):
            raise TilewrightError(
                f"BuildModule is for graphs; relay.build returns the {type(made).__name__} of {executor!r}"
            )
        self._factory = made
        return self.get_graph_json(), self.get_module(), self.get_params()

    def optimize(
        self, mod: IRModule, target: TargetLike | None = None, params: Mapping[str, Any] | None = None
    ) -> tuple[IRModule, dict[str, Any]]:
        """Run ``relay.optimize`` with the parameters that were set."""
        if params:
            self.set_params(params)
        return optimize(mod, target, self._params)

    def get_graph_json(self) -> str:
        """Return the graph of the last build."""
        return self._built().get_graph_json()

    get_json = get_graph_json

    def get_module(self) -> Module:
        """Return the compiled functions."""
        return self._built().get_lib()

    def get_params(self) -> dict[str, NDArray]:
        """Return the parameters of the graph."""
        return self._built().get_params()

    def get_function_metadata(self) -> dict[str, FunctionInfo]:
        """Return the metadata of each function by name, and of ``__tvm_main__``."""
        metadata: dict[str, FunctionInfo] = self._built().function_metadata
        return metadata

    def _built(self) -> GraphExecutorFactoryModule:
        if self._factory is None:
            raise TilewrightError("nothing has been built; call build(mod, target) first")
        return self._factory


def create_executor(*args: Any, **kwargs: Any) -> Any:
    """Return :func:`relay.create_executor` of the arguments, under the name that TVM's tutorials use."""
    return tilewright.relay.create_executor(*args, **kwargs)


def _as_module(mod: IRModule | Function, params: Mapping[str, Any] | None, lent: Lent | None = None) -> IRModule:
    if isinstance(mod, Function):
        mod = IRModule.from_expr(mod)
    if not isinstance(mod, IRModule):
        raise TilewrightError(f"relay.build takes an IRModule or a Function, got {type(mod).__name__}")
    if params is not None and not isinstance(params, Mapping):
        raise TilewrightError(f"params is a mapping of names to arrays, not {type(params).__name__}")
    module = mod.copy()
    if params:
        _warn_of_unknown(module["main"], params)
        module["main"] = with_params(module["main"], params, lent)
    return module


def _warn_of_unknown(func: Function, params: Mapping[str, Any]) -> None:
    """Warn of names in ``params`` that are no parameter of ``main``, which TVM ignores silently; they may be
    misspelt.
    """
    names = [param.name_hint for param in func.params]
    unknown = [name for name in params if name not in names]
    if not unknown:
        return
    shown = [f"{name!r}{did_you_mean(str(name), names)}" for name in unknown[:_MOST_NAMED]]
    more = f" and {len(unknown) - _MOST_NAMED} more" if len(unknown) > _MOST_NAMED else ""
    text = f"main has no parameters of these names in params, which have no effect: {', '.join(shown)}{more}"
    warnings.warn(text, UserWarning, stacklevel=4)


def _count_operators(func: Function) -> int:
    return sum(isinstance(e, Call) and isinstance(e.op, Op) for e in post_order(func))
