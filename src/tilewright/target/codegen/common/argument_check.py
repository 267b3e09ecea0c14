"""Checks and reports of host functions (arguments, indices), in TIR for all host languages.

A kernel only describes its arguments, by a table of ``host.Argument``; the functions here read the table. A back end
emits them once for a module, or once for a source. They take pointers, ``int32`` and ``int64``; the check returns 0, or
-1 with the runtime's last error set. It does not touch an argument that it refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.function_attributes import GLOBAL_SYMBOL
from tilewright.ir.prim_expr import And, Cast, Not, Or, PrimExpr
from tilewright.ir.type import PointerType, PrimType
from tilewright.target.codegen.common import host
from tilewright.tir import op as T
from tilewright.tir.expr import Load, StringImm, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.ir_builder import BufferVar, IRBuilder

CHECK = "tw_check_arguments"
REPORT_INDEX = "tw_report_index"
REPORT_SHAPE = "tw_report_shape"
SHARED = (CHECK, REPORT_INDEX, REPORT_SHAPE)
"""What kernels call."""
HOT = (CHECK, "tw_is_compact")
"""What runs at every call; the others word messages."""

# Fields of a table's rows, for tir.tvm_struct_get; and a tensor's dtype as one number.
NAME, DIMS, NDIM, DTYPE, DEVICE, ALIGNMENT, FLAGS, TENSOR_DTYPE = range(100, 108)
FIELDS = {
    NAME: "name", DIMS: "dims", NDIM: "ndim", DTYPE: "dtype", DEVICE: "device_type", ALIGNMENT: "alignment",
    FLAGS: "flags",
}  # fmt: skip
"""Their names, in the order of the columns."""

_TEXT = 1024
_SYMBOLS = 32
_CODE, _NULL, _SHAPE, _DTYPE, _DEVICE, _STRIDES, _OFFSET, _ALIGNMENT, _DATA = range(9)
_BFLOAT16, _UINT16 = (code | 16 << 8 | 1 << 16 for code in (4, 1))
_NULL_POINTER = Cast("handle", ops.const(0, "int32"))
_CODE_NAMES = {0: "int", 1: "uint", 2: "float", 3: "handle", 4: "null", 7: "a tensor", 11: "string", 13: "a tensor"}
_KIND_NAMES = {0: "int", 1: "uint", 2: "float", 3: "handle", 4: "bfloat"}
_NAMES = {small.code: name for name, small in dt.SMALL_FLOATS.items()}


def _pointer(name: str, dtype: str) -> Var:
    return Var(name, PointerType(PrimType(dtype)))


def _call(name: str, *args: Any) -> PrimExpr:
    return T.call_extern("int32", name, *(StringImm(a) if isinstance(a, str) else a for a in args))


def _function(name: str, ib: IRBuilder, *params: Any) -> PrimFunc:
    variables: list[Any] = [p.asobject() if isinstance(p, BufferVar) else p for p in params]
    ib.emit(T.ret(ops.const(0, "int32")))
    return PrimFunc(variables, ib.get(), None, {}, {GLOBAL_SYMBOL.key: name})


def _column(table: Any, kind: int, row: Any) -> PrimExpr:
    return _field(table, kind, "handle" if kind in (NAME, DIMS) else "int32", row)


def _field(struct: Any, kind: int, dtype: str, index: Any = 0) -> PrimExpr:
    return T.tvm_struct_get(struct, index, kind, dtype)


def _wide(value: Any) -> PrimExpr:
    return ops.cast("int64", value)


class _Writer:
    """Statements that append to a message."""

    def __init__(self, ib: IRBuilder, text: Any, length: Any) -> None:
        self.ib, self.where = ib, (text, length)

    def put(self, text: Any) -> None:
        self.ib.emit(_call("tw_put", *self.where, text))

    def number(self, value: Any) -> None:
        self.ib.emit(_call("tw_number", *self.where, _wide(value)))

    def dtype(self, value: Any) -> None:
        self.ib.emit(_call("tw_dtype", *self.where, value))

    def sizes(self, sizes: Any, count: Any, symbols: Any) -> None:
        self.ib.emit(_call("tw_sizes", *self.where, sizes, count, symbols))

    def choose(self, value: PrimExpr, cases: Mapping[int, Callable[[], None]], otherwise: Callable[[], None]) -> None:
        """Run the branch of ``cases`` for the number ``value``."""
        if not cases:
            otherwise()
            return
        (number, what), *rest = cases.items()
        with self.ib.if_scope(ops.equal(value, number)):
            what()
        with self.ib.else_scope():
            self.choose(value, dict(rest), otherwise)

    def choose_text(self, value: PrimExpr, names: Mapping[int, str], otherwise: Callable[[], None]) -> None:
        """Append one of ``names``, by the number ``value``."""
        self.choose(value, {k: lambda v=v: self.put(v) for k, v in names.items()}, otherwise)  # type: ignore[misc]


def _put() -> PrimFunc:
    """Append the string ``s`` until the buffer is full."""
    ib = IRBuilder()
    text, length, s = ib.pointer("int8", "text"), ib.pointer("int32", "length"), ib.pointer("int8", "s")
    i = ib.allocate("int32", 1, "i")
    i[0] = 0
    with ib.while_loop(And(ops.not_equal(s[i[0]], 0), ops.less(length[0], _TEXT - 2))):
        text[length[0]] = s[i[0]]
        length[0] = length[0] + 1
        i[0] = i[0] + 1
    text[length[0]] = 0
    return _function("tw_put", ib, text, length, s)


def _number() -> PrimFunc:
    """Append a number in decimal, computing its digits from the last to the first."""
    ib = IRBuilder()
    text, length, value = Var("text", "handle"), Var("length", "handle"), Var("value", "int64")
    digits, at = ib.allocate("int8", 24, "digits"), ib.allocate("int32", 1, "at")
    first: Any = digits.asobject()
    rest = ib.allocate("uint64", 1, "rest")
    digits[23] = 0
    at[0] = 23
    rest[0] = ops.cast("uint64", value)
    with ib.if_scope(ops.less(value, 0)):
        _Writer(ib, text, length).put("-")
        rest[0] = ops.sub(ops.const(0, "uint64"), ops.cast("uint64", value))  # the least has no negative
    with ib.while_loop(Or(ops.greater(rest[0], ops.const(0, "uint64")), ops.equal(at[0], 23))):
        at[0] = at[0] - 1
        digit = T.truncmod(rest[0], ops.const(10, "uint64"))
        digits[at[0]] = ops.cast("int8", ops.add(ops.cast("int32", digit), ord("0")))
        rest[0] = T.truncdiv(rest[0], ops.const(10, "uint64"))
    _Writer(ib, text, length).put(T.tvm_access_ptr("int8", first, at[0], 24, 1))
    return _function("tw_number", ib, text, length, value)


def _dtype() -> PrimFunc:
    """Append the name of a dtype, which is code, bits and lanes in one number."""
    ib = IRBuilder()
    text, length, dtype = Var("text", "handle"), Var("length", "handle"), Var("dtype", "int32")
    out = _Writer(ib, text, length)

    def other() -> None:
        code = T.bitwise_and(dtype, 255)
        out.choose_text(code, _KIND_NAMES | _NAMES, lambda: out.put("type"))
        with ib.if_scope(ops.less(code, min(_NAMES))):
            out.number(T.bitwise_and(T.shift_right(dtype, 8), 255))

    out.choose(T.bitwise_and(dtype, 65535), {257: lambda: out.put("bool")}, other)
    lanes = T.bitwise_and(T.shift_right(dtype, 16), 65535)
    with ib.if_scope(ops.greater(lanes, 1)):
        out.put("x")
        out.number(lanes)
    return _function("tw_dtype", ib, text, length, dtype)


def _sizes() -> PrimFunc:
    """Append ``(2, 3)``; negative sizes are looked up in ``symbols``, unless that is null."""
    ib = IRBuilder()
    text, length, count = Var("text", "handle"), Var("length", "handle"), Var("count", "int32")
    sizes, symbols = ib.pointer("int64", "sizes"), ib.pointer("int64", "symbols")
    out = _Writer(ib, text, length)
    size = ib.allocate("int64", 1, "size")
    out.put("(")
    with ib.for_range(ops.const(0, "int32"), count, "k") as k:
        with ib.if_scope(ops.greater(k, 0)):
            out.put(", ")
        size[0] = sizes[k]
        described = ops.equal(ops.cast("int32", T.isnullptr(symbols.asobject())), 0)
        with ib.if_scope(And(described, ops.less(size[0], -1))):
            size[0] = symbols[ops.sub(ops.const(-2, "int64"), size[0])]
        with ib.if_scope(And(described, ops.less(size[0], 0))):
            out.put("?")
        with ib.else_scope():
            out.number(size[0])
    out.choose(count, {1: lambda: out.put(",)")}, lambda: out.put(")"))
    return _function("tw_sizes", ib, text, length, sizes, count, symbols)


def _report() -> PrimFunc:
    """Set the message that an argument does not fit row ``i`` of the table: expected, and found."""
    ib = IRBuilder()
    problem, function, table = Var("problem", "int32"), Var("function", "handle"), Var("table", "handle")
    i, code, t, symbols = Var("row", "int32"), Var("code", "int32"), Var("t", "handle"), Var("symbols", "handle")
    text, length = ib.allocate("int8", _TEXT, "text"), ib.allocate("int32", 1, "length")
    out = _Writer(ib, text.asobject(), length.asobject())

    def of(kind: int) -> PrimExpr:
        return _column(table, kind, i)

    def found(wanted: Callable[[], None], have: Callable[[], None]) -> Callable[[], None]:
        def both() -> None:
            wanted()
            out.put(", found ")
            have()

        return both

    def wanted_code() -> None:
        out.choose(T.bitwise_and(of(FLAGS), 1), {1: lambda: out.put("a tensor")}, lambda: out.dtype(of(DTYPE)))

    def unknown_code() -> None:
        out.put("type code ")
        out.number(code)

    def shape() -> None:
        out.put("shape ")
        out.sizes(of(DIMS), of(NDIM), symbols)

    def device() -> None:
        out.put("device type ")
        out.number(of(DEVICE))

    def alignment() -> None:
        out.put("data aligned to ")
        out.number(of(ALIGNMENT))
        out.put(" bytes")

    def off() -> None:
        out.put("it off by ")
        out.number(T.bitwise_and(_wide(_field(t, host.ARRAY_DATA, "handle")), _wide(ops.sub(of(ALIGNMENT), 1))))

    def strides() -> None:
        out.put("strides of ")
        out.sizes(_field(t, host.ARRAY_STRIDES, "handle"), ndim, _NULL_POINTER)

    ndim = _field(t, host.ARRAY_NDIM, "int32")
    length[0] = 0
    for part in (function, ": argument ", of(NAME), ": expected "):
        out.put(part)
    out.choose(
        problem,
        {
            _CODE: found(wanted_code, lambda: out.choose_text(code, _CODE_NAMES, unknown_code)),
            _NULL: found(lambda: out.put("a tensor"), lambda: out.put("null")),
            _SHAPE: found(shape, lambda: out.sizes(_field(t, host.ARRAY_SHAPE, "handle"), ndim, _NULL_POINTER)),
            _DTYPE: found(lambda: out.dtype(of(DTYPE)), lambda: out.dtype(_field(t, TENSOR_DTYPE, "int32"))),
            _DEVICE: found(device, lambda: out.number(_field(t, host.ARRAY_DEVICE_TYPE, "int32"))),
            _STRIDES: found(lambda: out.put("a compact row-major tensor"), strides),
            _OFFSET: found(
                lambda: out.put("byte_offset 0"), lambda: out.number(_field(t, host.ARRAY_BYTE_OFFSET, "uint64"))
            ),
            _ALIGNMENT: found(alignment, off),
        },
        found(lambda: out.put("data"), lambda: out.put("a null one")),
    )
    ib.emit(_call("TVMAPISetLastError", text.asobject()))
    return _function("tw_report", ib, problem, function, table, i, code, t, symbols)


def _message(ib: IRBuilder) -> tuple[_Writer, PrimExpr]:
    """Begin a message; return its writer, and its buffer."""
    text, length = ib.allocate("int8", _TEXT, "text"), ib.allocate("int32", 1, "length")
    out = _Writer(ib, text.asobject(), length.asobject())
    length[0] = 0
    return out, text.asobject()


def _report_count() -> PrimFunc:
    """Set the message that there are too few arguments, or too many."""
    ib = IRBuilder()
    function, expected, given = Var("function", "handle"), Var("expected", "int32"), Var("given", "int32")
    out, text = _message(ib)
    out.put(function)
    out.put(": expected ")
    out.number(expected)
    out.put(" arguments, found ")
    out.number(given)
    ib.emit(_call("TVMAPISetLastError", text))
    return _function("tw_report_count", ib, function, expected, given)


def _report_index() -> PrimFunc:
    """Set the message that ``index``, named ``what``, is not within ``low`` to ``high``."""
    ib = IRBuilder()
    what = Var("what", "handle")
    index, low, high = (Var(name, "int64") for name in ("index", "low", "high"))
    out, text = _message(ib)
    out.put(what)
    out.put(" ")
    out.number(index)
    with ib.if_scope(ops.less(high, low)):
        out.put(" is out of range: there are no elements")
    with ib.else_scope():
        out.put(" is out of range: expected ")
        out.number(low)
        out.put(" to ")
        out.number(high)
    ib.emit(_call("TVMAPISetLastError", text))
    return _function(REPORT_INDEX, ib, what, index, low, high)


def _report_shape() -> PrimFunc:
    """Set the message that ``what``, the numbers ``shape``, does not fit a tensor of shape ``like``, with the reason
    ``why``.

    Where there is no such tensor, ``like_count`` is negative.
    """
    ib = IRBuilder()
    what, why = (Var(name, "handle") for name in ("what", "why"))
    shape, like = (Var(name, "handle") for name in ("shape", "like"))
    count, like_count = Var("count", "int32"), Var("like_count", "int32")
    out, text = _message(ib)
    out.put(what)
    out.put(" ")
    out.sizes(shape, count, _NULL_POINTER)
    out.put(" ")
    out.put(why)
    with ib.if_scope(ops.greater_equal(like_count, 0)):
        out.put(" ")
        out.sizes(like, like_count, _NULL_POINTER)
    ib.emit(_call("TVMAPISetLastError", text))
    return _function(REPORT_SHAPE, ib, what, shape, count, why, like, like_count)


def _is_compact() -> PrimFunc:
    """Build the test whether strides are compact row-major (1 or 0); a dimension of size 1 may have any stride."""
    ib = IRBuilder()
    shape, strides, ndim = ib.pointer("int64", "shape"), ib.pointer("int64", "strides"), Var("ndim", "int32")
    step, result = ib.allocate("int64", 1, "step"), ib.allocate("int32", 1, "result")
    step[0] = 1
    result[0] = 1
    with ib.for_range(ops.const(0, "int32"), ndim, "k") as k:
        at = ops.sub(ops.sub(ndim, 1), k)
        with ib.if_scope(ops.equal(shape[at], 0)):
            ib.emit(T.ret(ops.const(1, "int32")))
        with ib.if_scope(And(ops.not_equal(shape[at], 1), ops.not_equal(strides[at], step[0]))):
            result[0] = 0
        step[0] = step[0] * shape[at]
    ib.emit(T.ret(result[0]))
    return _function("tw_is_compact", ib, shape, strides, ndim)


def _check() -> PrimFunc:
    """Check ``num`` arguments, their ``values`` and type ``codes``, against ``count`` rows of the table."""
    ib = IRBuilder()
    function, table, count = Var("function", "handle"), Var("table", "handle"), Var("count", "int32")
    values, codes, num = Var("values", "handle"), ib.pointer("int32", "codes"), Var("num", "int32")
    symbols = ib.allocate("int64", _SYMBOLS, "symbols")
    with ib.if_scope(ops.not_equal(num, count)):
        ib.emit(_call("tw_report_count", function, count, num))
        ib.emit(T.ret(ops.const(-1, "int32")))
    with ib.for_range(ops.const(0, "int32"), ops.const(_SYMBOLS, "int32"), "symbol") as k:
        symbols[k] = -1
    with ib.for_range(ops.const(0, "int32"), count, "row") as row:
        of = {kind: ib.let(name, _column(table, kind, row)) for kind, name in FIELDS.items() if kind != NAME}
        code = ib.let("code", codes[row])

        def refuse(problem: int, tensor: Any, refused: PrimExpr) -> None:
            with ib.if_scope(refused):
                where = (function, table, row, code, tensor, symbols.asobject())
                ib.emit(_call("tw_report", ops.const(problem, "int32"), *where))
                ib.emit(T.ret(ops.const(-1, "int32")))

        with ib.if_scope(ops.equal(T.bitwise_and(of[FLAGS], 1), 0)):
            kind = T.bitwise_and(of[DTYPE], 255)
            wanted = T.if_then_else(ops.less_equal(kind, 1), 0, T.if_then_else(ops.equal(kind, 3), 3, 2))
            wanted = ib.let("wanted", wanted)
            bad = And(ops.not_equal(code, wanted), Or(ops.not_equal(wanted, 3), ops.less(code, 3)))
            refuse(_CODE, _NULL_POINTER, bad)
            with ib.if_scope(And(ops.equal(wanted, 0), ops.not_equal(of[NDIM], 0))):
                dims = ib.let(_pointer("dims", "int64"), of[DIMS])
                value = _field(values, host.VALUE_CONTENT, "int64", row)
                symbols[ops.sub(ops.const(-2, "int64"), _load(dims, 0))] = value
        with ib.else_scope():
            others = [ops.not_equal(code, c) for c in (3, 4, 7, 13)]
            refuse(_CODE, _NULL_POINTER, And(And(others[0], others[1]), And(others[2], others[3])))
            t = ib.let("t", _field(values, host.VALUE_CONTENT, "handle", row))
            refuse(_NULL, _NULL_POINTER, Or(T.isnullptr(t), ops.equal(code, 4)))
            _check_tensor(ib, of, t, symbols, lambda problem, bad: refuse(problem, t, bad))
    return _function(CHECK, ib, function, table, count, values, codes, num)


def _load(pointer: Var, index: Any) -> PrimExpr:
    return Load("int64", pointer, ops.as_expr(index))


def _check_tensor(
    ib: IRBuilder, of: Mapping[int, Var], t: Var, symbols: BufferVar, refuse: Callable[[int, PrimExpr], None]
) -> None:
    refuse(_SHAPE, ops.not_equal(_field(t, host.ARRAY_NDIM, "int32"), of[NDIM]))
    shape = ib.let(_pointer("shape", "int64"), _field(t, host.ARRAY_SHAPE, "handle"))
    dims = ib.let(_pointer("dims", "int64"), of[DIMS])
    elements = ib.allocate("int64", 1, "elements")
    elements[0] = 1
    with ib.for_range(ops.const(0, "int32"), of[NDIM], "k") as k:
        size, wanted = ib.let("size", _load(shape, k)), ib.let("wanted", _load(dims, k))
        refuse(_SHAPE, ops.less(size, 0))
        with ib.if_scope(ops.greater_equal(wanted, 0)):
            refuse(_SHAPE, ops.not_equal(size, wanted))
        with ib.else_scope(), ib.if_scope(ops.less(wanted, -1)):
            symbol = ib.let("symbol", ops.sub(ops.const(-2, "int64"), wanted))
            with ib.if_scope(ops.less(symbols[symbol], 0)):
                symbols[symbol] = size
            refuse(_SHAPE, ops.not_equal(symbols[symbol], size))
        elements[0] = elements[0] * size
    given = ib.let("given", _field(t, TENSOR_DTYPE, "int32"))
    bits = And(ops.equal(of[DTYPE], _BFLOAT16), ops.equal(given, _UINT16))  # which numpy has no type of
    refuse(_DTYPE, And(ops.not_equal(given, of[DTYPE]), Not(bits)))
    refuse(_DEVICE, ops.not_equal(_field(t, host.ARRAY_DEVICE_TYPE, "int32"), of[DEVICE]))
    strides = ib.let(_pointer("strides", "int64"), _field(t, host.ARRAY_STRIDES, "handle"))
    fixed = And(ops.equal(T.bitwise_and(of[FLAGS], 2), 0), ops.equal(ops.cast("int32", T.isnullptr(strides)), 0))
    refuse(_STRIDES, And(fixed, ops.equal(_call("tw_is_compact", shape, strides, of[NDIM]), 0)))
    offset = ib.let("offset", _field(t, host.ARRAY_BYTE_OFFSET, "uint64"))
    refuse(_OFFSET, And(ops.equal(T.bitwise_and(of[FLAGS], 4), 0), ops.not_equal(offset, ops.const(0, "uint64"))))
    data = ib.let("data", _field(t, host.ARRAY_DATA, "handle"))
    refuse(_DATA, And(T.isnullptr(data), ops.not_equal(elements[0], 0)))
    low = T.bitwise_and(_wide(data), _wide(ops.sub(of[ALIGNMENT], 1)))
    refuse(_ALIGNMENT, ops.not_equal(low, 0))


def functions() -> list[PrimFunc]:
    """The functions, callees first; the last one is the check."""
    words = [_put(), _number(), _dtype(), _sizes(), _report(), _report_count(), _report_index(), _report_shape()]
    return [*words, _is_compact(), _check()]
