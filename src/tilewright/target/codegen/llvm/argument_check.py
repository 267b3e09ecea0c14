"""The check of arguments in LLVM IR, for the object that all kernels of a module share."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tilewright.target.codegen.common import argument_check as checks
from tilewright.target.codegen.common.emitter import exported_name
from tilewright.target.codegen.llvm import types as ty
from tilewright.target.codegen.llvm.builder import Unit
from tilewright.target.codegen.llvm.function import TENSOR, FunctionEmitter
from tilewright.target.codegen.llvm.support import ARGUMENT, SHARED_FUNCTIONS, weak_linkage
from tilewright.target.features import CpuFeatures
from tilewright.tir.expr import Call, StringImm
from tilewright.tir.function import PrimFunc

_COLUMNS = {kind: column for column, kind in enumerate(checks.FIELDS)}


class _CheckEmitter(FunctionEmitter):
    """Emits functions of the check, which read rows of the kernels' tables."""

    def signature(self, func: PrimFunc) -> str:
        """Make functions internal, except those that kernels call, which are the same in every linked module."""
        name = exported_name(func)
        params = []
        for i, param in enumerate(func.params):
            self.variables[param] = f"%p{i}"
            params.append(f"{ty.register(param.dtype)} %p{i}")
        linkage, symbol = "internal", name
        if name in checks.SHARED:
            linkage, symbol = f"{weak_linkage(self.unit.features)}hidden", SHARED_FUNCTIONS[name]
        attributes = " noinline" if name in checks.HOT else " cold noinline minsize optsize"
        return f"define {linkage} i32 @{symbol}({', '.join(params)}){'' if name == checks.CHECK else attributes}"

    def _call_tvm_struct_get(self, e: Call) -> str:
        kind = int(e.args[2])  # type: ignore[call-overload]
        if kind not in _COLUMNS and kind != checks.TENSOR_DTYPE:
            return super()._call_tvm_struct_get(e)
        self._reads += 1
        struct, column = (TENSOR, 3) if kind == checks.TENSOR_DTYPE else (ARGUMENT, _COLUMNS[kind])
        base, row = self.value(e.args[0]), self.typed(e.args[1])
        where = self.emit(f"getelementptr inbounds {struct}, ptr {base}, {row}, i32 {column}")
        return self.emit(f"load {ty.register(e.dtype)}, ptr {where}")

    def _call_call_extern(self, e: Call) -> str:
        assert isinstance(e.args[0], StringImm)
        if e.args[0].value == "TVMAPISetLastError":
            return self.runtime_call("TVMAPISetLastError", "void", self.typed(e.args[1]))
        return super()._call_call_extern(e)


@cache
def _half() -> str:
    return Path(__file__).with_name("half.ll").read_text("utf-8")


@cache
def check_ir(features: CpuFeatures) -> str:
    """Return the IR that all modules for a processor share: the argument check, and float16 where it is emulated."""
    unit = Unit(features, checks.CHECK)
    functions = checks.functions()
    for func in functions:
        _CheckEmitter(unit).function(func)
    for func in functions:
        unit.declarations.pop(exported_name(func), None)  # it is defined here
    text = unit.text()
    return (
        text + _half().replace("weak ", weak_linkage(features)) if features.arch == "x86" else text
    )  # with F16C, float64 to float16 is still a call
