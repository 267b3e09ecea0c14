"""Expressions as text of C and of languages like it.

What several places of one statement share becomes a local variable, so that the text stays as long as the expression
is; what only one branch of a conditional evaluates stands in that branch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.prim_functor import DEPTH_STEP, ensure_stack
from tilewright.target import intrinsics
from tilewright.target.codegen.common.emitter import Emitter, reads_memory
from tilewright.target.codegen.source.names import KEYWORDS, Names, c_type, float_literal, int_literal, string_literal
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
    Call,
    Cast,
    ConstExpr,
    Div,
    FloatImm,
    FloorDiv,
    IntImm,
    Let,
    Load,
    Max,
    Mod,
    Mul,
    Not,
    PrimExpr,
    Ramp,
    Select,
    StringImm,
    Sub,
    Var,
)  # fmt: skip

_SYMBOLS = {Add: "+", Sub: "-", Mul: "*", Div: "/", Mod: "%", EQ: "==", NE: "!=", LT: "<", LE: "<=", GT: ">", GE: ">="}
_BITWISE = {
    "tir.bitwise_and": "&",
    "tir.bitwise_or": "|",
    "tir.bitwise_xor": "^",
    "tir.shift_left": "<<",
    "tir.shift_right": ">>",
}


class ExpressionPrinter(Emitter):
    """Prints the expressions of one C function; statements go to ``lines``."""

    keywords: ClassVar[frozenset[str]] = KEYWORDS
    """What no variable may be called."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.names = Names(self.keywords)
        self.lines: list[str] = []
        self.depth = 1
        self._shared: set[PrimExpr] = set()
        self._temporaries: dict[PrimExpr, str] = {}
        self.element_types: dict[Var, str] = {}  # what a pointer variable is declared to point to

    def put(self, text: str) -> None:
        """Append a line at the current depth."""
        self.lines.append("  " * self.depth + text)

    # ---- the dialect ----
    def type_name(self, dtype: str) -> str:
        """The type of one lane of a value."""
        return c_type(dtype)

    def memory_type(self, dtype: str) -> str:
        """The type of one lane of a value in memory."""
        return self.type_name(dt.element(dtype))

    def int_literal(self, dtype: str, value: int) -> str:
        """An integer or bool literal."""
        return int_literal(dtype, value)

    def float_literal(self, dtype: str, value: float) -> str:
        """A floating literal."""
        if dt.parse(dtype).kind == "bfloat":
            return f"tw_float_to_bfloat({float_literal('float32', value)})"
        return float_literal(dtype, value)

    def pointer_type(self, buffer: Var, element: str) -> str:
        """The type of a pointer into ``buffer`` to elements of the type ``element``."""
        return f"{element}*"

    @abstractmethod
    def declare_extern(self, name: str, result: str, args: list[str]) -> None:
        """Have the function ``name`` declared at the head of the source."""

    # ---- sharing ----
    def begin_statement(self, *expressions: PrimExpr) -> None:
        """Find the common subexpressions of the next statement."""
        self._temporaries = {}
        counts: dict[PrimExpr, int] = {}
        stack: list[Any] = list(expressions)
        while stack:
            node = stack.pop()
            if not isinstance(node, PrimExpr) or isinstance(node, (Var, ConstExpr)):
                continue
            counts[node] = counts.get(node, 0) + 1
            if counts[node] > 1:
                continue
            for _, child in node.field_values():
                stack.extend(child if isinstance(child, tuple) else [child])
        self._shared = {e for e, n in counts.items() if n > 1 and dt.parse(e.dtype).kind not in ("handle", "void")}

    def value(self, e: PrimExpr) -> str:
        """The C text of ``e``."""
        found = self._temporaries.get(e)
        if found is not None:
            return found
        method = self._methods.get(type(e)) or self._resolve(type(e))
        self._depth += 1
        if not self._depth % DEPTH_STEP:
            ensure_stack()
        text: str = method(self, e)
        self._depth -= 1
        if e in self._shared and not text.isidentifier():
            name = self.names.fresh("t")
            self.put(f"const {self.type_name(e.dtype)} {name} = {text};")
            self._temporaries[e] = name
            return name
        return text

    def _aside(self, e: PrimExpr) -> tuple[list[str], str]:
        """The statements that ``e`` needs first, apart, and its text."""
        outer, temporaries = self.lines, dict(self._temporaries)
        self.lines = []
        self.depth += 1
        text = self.value(e)
        self.depth -= 1
        inner, self.lines = self.lines, outer
        self._temporaries = temporaries
        return inner, text

    # ---- leaves ----
    def visit_var(self, e: Var) -> str:
        """The variable's identifier."""
        return self.names.of(e)

    def visit_int_imm(self, e: IntImm) -> str:
        """A literal."""
        return self.int_literal(e.dtype, e.value)

    def visit_float_imm(self, e: FloatImm) -> str:
        """A literal."""
        return self.float_literal(e.dtype, e.value)

    def visit_string_imm(self, e: StringImm) -> str:
        """A literal."""
        return string_literal(e.value)

    # ---- arithmetic ----
    def _in_float(self, dtype: str, operands: list[str], make: Callable[..., str]) -> str:
        """bfloat16 operands widened, the result rounded back."""
        return f"tw_float_to_bfloat({make(*[f'tw_bfloat_to_float({o})' for o in operands])})"

    def visit_arith(self, e: BinaryExpr) -> str:
        """Emit ``a + b``, ``a - b``, ..., ``a % b`` with C's division and remainder."""
        a, symbol = self.value(e.a), _SYMBOLS[type(e)]
        info = dt.parse(e.dtype)
        b = self._divisor(e) if info.kind in ("int", "uint") and symbol in "/%" else self.value(e.b)
        if info.kind == "bfloat":
            return self._in_float(e.dtype, [a, b], lambda x, y: f"({x} {symbol} {y})")
        if info.kind == "float" and isinstance(e, Mod):
            return f"{'fmod' if info.bits == 64 else 'fmodf'}({a}, {b})"
        if info.kind in ("int", "uint") and info.bits < 32:
            return f"(({self.type_name(e.dtype)})({a} {symbol} {b}))"
        if info.kind == "int" and symbol in "+-*" and reads_memory(e):  # data may wrap; signed arithmetic may not
            return self.wrapping(e.dtype, symbol, a, b)
        return f"({a} {symbol} {b})"

    def wrapping(self, dtype: str, symbol: str, a: str, b: str) -> str:
        """Signed arithmetic modulo the power of two."""
        unsigned = self.type_name(dt.make("uint", dt.bits(dtype)))
        return f"(({self.type_name(dtype)})(({unsigned}){a} {symbol} ({unsigned}){b}))"

    def _divisor(self, e: BinaryExpr) -> str:
        """Return the divisor, or 1 if it is 0: a division by 0 must not end the process."""
        b = self.value(e.b)
        return b if isinstance(e.b, IntImm) else f"({b} != 0 ? {b} : 1)"

    def visit_floor_div(self, e: BinaryExpr) -> str:
        """Division that rounds down, or its remainder."""
        a, b = self.value(e.a), self._divisor(e)
        if not dt.is_signed(e.dtype):
            return f"(({self.type_name(e.dtype)})({a} {'/' if isinstance(e, FloorDiv) else '%'} {b}))"
        return f"tw_floor{'div' if isinstance(e, FloorDiv) else 'mod'}_{e.dtype}({a}, {b})"

    visit_floor_mod = visit_floor_div

    def visit_min(self, e: BinaryExpr) -> str:
        """Emit ``min(a, b)`` or ``max(a, b)``."""
        name, (a, b), info = (
            "max" if isinstance(e, Max) else "min",
            (self.value(e.a), self.value(e.b)),
            dt.parse(e.dtype),
        )
        if info.kind == "bfloat":
            return self._in_float(e.dtype, [a, b], lambda x, y: f"tw_{name}_float32({x}, {y})")
        if e.dtype == "float16":
            return f"((_Float16)tw_{name}_float32((float){a}, (float){b}))"
        return f"tw_{name}_{'uint8' if info.kind == 'bool' else e.dtype}({a}, {b})"

    visit_max = visit_min

    def visit_compare(self, e: BinaryExpr) -> str:
        """Emit ``a == b``, ``a < b``, ..."""
        a, b = self.value(e.a), self.value(e.b)
        if dt.parse(e.a.dtype).kind == "bfloat":
            a, b = f"tw_bfloat_to_float({a})", f"tw_bfloat_to_float({b})"
        return f"({a} {_SYMBOLS[type(e)]} {b})"

    def visit_logical(self, e: BinaryExpr) -> str:
        """Emit ``a && b`` or ``a || b``; statements that ``b`` needs first run under a test of ``a``."""
        symbol, a = "&&" if isinstance(e, And) else "||", self.value(e.a)
        before, b = self._aside(e.b)
        if not before:
            return f"({a} {symbol} {b})"
        name = self.names.fresh("flag")
        self.put(f"{self.type_name('bool')} {name} = {a};")
        self.put(f"if ({'' if isinstance(e, And) else '!'}{name}) {{")
        self.lines += before
        self.put(f"  {name} = {b};")
        self.put("}")
        return name

    def visit_not(self, e: Not) -> str:
        """Emit ``!a``."""
        return f"(!{self.value(e.a)})"

    def visit_select(self, e: Select) -> str:
        """Emit ``condition ? a : b``."""
        return f"({self.value(e.condition)} ? {self.value(e.true_value)} : {self.value(e.false_value)})"

    def visit_cast(self, e: Cast) -> str:
        """A conversion."""
        return self.cast(self.value(e.value), e.value.dtype, e.dtype)

    def cast(self, text: str, source: str, dest: str) -> str:
        """A value converted as TIR converts it."""
        a, b = dt.parse(source).kind, dt.parse(dest).kind
        if source == dest:
            return text
        if a == "bfloat":
            text, a = f"tw_bfloat_to_float({text})", "float"
        if b == "bfloat":
            return f"tw_float_to_bfloat((float){text})"
        if b == "bool":
            return f"({text} != 0)"
        return f"(({self.type_name(dest)}){text})"

    def visit_let(self, e: Let) -> str:
        """A constant, then the body."""
        self.put(f"const {self.type_name(e.var.dtype)} {self.names.of(e.var)} = {self.value(e.value)};")
        return self.value(e.body)

    # ---- memory ----
    def element(self, buffer: Var, dtype: str, index: PrimExpr) -> str:
        """The element of a buffer, as something to read or assign."""
        return f"{self.pointer(buffer, dtype)}[{self.outer(self.value(index))}]"

    def pointer(self, buffer: Var, dtype: str) -> str:
        """The address of a buffer, of the type that points to elements of ``dtype``."""
        name, wanted = self.names.of(buffer), self.memory_type(dtype)
        return name if self.element_types.get(buffer) == wanted else f"(({self.pointer_type(buffer, wanted)}){name})"

    @staticmethod
    def outer(text: str) -> str:
        """Strip parentheses around the whole."""
        if not (text.startswith("(") and text.endswith(")")):
            return text
        depth = 0
        for i, c in enumerate(text):
            depth += (c == "(") - (c == ")")
            if depth == 0 and i < len(text) - 1:
                return text
        return text[1:-1]

    def visit_load(self, e: Load) -> str:
        """Emit an element, or zero if the predicate is false."""
        text = self.element(e.buffer_var, e.dtype, e.index)
        if ops.is_const_int(e.predicate, 1):
            return text
        return f"({self.value(e.predicate)} ? {text} : ({self.type_name(e.dtype)})0)"

    def visit_ramp(self, e: Any) -> str:
        """None: ``scalarize`` has taken vectors apart."""
        raise UnsupportedError(f"{self.name}: {self.language} code generation cannot place the vector {e} here")

    visit_broadcast = visit_ramp
    visit_shuffle = visit_ramp

    # ---- calls ----
    def _bitwise(self, e: Call) -> str:
        a, b = self.value(e.args[0]), self.value(e.args[1])
        return f"(({self.type_name(e.dtype)})({a} {_BITWISE[e.op.name]} {b}))"

    _call_bitwise_and = _call_bitwise_or = _call_bitwise_xor = _call_shift_right = _bitwise

    def _call_shift_left(self, e: Call) -> str:
        if dt.parse(e.dtype).kind != "int":
            return self._bitwise(e)
        a, b = self.value(e.args[0]), self.value(e.args[1])
        return self.wrapping(e.dtype, "<<", a, b)  # of signed integers C defines no bits that are shifted out

    def float_math(self, e: Call) -> str:
        """A function of the language's library; the half types in float32."""
        name, args, info = e.op.name.removeprefix("tir."), [self.value(a) for a in e.args], dt.parse(e.dtype)
        if info.bits == 16:
            wide = [self.cast(t, a.dtype, "float32") for t, a in zip(args, e.args, strict=True)]
            return self.cast(self._math_text(name, 32, wide), "float32", e.dtype)
        return self._math_text(name, info.bits, args)

    def _math_text(self, name: str, bits: int, args: list[str]) -> str:
        if name in ("sigmoid", "normal_tail"):
            return f"tw_{name}_float{bits}({args[0]})"
        if name == "rsqrt":
            return f"({'1.0f' if bits == 32 else '1.0'} / {self._math_text('sqrt', bits, args)})"
        if name == "exp10":
            return self._math_text("pow", bits, ["10.0f" if bits == 32 else "10.0", *args])
        return f"{intrinsics.libm_name(name, bits)}({', '.join(args)})"

    def _call_ldexp(self, e: Call) -> str:
        return (
            f"{intrinsics.libm_name('ldexp', dt.bits(e.dtype))}({self.value(e.args[0])}, (int){self.value(e.args[1])})"
        )

    def _as_float(self, e: PrimExpr) -> str:
        return self.cast(self.value(e), e.dtype, "float64" if e.dtype == "float64" else "float32")

    def _call_isnan(self, e: Call) -> str:
        return f"(isnan({self._as_float(e.args[0])}) != 0)"

    def _call_isinf(self, e: Call) -> str:
        return f"(isinf({self._as_float(e.args[0])}) != 0)"

    def _call_isfinite(self, e: Call) -> str:
        return f"(isfinite({self._as_float(e.args[0])}) != 0)"

    def _call_bitwise_not(self, e: Call) -> str:
        return f"(({self.type_name(e.dtype)})~{self.value(e.args[0])})"

    def _call_popcount(self, e: Call) -> str:
        bits = f"(unsigned long long)(uint{dt.bits(e.dtype)}_t){self.value(e.args[0])}"
        return f"(({self.type_name(e.dtype)})__builtin_popcountll({bits}))"

    def _call_clz(self, e: Call) -> str:
        bits = dt.bits(e.args[0].dtype)
        count = f"__builtin_clzll((unsigned long long)(uint{bits}_t){self.value(e.args[0])})"
        return f"(({self.type_name(e.dtype)})({count} - {64 - bits}))"

    def _call_reinterpret(self, e: Call) -> str:
        source, dest = self.type_name(e.args[0].dtype), self.type_name(e.dtype)
        a, b = self.names.fresh("bits"), self.names.fresh("value")
        self.put(f"const {source} {a} = {self.value(e.args[0])};")
        self.put(f"{dest} {b};")
        self.put(f"memcpy(&{b}, &{a}, sizeof {b});")
        return b

    def _call_large_uint_imm(self, e: Call) -> str:
        low, high = (int(a) for a in e.args[:2])  # type: ignore[call-overload]
        return f"UINT64_C({high << 32 | low})"

    def _call_q_multiply_shift(self, e: Call) -> str:
        return f"tw_q_multiply_shift({', '.join([self.value(a) for a in e.args])})"

    def _call_likely(self, e: Call) -> str:
        return self.value(e.args[0])

    def _call_if_then_else(self, e: Call) -> str:
        """Emit a conditional expression; with branches of statements if a value needs them."""
        condition, yes, no = e.args
        test = self.value(condition)
        (before_yes, a), (before_no, b) = self._aside(yes), self._aside(no)
        if not before_yes and not before_no:
            return f"({test} ? {a} : {b})"
        name = self.names.fresh("chosen")
        self.put(f"{self.type_name(e.dtype)} {name};")
        self.put(f"if ({self.outer(test)}) {{")
        self.lines += before_yes
        self.put(f"  {name} = {a};")
        self.put("} else {")
        self.lines += before_no
        self.put(f"  {name} = {b};")
        self.put("}")
        return name

    def _call_isnullptr(self, e: Call) -> str:
        return f"({self.value(e.args[0])} == NULL)"

    _call_tvm_handle_is_null = _call_isnullptr

    def _call_address_of(self, e: Call) -> str:
        load = e.args[0]
        assert isinstance(load, Load)
        index = load.index.base if isinstance(load.index, Ramp) else load.index
        return f"(&{self.element(load.buffer_var, dt.element(load.dtype), index)})"

    def _call_tvm_access_ptr(self, e: Call) -> str:
        kind, data, offset = e.args[:3]
        assert isinstance(data, Var)
        return f"(&{self.element(data, dt.element(kind.dtype), offset)})"

    def _call_prefetch(self, e: Call) -> str:
        where = self._call_address_of(e) if isinstance(e.args[0], Load) else self.value(e.args[0])
        hints = "".join(f", {int(a)}" for a in e.args[1:3])  # type: ignore[call-overload]
        return f"__builtin_prefetch({where}{hints})"

    def _call_call_extern(self, e: Call) -> str:
        name = e.args[0]
        assert isinstance(name, StringImm)
        args = [self.value(a) for a in e.args[1:]]
        self.declare_extern(name.value, e.dtype, [a.dtype for a in e.args[1:]])
        return f"{name.value}({', '.join(args)})"

    _call_call_pure_extern = _call_call_extern
