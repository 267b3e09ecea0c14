"""Expressions to LLVM instructions.

An expression that several places share is emitted once for each scope (loop body, branch): the expressions are
hash-consed, so a table from expression to value is all that takes. What reads memory is shared only within one
statement. Integer index arithmetic carries ``nsw`` (TIR says it does not overflow); arithmetic on loaded data wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_functor import DEPTH_STEP, ensure_stack
from tilewright.target.codegen.common.emitter import reads_memory
from tilewright.target.codegen.common.index import Divisors
from tilewright.target.codegen.llvm import types as ty
from tilewright.target.codegen.llvm.builder import Builder, Unit
from tilewright.tir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    IntImm,
    Let,
    Max,
    Mod,
    Mul,
    Not,
    PrimExpr,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Sub,
    Var,
)  # fmt: skip

_INT_OPS: dict[type, str] = {Add: "add", Sub: "sub", Mul: "mul"}
_FLOAT_OPS: dict[type, str] = {Add: "fadd", Sub: "fsub", Mul: "fmul", Div: "fdiv", Mod: "frem"}
_COMPARE: dict[type, tuple[str, str]] = {
    EQ: ("eq", "oeq"), NE: ("ne", "une"), LT: ("lt", "olt"), LE: ("le", "ole"), GT: ("gt", "ogt"), GE: ("ge", "oge"),
}  # fmt: skip

_ROUNDED_AT_ONCE = (16, 32, 64)  # lanes that an instruction of AVX512-BF16 rounds, or several of them


class ExpressionEmitter(Builder):
    """Emits expressions; ``value(e)`` returns the text of the value."""

    def __init__(self, unit: Unit) -> None:
        super().__init__(unit)
        self.variables: dict[Var, str] = {}
        self.divisors = Divisors()
        self.data_variables: set[Var] = set()  # hold what was read from memory
        self._pure: dict[PrimExpr, str] = {}
        self._pure_log: list[PrimExpr] = []
        self._impure: dict[PrimExpr, str] = {}
        self.float_flags = "contract"  # multiplications and additions may fuse; more only where the schedule says so
        self.flushes_subnormals = False  # bfloat16 may round subnormal numbers to zero
        self._reads = 0  # grows with everything that depends on memory

    # ---- scopes ----
    def enter_scope(self) -> tuple[int, dict[PrimExpr, str]]:
        """Begin code that does not dominate the code after it; return the mark for ``leave_scope``."""
        return len(self._pure_log), dict(self._impure)

    def leave_scope(self, mark: tuple[int, dict[PrimExpr, str]]) -> None:
        """Forget the values made since ``enter_scope``."""
        log = self._pure_log
        while len(log) > mark[0]:
            self._pure.pop(log.pop(), None)
        self._impure = mark[1]

    def begin_statement(self, *expressions: PrimExpr) -> None:
        """Forget values that were read: memory may have changed."""
        if self._impure:
            self._impure = {}

    # ---- values ----
    def value(self, e: PrimExpr) -> str:
        """The value of ``e``, emitted unless this scope has it already."""
        found = self._pure.get(e)
        if found is not None:
            return found
        found = self._impure.get(e)
        if found is not None:
            self._reads += 1
            return found
        before = self._reads
        method = self._methods.get(type(e)) or self._resolve(type(e))
        self._depth += 1
        if not self._depth % DEPTH_STEP:
            ensure_stack()
        made: str = method(self, e)
        self._depth -= 1
        if self._reads == before:
            self._pure[e] = made
            self._pure_log.append(e)
        else:
            self._impure[e] = made
        return made

    def typed(self, e: PrimExpr) -> str:
        """Type and value of ``e``: an operand as LLVM writes it."""
        return f"{ty.register(e.dtype)} {self.value(e)}"

    def splat(self, dtype: str, scalar: str) -> str:
        """The vector of ``dtype`` whose lanes are all the value ``scalar``."""
        if scalar[0] != "%":
            return ty.splat_literal(dtype, scalar)
        vector, element = ty.register(dtype), ty.scalar(dtype)
        first = self.emit(f"insertelement {vector} poison, {element} {scalar}, i64 0")
        return self.emit(f"shufflevector {vector} {first}, {vector} poison, <{dt.lanes(dtype)} x i32> zeroinitializer")

    def literal(self, dtype: str, number: float) -> str:
        """A literal of ``dtype``, in all lanes."""
        text = ty.float_literal(dtype, number) if dt.is_float(dtype) else ty.int_literal(dtype, int(number))
        return text if dt.lanes(dtype) == 1 else ty.splat_literal(dtype, text)

    def undefined_variable(self, var: Var) -> str:
        """The value of a variable that this function does not define."""
        raise TilewrightError(f"{self.name}: the variable {var.name} is used where it is not defined")

    def visit_var(self, e: Var) -> str:
        """Return the value of the variable."""
        if e in self.data_variables:
            self._reads += 1
        found = self.variables.get(e)
        return self.undefined_variable(e) if found is None else found

    def visit_int_imm(self, e: IntImm) -> str:
        """A literal."""
        return ty.int_literal(e.dtype, e.value)

    def visit_float_imm(self, e: FloatImm) -> str:
        """A literal."""
        return ty.float_literal(e.dtype, e.value)

    def visit_string_imm(self, e: StringImm) -> str:
        """A constant of the unit."""
        return self.unit.string(e.value)

    # ---- arithmetic ----
    def visit_arith(self, e: BinaryExpr) -> str:
        """Emit ``a + b``, ``a - b`` or ``a * b``."""
        before = self._reads
        a, b = self.value(e.a), self.value(e.b)
        dtype = e.dtype
        if not dt.is_float(dtype):
            no_wrap = " nsw" if self._reads == before and dt.is_signed(dtype) and dt.bits(dtype) >= 32 else ""
            return self.emit(f"{_INT_OPS[type(e)]}{no_wrap} {ty.register(dtype)} {a}, {b}")
        if ty.is_bfloat(dtype):
            return self._in_float32(dtype, [a, b], lambda x, y: self._float_arith(type(e), _f32(dtype), x, y))
        return self._float_arith(type(e), dtype, a, b)

    def _float_arith(self, op: type, dtype: str, a: str, b: str) -> str:
        return self.emit(f"{_FLOAT_OPS[op]} {self.float_flags} {ty.register(dtype)} {a}, {b}")

    def _in_float32(self, dtype: str, operands: list[str], op: Callable[..., str]) -> str:
        """Widen bfloat16 operands, apply ``op``, round the result back."""
        wide = [self.cast(v, dtype, _f32(dtype)) for v in operands]
        return self.cast(op(*wide), _f32(dtype), dtype)

    def visit_div(self, e: BinaryExpr) -> str:
        """C's division and remainder."""
        if dt.is_float(e.dtype):
            return self.visit_arith(e)
        a, b = self.value(e.a), self._divisor(e)
        sign = "s" if dt.is_signed(e.dtype) else "u"
        return self.emit(f"{sign}{'div' if isinstance(e, Div) else 'rem'} {ty.register(e.dtype)} {a}, {b}")

    visit_mod = visit_div

    def _divisor(self, e: BinaryExpr) -> str:
        """Return the divisor, or 1 if it is 0: a division by 0 must not end the process."""
        b, literal = self.value(e.b), e.b.value if isinstance(e.b, Broadcast) else e.b
        if isinstance(literal, IntImm):
            return b
        reg, flags = ty.register(e.dtype), ty.register(dt.make("bool", 1, dt.lanes(e.dtype)))
        is_zero = self.emit(f"icmp eq {reg} {b}, {self.literal(e.dtype, 0)}")
        return self.emit(f"select {flags} {is_zero}, {reg} {self.literal(e.dtype, 1)}, {reg} {b}")

    def visit_floor_div(self, e: BinaryExpr) -> str:
        """Division that rounds down, or its remainder, for operands of any sign."""
        a, b = self.value(e.a), self._divisor(e)
        reg, quotient = ty.register(e.dtype), isinstance(e, FloorDiv)
        if not dt.is_signed(e.dtype):
            return self.emit(f"u{'div' if quotient else 'rem'} {reg} {a}, {b}")
        rem = self.emit(f"srem {reg} {a}, {b}")
        mixed = self.emit(f"xor {reg} {rem}, {b}")
        zero, one = self.literal(e.dtype, 0), self.literal(e.dtype, 1)
        flags = ty.register(dt.make("bool", 1, dt.lanes(e.dtype)))
        opposite = self.emit(f"icmp slt {reg} {mixed}, {zero}")
        inexact = self.emit(f"icmp ne {reg} {rem}, {zero}")
        adjust = self.emit(f"and {flags} {opposite}, {inexact}")
        if quotient:
            q = self.emit(f"sdiv {reg} {a}, {b}")
            less = self.emit(f"sub {reg} {q}, {one}")
            return self.emit(f"select {flags} {adjust}, {reg} {less}, {reg} {q}")
        more = self.emit(f"add {reg} {rem}, {b}")
        return self.emit(f"select {flags} {adjust}, {reg} {more}, {reg} {rem}")

    visit_floor_mod = visit_floor_div

    def visit_min(self, e: BinaryExpr) -> str:
        """Emit ``min(a, b)`` or ``max(a, b)``."""
        a, b = self.value(e.a), self.value(e.b)
        return self.min_max(e.dtype, isinstance(e, Max), a, b)

    visit_max = visit_min

    def min_max(self, dtype: str, is_max: bool, a: str, b: str) -> str:
        """Emit the larger or smaller value; NaN if either is NaN; the sign of a zero is unspecified.

        With a literal that is one instruction on x86, else three: a comparison and a blend for a NaN in ``b``, or
        before AVX-512, where a blend is several, an OR of all bits: that is a NaN, too.
        """
        if ty.is_bfloat(dtype):
            return self._in_float32(dtype, [a, b], lambda x, y: self.min_max(_f32(dtype), is_max, x, y))
        reg = ty.register(dtype)
        if not dt.is_float(dtype):
            sign = "s" if dt.is_signed(dtype) else "u"
            name = f"llvm.{sign}{'max' if is_max else 'min'}.{overload(dtype)}"
            self.unit.declare(name, reg, f"{reg}, {reg}")
            return self.emit(f"call {reg} @{name}({reg} {a}, {reg} {b})")
        name = f"llvm.{'max' if is_max else 'min'}imum.{overload(dtype)}"
        features, bits = self.unit.features, dt.bits(dtype)
        slow = features.arch == "x86" and not features.has("avx512vl") and bits >= 32 and dt.lanes(dtype) > 1
        if slow and a.startswith("%") and b.startswith("%"):
            return self._min_max_or_nan(dtype, "ogt" if is_max else "olt", a, b)
        self.unit.declare(name, reg, f"{reg}, {reg}")
        return self.emit(f"call nsz {reg} @{name}({reg} {b}, {reg} {a})")

    def _min_max_or_nan(self, dtype: str, test: str, a: str, b: str) -> str:
        """Emit x86's own maximum, which returns its second operand if either is NaN, corrected to NaN if ``b`` is."""
        reg, lanes = ty.register(dtype), dt.lanes(dtype)
        flags, integers = (ty.register(dt.make(k, n, lanes)) for k, n in (("bool", 1), ("int", dt.bits(dtype))))
        better = self.emit(f"fcmp {test} {reg} {b}, {a}")
        best = self.emit(f"select {flags} {better}, {reg} {b}, {reg} {a}")
        none = self.emit(f"fcmp uno {reg} {b}, {b}")
        ones = self.emit(f"sext {flags} {none} to {integers}")
        either = self.emit(f"or {integers} {self.emit(f'bitcast {reg} {best} to {integers}')}, {ones}")
        return self.emit(f"bitcast {integers} {either} to {reg}")

    def visit_compare(self, e: BinaryExpr) -> str:
        """Emit ``a == b``, ``a < b``, ..."""
        a, b = self.value(e.a), self.value(e.b)
        dtype, (ordered, floating) = e.a.dtype, _COMPARE[type(e)]
        if ty.is_bfloat(dtype):
            a, b, dtype = self.cast(a, dtype, _f32(dtype)), self.cast(b, dtype, _f32(dtype)), _f32(dtype)
        reg = ty.register(dtype)
        if dt.is_float(dtype):
            return self.emit(f"fcmp {floating} {reg} {a}, {b}")
        if ordered not in ("eq", "ne"):
            ordered = ("s" if dt.is_signed(dtype) else "u") + ordered
        return self.emit(f"icmp {ordered} {reg} {a}, {b}")

    # ---- logic ----
    def visit_logical(self, e: BinaryExpr) -> str:
        """And, Or. When the second operand reads memory the first one guards it, as in C."""
        is_and = isinstance(e, And)
        a = self.value(e.a)
        if dt.lanes(e.dtype) == 1 and reads_memory(e.b):
            stop = "false" if is_and else "true"
            return self.guarded(a if is_and else self.emit(f"xor i1 {a}, true"), e.b, stop, "i1")
        b = self.value(e.b)
        return self.emit(f"{'and' if is_and else 'or'} {ty.register(e.dtype)} {a}, {b}")

    def guarded(self, condition: str, inner: PrimExpr, otherwise: str, type_text: str) -> str:
        """Evaluate ``inner`` only if ``condition`` holds, else return ``otherwise``."""
        inside, done, origin = self.new_label("guard"), self.new_label("join"), self.block
        self.branch(condition, inside, done)
        self.start(inside)
        mark = self.enter_scope()
        value = self.value(inner)
        self.leave_scope(mark)
        end = self.block
        self.jump(done)
        self.start(done)
        return self.emit(f"phi {type_text} [ {value}, %{end} ], [ {otherwise}, %{origin} ]")

    def visit_not(self, e: Not) -> str:
        """Emit ``not a``."""
        return self.emit(f"xor {ty.register(e.dtype)} {self.value(e.a)}, {self.literal(e.dtype, 1)}")

    def visit_select(self, e: Select) -> str:
        """Both values, and the chosen one."""
        flag, yes, no = self.typed(e.condition), self.typed(e.true_value), self.typed(e.false_value)
        return self.emit(f"select {flag}, {yes}, {no}")

    # ---- vectors ----
    def visit_ramp(self, e: Ramp) -> str:
        """Emit ``base, base + stride, ...``."""
        reg, element = ty.register(e.dtype), ty.scalar(e.dtype)
        base = self.value(e.base)
        if isinstance(e.stride, IntImm):
            step = e.stride.value
            offsets = f"<{', '.join(f'{element} {i * step}' for i in range(e.lanes))}>"
            if isinstance(e.base, IntImm):
                start = e.base.value
                return f"<{', '.join(f'{element} {start + i * step}' for i in range(e.lanes))}>"
        else:
            count = f"<{', '.join(f'{element} {i}' for i in range(e.lanes))}>"
            offsets = self.emit(f"mul {reg} {self.splat(e.dtype, self.value(e.stride))}, {count}")
        return self.emit(f"add {reg} {self.splat(e.dtype, base)}, {offsets}")

    def visit_broadcast(self, e: Broadcast) -> str:
        """Emit one value in all lanes."""
        return self.splat(e.dtype, self.value(e.value))

    def visit_shuffle(self, e: Shuffle) -> str:
        """Lanes of vectors, picked by number."""
        picks = [int(i) for i in e.indices]  # type: ignore[call-overload]
        count, first = len(e.vectors), e.vectors[0].dtype
        if dt.lanes(first) > 1 and len(picks) > 1 and all(v.dtype == first for v in e.vectors):
            whole = picks == list(range(count * dt.lanes(first)))
            if count <= 2 or (whole and count & (count - 1) == 0):
                return self._pick_lanes(first, [self.value(v) for v in e.vectors], picks)
        element = ty.scalar(e.dtype)
        lanes = [lane for v in e.vectors for lane in self.lanes_of(v)]
        if len(picks) == 1:
            return lanes[picks[0]]
        reg, made = ty.register(e.dtype), "poison"
        for i, pick in enumerate(picks):
            made = self.emit(f"insertelement {reg} {made}, {element} {lanes[pick]}, i64 {i}")
        return made

    def _pick_lanes(self, dtype: str, vectors: list[str], picks: Sequence[int]) -> str:
        """The lanes ``picks`` of one or two vectors of ``dtype``; of more, a power of two, they are all lanes."""
        while len(vectors) > 2:
            lanes = dt.lanes(dtype)
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [self._pick_lanes(dtype, [*pair], range(2 * lanes)) for pair in pairs]
            dtype = dt.with_lanes(dtype, 2 * lanes)
        reg, mask = ty.register(dtype), ", ".join(f"i32 {i}" for i in picks)
        a, b = vectors if len(vectors) == 2 else (vectors[0], "poison")
        return self.emit(f"shufflevector {reg} {a}, {reg} {b}, <{len(picks)} x i32> <{mask}>")

    def lanes_of(self, e: PrimExpr) -> list[str]:
        """The lanes of ``e`` as scalar values."""
        count = dt.lanes(e.dtype)
        if isinstance(e, Broadcast):
            return [self.value(e.value)] * count
        whole = self.value(e)
        if count == 1:
            return [whole]
        reg = ty.register(e.dtype)
        return [self.emit(f"extractelement {reg} {whole}, i64 {i}") for i in range(count)]

    # ---- conversion, binding ----
    def visit_cast(self, e: Cast) -> str:
        """A conversion."""
        rounded, value = self._rounded(e), e.value
        return self.cast(self.value(value), value.dtype, e.dtype) if rounded is None else rounded

    def _rounded(self, e: Cast) -> str | None:
        """Emit a conversion of rounded numbers as the one instruction that x86 has for both; None of others."""
        value = e.value
        if self.unit.features.arch != "x86" or dt.element(e.dtype) != "int32" or dt.element(value.dtype) != "float32":
            return None
        if not isinstance(value, Call) or value.op.name != "tir.nearbyint":
            return None
        name = f"llvm.lrint.{overload(e.dtype)}.{overload(value.dtype)}"
        result, argument = ty.register(e.dtype), ty.register(value.dtype)
        self.unit.declare(name, result, argument)
        return self.emit(f"call {result} @{name}({argument} {self.value(value.args[0])})")

    def cast(self, value: str, source: str, dest: str) -> str:
        """Convert ``value`` from dtype ``source`` to ``dest``, with the same number of lanes."""
        if source == dest:
            return value
        if ty.is_bfloat(source) or ty.is_bfloat(dest):
            return self._cast_bfloat(value, source, dest)
        a, b = dt.parse(source), dt.parse(dest)
        from_type, to_type = ty.register(source), ty.register(dest)
        if "handle" in (a.kind, b.kind):
            op = "bitcast" if a.kind == b.kind else "ptrtoint" if a.kind == "handle" else "inttoptr"
            return self.emit(f"{op} {from_type} {value} to {to_type}")
        if b.kind == "bool":
            if a.kind == "float":
                return self.emit(f"fcmp une {from_type} {value}, {self.literal(source, 0.0)}")
            return self.emit(f"icmp ne {from_type} {value}, {self.literal(source, 0)}")
        if a.kind == "float":
            if b.kind == "float":
                op = "fpext" if b.bits > a.bits else "fptrunc"
            else:
                op = "fptosi" if b.kind == "int" else "fptoui"
        elif b.kind == "float":
            op = "sitofp" if a.kind == "int" else "uitofp"
        elif a.bits == b.bits:
            return value
        else:
            op = "trunc" if b.bits < a.bits else "sext" if a.kind == "int" else "zext"
        return self.emit(f"{op} {from_type} {value} to {to_type}")

    def _cast_bfloat(self, value: str, source: str, dest: str) -> str:
        """Widen by a shift, and round to nearest even; ``vcvtneps2bf16`` does so too, but for subnormal numbers."""
        wide = _f32(source)
        u32, u16 = dt.with_lanes("uint32", dt.lanes(source)), dt.with_lanes("uint16", dt.lanes(source))
        if ty.is_bfloat(source):
            bits = self.emit(f"zext {ty.register(u16)} {value} to {ty.register(u32)}")
            high = self.emit(f"shl {ty.register(u32)} {bits}, {self.literal(u32, 16)}")
            return self.cast(self.emit(f"bitcast {ty.register(u32)} {high} to {ty.register(wide)}"), wide, dest)
        value = self.cast(value, source, wide)
        if self.flushes_subnormals and self.unit.features.has("avx512bf16") and dt.lanes(source) in _ROUNDED_AT_ONCE:
            halves = f"<{dt.lanes(source)} x bfloat>"
            rounded = self.emit(f"fptrunc {ty.register(wide)} {value} to {halves}")
            return self.emit(f"bitcast {halves} {rounded} to {ty.register(u16)}")
        reg = ty.register(u32)
        bits = self.emit(f"bitcast {ty.register(wide)} {value} to {reg}")
        high = self.emit(f"lshr {reg} {bits}, {self.literal(u32, 16)}")
        odd = self.emit(f"and {reg} {high}, {self.literal(u32, 1)}")
        half = self.emit(f"add {reg} {odd}, {self.literal(u32, 0x7FFF)}")
        even = self.emit(f"lshr {reg} {self.emit(f'add {reg} {bits}, {half}')}, {self.literal(u32, 16)}")
        quiet = self.emit(f"or {reg} {high}, {self.literal(u32, 0x40)}")
        flags = ty.register(dt.make("bool", 1, dt.lanes(source)))
        is_nan = self.emit(f"fcmp uno {ty.register(wide)} {value}, {value}")
        chosen = self.emit(f"select {flags} {is_nan}, {reg} {quiet}, {reg} {even}")
        return self.emit(f"trunc {reg} {chosen} to {ty.register(u16)}")

    def visit_let(self, e: Let) -> str:
        """The variable, then the body."""
        self.bind(e.var, e.value)
        return self.value(e.body)

    def bind(self, var: Var, value: PrimExpr) -> None:
        """Bind ``var`` to the value of an expression."""
        before = self._reads
        self.define(var, self.value(value))
        if self._reads != before:
            self.data_variables.add(var)
        else:
            self.data_variables.discard(var)
            self.divisors.define(var, value)

    def define(self, var: Var, text: str) -> None:
        """Bind ``var`` to a value; the body of an unrolled loop binds it again in every copy."""
        if self.variables.get(var, text) != text:
            self._pure.clear()
            self.divisors.forget(var)
        self.variables[var] = text


def _f32(dtype: str) -> str:
    return dt.with_lanes("float32", dt.lanes(dtype))


def overload(dtype: str) -> str:
    """Return a type as it is spelled in names of LLVM intrinsics: ``v8f32``."""
    info = dt.parse(dtype)
    prefix = "f" if info.kind == "float" else "i"
    element = f"{prefix}{info.bits}"
    return element if info.lanes == 1 else f"v{info.lanes}{element}"
