"""The virtual machine: how ``relay.build`` compiles for it.

Other passes than for graphs run before and after fusion: functions of a program that is more than data flow are not
inlined, and after fusion it is brought to A-normal form and its functions are lifted. ``vm_codegen.py`` makes the
bytecode.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import DimVar, IntImm
from tilewright.ir.span import source_names
from tilewright.ir.transform import FunctionPass, ModulePass, Pass, PassContext, PassInfo, Sequential
from tilewright.ir.type import is_dynamic, tensors_of
from tilewright.relay import transform
from tilewright.relay.adt import Constructor, Match
from tilewright.relay.backend.executors import ExecutorCodegen, LoweredProgram, register_executor
from tilewright.relay.backend.interface import interface_of
from tilewright.relay.backend.lowered import kernels
from tilewright.relay.backend.progress import BuildReport
from tilewright.relay.backend.symbolic import variables_of
from tilewright.relay.backend.vm_codegen import Program
from tilewright.relay.backend.vm_parts import optimize_parts
from tilewright.relay.backend.vm_specialize import OPTION, specializations_of, with_specializations
from tilewright.relay.expr import Call, Function, If, Let, RefCreate
from tilewright.relay.function_attributes import (
    GLOBAL_SYMBOL,
    HASH,
    IMPLEMENTATION,
    INTERFACE,
    MACHINE_PARAM_DEVICES,
    PARAM_DEVICE_TYPES,
    RESULT_DEVICE_TYPE,
    SCHEDULE,
    SCHEDULE_REASON,
)
from tilewright.relay.op.strategy.dense_rows import OPTION as SHARED_LAYOUT
from tilewright.relay.qnn.transform import CanonicalizeOps as CanonicalizeQnn
from tilewright.relay.qnn.transform import Legalize as LegalizeQnn
from tilewright.relay.transform.common import open_children
from tilewright.relay.transform.fusion.label_ops import hash_of
from tilewright.relay.visitor import is_closed, post_order
from tilewright.runtime.bytecode import Opcode
from tilewright.runtime.module import Module
from tilewright.runtime.vm import Executable, make_executable
from tilewright.target.target import Target

NAME = "vm"
_OF_IMAGES = re.compile("conv|pool")  # in the names of implementations


def control_passes() -> list[Pass]:
    """Return the passes before fusion of a program with control flow or functions: those that rewrite single
    operators.
    """
    return [
        transform.InferType(),
        transform.RemoveUnusedFunctions(),
        LegalizeQnn(),
        CanonicalizeQnn(),
        transform.ComputeInFloat32(),
        transform.Legalize(),
        transform.SimplifyInference(),
        transform.FoldConstant(),
        transform.CanonicalizeOps(),
        transform.FastMath(),
        transform.FoldConstant(),
        transform.HalveWeights(),
    ]


def named_dims(mod: IRModule) -> bool:
    """Return whether all unknown dimensions of main's parameters have names, or are sums of such."""
    main = mod["main"]
    assert isinstance(main, Function)
    dims = [d for p in main.params for t in tensors_of(p.checked_type) for d in t.shape]
    names = {d for d in dims if isinstance(d, DimVar)}
    return bool(names) and all(not isinstance(d, AnyDim) and names.issuperset(variables_of(d)) for d in dims)


def is_data_flow(mod: IRModule, dynamic: bool = False) -> bool:
    """Return whether ``main`` only applies operators to tensors, and is the only function of its program.

    The shapes of tensors must be known, unless ``dynamic``.
    """
    beyond = (If, Match, RefCreate, Function, Let, Constructor)
    functions = [f for f in mod.functions.values() if isinstance(f, Function) and not is_closed(f)]
    if len(functions) != 1:
        return False
    body = post_order(functions[0].body, open_children)
    if not dynamic and any(e.checked_type_or_none is not None and is_dynamic(e.checked_type) for e in body):
        return False
    return not any(isinstance(e, beyond) and not is_closed(e) for e in body)


def _plan_of_devices(mod: IRModule, ctx: PassContext) -> IRModule:
    """Return the module with its plan of devices in the form that the bytecode compiler takes.

    The devices of all values but main's parameters follow from the devices of kernels and from the copies.
    """
    main = mod["main"]
    if not isinstance(main, Function) or not RESULT_DEVICE_TYPE.has(main):
        return mod
    made = mod.copy()
    planned = main.without_attr(RESULT_DEVICE_TYPE.key).without_attr(PARAM_DEVICE_TYPES.key)
    made["main"] = planned.with_attr(MACHINE_PARAM_DEVICES.key, PARAM_DEVICE_TYPES.of(main))
    return made


def _at_every_level(needed: Pass) -> Pass:
    """Return a pass that programs require, so that it runs at every ``opt_level``."""
    assert isinstance(needed, (ModulePass, FunctionPass))
    return replace(needed, info=PassInfo(0, needed.info.name))


def _optimized(mod: IRModule, passes: list[Pass], named: bool = False) -> IRModule:
    """Run ``passes`` on a module that is data flow; else on its parts that are, and then those that keep control flow.

    In a specialization of a program that is ``named``, main's parameters may have known shapes and other tensors not.
    """
    mod = transform.DynamicToStatic()(transform.RemoveUnusedFunctions()(mod))
    mod = transform.WriteOutDynamic()(mod)
    # the machine would prepare weights in every run, and convert them as it reads them instead
    named_passes = [(getattr(getattr(p, "info", None), "name", ""), p) for p in passes]
    passes = [p for name, p in named_passes if name not in ("WidenWeights", "SharePackedWeights")]
    prepare = Sequential([
        transform.FoldConstant(prepare_weights=True),
        *(p for name, p in named_passes if name == "SharePackedWeights"),  # folding would undo it
    ])  # fmt: skip

    def part(of: IRModule) -> IRModule:
        return Sequential([*passes, prepare])(of) if is_data_flow(of, named or named_dims(of)) else of

    if is_data_flow(mod, named or named_dims(mod)):
        return Sequential([*passes, prepare], name="vm.optimize")(mod)
    return Sequential([*control_passes(), prepare], name="vm.optimize")(optimize_parts(mod, part))


class VMBuild(ExecutorCodegen):
    """Code generator that makes an ``Executable``."""

    control_flow = True
    kernel_prefix = ""  # as TVM's machine has them

    def pass_options(self, target: Target) -> Mapping[str, Any]:
        """Return that specializations hold large matrices once, whatever their numbers of rows."""
        return {SHARED_LAYOUT: True} if PassContext.current().option(OPTION) else {}

    def optimization_passes(self, passes: list[Pass]) -> list[Pass]:
        """Return all of ``passes`` for data flow, else those that keep control flow; each specialization takes its
        own.
        """

        def run(mod: IRModule, ctx: PassContext) -> IRModule:
            special = specializations_of(mod, ctx.option(OPTION)) if ctx.option(OPTION) else []
            named = bool(special) and named_dims(transform.InferType()(mod))
            done = [replace(item, mod=_optimized(item.mod, passes, named)) for item in special]
            general = _optimized(mod, passes)
            whole = with_specializations(general, done) if done else general
            return transform.WriteInPlace()(transform.AppendInPlace()(whole))

        return [ModulePass(run, PassInfo(0, "VMOptimize"))]

    def prepare_passes(self) -> list[Pass]:
        """Return the passes that expand constructors, name values, lift functions and plan memory."""
        return [
            ModulePass(_plan_of_devices, PassInfo(0, "PlanOfDevices")),
            _at_every_level(transform.EtaExpand(expand_constructor=True, expand_global_var=False)),
            _at_every_level(transform.ToANormalForm()),
            transform.InferType(),
            transform.MarkSlack(),
            _at_every_level(transform.LambdaLift()),
            *super().prepare_passes(),
            transform.ManifestAlloc(),
            transform.MemoryPlan(),
        ]

    def generate(self, program: LoweredProgram) -> Callable[[Module], Executable]:
        """Generate the bytecode; return what makes the executable of a library."""
        lowered = program.lowered
        interface = interface_of(program.fused, str(program.targets), _sources(program))
        if interface:
            lowered = lowered.copy()
            lowered["main"] = lowered["main"].with_attr(INTERFACE.key, interface)
        made = Program(lowered, program.targets.default_device, not program.targets.single)
        code = made.compile()
        _fill_report(program.report, program, made)

        def finish(library: Module) -> Executable:
            executable = make_executable(code, made.constants, made.constant_devices, library)
            executable.build_report = program.report
            return executable

        return finish


def _sources(program: LoweredProgram) -> dict[str, list[str]]:
    """Return the names of the model's nodes that each kernel computes."""
    found: dict[str, dict[str, None]] = {}
    for _, func in program.fused.items():
        for expr in post_order(func.body, open_children) if isinstance(func, Function) else ():
            if isinstance(expr, Call) and isinstance(expr.op, Function) and is_closed(expr.op):
                found.setdefault(hash_of(expr.op), {}).update(dict.fromkeys(source_names(expr.span)))
    return {
        GLOBAL_SYMBOL.of(kernel): list(found.get(HASH.of(kernel), ()))
        for kernel in kernels(program.lowered).values()
        if HASH.has(kernel)  # functions of shapes have none
    }


def _open_images(program: LoweredProgram) -> set[str]:
    """Return the kernels that take an image, or features, whose extents are known at run time only."""
    found = set()
    for _, func in program.fused.items():
        for expr in post_order(func.body, open_children) if isinstance(func, Function) else ():
            if isinstance(expr, Call) and isinstance(expr.op, Function) and is_closed(expr.op):
                types = [t for p in expr.op.params for t in tensors_of(p.checked_type)]
                if any(not isinstance(d, IntImm) for t in types for d in t.shape[2:]):
                    found.add(hash_of(expr.op))
    return {GLOBAL_SYMBOL.of(f) for f in kernels(program.lowered).values() if HASH.has(f) and HASH.of(f) in found}


def _fill_report(report: BuildReport, program: LoweredProgram, made: Program) -> None:
    """Complete the report of a program."""
    functions = [f for f in kernels(program.lowered).values() if not GLOBAL_SYMBOL.of(f).startswith("shape_func_")]
    report.kernels = len(functions)
    report.kernel_calls = sum(
        i.opcode == Opcode.INVOKE_PACKED for function in made.functions for i in function.instructions
    )
    report.implementations = {GLOBAL_SYMBOL.of(f): IMPLEMENTATION.of(f) for f in functions}
    report.schedules = {GLOBAL_SYMBOL.of(f): SCHEDULE.of(f) for f in functions}
    report.schedule_reasons = {GLOBAL_SYMBOL.of(f): SCHEDULE_REASON.of(f) for f in functions}
    open_images = _open_images(program)
    report.open_images = {
        name: nodes
        for name, nodes in _sources(program).items()
        if name in open_images and _OF_IMAGES.search(report.implementations[name])
    }
    report.parameter_bytes = sum(constant.nbytes for constant in made.constants)
    main = program.fused["main"]
    assert isinstance(main, Function)
    types = [t for p in main.params for t in tensors_of(p.checked_type)]
    named = dict.fromkeys(d for t in types for d in t.shape if isinstance(d, DimVar))
    report.dimensions = tuple(f"{d.name} {d.limits}" for d in named)


register_executor(NAME, codegen=VMBuild)
