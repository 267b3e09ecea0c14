"""The ahead-of-time executor: how ``relay.build`` compiles for it.

The network becomes one function (``aot_main.py``) beside its kernels; nothing interprets a graph when it runs. A
library of it loads as any other (``aot_library.py``); without a runtime it is exported as C (``tilewright.micro``). It
takes what the graph executor takes: data flow between tensors of known shapes, on one device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.relay.backend.aot_library import graph_of, packed_main
from tilewright.relay.backend.aot_main import aot_program
from tilewright.relay.backend.aot_memory import check_pools, crowded_layers
from tilewright.relay.backend.aot_refusal import refuse_dynamic, refuse_unfit
from tilewright.relay.backend.executors import ExecutorCodegen, LoweredProgram, register_executor
from tilewright.relay.backend.function_metadata import function_metadata
from tilewright.relay.backend.graph_codegen import ArenaOptions, Graph, GraphCodegen
from tilewright.relay.backend.graph_executor import GraphExecutorBuild, fill_report, library_metadata
from tilewright.relay.backend.lowered import is_external, kernels
from tilewright.relay.expr import Function
from tilewright.relay.function_attributes import COMPILER, GLOBAL_SYMBOL, INLINE, TARGET
from tilewright.relay.op.nn.integer_conv2d import IntegerConv2D
from tilewright.relay.transform.common import op_of
from tilewright.relay.transform.functional.inline import Inline
from tilewright.relay.transform.memory.depth_first import DepthFirst
from tilewright.relay.visitor import post_order
from tilewright.runtime.executor.aot import AOTExecutorFactoryModule
from tilewright.runtime.module import Module
from tilewright.target.codegen.options import workspace_pools
from tilewright.target.interfaces import is_freestanding, workspace_alignment
from tilewright.target.target import Target
from tilewright.tir.function import PrimFunc
from tilewright.tir.function_attributes import POOL_BYTES
from tilewright.tir.transform.pool_allocations import pool_allocations

NAME = "aot"
C_COMPILER = "ccompiler"
"""The external compiler of ``relay/backend/ccompiler.py``."""


def main_symbol(name: str) -> str:
    """Return the symbol of the main function of the network ``name``, as TVM 0.8 names it."""
    return f"tvmgen_{name}_run_model"


class AotBuild(ExecutorCodegen):
    """Code generator that makes an ``AOTExecutorFactoryModule``."""

    target_options: ClassVar[Mapping[str, Any]] = {"unpacked-api": True}

    def __init__(self) -> None:
        self._passes = GraphExecutorBuild()
        self._own: dict[str, int] = {}

    def pass_options(self, target: Target) -> Mapping[str, Any]:
        """Return the option by which weights are made ready when compiling: a program keeps nothing between runs."""
        return {"relay.graph.run_once": False}

    def required_passes(self, module: IRModule, target: Target, opt_level: int) -> Sequence[str]:
        """Return the pass that chooses layouts, for quantized networks at the usual level too: their layers then
        compute on integers.
        """
        usual = is_freestanding(target) and opt_level >= 2
        return ("AlterOpLayout",) if usual and any(map(_is_quantized, module.functions.values())) else ()

    def kernel(self, func: PrimFunc) -> PrimFunc:
        """Return a kernel of code without a runtime with its large allocations in the program's workspace."""
        target = TARGET.of(func)
        if not is_freestanding(target):
            return func
        pooled = pool_allocations(func, workspace_alignment(target))
        self._own[GLOBAL_SYMBOL.of(pooled)] = POOL_BYTES.of(pooled)
        return pooled

    def optimization_passes(self, passes: list[Pass]) -> list[Pass]:
        """Return the passes of the graph executor; what is refused is refused by its nodes' names."""
        own = [(refuse_dynamic, "RefuseDynamic"), (_take_regions_of_c, "TakeRegionsOfC")]
        before = [ModulePass(run, PassInfo(0, name)) for run, name in own]
        return [
            *before,
            *self._passes.optimization_passes(passes),
            ModulePass(_within_limits, PassInfo(0, "DepthFirst")),
        ]

    def prepare_passes(self) -> list[Pass]:
        """Return the passes of the graph executor, after a check that only data flow of known shapes is left."""
        return [ModulePass(refuse_unfit, PassInfo(0, "RefuseUnfit")), *self._passes.prepare_passes()]

    def generate(self, program: LoweredProgram) -> Callable[[Module], AOTExecutorFactoryModule]:
        """Add the main function to the library; return what makes the factory of a library."""
        _check(program)
        alignment, pools = workspace_alignment(program.target), workspace_pools(program.target)
        arenas = ArenaOptions(alignment, tuple(pools.values()), self._own)
        graph = GraphCodegen(program.lowered, program.targets.default_device, True, arenas).codegen()
        graph.metadata = library_metadata(program.fused, graph, program.asked)
        functions = list(kernels(program.lowered).values())
        standalone = is_freestanding(program.target)
        symbol, external = main_symbol(program.name), _external(program)
        made = aot_program(graph, symbol, program.target, self._own, list(pools), alignment, external)
        check_pools(made.layout, pools, crowded_layers(graph, self._own))
        program.builder.add(made.main)
        called: Graph | None = None
        if not standalone:
            symbol = f"tvmgen_{program.name}_run"
            program.builder.add(packed_main(made, symbol, program.target))
            called = graph_of(made, symbol, graph.metadata)

        def finish(library: Module) -> AOTExecutorFactoryModule:
            fill_report(program.report, graph, functions)
            program.report.activation_bytes = made.layout.workspace_bytes
            info = function_metadata(
                program.fused, program.lowered, graph, program.targets, self._own if standalone else None
            )
            loaded = (called.to_json(), called.params) if called is not None else None
            factory = AOTExecutorFactoryModule(
                program.source, program.asked.default, library, program.name, made.layout, info, loaded
            )
            factory.build_report = program.report
            factory.crowded = crowded_layers(graph, self._own)
            return factory

        return finish


def _take_regions_of_c(mod: IRModule, ctx: PassContext) -> IRModule:
    """Make regions for ``ccompiler``, whose code is of the same generator, parts of the program."""
    taken = mod.copy()
    for var, func in mod.items():
        if isinstance(func, Function) and COMPILER.get(func) == C_COMPILER:
            taken[var] = Function(func.params, func.body, func.ret_type).with_attr(INLINE.key, 1)
    inline = Inline()
    assert isinstance(inline, ModulePass)
    return replace(inline, info=PassInfo(0, inline.info.name))(taken)


def _is_quantized(func: Any) -> bool:
    """Whether a function has operators of quantized networks."""
    if not isinstance(func, Function):
        return False
    ops = (op_of(e) for e in post_order(func))
    return any(op is not None and op.name.startswith(("qnn.", IntegerConv2D.name)) for op in ops)


def _within_limits(mod: IRModule, ctx: PassContext) -> IRModule:
    """Compute the first layers in bands where the parts of the workspace have less room than the network takes."""
    target = Target.current()
    limits = list(workspace_pools(target).values()) if target is not None and is_freestanding(target) else [None]
    most = sum(limit or 0 for limit in limits)
    return mod if None in limits else DepthFirst(most)(mod)


def _check(program: LoweredProgram) -> None:
    asked = program.asked.default.attrs
    structures = asked.get("interface-api", "packed") == "c"
    if structures and not is_freestanding(program.target):
        raise UnsupportedError(
            f"-interface-api=c of {program.asked}: functions of structures are of code without a runtime; give "
            "c -runtime=c, or leave the option out"
        )
    if structures and not asked.get("unpacked-api", True):
        raise UnsupportedError(
            "Packed interface required for packed operators: give -unpacked-api=1, or -interface-api=packed"
        )
    if not program.targets.single or "cpu" not in program.target.keys:
        raise UnsupportedError(f"an ahead-of-time program runs on one CPU; the targets are {program.targets}")
    external = _external(program)
    if external and is_freestanding(program.target):
        raise UnsupportedError(
            f"@{external[0]} is another compiler's packed function, and a program without a runtime calls its kernels "
            "by pointers; leave the operators unpartitioned, or compile for a runtime, as llvm or c"
        )


def _external(program: LoweredProgram) -> list[str]:
    return [var.name_hint for var, func in program.lowered.items() if is_external(func)]


register_executor(NAME, codegen=AotBuild)
