"""The code generator of the kind ``llvm``: each function is a unit that compiles while the next ones are lowered."""

from __future__ import annotations

from tilewright.ir.transform import PassContext
from tilewright.runtime.module import Module, from_compiled
from tilewright.target.code_generator import register_code_generator, to_host_form
from tilewright.target.codegen.llvm.code import LLVMCode
from tilewright.target.codegen.llvm.ir_file import register as register_ir_files
from tilewright.target.codegen.llvm.module import UnitText, emit_function
from tilewright.target.codegen.options import refuse_unsupported
from tilewright.target.features import features
from tilewright.target.kept_kernels import keep, kept_code
from tilewright.target.target import Target
from tilewright.target.workers import Batch, CompileJob, pool
from tilewright.tir.function import PrimFunc
from tilewright.tir.transform.round_to_bytes import RoundToBytes
from tilewright.tir.transform.transpose_loads import TransposeLoads


@register_code_generator("llvm")
class LLVMGenerator:
    """LLVM IR text, which worker processes turn into objects, and ``finish`` brings into this process."""

    def __init__(self, target: Target) -> None:
        self._cpu = features(target)
        refuse_unsupported(target, self._cpu)
        self._level = int(target.attrs.get("opt-level", PassContext.current().option("target.opt_level")))
        self._system_lib = bool(target.attrs.get("system-lib", False))
        self._units: list[UnitText] = []
        self._batch = Batch(pool())

    def add(self, func: PrimFunc) -> None:
        """Write the function's IR, or take what the cache has of it, and have it compiled."""
        kept = kept_code(func)
        if kept is None:
            units = [emit_function(packed, self._cpu) for packed in host_functions(func)]
            keep(func, [[u.name, u.text, u.context, u.externals] for u in units])
        else:
            units = [UnitText(name, text, tuple(context), tuple(externals)) for name, text, context, externals in kept]
        for unit in units:
            self._units.append(unit)
            self._batch.add(CompileJob(unit.name, unit.text, self._cpu, self._level))

    def finish(self) -> Module:
        """Wait for the objects; a module of type ``llvm``."""
        compiled = LLVMCode(self._units, self._batch.results(), self._cpu, self._level, self._system_lib)
        compiled.load()  # now, because an error has no way out of the runtime's look-up
        return from_compiled(compiled, "llvm")


def host_functions(func: PrimFunc) -> list[PrimFunc]:
    """Return the functions whose IR is written for ``func``, after all passes."""
    return to_host_form(func, [TransposeLoads(), RoundToBytes()])


register_ir_files()
