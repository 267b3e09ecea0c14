"""A kernel as LLVM IR for the NVPTX back end.

Pointers are generic; where memory is known to be global or shared, LLVM finds that out from the casts at the head
of the kernel, and uses the instructions of that memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import ClassVar

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.target.codegen.common.emitter import exported_name
from tilewright.target.codegen.common.names import UniqueNames
from tilewright.target.codegen.llvm import types as ty
from tilewright.target.codegen.llvm.builder import Unit
from tilewright.target.codegen.llvm.statements import StatementEmitter
from tilewright.target.codegen.nvptx.architecture import device_features, number
from tilewright.target.codegen.nvptx.math import MathEmitter
from tilewright.target.codegen.nvptx.matrices import MatrixEmitter
from tilewright.tir.expr import Call, IntImm, PrimExpr, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.function_attributes import NOALIAS
from tilewright.tir.stmt import Allocate, AttrStmt, Stmt
from tilewright.tir.visitor import StmtVisitor

_AXES = {"blockIdx": "ctaid", "threadIdx": "tid"}
_NATIVE_BFLOAT = 80  # the first architecture that rounds to bfloat16 by an instruction


class KernelEmitter(MatrixEmitter, MathEmitter, StatementEmitter):
    """Emits one kernel."""

    language = "PTX"
    spaces: ClassVar[dict[str, str]] = {
        "global": "", "shared": "addrspace(3)", "shared.dyn": "addrspace(3)", "local": "", "warp": "",
        **MatrixEmitter.fragment_spaces,
    }  # fmt: skip

    def __init__(self, unit: Unit) -> None:
        super().__init__(unit)
        self.architecture = number(unit.features.cpu)
        self._shared: dict[Var, tuple[str, str]] = {}  # what a variable in shared memory is, and its name
        self._cells = UniqueNames(".")

    # ---- the kernel ----
    def signature(self, func: PrimFunc) -> str:
        """Pointers to global memory, and numbers."""
        parameters, alone = [], " noalias" if NOALIAS.on(func) else ""
        known = _alignments(func.body)
        for i, param in enumerate(func.params):
            if param.dtype == "handle":
                parameters.append(f"ptr addrspace(1){alone} align {known.get(param, 1)} %p{i}")
                self.define(param, self.emit(f"addrspacecast ptr addrspace(1) %p{i} to ptr"))
            elif dt.is_bool(param.dtype):
                parameters.append(f"i8 %p{i}")
                self.define(param, self.emit(f"icmp ne i8 %p{i}, 0"))
            else:
                parameters.append(f"{ty.register(param.dtype)} %p{i}")
                self.define(param, f"%p{i}")
        return f'define ptx_kernel void @"{exported_name(func)}"({", ".join(parameters)}){_block_size(func)}'

    def finish(self, head: str) -> None:
        """Return, and close the kernel."""
        self.do("ret void")
        self.unit.functions.append(f"{head} {{\n{self.body_text()}\n}}")

    # ---- memory ----
    def allocate(self, s: Allocate, elements: int, space: str) -> None:
        """Shared memory is a variable of the kernel; other memory is the thread's."""
        if not space.startswith("addrspace"):
            super().allocate(s, elements, space)
            return
        body = f"internal {space} global [{max(elements, 1)} x {ty.memory(s.dtype)}] undef, align 16"
        known = self._shared.get(s.buffer_var)
        if known is None or known[0] != body:
            cell = f'@"{self.name}.{self._cells.fresh(s.buffer_var.name)}"'
            self.unit.globals[cell] = f"{cell} = {body}"
            self._shared[s.buffer_var] = known = (body, cell)
        self.define(s.buffer_var, f"addrspacecast (ptr {space} {known[1]} to ptr)")
        self.alignments[s.buffer_var] = 16

    def visit_allocate(self, s: Allocate) -> Stmt | None:
        """Allocate; dynamic shared memory has the size from the launch."""
        if getattr(s.buffer_var.type_annotation, "storage_scope", "") != "shared.dyn":
            return super().visit_allocate(s)
        cell = f"@{_identifier(self.name)}_dynamic_shared"
        self.unit.globals[cell] = f"{cell} = external addrspace(3) global [0 x i8], align 16"
        self.define(s.buffer_var, f"addrspacecast (ptr addrspace(3) {cell} to ptr)")
        self.alignments[s.buffer_var] = 16
        return s.body

    # ---- threads ----
    def _nvvm(self, name: str, result: str, arguments: Sequence[str] = ()) -> str:
        """A call of LLVM's intrinsic ``llvm.nvvm.NAME``; the arguments with their types."""
        types = ", ".join(a.rsplit(" ", 1)[0] for a in arguments)
        self.unit.declare(f"llvm.nvvm.{name}", result, types)
        return f"call {result} @llvm.nvvm.{name}({', '.join(arguments)})"

    def thread_axis(self, var: Var, tag: str, extent: PrimExpr) -> None:
        """Read a special register, whose range is declared to LLVM."""
        which, _, axis = tag.partition(".")
        if which not in _AXES or axis not in ("x", "y", "z"):
            super().thread_axis(var, tag, extent)
        mark, self.lines = self.lines, []  # scopes of an axis may stand side by side: it is read at the kernel's head
        register = self.emit(self._nvvm(f"read.ptx.sreg.{_AXES[which]}.{axis}", "i32"))
        if isinstance(extent, IntImm):
            self.unit.declare("llvm.assume", "void", "i1")
            below = self.emit(f"icmp ult i32 {register}, {extent.value}")
            self.do(f"call void @llvm.assume(i1 {below})")
        if var.dtype != "int32":
            register = self.cast(register, "uint32", var.dtype)
        self.entry_lines += self.lines
        self.lines = mark
        self.define(var, register)

    def barrier(self, scope: str) -> None:
        """Wait for the block, or for the warp."""
        if scope == "warp":
            self.do(self._nvvm("bar.warp.sync", "void", ["i32 -1"]))
        elif scope in ("shared", "shared.dyn"):
            self.do(self._nvvm("barrier0", "void"))
        else:
            raise UnsupportedError(
                f"{self.name}: threads of several blocks cannot wait for each other (scope {scope!r}); "
                "split the computation into two kernels"
            )
        self.begin_statement()

    def _shuffle(self, e: Call, mode: str) -> str:
        """Another thread's value: 32 bits at a time."""
        mask, value, lane, width, _ = e.args
        members = self.cast(self.value(mask), mask.dtype, "uint32")
        last = 0 if mode == "up" else 31
        if isinstance(width, IntImm):
            limits = str((32 - width.value) << 8 | last)
        else:
            inside = self.emit(f"sub i32 32, {self.value(width)}")
            limits = self.emit(f"or i32 {self.emit(f'shl i32 {inside}, 8')}, {last}")
        self._reads += 1
        number_of_lane = self.value(lane)

        def move(part: str) -> str:
            arguments = [f"i32 {members}", f"i32 {part}", f"i32 {number_of_lane}", f"i32 {limits}"]
            return self.emit(self._nvvm(f"shfl.sync.{mode}.i32", "i32", arguments))

        return self._by_words(self.value(value), value.dtype, move)

    def _by_words(self, value: str, dtype: str, move: Callable[[str], str]) -> str:
        """Apply ``move`` to each 32 bits of a value."""
        reg, bits = ty.register(dtype), (8 if dt.is_bool(dtype) else dt.bits(dtype)) * dt.lanes(dtype)
        if dt.is_bool(dtype) and dt.lanes(dtype) == 1:
            return self.emit(f"trunc i32 {move(self.emit(f'zext i1 {value} to i32'))} to i1")
        if bits < 32:
            small = self.emit(f"bitcast {reg} {value} to i{bits}")
            moved = move(self.emit(f"zext i{bits} {small} to i32"))
            return self.emit(f"bitcast i{bits} {self.emit(f'trunc i32 {moved} to i{bits}')} to {reg}")
        if bits % 32 or dt.is_bool(dtype):
            raise UnsupportedError(f"{self.name}: a warp cannot shuffle values of {dtype}")
        words = bits // 32
        vector = self.emit(f"bitcast {reg} {value} to <{words} x i32>")
        made = "poison"
        for i in range(words):
            part = move(self.emit(f"extractelement <{words} x i32> {vector}, i64 {i}"))
            made = self.emit(f"insertelement <{words} x i32> {made}, i32 {part}, i64 {i}")
        return self.emit(f"bitcast <{words} x i32> {made} to {reg}")

    def _call_tvm_warp_shuffle(self, e: Call) -> str:
        return self._shuffle(e, "idx")

    def _call_tvm_warp_shuffle_up(self, e: Call) -> str:
        return self._shuffle(e, "up")

    def _call_tvm_warp_shuffle_down(self, e: Call) -> str:
        return self._shuffle(e, "down")

    def _call_tvm_warp_activemask(self, e: Call) -> str:
        self._reads += 1
        return self.cast(self.emit(self._nvvm("activemask", "i32")), "uint32", e.dtype)

    # ---- what a processor of the host has otherwise ----
    def _effect_prefetch(self, e: Call) -> None:
        """A hint that is not worth an instruction."""

    def _cast_bfloat(self, value: str, source: str, dest: str) -> str:
        """Convert by an instruction if there is one."""
        if self.architecture < _NATIVE_BFLOAT or not ty.is_bfloat(dest):
            return super()._cast_bfloat(value, source, dest)
        lanes = dt.lanes(dest)
        wide = dt.with_lanes("float32", lanes)
        value = self.cast(value, source, wide)
        kind, bits = ("bfloat", "i16") if lanes == 1 else (f"<{lanes} x bfloat>", f"<{lanes} x i16>")
        rounded = self.emit(f"fptrunc {ty.register(wide)} {value} to {kind}")
        return self.emit(f"bitcast {kind} {rounded} to {bits}")


class _Attributes(StmtVisitor):
    """The sizes of thread axes and the alignments that attributes of a kernel state."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: dict[str, int | None] = {}
        self.alignments: dict[Var, int] = {}

    def visit_attr(self, s: AttrStmt) -> None:
        """Note them."""
        if s.attr_key == "storage_alignment" and isinstance(s.value, IntImm):
            self.alignments[s.node] = s.value.value
        if s.attr_key == "thread_extent" and s.node.thread_tag.startswith("threadIdx."):
            self.threads[s.node.thread_tag[-1]] = s.value.value if isinstance(s.value, IntImm) else None
        super().visit_attr(s)


def _alignments(body: Stmt) -> dict[Var, int]:
    found = _Attributes()
    found.visit_stmt(body)
    return found.alignments


def _block_size(func: PrimFunc) -> str:
    """Return the attribute of the number of threads in a block, which bounds the registers of each."""
    found = _Attributes()
    found.visit_stmt(func.body)
    sizes = [found.threads.get(axis, 1) for axis in "xyz"]
    if not found.threads or None in sizes:
        return ""
    return f' "nvvm.maxntid"="{",".join(str(max(n or 1, 1)) for n in sizes)}"'


_LOCAL_NAMES = re.compile(r"@(\.const\.|\.tw\.)")


def kernel_ir(func: PrimFunc, architecture: str) -> str:
    """Return the LLVM IR of a kernel from ``device_build.device_part``; other definitions contain its name."""
    name = exported_name(func)
    unit = Unit(device_features(architecture), name)
    KernelEmitter(unit).function(func)
    if unit.imports:
        raise TilewrightError(f"{name}: pragma_import_llvm is for the host's code; a kernel of a GPU has no imports")
    return _LOCAL_NAMES.sub(lambda m: f"@{_identifier(name)}{m[1]}", unit.text())


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)
