"""Intrinsics and helpers that build TIR expressions: ``tir.exp``, ``tir.if_then_else``, ``tir.sum``, ...

The intrinsics themselves are declared in ``ir.intrinsics``.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import tilewright.ir.intrinsics  # noqa: F401  (registers what the functions here call)
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import OperandError, TilewrightError
from tilewright.ir.memory import Buffer
from tilewright.ir.op import Op
from tilewright.ir.prim_ops import const, floordiv, floormod, truncdiv, truncmod
from tilewright.runtime.registry import register_func
from tilewright.tir.expr import (
    BufferLoad,
    Call,
    CommReducer,
    FloatImm,
    IntImm,
    IterVar,
    IterVarType,
    Let,
    Load,
    PrimExpr,
    Range,
    Reduce,
    Select,
    StringImm,
    Var,
)  # fmt: skip


@register_func("tir.const_true", override=True)
def _const_true(dtype: str, span: object = None) -> PrimExpr:
    return const(True, dtype)


def call_intrin(dtype: str, func_name: str | Op, *args: Any, span: object = None) -> Call:
    """Build a call of the intrinsic ``func_name`` (such as ``"tir.exp"``) with a result of ``dtype``."""
    return Call(dtype, func_name, args)


def call_pure_intrin(dtype: str, func_name: str | Op, *args: Any) -> Call:
    """Same as ``call_intrin``: whether an intrinsic is pure is a property of the intrinsic."""
    return Call(dtype, func_name, args)


def call_extern(dtype: str, func_name: str, *args: Any, span: object = None) -> Call:
    """Call of the C function ``func_name``, which may have effects."""
    return Call(dtype, "tir.call_extern", (StringImm(func_name), *args))


def call_pure_extern(dtype: str, func_name: str, *args: Any, span: object = None) -> Call:
    """Call of the C function ``func_name``, which has no effect."""
    return Call(dtype, "tir.call_pure_extern", (StringImm(func_name), *args))


def call_llvm_intrin(dtype: str, name: str, *args: Any, span: object = None) -> Call:
    """Build a call of the LLVM intrinsic ``name``, such as ``"llvm.prefetch"``; TVM's signature count is accepted.

    ``dtype`` of an intrinsic without result is "void", or empty.
    """
    return Call(dtype or "void", "tir.call_llvm_intrin", (StringImm(name), *args))


def call_llvm_pure_intrin(dtype: str, name: str, *args: Any, span: object = None) -> Call:
    """Call of the LLVM intrinsic ``name``, which has no effect."""
    return Call(dtype, "tir.call_llvm_pure_intrin", (StringImm(name), *args))


def _pack_buffer(buffer: Buffer) -> Call:
    """A DLTensor on the stack that describes ``buffer``."""
    shape = Call("handle", "tir.tvm_stack_make_shape", buffer.shape)
    strides = Call("handle", "tir.tvm_stack_make_shape", buffer.strides) if buffer.strides else ops.const(0, "int32")
    rank = ops.const(len(buffer.shape), "int32")
    dtype_value = ops.const(0, buffer.dtype)
    parts = (buffer.data, shape, strides, rank, dtype_value, buffer.elem_offset)
    return Call("handle", "tir.tvm_stack_make_array", parts)


def call_packed(*args: Any, span: object = None) -> Call:
    """Call of the packed function named by the first argument; buffers travel as DLTensors."""
    return Call("int32", "tir.tvm_call_packed", [_pack_buffer(a) if isinstance(a, Buffer) else a for a in args])


def call_cpacked(*args: Any, span: object = None) -> Call:
    """Call, by symbol, of a function with the packed C signature."""
    return Call("int32", "tir.tvm_call_cpacked", [_pack_buffer(a) if isinstance(a, Buffer) else a for a in args])


def ret(val: Any) -> Call:
    """Return ``val`` from the function."""
    value = ops.as_expr(val)
    return Call(value.dtype, "tir.ret", (value,))


def tvm_struct_get(array: Any, index: Any, field: int, dtype: str) -> Call:
    """Field ``field`` (``TVMStructFieldKind``) of the struct ``array[index]``."""
    return Call(dtype, "tir.tvm_struct_get", (array, index, field))


def tvm_struct_set(array: Any, index: Any, field: int, value: Any) -> Call:
    """Set field ``field`` of the struct ``array[index]``."""
    return Call("int32", "tir.tvm_struct_set", (array, index, field, value))


def tvm_access_ptr(ptype: str, data: Var, offset: Any, extent: Any, rw_mask: int) -> Call:
    """Address of ``data + offset`` elements of ``ptype``; ``rw_mask`` is 1 read, 2 write, 3 both."""
    return Call("handle", "tir.tvm_access_ptr", (const(0, ptype), data, offset, extent, rw_mask))


def address_of(load: Load | BufferLoad) -> Call:
    """Address of the element that ``load`` reads."""
    return Call("handle", "tir.address_of", (load,))


def likely(cond: Any, span: object = None) -> PrimExpr:
    """Mark ``cond`` as nearly always true, a hint for loop partition and branch layout."""
    cond = ops.as_expr(cond)
    return cond if isinstance(cond, IntImm) else Call(cond.dtype, "tir.likely", (cond,))


def if_then_else(cond: Any, t: Any, f: Any, span: object = None) -> PrimExpr:
    """Return ``t`` if ``cond`` else ``f``; only the chosen value is evaluated."""
    (cond,) = _conditions("if_then_else", [cond])
    t, f = ops.match_dtypes(t, f)
    if isinstance(cond, IntImm):
        return t if cond.value else f
    if t is f:
        return t
    return Call(t.dtype, "tir.if_then_else", (cond, t, f))


def isnullptr(x: Any, span: object = None) -> Call:
    """Build the test whether a handle is null."""
    return Call("bool", "tir.isnullptr", (x,))


def byte_index(value: PrimExpr) -> PrimExpr:
    """``value``, of type uint8, as the int32 index of an entry of a table that has all 256.

    Processors look whole vectors up in such a table.
    """
    return Call(dt.with_lanes("int32", dt.lanes(value.dtype)), "tir.byte_index", (value,))


def reinterpret(dtype: str, value: Any) -> PrimExpr:
    """The bits of ``value`` as ``dtype``."""
    value = ops.as_expr(value)
    return value if value.dtype == dtype else Call(dtype, "tir.reinterpret", (value,))


def _float_unary(name: str, doc: str) -> Callable[[Any], PrimExpr]:
    op_name = f"tir.{name}"

    def build(x: Any) -> PrimExpr:
        x = ops.as_expr(x)
        if not dt.is_float(x.dtype):
            x = ops.cast(dt.make("float", 32, dt.lanes(x.dtype)), x)
        return Call(x.dtype, op_name, (x,))

    build.__name__ = build.__qualname__ = name
    build.__doc__ = doc
    return build


exp = _float_unary("exp", "e ** x")
exp2 = _float_unary("exp2", "2 ** x")
exp10 = _float_unary("exp10", "10 ** x")
erf = _float_unary("erf", "The error function.")
normal_tail = _float_unary("normal_tail", "The probability that a standard normal variable exceeds x, which is >= 0.")
tanh = _float_unary("tanh", "Hyperbolic tangent.")
sigmoid = _float_unary("sigmoid", "1 / (1 + exp(-x))")
log = _float_unary("log", "Natural logarithm.")
log2 = _float_unary("log2", "Logarithm to base 2.")
log10 = _float_unary("log10", "Logarithm to base 10.")
log1p = _float_unary("log1p", "log(1 + x)")
expm1 = _float_unary("expm1", "exp(x) - 1")
sqrt = _float_unary("sqrt", "Square root.")
rsqrt = _float_unary("rsqrt", "1 / sqrt(x)")
sin = _float_unary("sin", "Sine.")
sinh = _float_unary("sinh", "Hyperbolic sine.")
cos = _float_unary("cos", "Cosine.")
cosh = _float_unary("cosh", "Hyperbolic cosine.")
tan = _float_unary("tan", "Tangent.")
acos = _float_unary("acos", "Inverse cosine.")
acosh = _float_unary("acosh", "Inverse hyperbolic cosine.")
asin = _float_unary("asin", "Inverse sine.")
asinh = _float_unary("asinh", "Inverse hyperbolic sine.")
atan = _float_unary("atan", "Inverse tangent.")
atanh = _float_unary("atanh", "Inverse hyperbolic tangent.")


def _rounding(name: str, doc: str, fold: Callable[[float], float]) -> Callable[[Any], PrimExpr]:
    op_name = f"tir.{name}"

    def build(x: Any, span: object = None) -> PrimExpr:
        x = ops.as_expr(x)
        if not dt.is_float(x.dtype):
            return x
        if isinstance(x, FloatImm):
            return FloatImm(x.dtype, fold(x.value)) if math.isfinite(x.value) else x
        return Call(x.dtype, op_name, (x,))

    build.__name__ = build.__qualname__ = name
    build.__doc__ = doc
    return build


def _half_away(x: float) -> float:
    return math.copysign(math.floor(math.fabs(x) + 0.5), x) if math.fabs(x) < 2**52 else x


def _keep_sign(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: math.copysign(float(function(x)), x)


floor = _rounding("floor", "Largest integer that is not above x.", _keep_sign(math.floor))
ceil = _rounding("ceil", "Smallest integer that is not below x.", _keep_sign(math.ceil))
trunc = _rounding("trunc", "x without its fraction.", _keep_sign(math.trunc))
round = _rounding("round", "Nearest integer, halves away from zero.", _half_away)
nearbyint = _rounding("nearbyint", "Nearest integer, halves to even.", _keep_sign(builtins.round))


def abs(x: Any, span: object = None) -> PrimExpr:
    """Absolute value."""
    x = ops.as_expr(x)
    if dt.is_float(x.dtype):
        return FloatImm(x.dtype, math.fabs(x.value)) if isinstance(x, FloatImm) else Call(x.dtype, "tir.fabs", (x,))
    if isinstance(x, IntImm):
        return IntImm(x.dtype, ops.wrap_int(x.value if x.value >= 0 else -x.value, x.dtype))
    if not dt.is_signed(x.dtype):
        return x
    return Select(ops.greater_equal(x, const(0, x.dtype)), x, ops.neg(x))


fabs = abs


def _predicate(name: str, doc: str, fold: Callable[[float], bool], of_int: bool) -> Callable[[Any], PrimExpr]:
    op_name = f"tir.{name}"

    def build(x: Any, span: object = None) -> PrimExpr:
        x = ops.as_expr(x)
        result = dt.make("bool", 1, dt.lanes(x.dtype))
        if not dt.is_float(x.dtype):
            return const(of_int, result)
        if isinstance(x, FloatImm):
            return const(fold(x.value), result)
        return Call(result, op_name, (x,))

    build.__name__ = build.__qualname__ = name
    build.__doc__ = doc
    return build


isnan = _predicate("isnan", "Whether x is not a number.", math.isnan, False)
isinf = _predicate("isinf", "Whether x is infinite.", math.isinf, False)
isfinite = _predicate("isfinite", "Whether x is neither infinite nor NaN.", math.isfinite, True)


def _float_binary(name: str, doc: str) -> Callable[[Any, Any], PrimExpr]:
    op_name = f"tir.{name}"

    def build(x1: Any, x2: Any) -> PrimExpr:
        x1, x2 = ops.match_dtypes(x1, x2)
        return Call(x1.dtype, op_name, (x1, x2))

    build.__name__ = build.__qualname__ = name
    build.__doc__ = doc
    return build


_fmod = _float_binary("fmod", "Remainder of x / y with the sign of x.")


def fmod(x: Any, y: Any) -> PrimExpr:
    """Remainder of x / y with the sign of x."""
    return _fmod(x, y)


atan2 = _float_binary("atan2", "Angle of the point (x2, x1).")
nextafter = _float_binary("nextafter", "Next representable value after x1 towards x2.")
hypot = _float_binary("hypot", "sqrt(x1**2 + x2**2)")
copysign = _float_binary("copysign", "|x1| with the sign of x2.")


def power(x: Any, y: Any, span: object = None) -> PrimExpr:
    """Return x ** y."""
    x, y = ops.match_dtypes(x, y)
    return Call(x.dtype, "tir.pow", (x, y))


pow = power


def ldexp(x1: Any, x2: Any) -> PrimExpr:
    """Return x1 * 2 ** x2, for an integer x2."""
    x1, x2 = ops.as_expr(x1), ops.as_expr(x2)
    return Call(x1.dtype, "tir.ldexp", (x1, x2))


def fma(x: Any, y: Any, z: Any) -> PrimExpr:
    """Return x * y + z, rounded once."""
    x = ops.as_expr(x)
    return Call(x.dtype, "tir.fma", (x, y, z))


def popcount(x: Any) -> PrimExpr:
    """Number of bits that are 1."""
    x = ops.as_expr(x)
    return Call(x.dtype, "tir.popcount", (x,))


def clz(x: Any) -> PrimExpr:
    """Number of leading bits that are 0; not defined for 0."""
    return Call("int32", "tir.clz", (x,))


def q_multiply_shift(x: Any, y: Any, q: Any, s: Any) -> PrimExpr:
    """round(x * y * 2**(s - q)) of int32 fixed-point numbers; ``y`` has ``q`` fraction bits."""
    return Call("int32", "tir.q_multiply_shift", (x, y, q, s))


def shift_left(x: Any, y: Any, span: object = None) -> PrimExpr:
    """Return x << y."""
    return ops.shift_left(x, y)


def shift_right(x: Any, y: Any, span: object = None) -> PrimExpr:
    """Return x >> y."""
    return ops.shift_right(x, y)


def div(a: Any, b: Any, span: object = None) -> PrimExpr:
    """Return a / b as in C: truncating on integers."""
    a, b = ops.match_dtypes(a, b)
    return ops.div(a, b) if dt.is_float(a.dtype) else ops.truncdiv(a, b)


def indexdiv(a: Any, b: Any, span: object = None) -> PrimExpr:
    """Quotient of non-negative indices."""
    return ops.floordiv(a, b)


def indexmod(a: Any, b: Any, span: object = None) -> PrimExpr:
    """Remainder of non-negative indices."""
    return ops.floormod(a, b)


def ceildiv(a: Any, b: Any, span: object = None) -> PrimExpr:
    """Quotient rounded up."""
    a, b = ops.match_dtypes(a, b)
    return ops.floordiv(ops.sub(ops.add(a, b), const(1, a.dtype)), b)


def all(*args: Any, span: object = None) -> PrimExpr:
    """The conjunction of the conditions."""
    if not args:
        raise ValueError("tir.all takes at least one condition")
    conditions = _conditions("all", args)
    result = conditions[0]
    for condition in conditions[1:]:
        result = ops.logical_and(result, condition)
    return result


def any(*args: Any, span: object = None) -> PrimExpr:
    """The disjunction of the conditions."""
    if not args:
        raise ValueError("tir.any takes at least one condition")
    conditions = _conditions("any", args)
    result = conditions[0]
    for condition in conditions[1:]:
        result = ops.logical_or(result, condition)
    return result


def _conditions(name: str, args: Sequence[Any]) -> list[PrimExpr]:
    """Return ``args`` as expressions; numbers are no conditions."""
    conditions = [ops.as_expr(arg) for arg in args]
    for condition in conditions:
        if not dt.is_bool(condition.dtype):
            raise OperandError(f"tir.{name} takes conditions, not {condition} of type {condition.dtype}")
    return conditions


_FLOAT_MAX = {("float", 64): 1.7976931348623157e308, ("float", 32): 3.4028234663852886e38, ("float", 16): 65504.0,
              ("bfloat", 16): 3.3895313892515355e38}  # fmt: skip


def max_value(dtype: str, span: object = None) -> PrimExpr:
    """Largest value of ``dtype``."""
    info = dt.parse(dtype)
    if dt.is_custom(dtype):
        raise TilewrightError(f"{dtype} has a smallest value (register_min_func), and no largest that is known")
    if dt.is_float(dtype):
        return const(_FLOAT_MAX[info.kind, info.bits], dtype)
    return const(dt.int_range(dtype)[1], dtype)


def min_value(dtype: str, span: object = None) -> PrimExpr:
    """Smallest (most negative) finite value of ``dtype``."""
    info = dt.parse(dtype)
    if dt.is_custom(dtype):
        from tilewright.tir.transform.lower_custom_datatypes import smallest

        return smallest(dtype)
    if dt.is_float(dtype):
        return const(-_FLOAT_MAX[info.kind, info.bits], dtype)
    return const(dt.int_range(dtype)[0], dtype)


def infinity(dtype: str, span: object = None) -> PrimExpr:
    """Positive infinity of a floating dtype."""
    return const(math.inf, dtype)


def _as_axes(axis: Any) -> tuple[IterVar, ...]:
    return tuple(axis) if isinstance(axis, (list, tuple)) else (axis,)


def comm_reducer(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """Create a reduction from a commutative, associative ``fcombine(x, y)`` and ``fidentity(*dtypes)``.

    Both may work on tuples of values (argmax). The result, called with ``(expr, axis, where=None, init=None)``,
    returns the ``Reduce`` expression (a tuple of them for tuples); called with expressions only, it folds them.
    """

    def reduce_over(expr: Any, axis: Any, where: Any, init: Any) -> Any:
        sources = [ops.as_expr(e) for e in (expr if isinstance(expr, (list, tuple)) else [expr])]
        is_tuple = isinstance(expr, (list, tuple))
        lhs = [Var("lhs" if not is_tuple else f"lhs_{i}", e.dtype) for i, e in enumerate(sources)]
        rhs = [Var("rhs" if not is_tuple else f"rhs_{i}", e.dtype) for i, e in enumerate(sources)]
        if is_tuple:
            result, identity = fcombine(lhs, rhs), fidentity(*[e.dtype for e in sources])
        else:
            result, identity = [fcombine(lhs[0], rhs[0])], [fidentity(sources[0].dtype)]
        # arithmetic on bools is in int32, and what is stored has the sources' type
        results = [ops.cast(e.dtype, ops.as_expr(r, e.dtype)) for r, e in zip(result, sources, strict=True)]
        identities = [ops.as_expr(i, e.dtype) for i, e in zip(identity, sources, strict=True)]
        combiner = CommReducer(lhs, rhs, results, identities)
        condition = ops.as_expr(True if where is None else where)
        inits = (
            None if init is None else [ops.as_expr(i) for i in (init if isinstance(init, (list, tuple)) else [init])]
        )
        outputs = tuple(Reduce(combiner, sources, _as_axes(axis), condition, i, inits) for i in range(len(sources)))
        return outputs if is_tuple else outputs[0]

    def reducer(expr: Any, axis: Any = None, where: Any = None, init: Any = None, *args: Any) -> Any:
        if axis is None or isinstance(axis, (PrimExpr, int, float)):
            values = [v for v in (expr, axis, where, init, *args) if v is not None]
            result = values[0]
            for value in values[1:]:
                result = fcombine(result, value)
            return result
        return reduce_over(expr, axis, where, init)

    reducer.__name__ = reducer.__qualname__ = name
    reducer.__doc__ = f"{name} of ``expr`` over ``axis``, where ``where`` holds, starting from ``init``."
    return reducer


sum = comm_reducer(ops.add, lambda t: const(0, t), "sum")
min = comm_reducer(ops.minimum, max_value, "min")
max = comm_reducer(ops.maximum, min_value, "max")
prod = comm_reducer(ops.mul, lambda t: const(1, t), "prod")


def effect_of(call: Call) -> str:
    """Return the side effect of ``call``: pure, read, update or opaque."""
    effect = call.op.get_attr("TCallEffectKind") if isinstance(call.op, Op) else None
    return effect or "opaque"


@register_func("tvm.default_trace_action", override=True)
def _print_traced(*args: Any) -> None:
    print(list(args))


def trace(args: Sequence[Any], trace_action: str = "tvm.default_trace_action") -> Call:
    """Call the packed function ``trace_action`` with ``args``: its result, or the last of ``args`` for None."""
    call_args = (StringImm(trace_action), *args)
    return Call(ops.as_expr(args[-1]).dtype, "tir.tvm_call_trace_packed", call_args)


def let(var: Var, value: Any, body: Any) -> Let:
    """Build ``let var = value in body``."""
    return Let(var, ops.as_expr(value), ops.as_expr(body))


def reduce_axis(dom: Any, name: str = "rv", thread_tag: str = "") -> IterVar:
    """An axis to reduce over."""
    return IterVar(dom if isinstance(dom, Range) else Range(*dom), name, IterVarType.CommReduce, thread_tag)


bitwise_and, bitwise_or, bitwise_xor, bitwise_not = ops.bitwise_and, ops.bitwise_or, ops.bitwise_xor, ops.bitwise_not
bitwise_invert = ops.bitwise_not
minimum, maximum = ops.minimum, ops.maximum

__all__ = [
    "abs",
    "acos",
    "acosh",
    "address_of",
    "all",
    "any",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "byte_index",
    "call_cpacked",
    "call_extern",
    "call_intrin",
    "call_llvm_intrin",
    "call_llvm_pure_intrin",
    "call_packed",
    "call_pure_extern",
    "call_pure_intrin",
    "ceil",
    "ceildiv",
    "clz",
    "comm_reducer",
    "const",
    "copysign",
    "cos",
    "cosh",
    "div",
    "effect_of",
    "erf",
    "exp",
    "exp2",
    "exp10",
    "expm1",
    "fabs",
    "floor",
    "floordiv",
    "floormod",
    "fma",
    "fmod",
    "hypot",
    "if_then_else",
    "indexdiv",
    "indexmod",
    "infinity",
    "isfinite",
    "isinf",
    "isnan",
    "isnullptr",
    "ldexp",
    "let",
    "likely",
    "log",
    "log1p",
    "log2",
    "log10",
    "max",
    "max_value",
    "maximum",
    "min",
    "min_value",
    "minimum",
    "nearbyint",
    "nextafter",
    "normal_tail",
    "popcount",
    "pow",
    "power",
    "prod",
    "q_multiply_shift",
    "reduce_axis",
    "reinterpret",
    "ret",
    "round",
    "rsqrt",
    "shift_left",
    "shift_right",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "sum",
    "tan",
    "tanh",
    "trace",
    "trunc",
    "truncdiv",
    "truncmod",
    "tvm_access_ptr",
    "tvm_struct_get",
    "tvm_struct_set",
]  # fmt: skip
