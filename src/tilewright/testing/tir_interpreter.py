"""A reference interpreter of TIR: runs a ``PrimFunc`` on numpy arrays, straight from the definition of each node.

An oracle for tests: it shares nothing with the code generators, checks every memory access against the bounds of
its buffer, and fills fresh memory with NaN (floats) or an odd number (integers), so that reading what was never
written shows. Parallel loops run backwards, so that a loop whose iterations depend on one another shows too. It
takes functions before and after storage flattening, vectorization and the other passes of ``lower``.

>>> run(func, a, b, c)          # c is written in place
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.memory import Buffer
from tilewright.ir.prim_ops import is_const_int, wrap_int
from tilewright.runtime.ndarray import numpy_dtype
from tilewright.testing.tir_integers import OPERATORS, integer_code
from tilewright.testing.tir_values import ARITH, COMPARE, MATH, InterpreterError, Memory, Pointer, as_scalar, fresh
from tilewright.tir.expr import (
    And,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    Div,
    FloatImm,
    IntImm,
    IterVar,
    Let,
    Load,
    Max,
    Min,
    Not,
    Or,
    PrimExpr,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Var,
)
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferRealize,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Prefetch,
    SeqStmt,
    Stmt,
    Store,
    While,
)

Env = dict[Any, Any]
Code = Callable[[Env], Any]


def run(
    func: PrimFunc, *args: np.ndarray | int | float, externs: Mapping[str, Callable[..., Any]] | None = None
) -> None:
    """Run ``func``; arrays are passed by reference, so outputs are written in place.

    Parameters
    ----------
    args : one array or number for each parameter; arrays must be contiguous unless the buffer has symbolic strides
    externs : Python functions for call_extern, call_packed and TVM intrinsics; pointers arrive as ``Pointer``,
        buffers as numpy arrays
    """
    if len(args) != len(func.params):
        raise InterpreterError(f"{len(func.params)} arguments are expected, got {len(args)}")
    env: Env = {}
    compiler = Compiler(externs or {})
    for param, arg in zip(func.params, args, strict=True):
        buffer = func.buffer_map.get(param)
        if buffer is None:
            env[param] = arg
        else:
            assert isinstance(arg, np.ndarray)
            bind_argument(env, buffer, arg)
    code = compiler.stmt(func.body)
    with np.errstate(all="ignore"):
        code(env)


def bind_argument(env: Env, buffer: Buffer, array: np.ndarray) -> None:
    """Put the memory of an array into ``env``, and the values of the variables that describe its buffer."""
    if numpy_dtype(buffer.dtype) != array.dtype or len(buffer.shape) != array.ndim:
        raise InterpreterError(f"buffer {buffer.name} is {buffer.dtype} of rank {len(buffer.shape)}, got {array.dtype}")
    for declared, actual in zip(buffer.shape, array.shape, strict=True):
        if isinstance(declared, IntImm) and int(declared) != actual:
            raise InterpreterError(f"buffer {buffer.name} has shape {buffer.shape}, got {array.shape}")
        if isinstance(declared, Var) and env.setdefault(declared, actual) != actual:
            raise InterpreterError(f"dimension {declared.name} is {env[declared]} and {actual}")
    step = 1
    for stride, extent in zip(reversed(buffer.strides), reversed(array.shape), strict=False):
        if isinstance(stride, Var):
            env.setdefault(stride, 0 if extent == 1 and buffer.buffer_type else step)
        step *= extent
    if isinstance(buffer.elem_offset, Var):
        env.setdefault(buffer.elem_offset, 0)
    if not array.flags.c_contiguous:
        raise InterpreterError(f"the array for {buffer.name} is not contiguous")
    env[buffer.data] = Memory(buffer.name, array.reshape(-1))


class Compiler:
    """Turns statements and expressions into Python functions of an environment (variable -> value)."""

    def __init__(self, externs: Mapping[str, Callable[..., Any]]) -> None:
        self.externs = externs
        self.cache: dict[PrimExpr, Code] = {}
        self.alignment: dict[Buffer, dict[int, tuple[int, int]]] = {}

    def expr(self, e: PrimExpr) -> Code:
        """The code of an expression."""
        code = self.cache.get(e)
        if code is None:
            code = self.cache[e] = self._expr(e) if type(e) not in OPERATORS else integer_code(e) or self._expr(e)
        return code

    def _expr(self, e: PrimExpr) -> Code:
        if isinstance(e, (IntImm, FloatImm)):
            value = as_scalar(e.value, e.dtype)
            return lambda env: value
        if isinstance(e, StringImm):
            text = e.value
            return lambda env: text
        if isinstance(e, Var):
            return lambda env: env[e]
        handler = _EXPR.get(type(e))
        if handler is None:
            raise InterpreterError(f"expressions of class {type(e).__name__} are not known here")
        code: Code = handler(self, e)
        return code

    def _binary(self, e: Any) -> Code:
        a, b, dtype = self.expr(e.a), self.expr(e.b), e.a.dtype
        if type(e) in COMPARE:
            compare = COMPARE[type(e)]
            return lambda env: compare(a(env), b(env))
        op = ARITH[type(e)]
        if isinstance(e, Div) and dt.is_float(dtype):
            return lambda env: a(env) / b(env)
        if isinstance(e, (Min, Max)) and (dt.lanes(dtype) > 1 or dt.is_float(dtype)):  # which let NaN through
            op = np.minimum if isinstance(e, Min) else np.maximum
        if dt.lanes(dtype) > 1:
            kind = numpy_dtype(dt.element(dtype))
            return lambda env: np.asarray(op(a(env), b(env))).astype(kind)
        if dt.is_float(dtype):
            return lambda env: op(a(env), b(env))
        return self._wrapping(op, a, b, dtype)

    @staticmethod
    def _wrapping(op: Callable[[Any, Any], Any], a: Code, b: Code, dtype: str) -> Code:
        low, high = dt.int_range(dtype)

        def code(env: Env) -> Any:
            value = op(a(env), b(env))
            return value if low <= value <= high else wrap_int(int(value), dtype)

        return code

    def _logic(self, e: And | Or) -> Code:
        a, b = self.expr(e.a), self.expr(e.b)
        if dt.lanes(e.dtype) > 1:
            function = np.logical_and if isinstance(e, And) else np.logical_or
            return lambda env: function(a(env), b(env))
        return (lambda env: a(env) and b(env)) if isinstance(e, And) else (lambda env: a(env) or b(env))

    def _not(self, e: Not) -> Code:
        a = self.expr(e.a)
        return lambda env: np.logical_not(a(env))

    def _cast(self, e: Cast) -> Code:
        value, dtype, source = self.expr(e.value), e.dtype, e.value.dtype
        if dt.is_float(dtype) or dt.is_bool(dtype) or dt.lanes(dtype) > 1:
            return lambda env: as_scalar(value(env), dtype)
        if dt.is_float(source):
            return lambda env: _float_to_int(value(env), dtype)
        return lambda env: wrap_int(int(value(env)), dtype)

    def _select(self, e: Select) -> Code:
        cond, a, b = self.expr(e.condition), self.expr(e.true_value), self.expr(e.false_value)
        if dt.lanes(e.condition.dtype) > 1:
            return lambda env: np.where(cond(env), a(env), b(env))

        def code(env: Env) -> Any:  # both values are evaluated, so both must be safe
            x, y = a(env), b(env)
            return x if cond(env) else y

        return code

    def _ramp(self, e: Ramp) -> Code:
        base, stride, lanes = self.expr(e.base), self.expr(e.stride), np.arange(e.lanes)
        return lambda env: base(env) + stride(env) * lanes

    def _broadcast(self, e: Broadcast) -> Code:
        value, lanes, kind = self.expr(e.value), e.lanes, numpy_dtype(dt.element(e.dtype))
        return lambda env: np.full(lanes, value(env), dtype=kind)

    def _let(self, e: Let) -> Code:
        value, body, var = self.expr(e.value), self.expr(e.body), e.var

        def code(env: Env) -> Any:
            env[var] = value(env)
            return body(env)

        return code

    def _load(self, e: Load) -> Code:
        index, predicate, var = self.expr(e.index), self.expr(e.predicate), e.buffer_var
        always = isinstance(e.predicate, IntImm) or (
            isinstance(e.predicate, Broadcast) and isinstance(e.predicate.value, IntImm)
        )
        return self._read(lambda env: (env[var], index(env)), e.dtype, None if always else predicate)

    def _buffer_load(self, e: BufferLoad) -> Code:
        return self._read(self._place(e.buffer, e.indices), e.dtype, None)

    @staticmethod
    def _read(place: Code, dtype: str, predicate: Code | None) -> Code:
        if dt.lanes(dtype) > 1:

            def vector(env: Env) -> Any:
                memory, index = place(env)
                where = np.ones(len(index), bool) if predicate is None else np.broadcast_to(predicate(env), len(index))
                for i in np.asarray(index)[where]:
                    memory.check(int(i), "read")
                return memory.data[np.where(where, index, 0)] if len(memory.data) else np.zeros(len(index))

            return vector
        convert = None if dt.is_float(dtype) else bool if dt.is_bool(dtype) else int

        def scalar(env: Env) -> Any:
            memory, index = place(env)
            value = memory.data[memory.check(int(index), "read")]
            return value if convert is None else convert(value)

        return scalar

    def _place(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> Code:
        """Return code for the memory and the flat index of an element."""
        codes = [self.expr(i) for i in indices]
        strides = [self.expr(s) for s in buffer.strides]
        shape = [self.expr(d) for d in buffer.shape]
        offset = self.expr(buffer.elem_offset)

        data, dims = buffer.data, range(len(codes))
        known = [d.value for d in buffer.shape if isinstance(d, IntImm)]
        fixed = list(zip(codes, known, dims, strict=True)) if len(known) == len(shape) else None

        def code(env: Env) -> Any:
            realized = env.get(buffer)
            if realized is not None:
                low, extents, steps = realized
                flat = 0
                for dim in dims:
                    value = codes[dim](env) - low[dim]
                    _check_dimension(buffer, dim, value, extents[dim])
                    flat = flat + value * steps[dim]
                return env[data], flat
            flat = offset(env)
            if strides:
                for dim in dims:
                    flat = flat + codes[dim](env) * strides[dim](env)
                return env[data], flat
            inner = 0
            if fixed is not None:
                for index, size, dim in fixed:
                    value = index(env)
                    if not (isinstance(value, int) and 0 <= value < size):
                        _check_dimension(buffer, dim, value, size)
                    inner = inner * size + value
                return env[data], flat + inner
            for dim in dims:
                value, extent = codes[dim](env), shape[dim](env)
                _check_dimension(buffer, dim, value, extent)
                inner = inner * extent + value
            return env[data], flat + inner

        return code

    def _shuffle(self, e: Shuffle) -> Code:
        vectors, indices = [self.expr(v) for v in e.vectors], [self.expr(i) for i in e.indices]
        single = len(indices) == 1

        def code(env: Env) -> Any:
            joined = np.concatenate([np.atleast_1d(v(env)) for v in vectors])
            picked = joined[[int(i(env)) for i in indices]]
            return picked[0] if single else picked

        return code

    def _call(self, e: Call) -> Code:
        name = getattr(e.op, "name", str(e.op)).removeprefix("tir.")
        special = _SPECIAL_CALLS.get(name)
        if special is not None:
            code: Code = special(self, e)
            return code
        args = [self.expr(a) for a in e.args]
        function = MATH.get(name)
        if function is None:
            raise InterpreterError(f"the call {name} is not known here; give it in externs")
        dtype = e.dtype
        if name == "likely":
            return args[0]
        if dt.is_float(dtype) and dt.bits(dtype) < 32:  # half precision is computed in single, like the hardware
            return lambda env: as_scalar(function(*[np.float32(a(env)) for a in args]), dtype)
        if dt.is_int(dtype) and dt.lanes(dtype) == 1:
            return lambda env: wrap_int(int(function(*[a(env) for a in args])), dtype)
        return lambda env: as_scalar(function(*[a(env) for a in args]), dtype)

    def _call_if(self, e: Call) -> Code:
        cond, a, b = (self.expr(x) for x in e.args)
        return lambda env: a(env) if cond(env) else b(env)

    def _call_named(self, e: Call) -> Code:
        head = e.args[0]
        name = head.value if isinstance(head, StringImm) else str(head)
        function = self.externs.get(name)
        if function is None:
            raise InterpreterError(f"the function {name} is not known here; give it in externs")
        args = [self.expr(a) for a in e.args[1:]]

        def code(env: Env) -> Any:
            value = function(*[a(env) for a in args])
            return 0 if value is None else value

        return code

    def _call_access_ptr(self, e: Call) -> Code:
        data, offset = self.expr(e.args[1]), self.expr(e.args[2])
        return lambda env: Pointer(data(env), int(offset(env)))

    def _call_address_of(self, e: Call) -> Code:
        load: Any = e.args[0]
        if isinstance(load, BufferLoad):
            place = self._place(load.buffer, load.indices)
            return lambda env: Pointer(*place(env))
        index, var = self.expr(load.index), load.buffer_var
        return lambda env: Pointer(env[var], int(index(env)))

    def _call_make_shape(self, e: Call) -> Code:
        dims = [self.expr(a) for a in e.args]
        return lambda env: tuple(int(d(env)) for d in dims)

    def _call_make_array(self, e: Call) -> Code:
        data, shape, strides, _, _, offset = (self.expr(a) for a in e.args)

        def code(env: Env) -> Any:
            memory, extents, steps = data(env), shape(env), strides(env)
            flat = memory.data[int(offset(env)) :]
            if not isinstance(steps, tuple):
                return flat[: math.prod(extents)].reshape(extents)
            size = flat.dtype.itemsize
            return np.lib.stride_tricks.as_strided(flat, extents, [s * size for s in steps])

        return code

    def _call_bits(self, e: Call) -> Code:
        value, bits = self.expr(e.args[0]), dt.bits(e.args[0].dtype)
        mask = (1 << bits) - 1
        if getattr(e.op, "name", "") == "tir.popcount":
            return lambda env: bin(int(value(env)) & mask).count("1")
        return lambda env: bits - (int(value(env)) & mask).bit_length()

    def _call_reinterpret(self, e: Call) -> Code:
        value = self.expr(e.args[0])
        source, target = numpy_dtype(dt.element(e.args[0].dtype)), numpy_dtype(dt.element(e.dtype))
        return lambda env: as_scalar(np.asarray(value(env), dtype=source).view(target)[()], e.dtype)

    def _call_byte_index(self, e: Call) -> Code:
        value = self.expr(e.args[0])
        return lambda env: as_scalar(np.asarray(value(env)).astype("int32"), e.dtype)

    def stmt(self, s: Stmt) -> Code:
        """The code of a statement."""
        handler = _STMT.get(type(s))
        if handler is None:
            raise InterpreterError(f"statements of class {type(s).__name__} are not known here")
        code: Code = handler(self, s)
        return code

    def _for(self, s: For) -> Code:
        low, extent, body, var = self.expr(s.min), self.expr(s.extent), self.stmt(s.body), s.loop_var
        backwards = s.kind is ForKind.PARALLEL

        def code(env: Env) -> None:
            start = low(env)
            values = range(start, start + extent(env))
            for value in reversed(values) if backwards else values:
                env[var] = value
                body(env)

        return code

    def _while(self, s: While) -> Code:
        condition, body = self.expr(s.condition), self.stmt(s.body)

        def code(env: Env) -> None:
            while condition(env):
                body(env)

        return code

    def _if(self, s: IfThenElse) -> Code:
        condition, then = self.expr(s.condition), self.stmt(s.then_case)
        otherwise = None if s.else_case is None else self.stmt(s.else_case)

        def code(env: Env) -> None:
            if condition(env):
                then(env)
            elif otherwise is not None:
                otherwise(env)

        return code

    def _seq(self, s: SeqStmt) -> Code:
        parts = [self.stmt(item) for item in s.seq]

        def code(env: Env) -> None:
            for part in parts:
                part(env)

        return code

    def _let_stmt(self, s: LetStmt) -> Code:
        value, body, var = self.expr(s.value), self.stmt(s.body), s.var

        def code(env: Env) -> None:
            env[var] = value(env)
            body(env)

        return code

    def _store(self, s: Store) -> Code:
        index, var = self.expr(s.index), s.buffer_var
        predicate = None if is_const_int(s.predicate, 1) else self.expr(s.predicate)
        return self._write(lambda env: (env[var], index(env)), s.value, predicate)

    def _buffer_store(self, s: BufferStore) -> Code:
        return self._write(self._place(s.buffer, s.indices), s.value, None)

    def _write(self, place: Code, value: PrimExpr, predicate: Code | None) -> Code:
        source = self.expr(value)
        if dt.lanes(value.dtype) > 1:

            def vector(env: Env) -> None:
                new, (memory, index) = source(env), place(env)
                where = np.broadcast_to(True if predicate is None else predicate(env), len(index))
                for i, v, w in zip(index, new, where, strict=True):
                    if w:
                        memory.data[memory.check(int(i), "write")] = v

            return vector

        def scalar(env: Env) -> None:
            if predicate is None or predicate(env):
                new, (memory, index) = source(env), place(env)
                memory.data[memory.check(int(index), "write")] = new

        return scalar

    def _allocate(self, s: Allocate) -> Code:
        extents, body, var = [self.expr(e) for e in s.extents], self.stmt(s.body), s.buffer_var

        def code(env: Env) -> None:
            env[var] = fresh(var.name, s.dtype, math.prod(int(e(env)) for e in extents))
            body(env)
            del env[var]

        return code

    def _realize(self, s: BufferRealize) -> Code:
        low, extents = [self.expr(r.min) for r in s.bounds], [self.expr(r.extent) for r in s.bounds]
        body, buffer = self.stmt(s.body), s.buffer

        aligned = self.alignment.get(buffer, {})

        def code(env: Env) -> None:
            sizes = [int(e(env)) for e in extents]
            steps, count = strides_of(sizes, aligned)
            env[buffer] = ([v(env) for v in low], sizes, steps)
            env[buffer.data] = fresh(buffer.name, buffer.dtype, count)
            body(env)
            del env[buffer], env[buffer.data]

        return code

    def _attr(self, s: AttrStmt) -> Code:
        if s.attr_key == "buffer_dim_align":
            dim, factor, offset = (int(a) for a in s.value.args)  # type: ignore[attr-defined]
            self.alignment.setdefault(s.node, {})[dim] = (factor, offset)
        body = self.stmt(s.body)
        if s.attr_key not in ("thread_extent", "virtual_thread") or not isinstance(s.node, IterVar):
            return body
        extent, var = self.expr(s.value), s.node.var

        def code(env: Env) -> None:
            for value in range(extent(env)):
                env[var] = value
                body(env)

        return code

    def _assert(self, s: AssertStmt) -> Code:
        condition, message, body = self.expr(s.condition), self.expr(s.message), self.stmt(s.body)

        def code(env: Env) -> None:
            if not condition(env):
                raise InterpreterError(f"assertion failed: {message(env)}")
            body(env)

        return code

    def _evaluate(self, s: Evaluate) -> Code:
        return self.expr(s.value)

    def _prefetch(self, s: Prefetch) -> Code:
        return lambda env: None


def strides_of(extents: Sequence[int], aligned: Mapping[int, tuple[int, int]]) -> tuple[list[int], int]:
    """Strides of realized memory, and its size; aligned dimensions have strides of ``k*factor + offset``."""
    strides, step = [], 1
    for dim in reversed(range(len(extents))):
        if dim in aligned:
            factor, offset = aligned[dim]
            step += (factor + offset - step % factor) % factor
        strides.append(step)
        step *= extents[dim]
    return strides[::-1], step


def _check_dimension(buffer: Buffer, dim: int, value: Any, extent: int) -> None:
    inside = 0 <= value < extent if isinstance(value, int) else np.all((value >= 0) & (value < extent))
    if not inside:
        raise InterpreterError(f"index {value} of dimension {dim} of {buffer.name} is outside its {extent} elements")


def _float_to_int(value: Any, dtype: str) -> int:
    number = float(value)
    return wrap_int(int(number), dtype) if math.isfinite(number) else 0


_EXPR: dict[type, Callable[[Compiler, Any], Code]] = {
    **dict.fromkeys((*ARITH, *COMPARE), Compiler._binary),
    And: Compiler._logic, Or: Compiler._logic, Not: Compiler._not, Cast: Compiler._cast, Select: Compiler._select,
    Ramp: Compiler._ramp, Broadcast: Compiler._broadcast, Let: Compiler._let, Load: Compiler._load,
    BufferLoad: Compiler._buffer_load, Shuffle: Compiler._shuffle, Call: Compiler._call,
}  # fmt: skip
_SPECIAL_CALLS: dict[str, Callable[[Compiler, Call], Code]] = {
    "if_then_else": Compiler._call_if,
    **dict.fromkeys(
        [
            "call_extern",
            "call_pure_extern",
            "tvm_call_packed",
            "tvm_call_cpacked",
            "call_llvm_intrin",
            "call_llvm_pure_intrin",
        ],
        Compiler._call_named,
    ),
    "tvm_access_ptr": Compiler._call_access_ptr,
    "address_of": Compiler._call_address_of,
    "tvm_stack_make_shape": Compiler._call_make_shape,
    "tvm_stack_make_array": Compiler._call_make_array,
    "popcount": Compiler._call_bits,
    "clz": Compiler._call_bits,
    "reinterpret": Compiler._call_reinterpret,
    "byte_index": Compiler._call_byte_index,
}
_STMT: dict[type, Callable[[Compiler, Any], Code]] = {
    For: Compiler._for, While: Compiler._while, IfThenElse: Compiler._if, SeqStmt: Compiler._seq,
    LetStmt: Compiler._let_stmt, Store: Compiler._store, BufferStore: Compiler._buffer_store,
    Allocate: Compiler._allocate, BufferRealize: Compiler._realize, AttrStmt: Compiler._attr,
    AssertStmt: Compiler._assert, Evaluate: Compiler._evaluate, Prefetch: Compiler._prefetch,
}  # fmt: skip
