"""Compiled LLVM code as a runtime module (``runtime.module.CompiledCode``)."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tilewright.ir.errors import TilewrightError
from tilewright.target import llvm_compile
from tilewright.target.codegen.llvm.argument_check import check_ir
from tilewright.target.codegen.llvm.module import UnitText
from tilewright.target.codegen.llvm.support import SHARED_FUNCTIONS, names_ir, refusing_ir, registering_ir
from tilewright.target.features import CpuFeatures, architecture, host_features, host_triple, operating_system
from tilewright.target.intrinsics import LIBM_FUNCTIONS
from tilewright.target.loader import LoadedObjects, in_process
from tilewright.target.workers import CompileJob, compile_cached

_FORMS = {"": "ll", "ll": "ll", "asm": "asm", "s": "asm", "bc": "bc", "o": "obj", "obj": "obj"}


@functools.cache
def _argument_checks(cpu: CpuFeatures) -> bytes:
    """The object with the argument check: the same for every module."""
    return compile_cached(CompileJob("argument checks", check_ir(cpu), cpu, 1))


@functools.lru_cache(maxsize=64)  # modules whose first functions have one name share the object of names
def _small_object(text: str, cpu: CpuFeatures) -> bytes:
    """Return an object that is not worth optimising."""
    return llvm_compile.compile_ir(text, cpu.triple, cpu.cpu, cpu.feature_string, 0)


class LLVMCode:
    """The compiled kernels of a module: an object file each, one of shared code, and one of their names."""

    def __init__(
        self,
        units: Sequence[UnitText],
        kernels: Sequence[bytes],
        cpu: CpuFeatures,
        level: int = 3,
        system_lib: bool = False,
    ) -> None:
        self.units, self.cpu, self.level = list(units), cpu, level
        self.context = tuple(dict.fromkeys(["TVMAPISetLastError", *(c for u in units for c in u.context)]))
        self._kernels = list(kernels)
        self._system_lib = system_lib
        self._shared = [_argument_checks(cpu), _small_object(self._names(linked=False), cpu)]
        self._loaded: LoadedObjects | None = None

    def _names(self, linked: bool) -> str:
        return names_ir(self.cpu, self.units[0].name if self.units else "", self.context, linked)

    def _registered(self) -> list[str]:
        """Return the names in the system library."""
        return [*self.function_names(), *(c for c in self.context if c == "__tvm_module_ctx"), "__tvm_main__"]

    def _variables(self) -> list[str]:
        """The variables that a loader fills."""
        return [c if c.startswith("__") else f"__{c}" for c in self.context]

    def runs_here(self) -> bool:
        """Return whether this process can run the code: same architecture, and no feature that is missing."""
        if architecture(self.cpu.triple) != architecture(host_triple()):
            return False
        if self.cpu.triple.split("-")[0] != host_triple().split("-")[0]:
            return False
        if operating_system(self.cpu.triple) != operating_system(host_triple()):
            return False
        return not self.missing_features()

    @property
    def other_machine(self) -> str | None:
        """The triple of the machine that the code is for, when architecture or system are not those of this one."""
        here, there = ((architecture(t), operating_system(t)) for t in (host_triple(), self.cpu.triple))
        return None if here == there else self.cpu.triple

    def missing_features(self) -> list[str]:
        """The features that the code needs and this machine lacks."""
        host = host_features()
        return [] if self.cpu.is_host else [f for f in self.cpu.names if f not in host.names]

    def load(self) -> LoadedObjects:
        """Load the code into this process, once; functions that cannot run here raise the reason when called."""
        if self._loaded is None:
            exports = [*self.function_names(), *self._variables()]
            why_not = self._missing_externals() if self.runs_here() else self._other_machine()
            if why_not is None:
                self._loaded = LoadedObjects([*self._kernels, *self._shared], exports)
            else:
                self._loaded = LoadedObjects([self._refusal(why_not)], [*self.function_names(), "__TVMAPISetLastError"])
        return self._loaded

    def _missing_externals(self) -> str | None:
        """The functions that neither this module nor the process has, as a message."""
        provided = {*self.function_names(), *SHARED_FUNCTIONS.values()}
        lacking: list[str] = []
        for unit in self.units:
            taken = [s for s in unit.externals if s in provided and s.removesuffix("f") in LIBM_FUNCTIONS]
            if taken:
                raise TilewrightError(
                    f"{unit.name} calls {', '.join(taken)} of the C library, and a function of this module has that "
                    "name; give that another name"
                )
            wanted = [s for s in unit.externals if not s.startswith("llvm.") and s not in provided]
            missing = [s for s in wanted if not in_process(s)]
            if missing:
                lacking.append(f"{unit.name} calls {', '.join(missing)}, which is not in this process")
        if not lacking:
            return None
        return f"cannot run here: {'; '.join(lacking)}. Export the library, linked with what has that, and load it"

    def _other_machine(self) -> str:
        """Return the message why the code cannot run on this machine."""
        host = host_features()
        if self.other_machine is None:
            lacks = ", ".join(self.missing_features()) or self.cpu.triple
            why = f"this machine lacks {lacks}"
        else:
            why = f"this machine is {host.triple}"
        return f"was compiled for {self.cpu.triple} {self.cpu.cpu}, and {why}; export the library and run it there"

    def _refusal(self, message: str) -> bytes:
        """Functions of the same names for this machine that only report why the real ones cannot run here."""
        host = host_features()
        text = refusing_ir(host, self.function_names(), message)
        return llvm_compile.compile_ir(text, host.triple, "", "", 0)

    # ---- the protocol ----
    def lookup(self, name: str) -> int | None:
        """Address of a function or context variable in this process."""
        return self.load().lookup(name)

    def function_names(self) -> list[str]:
        """Names of the packed functions, entry first."""
        return [u.name for u in self.units]

    def objects(self) -> list[bytes]:
        """Return object files: the kernels, then shared code; with ``-system-lib``, code that registers them."""
        if not self._system_lib:
            return [*self._kernels, *self._shared]
        names, registration = self._names(linked=True), registering_ir(self.cpu, self._registered())
        return [*self._kernels, self._shared[0], _small_object(names, self.cpu), _small_object(registration, self.cpu)]

    def get_source(self, fmt: str = "") -> str:
        """The code as ``ll`` (LLVM IR, the default) or ``asm``."""
        if fmt in ("ll", ""):
            return "\n".join(f"; {u.name}\n{u.text}" for u in self.units)
        if _FORMS.get(fmt) != "asm":
            raise TilewrightError(f"LLVM code has no text of format {fmt!r}; there is ll and asm")
        return "\n".join(self._compiled(u.text, "asm").decode() for u in self.units)

    def _compiled(self, text: str, form: str) -> bytes:
        f = self.cpu
        return llvm_compile.compile_ir(text, f.triple, f.cpu, f.feature_string, self.level, form)

    def render(self, fmt: str) -> bytes:
        """The whole module as one file: ``o``, ``ll``, ``s`` or ``bc``."""
        form = _FORMS.get(fmt)
        if form is None:
            raise TilewrightError(f"cannot save LLVM code as .{fmt}; there is .o, .ll, .s and .bc")
        texts = [*(u.text for u in self.units), check_ir(self.cpu), self._names(self._system_lib)]
        if self._system_lib:
            texts.append(registering_ir(self.cpu, self._registered()))
        f = self.cpu
        return llvm_compile.link_ir(texts, f.triple, f.cpu, f.feature_string, self.level, form)
