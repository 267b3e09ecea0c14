"""Two back ends of a screenful each on the shared emitter: what a device's code generator has to say.

They know enough for kernels of te.lower that bind loops to threads and share memory; docs/codegen.md tells the way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from tilewright.target.codegen.common.emitter import exported_name
from tilewright.target.codegen.llvm import types as ty
from tilewright.target.codegen.llvm.builder import Unit
from tilewright.target.codegen.llvm.statements import StatementEmitter
from tilewright.target.codegen.source.statements import StatementPrinter, prepare
from tilewright.target.features import features
from tilewright.tir import Allocate, Call, PrimExpr, PrimFunc, Var

_AXES = {"x": 0, "y": 1, "z": 2}


class OpenCLPrinter(StatementPrinter):
    """OpenCL C: a dialect of ``codegen/source``."""

    language = "OpenCL C"
    spaces: ClassVar[dict[str, str]] = {"global": "__global", "shared": "__local", "local": "__private"}

    def signature(self, func: PrimFunc) -> str:
        parameters = ", ".join(self.declared(p).removeprefix("const ") for p in func.params)
        return f"__kernel void {exported_name(func)}({parameters})"

    def finish(self, head: str) -> None:
        self.text = "\n".join([f"{head} {{", *self.lines, "}"]) + "\n"

    def type_name(self, dtype: str) -> str:
        return {"int32": "int", "int64": "long", "uint32": "uint", "bool": "uchar"}.get(dtype) or super().type_name(
            dtype
        )

    def pointer_type(self, buffer: Var, element: str) -> str:
        return f"{self.space(buffer)} {element}*"

    def thread_axis(self, var: Var, tag: str, extent: PrimExpr) -> None:
        block, axis = tag.startswith("block"), _AXES[tag[-1]]
        self.put(f"const int {self.names.of(var)} = (int)get_{'group' if block else 'local'}_id({axis});")

    def barrier(self, scope: str) -> None:
        self.put(f"barrier({'CLK_LOCAL_MEM_FENCE' if scope == 'shared' else 'CLK_GLOBAL_MEM_FENCE'});")

    def declare_extern(self, name: str, result: str, args: list[str]) -> None:
        """Functions of OpenCL C need no declaration."""


def opencl(func: PrimFunc) -> str:
    """The OpenCL C text of a kernel."""
    func, uses, alignments = prepare(func)
    printer = OpenCLPrinter(exported_name(func), uses, alignments)
    printer.function(func)
    return printer.text


class PTXEmitter(StatementEmitter):
    """LLVM IR for the NVPTX back end."""

    spaces: ClassVar[dict[str, str]] = {"global": "", "shared": "addrspace(3)", "local": ""}

    def signature(self, func: PrimFunc) -> str:
        parameters = []
        for i, param in enumerate(func.params):
            self.variables[param] = f"%p{i}"
            parameters.append(f"{ty.register(param.dtype)} %p{i}")
        return f'define ptx_kernel void @"{exported_name(func)}"({", ".join(parameters)})'

    def finish(self, head: str) -> None:
        self.do("ret void")
        self.unit.functions.append(f"{head} {{\n{self.body_text()}\n}}")

    def allocate(self, s: Allocate, elements: int, space: str) -> None:
        if not space:
            super().allocate(s, elements, space)
            return
        cell = f'@"{self.name}.{s.buffer_var.name}"'
        self.unit.globals[cell] = (
            f"{cell} = internal {space} global [{elements} x {ty.memory(s.dtype)}] undef, align 16"
        )
        self.define(s.buffer_var, f"addrspacecast (ptr {space} {cell} to ptr)")

    def _intrinsic(self, name: str, result: str, args: str = "") -> str:
        self.unit.declare(f"llvm.nvvm.{name}", result, args)
        return f"call {result} @llvm.nvvm.{name}()"

    def thread_axis(self, var: Var, tag: str, extent: PrimExpr) -> None:
        register = f"{'ctaid' if tag.startswith('block') else 'tid'}.{tag[-1]}"
        self.define(var, self.emit(self._intrinsic(f"read.ptx.sreg.{register}", "i32")))

    def barrier(self, scope: str) -> None:
        self.do(self._intrinsic("barrier0", "void"))

    def _call_rsqrt(self, e: Call) -> str:
        """One instruction of the device."""
        self.unit.declare("llvm.nvvm.rsqrt.approx.f", "float", "float")
        return self.emit(f"call float @llvm.nvvm.rsqrt.approx.f(float {self.value(e.args[0])})")


def ptx_ir(func: PrimFunc) -> str:
    """The LLVM IR of a kernel, for the triple ``nvptx64-nvidia-cuda``."""
    device = replace(features("llvm -mcpu=x86-64"), triple="nvptx64-nvidia-cuda", cpu="sm_75")
    unit = Unit(device, exported_name(func))
    PTXEmitter(unit).function(func)
    return unit.text()
