"""``target.build.npu``: lowered functions as programs of the chip.

All extents are known while compiling, so loops are walked here, and each call of an intrinsic becomes a command with
its addresses. Tokens follow from the memory that commands use, as everywhere (``codegen.stream``).
"""

from __future__ import annotations

from typing import Any

from tilewright import runtime
from tilewright.arith import Analyzer
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.module import IRModule
from tilewright.ir.type import PointerType
from tilewright.relay.function_attributes import GLOBAL_SYMBOL
from tilewright.target import Target
from tilewright.tir import PrimFunc, expr, stmt
from tilewright.tir.visitor import substitute
from tilewright_npu.codegen.memory import OutOfMemoryError, aligned
from tilewright_npu.codegen.stream import NO_FLAGS, Stream
from tilewright_npu.isa import BLOCK, DType, Gemm, Program, Region, RegionKind
from tilewright_npu.kernels.intrinsics import DMA, GEMM, SRAM
from tilewright_npu.module import module_of
from tilewright_npu.target import memories

_TYPES = {"int8": DType.I8, "uint8": DType.U8, "int32": DType.I32, "float32": DType.F32}


class _Memory:
    """What a pointer points into: a region of the program, or SRAM from an address on."""

    def __init__(self, dtype: str, region: int | None = None, address: int = 0) -> None:
        self.type, self.region, self.address = _TYPES[dtype], region, address


class _Writer:
    """Walks one function."""

    def __init__(self, func: PrimFunc, sram: int) -> None:
        self.name, self.sram = GLOBAL_SYMBOL.of(func), sram
        self.stream = Stream()
        self.stream.layer(self.name)
        self.memories: dict[expr.Var, _Memory] = {}
        self.values: dict[expr.Var, Any] = {}
        self.next = 0
        self.written: set[int] = set()
        self.sizes: list[int] = []
        for index, param in enumerate(func.params):
            buffer = func.buffer_map.get(param)
            if buffer is None or buffer.dtype not in _TYPES:
                raise self.unsupported(f"the parameter {param.name}, which is no tensor of a type that it knows")
            self.memories[buffer.data] = _Memory(buffer.dtype, 2 + index)
            size = _TYPES[buffer.dtype].bytes
            for dim in buffer.shape:
                size *= self.number(dim)
            self.sizes.append(size)
        self.walk(func.body)

    def unsupported(self, what: str) -> UnsupportedError:
        """The error for what has no command."""
        return UnsupportedError(
            f"the NPU cannot run {self.name}: it has no command for {what}. Operators without a schedule for the key "
            "'npu' belong on the CPU, or into partition_for_npu"
        )

    def number(self, value: Any) -> int:
        """An integer expression, with what variables are now."""
        if isinstance(value, int):
            return value
        found = Analyzer().simplify(substitute(value, self.values)) if self.values else Analyzer().simplify(value)
        if not isinstance(found, expr.IntImm):
            raise self.unsupported(f"{value}, which is not known while compiling")
        return int(found.value)

    # ---- statements ----
    def walk(self, s: stmt.Stmt) -> None:
        """All commands of a statement, in its order."""
        match s:
            case stmt.SeqStmt():
                for part in s.seq:
                    self.walk(part)
            case stmt.For():
                first = self.number(s.min)
                for i in range(first, first + self.number(s.extent)):
                    self.values[s.loop_var] = expr.IntImm(s.loop_var.dtype, i)
                    self.walk(s.body)
                del self.values[s.loop_var]
            case stmt.AttrStmt():
                self.walk(s.body)
            case stmt.Allocate():
                self._allocate(s)
            case stmt.IfThenElse():
                if self.number(s.condition):
                    self.walk(s.then_case)
                elif s.else_case is not None:
                    self.walk(s.else_case)
            case stmt.Evaluate() if isinstance(s.value, expr.IntImm):
                pass
            case stmt.Evaluate() if isinstance(s.value, expr.Call):
                self._call(s.value)
            case _:
                raise self.unsupported(f"a {type(s).__name__}")

    def _allocate(self, s: stmt.Allocate) -> None:
        annotation = s.buffer_var.type_annotation
        scope = annotation.storage_scope if isinstance(annotation, PointerType) else ""
        if scope != SRAM or s.dtype not in _TYPES:
            raise self.unsupported(f"the buffer {s.buffer_var.name} of {s.dtype} in memory {scope or 'global'!r}")
        count = _TYPES[s.dtype].bytes
        for extent in s.extents:
            count *= self.number(extent)
        if self.next + count > self.sram:
            raise OutOfMemoryError(f"{self.name}: its buffers take more than {self.sram} bytes of SRAM")
        self.memories[s.buffer_var] = _Memory(s.dtype, None, self.next)
        self.next += aligned(count)
        self.walk(s.body)

    def _call(self, call: expr.Call) -> None:
        target, *args = call.args
        name = target.value if isinstance(target, expr.StringImm) else ""
        if name == DMA:
            self._dma(args)
        elif name == GEMM:
            self._gemm(args)
        else:
            raise self.unsupported(f"a call of {name or call.op}")

    def _pointer(self, e: Any) -> tuple[_Memory, int]:
        """The memory that an access pointer is into, and the offset or address in bytes."""
        _, var, offset, *_ = e.args
        memory = self.memories[var]
        return memory, memory.address + self.number(offset) * memory.type.bytes

    def _dma(self, args: list[Any]) -> None:
        (to, there), (source, origin) = self._pointer(args[0]), self._pointer(args[1])
        numbers = [self.number(a) for a in args[2:]]
        size = to.type.bytes
        extents, target, given = numbers[:4], [n * size for n in numbers[4:8]], [n * size for n in numbers[8:]]
        if source.region is not None and to.region is None:
            self.stream.dma(source.region, origin, there, extents, given, target, size)
        elif to.region is not None and source.region is None:
            self.written.add(to.region)
            self.stream.dma(to.region, there, origin, extents, target, given, size, store=True)
        else:
            raise self.unsupported("a copy that is not between DDR and SRAM")

    def _gemm(self, args: list[Any]) -> None:
        (c, c_at), (a, a_at), (_, b_at) = (self._pointer(p) for p in args[:3])
        rows, blocks = (self.number(n) for n in args[3:])
        size = a.type.bytes
        command = Gemm(
            a=a_at, b=b_at, c=c_at, m=(1, rows), k=(blocks, 1, 1), depth=BLOCK, columns=BLOCK,
            a_m=(0, BLOCK * size), a_k=(rows * BLOCK * size, 0, 0), b_n=0, c_m=(0, BLOCK * c.type.bytes), c_n=0,
            dtype=DType.F32 if a.type == DType.F32 else DType.I8,
        )  # fmt: skip
        self.stream.gemm(command, NO_FLAGS)

    def program(self) -> Program:
        """All of it."""
        regions = [Region("constants", RegionKind.CONSTANT, 64), Region("workspace", RegionKind.WORKSPACE, 64)]
        for index, size in enumerate(self.sizes):
            kind = RegionKind.OUTPUT if 2 + index in self.written else RegionKind.INPUT
            regions.append(Region(f"argument{index}", kind, size))
        return Program(self.name, regions, self.stream.commands, self.stream.layers, bytes(64), self.sram)


def program_of(func: PrimFunc, target: Target | str = "npu") -> Program:
    """The program of a lowered function.

    Raises
    ------
    UnsupportedError : it does what the chip has no command for
    OutOfMemoryError : its buffers do not fit the SRAM
    """
    return _Writer(func, memories(target)[0]).program()


def build(mod: IRModule, target: Target) -> runtime.Module:
    """``target.build.npu``: the runtime module of the functions of ``mod``."""
    functions = [func for func in mod.functions.values() if isinstance(func, PrimFunc)]
    return module_of([program_of(func, target).encode() for func in functions])
