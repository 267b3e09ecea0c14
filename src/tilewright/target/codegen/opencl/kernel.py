"""A kernel as text of OpenCL C 1.2."""

from __future__ import annotations

import math
from typing import ClassVar

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.prim_expr import BinaryExpr
from tilewright.target.codegen.common.emitter import exported_name
from tilewright.target.codegen.common.index import Divisors, as_ramp
from tilewright.target.codegen.opencl.helpers import mask_name, type_name
from tilewright.target.codegen.opencl.vectors import is_native
from tilewright.target.codegen.source.names import KEYWORDS, float_literal
from tilewright.target.codegen.source.statements import StatementPrinter, Uses, prepare
from tilewright.tir.expr import (
    And,
    Broadcast,
    Call,
    IntImm,
    Load,
    Max,
    Mod,
    PrimExpr,
    Ramp,
    Select,
    Shuffle,
    Var,
)  # fmt: skip
from tilewright.tir.function import PrimFunc
from tilewright.tir.function_attributes import DYNAMIC_SHARED_MEMORY, NOALIAS
from tilewright.tir.stmt import Allocate, AttrStmt, For, ForKind, Store
from tilewright.tir.visitor import StmtVisitor

_WORDS = (
    "kernel global local constant private half bool uchar ushort uint ulong quad vector image2d_t image3d_t "
    "sampler_t event_t size_t ptrdiff_t barrier mad fma select clamp step mix sign cross dot length distance "
    "normalize any all min max abs abs_diff hadd rhad rotate upsample popcount clz exp2 exp10 log2 log10 log1p "
    "expm1 sqrt rsqrt cbrt sinh cosh tanh asin acos atan atan2 asinh acosh atanh fabs fmin fmax fmod fdim fract "
    "frexp ilogb ldexp lgamma tgamma erf erfc hypot nan nextafter rint rootn pown powr modf remquo remainder logb "
    "maxmag minmag copysign isnan isinf isfinite shuffle shuffle2 printf prefetch NAN INFINITY HUGE_VAL M_PI "
    "work_group pipe read_only write_only read_write complex imaginary linux unix "
)
_LITERAL = {"int8": "(char){}", "int16": "(short){}", "uint8": "(uchar){}", "uint16": "(ushort){}", "uint32": "{}u"}
_BUILTIN = {"nearbyint": "rint"}  # that C calls otherwise
_AXES = {"blockIdx": "get_group_id", "threadIdx": "get_local_id"}
DYNAMIC_SHARED = "buf_dyn_shmem"
"""The parameter that stands for shared memory whose size the launch says."""


class KernelPrinter(StatementPrinter):
    """Prints one kernel. Vectors are OpenCL's where ``vectors.is_native`` says that they can be."""

    language = "OpenCL C"
    keywords: ClassVar[frozenset[str]] = KEYWORDS | frozenset(_WORDS.split())
    spaces: ClassVar[dict[str, str]] = {
        "global": "__global", "shared": "__local", "shared.dyn": "__local", "local": "__private", "warp": "__private",
    }  # fmt: skip

    def __init__(self, name: str, uses: Uses, alignments: dict[Var, int]) -> None:
        super().__init__(name, uses, alignments)
        self.names.fresh(DYNAMIC_SHARED)
        self.head_lines: dict[Var, str] = {}  # __local arrays, and axes, whose scopes may be side by side, stand first
        self.divisors = Divisors()
        self.text = ""

    # ---- the kernel ----
    def signature(self, func: PrimFunc) -> str:
        """Pointers and numbers, then dynamic shared memory."""
        parameters = [self._parameter(p, NOALIAS.on(func)) for p in func.params]
        if DYNAMIC_SHARED_MEMORY.on(func):
            parameters.append(f"__local uchar* {DYNAMIC_SHARED}")
        return f"__kernel void {self.name}({', '.join(parameters)})"

    def _parameter(self, param: Var, restrict: bool) -> str:
        if param.dtype == "handle":
            text = self.declared(param)
            return text.replace("* ", "* restrict ", 1) if restrict else text
        if param.dtype == "float16":
            bits = self.names.fresh(f"{param.name}_bits")
            value = f"tw_load_float16(__private, &{bits}, 0)"
            self.put(f"const tw_float16 {self.names.of(param)} = {value};")
            return f"tw_float16_memory {bits}"
        return f"{self.type_name(param.dtype)} {self.names.of(param)}"

    def finish(self, head: str) -> None:
        """Close the kernel."""
        self.text = "\n".join([f"{head} {{", *self.head_lines.values(), *self.lines, "}"]) + "\n"

    def declare_extern(self, name: str, result: str, args: list[str]) -> None:
        """Functions of OpenCL C need no declaration."""

    # ---- types and literals ----
    def type_name(self, dtype: str) -> str:
        """The type of a value, with all its lanes."""
        return type_name(dtype)

    def memory_type(self, dtype: str) -> str:
        """The type of one lane in memory."""
        element = dt.element(dtype)
        return "tw_float16_memory" if element == "float16" else type_name(element)

    def pointer_type(self, buffer: Var, element: str) -> str:
        """A pointer into the memory that the buffer is in."""
        return f"{self.space(buffer)} {element}*"

    def int_literal(self, dtype: str, value: int) -> str:
        """An integer or bool literal."""
        if dtype == "bool":
            return str(int(bool(value)))
        if dtype == "uint64":
            return f"{value}ul"
        if dtype in ("int32", "int64"):
            suffix = "l" if dtype == "int64" else ""
            if value == -(1 << (dt.bits(dtype) - 1)):
                return f"(-{-value - 1}{suffix} - 1{suffix})"
            return f"{value}{suffix}" if value >= 0 else f"(-{-value}{suffix})"
        return f"({_LITERAL[dtype].format(value)})" if dtype in _LITERAL else str(value)

    def float_literal(self, dtype: str, value: float) -> str:
        """A floating literal."""
        if dtype == "float64" and not math.isfinite(value):
            return f"((double){float_literal('float32', value)})"
        if dtype == "float16":
            return f"((tw_float16){float_literal('float32', value)})"
        return super().float_literal(dtype, value)

    # ---- threads ----
    def thread_axis(self, var: Var, tag: str, extent: PrimExpr) -> None:
        """The number of the work-group, or of the work-item in it."""
        which, _, axis = tag.partition(".")
        if which not in _AXES or axis not in ("x", "y", "z"):
            super().thread_axis(var, tag, extent)
        value = f"{_AXES[which]}({'xyz'.index(axis)})"
        self.head_lines[var] = f"  const {self.type_name(var.dtype)} {self.names.of(var)} = {value};"

    def barrier(self, scope: str) -> None:
        """Wait for the work-group."""
        if scope not in ("shared", "shared.dyn", "warp"):
            raise UnsupportedError(
                f"{self.name}: work-items of several work-groups cannot wait for each other (scope {scope!r}); "
                "split the computation into two kernels"
            )
        self.put("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);")  # as bar.sync of PTX orders both

    def range(self, s: For, low: str, high: str) -> None:
        """The loop's body for each number from ``low`` to below ``high``."""
        if s.kind == ForKind.UNROLLED:
            self.put("#pragma unroll")
        var = self.names.of(s.loop_var)
        self.block(
            f"for ({self.type_name(s.loop_var.dtype)} {var} = {self.outer(low)}; {var} < {high}; ++{var})", s.body
        )
        self.put("}")

    def parallel(self, s: For) -> None:
        """Emit a serial loop."""
        self.begin_statement(s.min, s.extent)
        self.loop(s)

    # ---- memory ----
    def let(self, var: Var, value: PrimExpr) -> None:
        """Emit a constant, and record its divisors."""
        if dt.is_int(var.dtype):
            self.divisors.define(var, value)
        super().let(var, value)

    def allocate(self, s: Allocate, elements: int, space: str) -> None:
        """Emit an array: of the work-group at the head of the kernel, of the work-item in place."""
        if s.buffer_var not in self.uses.used:
            return
        element = self.memory_type(s.dtype)
        self.element_types[s.buffer_var] = element
        self.alignments[s.buffer_var] = 16
        name, count = self.names.of(s.buffer_var), max(elements * dt.lanes(s.dtype), 1)
        if space != "__local":
            self.put(f"{element} {name}[{count}] __attribute__((aligned(16)));")
        else:
            line = f"  __local {element} {name}[{count}] __attribute__((aligned(16)));"
            if self.head_lines.setdefault(s.buffer_var, line) != line:
                raise TilewrightError(f"{self.name}: {s.buffer_var.name} is allocated twice with two sizes")

    def visit_allocate(self, s: Allocate) -> object:  # type: ignore[override]
        """Dynamic shared memory is the kernel's last parameter."""
        annotation = s.buffer_var.type_annotation
        if getattr(annotation, "storage_scope", "") != "shared.dyn":
            return super().visit_allocate(s)
        element = self.element_types[s.buffer_var] = self.memory_type(s.dtype)
        self.alignments[s.buffer_var] = 16
        name = self.names.of(s.buffer_var)
        self.put(f"__local {element}* {name} = (__local {element}*){DYNAMIC_SHARED};")
        return s.body

    def element(self, buffer: Var, dtype: str, index: PrimExpr) -> str:
        """Return the element of a buffer, as an lvalue."""
        return self._element(buffer, dtype, self.outer(self.value(index)))

    def _element(self, buffer: Var, dtype: str, index: str) -> str:
        return f"{self.pointer(buffer, dtype)}[{index}]"

    def visit_load(self, e: Load) -> str:
        """An element, or a vector of them."""
        element, lanes = dt.element(e.dtype), dt.lanes(e.dtype)
        if lanes == 1 and element != "float16":
            return super().visit_load(e)
        if lanes == 1:
            text = self._one(e.buffer_var, element, self.outer(self.value(e.index)))
            if isinstance(e.predicate, IntImm):
                return text
            return f"({self.value(e.predicate)} ? {text} : (tw_float16)0.0f)"
        found = as_ramp(e.index) if dt.lanes(e.index.dtype) > 1 else (self._first_of_vector(e.index, lanes), 1)
        if found is not None and found[1] == 1:
            return self._contiguous(e, found[0])
        if found is not None:
            base = self._named(found[0])
            places = [f"{base} + {i * found[1]}" if i else base for i in range(lanes)]
        else:
            index = self._named(e.index)
            places = [self._lane(index, i) for i in range(lanes)]
        items = [self._one(e.buffer_var, element, place) for place in places]
        if element == "bool":
            items = [f"({item} ? -1 : 0)" for item in items]
        return f"(({self.type_name(e.dtype)})({', '.join(items)}))"

    @staticmethod
    def _first_of_vector(index: PrimExpr, lanes: int) -> PrimExpr:
        """Return the index of the first element of vector number ``index``."""
        return index * lanes

    def _one(self, buffer: Var, element: str, index: str) -> str:
        if element == "float16":
            return f"tw_load_float16({self.space(buffer)}, {self.pointer(buffer, element)}, {index})"
        return self._element(buffer, element, index)

    def _aligned(self, buffer: Var, dtype: str, base: PrimExpr) -> bool:
        """Return whether the elements from ``base`` on are where a vector of ``dtype`` may be."""
        size = dt.nbytes(dt.element(dtype))
        known = math.gcd(self.alignments.get(buffer, size), self.divisors.of(base) * size)
        return known % (size * dt.lanes(dtype)) == 0

    def _contiguous(self, e: Load, base: PrimExpr) -> str:
        lanes, element, where = dt.lanes(e.dtype), dt.element(e.dtype), self.outer(self.value(base))
        pointer, space = self.pointer(e.buffer_var, element), self.space(e.buffer_var)
        if element == "float16":
            return f"tw_load_float16x{lanes}({space}, {pointer}, {where})"
        memory = f"{self.memory_type(element)}{lanes}"
        if self._aligned(e.buffer_var, e.dtype, base):
            text = f"(*({space} {memory}*)({pointer} + {self.value(base)}))"
        else:
            text = f"vload{lanes}(0, {pointer} + {self.value(base)})"
        return f"convert_int{lanes}({text} != (uchar)0)" if element == "bool" else text

    def visit_store(self, s: Store) -> None:
        """An assignment."""
        dtype, lanes = s.value.dtype, dt.lanes(s.value.dtype)
        element = dt.element(dtype)
        if lanes == 1 and element != "float16":
            super().visit_store(s)
            return
        self.begin_statement(s.value, s.index, *([s.predicate] if lanes == 1 else []))
        if lanes == 1:
            guard = "" if isinstance(s.predicate, IntImm) else f"if ({self.outer(self.value(s.predicate))}) "
            value = self.value(s.value)
            self._put_one(s.buffer_var, element, self.outer(self.value(s.index)), value, guard)
            return
        value = self.value(s.value)
        found = as_ramp(s.index) if dt.lanes(s.index.dtype) > 1 else (self._first_of_vector(s.index, lanes), 1)
        if found is not None and found[1] == 1:
            self._put_contiguous(s, found[0], value)
            return
        vector, index = self._name(s.value, value), self._named(s.index)
        for i in range(lanes):
            item = self._lane(vector, i)
            item = f"(uchar)({item} != 0)" if element == "bool" else item
            self._put_one(s.buffer_var, element, self._lane(index, i), item)

    def _put_one(self, buffer: Var, element: str, index: str, value: str, guard: str = "") -> None:
        if element == "float16":
            pointer, space = self.pointer(buffer, element), self.space(buffer)
            self.put(f"{guard}tw_store_float16({space}, {value}, {pointer}, {index});")
        else:
            self.put(f"{guard}{self._element(buffer, element, index)} = {self.outer(value)};")

    def _put_contiguous(self, s: Store, base: PrimExpr, value: str) -> None:
        dtype, lanes = s.value.dtype, dt.lanes(s.value.dtype)
        element, where = dt.element(dtype), self.value(base)
        pointer, space = self.pointer(s.buffer_var, element), self.space(s.buffer_var)
        if element == "bool":
            value = f"convert_uchar{lanes}(-{value})"
        if element == "float16":
            self.put(f"tw_store_float16x{lanes}({space}, {value}, {pointer}, {self.outer(where)});")
        elif self._aligned(s.buffer_var, dtype, base):
            self.put(f"*({space} {self.memory_type(element)}{lanes}*)({pointer} + {where}) = {self.outer(value)};")
        else:
            self.put(f"vstore{lanes}({self.outer(value)}, 0, {pointer} + {where});")

    # ---- vectors ----
    def _named(self, e: PrimExpr) -> str:
        """The value of ``e`` by a name or a literal, to be used several times."""
        return self._name(e, self.value(e))

    def _name(self, e: PrimExpr, text: str) -> str:
        if text.isidentifier() or text.isdecimal():
            return text
        name = self.names.fresh("t")
        self.put(f"const {self.type_name(e.dtype)} {name} = {self.outer(text)};")
        return name

    @staticmethod
    def _lane(vector: str, lane: int) -> str:
        return f"{vector}.s{lane:x}"

    def visit_ramp(self, e: Ramp) -> str:
        """Emit ``base, base + stride, ...``."""
        t = self.type_name(e.dtype)
        steps = f"({t})({', '.join(str(i) for i in range(e.lanes))})"
        return f"(({t})({self.value(e.base)}) + ({t})({self.value(e.stride)}) * {steps})"

    def visit_broadcast(self, e: Broadcast) -> str:
        """Emit one value in all lanes."""
        value = self.outer(self.value(e.value))
        return f"(({self.type_name(e.dtype)})({f'({value}) ? -1 : 0' if dt.is_bool(e.dtype) else value}))"

    def visit_shuffle(self, e: Shuffle) -> str:
        """Lanes of vectors, picked by number."""
        lanes = []
        for vector in e.vectors:
            name, count = self._named(vector), dt.lanes(vector.dtype)
            lanes += [name] if count == 1 else [self._lane(name, i) for i in range(count)]
        picked = [lanes[int(i)] for i in e.indices]  # type: ignore[call-overload]
        return picked[0] if len(picked) == 1 else f"(({self.type_name(e.dtype)})({', '.join(picked)}))"

    # ---- arithmetic ----
    def visit_arith(self, e: BinaryExpr) -> str:
        """Emit ``a + b``, ...; float16 is rounded."""
        info = dt.parse(e.dtype)
        if info.kind == "float" and isinstance(e, Mod):
            a, b = (self.cast(self.value(x), e.dtype, self._computed(e.dtype)) for x in (e.a, e.b))
            return self.cast(f"fmod({a}, {b})", self._computed(e.dtype), e.dtype)
        text = super().visit_arith(e)
        return self._rounded(text, e.dtype) if info.kind == "float" and info.bits == 16 else text

    def wrapping(self, dtype: str, symbol: str, a: str, b: str) -> str:
        """Signed arithmetic modulo the power of two."""
        info = dt.parse(dtype)
        if info.lanes == 1:
            return super().wrapping(dtype, symbol, a, b)
        unsigned = type_name(dt.make("uint", info.bits, info.lanes))
        return f"as_{type_name(dtype)}(as_{unsigned}({a}) {symbol} as_{unsigned}({b}))"

    @staticmethod
    def _computed(dtype: str) -> str:
        """The dtype that mathematical functions of ``dtype`` are computed in."""
        return dt.with_lanes("float32", dt.lanes(dtype)) if dt.is_half(dtype) else dtype

    def _rounded(self, text: str, dtype: str) -> str:
        """Round a value that was computed in float16 or, on devices without it, float32."""
        wide = dt.with_lanes("float32", dt.lanes(dtype))
        return f"tw_to_float16_{wide}(({self._converted_half(text, dt.lanes(dtype))}))"

    @staticmethod
    def _converted_half(text: str, lanes: int) -> str:
        return f"(float){text}" if lanes == 1 else f"convert_float{lanes}({text})"

    def _divisor(self, e: BinaryExpr) -> str:
        if dt.lanes(e.dtype) == 1:
            return super()._divisor(e)
        b = self._named(e.b)
        literal = isinstance(e.b, Broadcast) and isinstance(e.b.value, IntImm)
        t = self.type_name(e.dtype)
        return b if literal else f"(({b} != ({t})0) ? {b} : ({t})1)"

    def visit_min(self, e: BinaryExpr) -> str:
        """Emit ``min(a, b)`` or ``max(a, b)``; NaN if either is NaN."""
        name, info = "max" if isinstance(e, Max) else "min", dt.parse(e.dtype)
        if info.kind in ("int", "uint", "bool"):
            a, b, t = self.value(e.a), self.value(e.b), self.type_name(e.dtype)
            if info.lanes == 1 and info.bits < 32:  # arithmetic has made ints of them
                a, b = f"({t}){a}", f"({t}){b}"
            return f"{name}({a}, {b})"
        if info.kind == "float" and info.bits == 16:
            wide = self._computed(e.dtype)
            a, b = (self.cast(self.value(x), e.dtype, wide) for x in (e.a, e.b))
            return self.cast(f"tw_{name}_{wide}({a}, {b})", wide, e.dtype)
        return super().visit_min(e)

    visit_max = visit_min

    def visit_compare(self, e: BinaryExpr) -> str:
        """Emit ``a == b``, ``a < b``, ...; vectors have -1 for true."""
        text, lanes = super().visit_compare(e), dt.lanes(e.dtype)
        operand = dt.parse(e.a.dtype)
        return text if lanes == 1 or operand.bits == 32 or operand.kind == "bool" else f"convert_int{lanes}({text})"

    def visit_logical(self, e: BinaryExpr) -> str:
        """Emit ``a && b`` or ``a || b``."""
        if dt.lanes(e.dtype) == 1:
            return super().visit_logical(e)
        return f"({self.value(e.a)} {'&&' if isinstance(e, And) else '||'} {self.value(e.b)})"

    def visit_select(self, e: Select) -> str:
        """Emit ``condition ? a : b``."""
        if dt.lanes(e.condition.dtype) == 1:
            return super().visit_select(e)
        yes, no, test = self.value(e.true_value), self.value(e.false_value), self.value(e.condition)
        info = dt.parse(e.dtype)
        if info.kind == "float" and info.bits == 16:
            wide = self._computed(e.dtype)
            yes, no = (self.cast(x, e.dtype, wide) for x in (yes, no))
            return self.cast(f"select({no}, {yes}, {test})", wide, e.dtype)
        if info.kind != "bool" and info.bits != 32:
            test = f"convert_{mask_name(e.dtype)}({test})"
        return f"select({no}, {yes}, {test})"

    def cast(self, text: str, source: str, dest: str) -> str:
        """A value converted as TIR converts it."""
        if source == dest:
            return text
        a, b, lanes = dt.parse(source), dt.parse(dest), dt.lanes(dest)
        if b.kind == "float" and b.bits == 16 and a.kind != "bfloat":
            through = source if a.kind == "float" and a.bits == 64 else dt.with_lanes("float32", lanes)
            return f"tw_to_float16_{through}({self.cast(text, source, through)})"
        if lanes == 1:
            return super().cast(text, source, dest)
        if a.kind == "bool":
            return f"convert_{type_name(dest)}(-{text})"
        if b.kind == "bool":
            test = f"({text} != ({type_name(source)})0)"
            return test if a.bits == 32 else f"convert_int{lanes}({test})"
        return f"convert_{type_name(dest)}({text})"

    # ---- calls ----
    def float_math(self, e: Call) -> str:
        """A function of OpenCL C; the half types in float32."""
        name, args = e.op.name.removeprefix("tir."), [self.value(a) for a in e.args]
        wide = self._computed(e.dtype)
        converted = [self.cast(t, a.dtype, wide) for t, a in zip(args, e.args, strict=True)]
        return self.cast(self._function(name, wide, converted), wide, e.dtype)

    def _function(self, name: str, dtype: str, args: list[str]) -> str:
        if name in ("sigmoid", "normal_tail"):
            return f"tw_{name}_{dtype}({args[0]})"
        return f"{_BUILTIN.get(name, name)}({', '.join(self.outer(a) for a in args)})"

    def _call_ldexp(self, e: Call) -> str:
        power = self.cast(self.value(e.args[1]), e.args[1].dtype, dt.with_lanes("int32", dt.lanes(e.dtype)))
        return f"ldexp({self.value(e.args[0])}, {power})"

    def _tested(self, e: Call) -> str:
        """isnan, isinf, isfinite."""
        (x,), lanes = e.args, dt.lanes(e.dtype)
        wide = self._computed(x.dtype)
        text = f"{e.op.name.removeprefix('tir.')}({self.cast(self.value(x), x.dtype, wide)})"
        if lanes == 1:
            return f"({text} != 0)"
        return text if dt.bits(wide) == 32 else f"convert_int{lanes}({text})"

    _call_isnan = _call_isinf = _call_isfinite = _tested

    def _call_popcount(self, e: Call) -> str:
        return f"popcount({self.value(e.args[0])})"

    def _call_clz(self, e: Call) -> str:
        return self.cast(f"clz({self.value(e.args[0])})", e.args[0].dtype, e.dtype)

    def _call_reinterpret(self, e: Call) -> str:
        (arg,) = e.args
        text = self.value(arg)
        if dt.element(arg.dtype) == "float16":
            text = f"tw_bits_of_float16({text})"
        if dt.element(e.dtype) == "float16":
            return f"tw_float16_of_bits(as_ushort({text}))"
        return f"as_{type_name(e.dtype)}({text})"

    def _call_large_uint_imm(self, e: Call) -> str:
        low, high = (int(a) for a in e.args[:2])  # type: ignore[call-overload]
        return f"{high << 32 | low}ul"

    def _effect_prefetch(self, e: Call) -> None:
        """Emit nothing: most devices ignore prefetch hints."""

    def _call_isnullptr(self, e: Call) -> str:
        return f"({self.value(e.args[0])} == 0)"

    _call_tvm_handle_is_null = _call_isnullptr

    def _call_atomic_add(self, e: Call) -> str:
        """Emit an atomic add, for floats by compare-and-exchange; return the previous value."""
        address, value = self.value(e.args[0]), self.value(e.args[1])
        space, info = self._space_of(e.args[0]), dt.parse(e.dtype)
        if info.kind == "float" and info.bits >= 32:
            return f"tw_atomic_add_{space}_{e.dtype}({address}, {value})"
        if info.kind in ("int", "uint") and info.bits >= 32:
            name = "atomic_add" if info.bits == 32 else "atom_add"
            return f"{name}((volatile __{space} {type_name(e.dtype)}*){address}, {value})"
        raise UnsupportedError(f"{self.name}: OpenCL C adds atomically to 32 and 64 bits, not to {e.dtype}")

    def _space_of(self, address: PrimExpr) -> str:
        if isinstance(address, Call) and address.op.name in ("tir.address_of", "tir.tvm_access_ptr"):
            inner = address.args[0] if address.op.name == "tir.address_of" else address.args[1]
            buffer = inner.buffer_var if isinstance(inner, Load) else inner
            if isinstance(buffer, Var):
                return self.space(buffer).removeprefix("__")
        return "global"

    def _call_tvm_warp_shuffle(self, e: Call) -> str:
        raise UnsupportedError(
            f"{self.name}: OpenCL C 1.2 has no shuffles between work-items; targets with -thread_warp_size=1 use "
            "shared memory instead"
        )

    _call_tvm_warp_shuffle_up = _call_tvm_warp_shuffle_down = _call_tvm_warp_activemask = _call_tvm_warp_shuffle


class _ThreadExtents(StmtVisitor):
    """Finds the work-items of a work-group along each axis, if known."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, int | None] = {}

    def visit_attr(self, s: AttrStmt) -> None:
        """Note the axis."""
        if s.attr_key == "thread_extent" and s.node.thread_tag.startswith("threadIdx."):
            self.found[s.node.thread_tag[-1]] = s.value.value if isinstance(s.value, IntImm) else None
        super().visit_attr(s)


def kernel_text(func: PrimFunc) -> str:
    """Return the OpenCL C of a kernel from ``device_build.device_part``; ``helpers.definitions`` defines
    its helpers.
    """
    extents = _ThreadExtents()
    extents.visit_stmt(func.body)
    name = exported_name(func)
    func, uses, alignments = prepare(func, is_native)
    printer = KernelPrinter(name, uses, alignments)
    printer.function(func)
    sizes = [extents.found.get(axis, 1) for axis in "xyz"]
    if None in sizes or not extents.found:
        return printer.text
    shape = ", ".join(str(max(n or 1, 1)) for n in sizes)
    return printer.text.replace("__kernel void", f"__kernel __attribute__((reqd_work_group_size({shape}))) void", 1)
