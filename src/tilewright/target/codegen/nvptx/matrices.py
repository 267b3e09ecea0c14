"""Tensor cores: TVM 0.8's fragments (``tvm_mma_sync`` and its kin) as LLVM's ``llvm.nvvm.wmma`` intrinsics.

A buffer of a scope ``wmma.*`` holds fragments, of which each thread of a warp keeps its share in registers. Its loads
and fills determine a fragment's shape and layout, as ``InferFragment`` records in attributes.

    m16n16k16, m8n32k16, m32n8k16   float16 to float16 or float32; int8, uint8 to int32 (sm_72); bfloat16 (sm_80)
    m16n16k8                        float32, of which 19 bits count (tf32), to float32 (sm_80)

``ptx_mma`` multiplies what threads have in memory of their own, laid out as PTX says, so that sums can be factors.
"""

from __future__ import annotations

from typing import ClassVar

from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.type import PointerType, PrimType
from tilewright.target.codegen.llvm.builder import Unit
from tilewright.target.codegen.llvm.statements import StatementEmitter
from tilewright.target.codegen.nvptx.architecture import number
from tilewright.tir.expr import Call, IntImm, PrimExpr, StringImm, Var
from tilewright.tir.stmt import Allocate, AttrStmt, Stmt

_WIDE = ("m16n16k16", "m8n32k16", "m32n8k16")
_BYTES = {"m16n16k16": (2, 2), "m8n32k16": (1, 4), "m32n8k16": (4, 1)}  # registers of a and of b
_BFLOATS = {"m16n16k16": (4, 4), "m8n32k16": (2, 8), "m32n8k16": (8, 2)}
_FIRST = {"float16": 70, "int8": 72, "uint8": 72, "bfloat16": 80, "float32": 80}  # architecture that multiplies them
_SUFFIX = {"float16": "f16", "int8": "s8", "uint8": "u8", "bfloat16": "bf16", "float32": "tf32", "int32": "s32"}


class MatrixEmitter(StatementEmitter):
    """Adds fragments of matrices."""

    fragment_spaces: ClassVar[dict[str, str]] = {
        f"wmma.{kind}": f"fragment.{kind}" for kind in ("matrix_a", "matrix_b", "accumulator")
    }

    def __init__(self, unit: Unit) -> None:
        super().__init__(unit)
        self._shapes: dict[Var, str] = {}
        self._layouts: dict[Var, str] = {}
        self._sizes: dict[Var, int] = {}  # elements of all fragments of a buffer

    # ---- what is known of a fragment ----
    def _attr_fragment_shape(self, s: AttrStmt) -> Stmt:
        m, n, k = (part.strip() for part in str(getattr(s.value, "value", s.value)).split(","))
        self._shapes[s.node] = f"m{m}n{n}k{k}"
        return s.body

    def _attr_fragment_layout(self, s: AttrStmt) -> Stmt:
        self._layouts[s.node] = str(getattr(s.value, "value", s.value))
        return s.body

    def _known_shape(self, buffer: Var) -> str:
        if buffer not in self._shapes:
            raise TilewrightError(f"{self.name}: the fragment {buffer.name} is used before it is loaded or filled")
        return self._shapes[buffer]

    @staticmethod
    def _role(buffer: Var) -> str:
        """a, b, or c."""
        scope = buffer.type_annotation.storage_scope if isinstance(buffer.type_annotation, PointerType) else ""
        found = {"wmma.matrix_a": "a", "wmma.matrix_b": "b", "wmma.accumulator": "c"}.get(scope)
        if found is None:
            raise TilewrightError(f"{buffer.name} is in storage scope {scope!r}; a fragment is in wmma.matrix_a, ...")
        return found

    @staticmethod
    def _dtype(buffer: Var) -> str:
        annotation = buffer.type_annotation
        assert isinstance(annotation, PointerType) and isinstance(annotation.element_type, PrimType)
        return annotation.element_type.dtype

    def _registers(self, buffer: Var, shape: str) -> tuple[str, int]:
        """The type of the registers of a fragment, and how many each thread has."""
        role, dtype = self._role(buffer), self._dtype(buffer)
        found: tuple[str, int] | None = None
        if role == "c":
            found = {"float32": ("float", 8), "int32": ("i32", 8), "float16": ("<2 x half>", 4)}.get(dtype)
        elif shape in _WIDE:
            side = 0 if role == "a" else 1
            found = {
                "float16": ("<2 x half>", 8), "bfloat16": ("i32", _BFLOATS[shape][side]),
                "int8": ("i32", _BYTES[shape][side]), "uint8": ("i32", _BYTES[shape][side]),
            }.get(dtype)  # fmt: skip
        elif shape == "m16n16k8" and dtype == "float32":
            found = ("i32", 4)
        here = number(self.unit.features.cpu)
        if found is None or (role != "c" and here < _FIRST[dtype]):
            raise UnsupportedError(
                f"{self.name}: tensor cores of {self.unit.features.cpu} have no fragment {buffer.name} of {dtype} in "
                f"shape {shape}; there is float16 from sm_70 on, int8 from sm_72 and bfloat16 from sm_80 "
                f"({', '.join(_WIDE)}), and float32 from sm_80 (m16n16k8)"
            )
        return found

    # ---- memory ----
    def allocate(self, s: Allocate, elements: int, space: str) -> None:
        """The registers of all fragments of a buffer."""
        if not space.startswith("fragment."):
            super().allocate(s, elements, space)
            return
        self._sizes[s.buffer_var] = elements

    def _memory(self, buffer: Var, shape: str) -> str:
        """Return the address of the registers of all fragments of a buffer."""
        if buffer not in self.variables:
            kind, count = self._registers(buffer, shape)
            m, n, k = (int(x) for x in shape[1:].replace("n", " ").replace("k", " ").split())
            size = {"a": m * k, "b": k * n, "c": m * n}[self._role(buffer)]
            self.define(buffer, self.stack(f"[{max(self._sizes[buffer] // size, 1) * count} x {kind}]", 16))
        return self.variables[buffer]

    def _register(self, buffer: Var, shape: str, index: PrimExpr, i: int) -> str:
        kind, count = self._registers(buffer, shape)
        first, memory = self.value(index * count + i), self._memory(buffer, shape)
        return self.emit(f"getelementptr {kind}, ptr {memory}, i32 {first}")

    def _read(self, buffer: Var, shape: str, index: PrimExpr) -> list[str]:
        """The registers of fragment ``index``, with their types."""
        kind, count = self._registers(buffer, shape)
        return [
            f"{kind} {self.emit(f'load {kind}, ptr {self._register(buffer, shape, index, i)}')}" for i in range(count)
        ]

    def _write(self, buffer: Var, shape: str, index: PrimExpr, made: str) -> None:
        kind, count = self._registers(buffer, shape)
        struct = self._struct(buffer, shape)
        for i in range(count):
            part = made if count == 1 else self.emit(f"extractvalue {struct} {made}, {i}")
            self.do(f"store {kind} {part}, ptr {self._register(buffer, shape, index, i)}")

    def _wmma(self, name: str, result: str, args: list[str]) -> str:
        types = ", ".join("ptr" if a.startswith("ptr ") else a.rsplit(" ", 1)[0] for a in args)
        self.unit.declare(f"llvm.nvvm.wmma.{name}", result, types)
        return f"call {result} @llvm.nvvm.wmma.{name}({', '.join(args)})"

    def _struct(self, buffer: Var, shape: str) -> str:
        kind, count = self._registers(buffer, shape)
        return kind if count == 1 else "{ " + ", ".join([kind] * count) + " }"

    def _suffix(self, buffer: Var) -> str:
        dtype = self._dtype(buffer)
        return "f32" if self._role(buffer) == "c" and dtype == "float32" else _SUFFIX[dtype]

    @staticmethod
    def _text(e: PrimExpr) -> str:
        assert isinstance(e, StringImm)
        return e.value

    @staticmethod
    def _shape_of(sizes: tuple[PrimExpr, ...]) -> str:
        m, n, k = (e.value if isinstance(e, IntImm) else -1 for e in sizes)
        return f"m{m}n{n}k{k}"

    # ---- the intrinsics ----
    def _effect_tvm_fill_fragment(self, e: Call) -> None:
        buffer, *sizes, index, value = e.args
        assert isinstance(buffer, Var)
        shape = self._shapes[buffer] = self._shape_of(tuple(sizes))
        kind, count = self._registers(buffer, shape)
        number_text = self.cast(self.value(value), value.dtype, self._dtype(buffer))
        if kind.startswith("<2"):
            number_text = self.splat(f"{self._dtype(buffer)}x2", number_text)
        elif kind == "i32" and self._dtype(buffer) != "int32":
            raise UnsupportedError(f"{self.name}: {buffer.name} of {self._dtype(buffer)} cannot be filled; load it")
        for i in range(count):
            self.do(f"store {kind} {number_text}, ptr {self._register(buffer, shape, index, i)}")
        self.begin_statement()

    def _effect_tvm_load_matrix_sync(self, e: Call) -> None:
        buffer, m, n, k, index, address, stride, layout = e.args
        assert isinstance(buffer, Var)
        shape, order = self._shape_of((m, n, k)), self._text(layout).removesuffix("_major")
        self._shapes[buffer] = shape
        name = f"{shape}.load.{self._role(buffer)}.{order}.stride.{self._suffix(buffer)}.p0"
        args = [f"ptr {self.value(address)}", f"i32 {self.cast(self.value(stride), stride.dtype, 'int32')}"]
        made = self.emit(self._wmma(name, self._struct(buffer, shape), args))
        self._write(buffer, shape, index, made)
        self._layouts[buffer] = self._text(layout)
        self.begin_statement()

    def _effect_tvm_store_matrix_sync(self, e: Call) -> None:
        buffer, m, n, k, index, address, stride, layout = e.args
        assert isinstance(buffer, Var)
        shape, order = self._shape_of((m, n, k)), self._text(layout).removesuffix("_major")
        name = f"{shape}.store.d.{order}.stride.{self._suffix(buffer)}.p0"
        where = [f"ptr {self.value(address)}"]
        step = [f"i32 {self.cast(self.value(stride), stride.dtype, 'int32')}"]
        self.do(self._wmma(name, "void", [*where, *self._read(buffer, shape, index), *step]))
        self.begin_statement()

    def _effect_tvm_mma_sync(self, e: Call) -> None:
        d, d_index, a, a_index, b, b_index, c, c_index = e.args
        assert isinstance(d, Var) and isinstance(a, Var) and isinstance(b, Var) and isinstance(c, Var)
        shape = self._known_shape(a)
        orders = [self._layouts.get(buffer, "row_major").removesuffix("_major") for buffer in (a, b)]
        of = {"float16": f"{self._suffix(d)}.{self._suffix(c)}"}.get(self._dtype(a), self._suffix(a))
        name = f"{shape}.mma.{orders[0]}.{orders[1]}.{of}"
        args = [*self._read(a, shape, a_index), *self._read(b, shape, b_index), *self._read(c, shape, c_index)]
        made = self.emit(self._wmma(name, self._struct(d, shape), args))
        self._write(d, shape, d_index, made)
        self.begin_statement()

    def _effect_ptx_mma(self, e: Call) -> None:
        """Emit ``ptx_mma(shape, row, col, fp16, fp16, fp32, a, at, b, at, c, at, saturate)``: c += a @ b.

        The factors and sums are memory of each thread, in the order of PTX's registers (PTX ISA, "mma").
        """
        shape, *kinds = (self._text(arg) for arg in e.args[:6])
        depth = {"m16n8k8": 8, "m16n8k16": 16}.get(shape)
        if depth is None or kinds != ["row", "col", "fp16", "fp16", "fp32"]:
            raise UnsupportedError(
                f"{self.name}: ptx_mma of {shape} with {', '.join(kinds)} is not known; "
                "there are m16n8k8 and m16n8k16 with row, col, fp16, fp16, fp32"
            )
        if number(self.unit.features.cpu) < (first := 75 if depth == 8 else 80):
            raise UnsupportedError(f"{self.name}: ptx_mma of {shape} is for sm_{first} and later")
        (a, a_at), (b, b_at), (c, c_at) = (e.args[i : i + 2] for i in (6, 8, 10))
        args: list[str] = []
        for factor, at, count in ((a, a_at, depth // 4), (b, b_at, depth // 8)):
            for i in range(count):
                where = self.element_address(self.value(factor), "float16", at + 2 * i)
                args.append(f"<2 x half> {self.emit(f'load <2 x half>, ptr {where}, align 2')}")
        places = [self.element_address(self.value(c), "float32", c_at + i) for i in range(4)]
        args += [f"float {self.emit(f'load float, ptr {place}')}" for place in places]
        name, result = f"llvm.nvvm.mma.{shape}.row.col.f32.f32", "{ float, float, float, float }"
        self.unit.declare(name, result, ", ".join(x.rsplit(" ", 1)[0] for x in args))
        made = self.emit(f"call {result} @{name}({', '.join(args)})")
        for i, place in enumerate(places):
            self.do(f"store float {self.emit(f'extractvalue {result} {made}, {i}')}, ptr {place}")
        self.begin_statement()
