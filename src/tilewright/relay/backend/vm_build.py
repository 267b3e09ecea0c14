"""The virtual machine: how ``relay.build`` compiles for it.

Other passes than for graphs come before and after fusion: a program that is more than data flow is not opened up, and
after fusion it is brought to A-normal form and its functions are lifted. ``vm_codegen.py`` makes the bytecode.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.errors import TilewrightError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo, Sequential
from tilewright.relay import transform
from tilewright.relay.adt import Constructor, Match
from tilewright.relay.backend.executors import ExecutorCodegen, LoweredProgram, register_executor
from tilewright.relay.backend.symbolic import is_dynamic
from tilewright.relay.backend.vm_codegen import Program
from tilewright.relay.expr import Function, If, Let, RefCreate
from tilewright.relay.qnn.transform import CanonicalizeOps as CanonicalizeQnn
from tilewright.relay.transform.common import is_closed, open_children
from tilewright.relay.visitor import post_order
from tilewright.runtime.module import Module
from tilewright.runtime.vm import Executable, make_executable

NAME = "vm"


def control_passes() -> list[Pass]:
    """The passes before fusion of a program with control flow or functions: those that look at operators."""
    return [
        transform.InferType(),
        transform.RemoveUnusedFunctions(),
        CanonicalizeQnn(),
        transform.ComputeInFloat32(),
        transform.Legalize(),
        transform.SimplifyInference(),
        transform.FoldConstant(),
        transform.CanonicalizeOps(),
        transform.FastMath(),
        transform.FoldConstant(),
    ]


def is_data_flow(mod: IRModule) -> bool:
    """Whether ``main`` only applies operators to tensors of known shapes, and is the only function of its program."""
    beyond = (If, Match, RefCreate, Function, Let, Constructor)
    functions = [f for f in mod.functions.values() if isinstance(f, Function) and not is_closed(f)]
    if len(functions) != 1:
        return False
    body = post_order(functions[0].body, open_children)
    if any(e.checked_type_or_none is not None and is_dynamic(e.checked_type) for e in body):
        return False
    return not any(isinstance(e, beyond) and not is_closed(e) for e in body)


class VMBuild(ExecutorCodegen):
    """Makes an ``Executable``."""

    kernel_prefix = ""  # as TVM's machine has them

    def optimization_passes(self, passes: list[Pass]) -> list[Pass]:
        """All of ``passes`` for data flow; else those that leave control flow as it is."""

        def run(mod: IRModule, ctx: PassContext) -> IRModule:
            mod = transform.DynamicToStatic()(transform.RemoveUnusedFunctions()(mod))
            chosen = passes if is_data_flow(mod) else control_passes()
            return Sequential(chosen, name="vm.optimize")(mod)

        return [ModulePass(run, PassInfo("VMOptimize", 0))]

    def prepare_passes(self) -> list[Pass]:
        """Constructors that are values become functions, every value gets a name, and functions become global."""
        return [
            transform.EtaExpand(expand_constructor=True, expand_global_var=False),
            transform.ToANormalForm(),
            transform.InferType(),
            transform.LambdaLift(),
            *super().prepare_passes(),
        ]

    def generate(self, program: LoweredProgram) -> Callable[[Module], Executable]:
        """The bytecode; of the library, the executable."""
        if not program.targets.single:
            raise TilewrightError("the virtual machine's programs run on one device; several are not supported yet")
        made = Program(program.lowered, program.targets.default_device)
        code = made.compile()
        return lambda library: make_executable(code, made.constants, made.constant_devices, library)


register_executor(NAME, codegen=VMBuild)
