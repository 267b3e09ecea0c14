"""Expressions of the emulator of GPUs (``block_emulator``): values over the lanes, places in memory, calls.

A scalar is a numpy scalar, the same for all lanes, or an array of one value a lane; a vector has one axis more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.memory import Buffer
from tilewright.runtime.ndarray import numpy_dtype
from tilewright.testing.block_memory import Lanes
from tilewright.testing.tir_values import MATH, InterpreterError
from tilewright.tir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Load,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Sub,
    Var,
)  # fmt: skip
from tilewright.tir.transform.threads import THREAD_TAGS, ThreadAxes

Code = Callable[[], Any]


class ExprCode:
    """Turns expressions into Python functions over one state: values of variables, and which lanes are active."""

    def __init__(self, warp_size: int, externs: Mapping[str, Callable[..., Any]]) -> None:
        self.warp_size = warp_size
        self.externs = externs
        self.env: dict[Any, Any] = {}
        self.lanes: Lanes | None = None
        self.mask: np.ndarray | None = None
        self.cache: dict[PrimExpr, Code] = {}
        self.kernels = 0
        self.axes: ThreadAxes | None = None
        self.reducers: list[Any] = []
        self.alignment: dict[Buffer, dict[int, tuple[int, int]]] = {}

    # ---- lanes ----

    @property
    def count(self) -> int:
        """The number of lanes."""
        return 1 if self.lanes is None else self.lanes.count

    def active(self) -> np.ndarray:
        """The numbers of the lanes that run."""
        return np.arange(self.count) if self.mask is None else np.flatnonzero(self.mask)

    def under(self, condition: Any, code: Code) -> Any:
        """Run ``code`` for the lanes that meet a condition; return None when there are none."""
        outer = self.mask
        if np.ndim(condition) == 0:
            return code() if condition else None
        self.mask = np.asarray(condition, bool) if outer is None else outer & condition
        try:
            return code() if self.mask.any() else None
        finally:
            self.mask = outer

    def spread(self, value: Any, dtype: str) -> np.ndarray:
        """Broadcast one value to each lane."""
        shape = (self.count, dt.lanes(dtype)) if dt.lanes(dtype) > 1 else (self.count,)
        return np.broadcast_to(value, shape)

    def all_active_or_none(self, what: str, groups: np.ndarray | None = None) -> None:
        """Raise InterpreterError unless in every block (or group) all lanes are active, or none."""
        if self.lanes is None:
            raise InterpreterError(f"{what} stands outside of all threads")
        if self.mask is None:
            return
        groups = self.lanes.block if groups is None else groups
        came, size = np.bincount(groups, self.mask), np.bincount(groups)
        if np.any((came != 0) & (came != size)):
            k = int(np.argmax((came != 0) & (came != size)))
            raise InterpreterError(
                f"{what} in divergent code: {int(came[k])} of {int(size[k])} threads that share it come there"
            )

    # ---- expressions ----

    def expr(self, e: PrimExpr) -> Code:
        """The code of an expression."""
        code = self.cache.get(e)
        if code is None:
            code = self.cache[e] = self._expr(e)
        return code

    def _expr(self, e: PrimExpr) -> Code:
        if isinstance(e, (IntImm, FloatImm)):
            value = numpy_dtype(e.dtype).type(e.value) if not dt.is_bool(e.dtype) else np.bool_(e.value)
            return lambda: value
        if isinstance(e, StringImm):
            text = e.value
            return lambda: text
        if isinstance(e, Var):
            env = self.env
            return lambda: env[e]
        handler = _EXPR.get(type(e))
        if handler is None:
            raise InterpreterError(f"expressions of class {type(e).__name__} are not known here")
        code: Code = handler(self, e)
        return code

    def _binary(self, e: Any) -> Code:
        a, b, op = self.expr(e.a), self.expr(e.b), _NUMPY[type(e)]
        return lambda: op(a(), b())

    def _division(self, e: Any) -> Code:
        a, b = self.expr(e.a), self.expr(e.b)
        if dt.is_float(e.dtype):
            return lambda: np.true_divide(a(), b())
        op, kind = _DIVIDE[type(e)], numpy_dtype(dt.element(e.dtype))

        def code() -> Any:
            divisor = b()
            zero = divisor == 0
            if np.any(zero):
                if np.any(self.spread(zero, e.dtype)[self.active()]):
                    raise InterpreterError("integer division by zero")
                divisor = np.where(zero, 1, divisor)
            value = op(a(), divisor)
            return value.astype(kind) if isinstance(value, np.ndarray) else kind.type(value)

        return code

    def _logic(self, e: And | Or) -> Code:
        a, b = self.expr(e.a), self.expr(e.b)
        both = isinstance(e, And)
        if dt.lanes(e.dtype) > 1:
            return lambda: (np.logical_and if both else np.logical_or)(a(), b())

        def code() -> Any:  # the second is evaluated where the first leaves it open
            first = a()
            if np.ndim(first) == 0:
                return b() if bool(first) is both else first
            second = self.under(first if both else ~first, b)
            if second is None:
                return first
            return first & second if both else first | second

        return code

    def _cast(self, e: Cast) -> Code:
        value, kind = self.expr(e.value), numpy_dtype(dt.element(e.dtype))
        return lambda: np.asarray(value()).astype(kind)[()]

    def _choose(self, cond: Code, a: Code, b: Code, dtype: str, vector: bool, masked: bool) -> Code:
        widen = dt.lanes(dtype) > 1 and not vector

        def code() -> Any:
            c = cond()
            if np.ndim(c) == 0:
                return (a() if c else b()) if masked else (a(), b())[0 if c else 1]
            x = self.under(c, a) if masked else a()
            y = self.under(~c, b) if masked else b()
            if x is None or y is None:
                return y if x is None else x
            return np.where(c[:, None] if widen else c, x, y)

        return code

    def _select(self, e: Select) -> Code:
        cond, a, b = (self.expr(x) for x in (e.condition, e.true_value, e.false_value))
        return self._choose(cond, a, b, e.dtype, dt.lanes(e.condition.dtype) > 1, masked=False)

    def _ramp(self, e: Ramp) -> Code:
        base, stride, lanes = self.expr(e.base), self.expr(e.stride), np.arange(e.lanes)
        return lambda: _column(base()) + (_column(stride()) * lanes).astype("int64")

    def _broadcast(self, e: Broadcast) -> Code:
        value, lanes = self.expr(e.value), e.lanes

        def code() -> Any:
            column = _column(value())
            return np.broadcast_to(column, (*np.shape(column)[:-1], lanes))

        return code

    def _let(self, e: Let) -> Code:
        value, body = self.expr(e.value), self.expr(e.body)

        def code() -> Any:
            self.env[e.var] = value()
            return body()

        return code

    def _load(self, e: Load) -> Code:
        index, predicate, env = self.expr(e.index), self.expr(e.predicate), self.env
        return self._read(lambda: (env[e.buffer_var], index()), e.dtype, predicate)

    def _buffer_load(self, e: BufferLoad) -> Code:
        return self._read(self.place(e.buffer, e.indices), e.dtype, lambda: np.bool_(True))

    def _read(self, place: Code, dtype: str, predicate: Code) -> Code:
        kind = numpy_dtype(dt.element(dtype))

        def code() -> Any:
            memory, index = place()
            memory = memory.as_type(kind)
            where = self.where(predicate(), dtype)
            index = self.spread(index, dtype)
            result = np.zeros(index.shape, memory.data.dtype)
            lanes = np.nonzero(where)
            result[where] = memory.read(self.lanes, lanes[0], index[where])
            return result if self.lanes is not None else result[0]

        return code

    def where(self, predicate: Any, dtype: str) -> np.ndarray:
        """The lanes that are active and meet a predicate."""
        where = self.spread(predicate if np.ndim(predicate) else np.bool_(predicate), dtype)
        if self.mask is not None:
            where = where & (self.mask[:, None] if dt.lanes(dtype) > 1 else self.mask)
        return where

    def place(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> Code:
        """Return code for the memory and the flat index of an element."""
        codes = [self.expr(i) for i in indices]
        steps, shape = [self.expr(s) for s in buffer.strides], [self.expr(d) for d in buffer.shape]
        offset, env = self.expr(buffer.elem_offset), self.env

        def code() -> Any:
            realized = env.get(buffer)
            values = [c() for c in codes]
            extents: Any
            strides: Any
            if realized is not None:
                low, extents, strides = realized
                values = [v - m for v, m in zip(values, low, strict=True)]
                flat = 0
            else:
                extents = None if steps else [d() for d in shape]
                strides = [s() for s in steps] if steps else _compact(extents)
                flat = offset()
            if extents is not None:
                for dim, (value, extent) in enumerate(zip(values, extents, strict=True)):
                    self._check_dimension(buffer, dim, value, extent)
            for value, stride in zip(values, strides, strict=True):
                flat = flat + value * np.int64(stride)
            return env[buffer.data], flat

        return code

    def _check_dimension(self, buffer: Buffer, dim: int, value: Any, extent: Any) -> None:
        outside = self.spread((value < 0) | (value >= extent), "bool")[self.active()]
        if np.any(outside):
            found = self.spread(value, "int64")[self.active()][outside][0]
            raise InterpreterError(
                f"index {found} of dimension {dim} of {buffer.name} is outside its {extent} elements"
            )

    def _shuffle(self, e: Shuffle) -> Code:
        vectors, indices = [self.expr(v) for v in e.vectors], [self.expr(i) for i in e.indices]
        wide = [dt.lanes(v.dtype) > 1 for v in e.vectors]

        def code() -> Any:
            parts = [v() if w else _column(v()) for v, w in zip(vectors, wide, strict=True)]
            rows = max(np.ndim(p) for p in parts)
            if rows > 1:
                parts = [np.broadcast_to(p, (self.count, np.shape(p)[-1])) for p in parts]
            picked = np.concatenate(parts, axis=-1)[..., [int(i()) for i in indices]]
            return picked[..., 0] if len(indices) == 1 else picked

        return code

    # ---- calls ----

    def _call(self, e: Call) -> Code:
        name = getattr(e.op, "name", str(e.op)).removeprefix("tir.")
        special = _CALLS.get(name)
        if special is not None:
            code: Code = special(self, e)
            return code
        head = e.args[0] if e.args else None
        args = [self.expr(a) for a in e.args]
        function = MATH.get(name)
        if isinstance(head, StringImm) and name.startswith("call_"):
            function, args = self.externs.get(head.value), args[1:]
        if function is None:
            raise InterpreterError(f"the call {name} {head} is not known here; give it in externs")
        if name == "likely":
            return args[0]
        kind = numpy_dtype(dt.element(e.dtype)) if e.dtype not in ("handle", "void", "") else None
        half = dt.is_float(e.dtype) and dt.bits(e.dtype) < 32

        def call() -> Any:
            values = [np.asarray(a()).astype("float32") if half else a() for a in args]
            result = np.asarray(function(*values))
            return result[()] if kind is None else result.astype(kind)[()]

        return call

    def _call_if(self, e: Call) -> Code:
        cond, a, b = (self.expr(x) for x in e.args)
        return self._choose(cond, a, b, e.dtype, False, masked=True)

    def _call_reinterpret(self, e: Call) -> Code:
        value, kind = self.expr(e.args[0]), numpy_dtype(dt.element(e.dtype))
        return lambda: np.ascontiguousarray(np.atleast_1d(value())).view(kind).reshape(np.shape(value()))[()]

    def _call_bits(self, e: Call) -> Code:
        value, bits = self.expr(e.args[0]), dt.bits(e.args[0].dtype)
        mask, ones = (1 << bits) - 1, getattr(e.op, "name", "") == "tir.popcount"
        count = np.vectorize(lambda x: (int(x) & mask).bit_count() if ones else bits - (int(x) & mask).bit_length())
        return lambda: count(value()).astype("int32")[()]

    def _call_sync(self, e: Call) -> Code:
        scope = e.args[0].value if isinstance(e.args[0], StringImm) else "shared"

        def code() -> int:
            if scope == "warp":
                self.all_active_or_none("a barrier of warps", None if self.lanes is None else self.lanes.warp)
            else:
                self.all_active_or_none("a barrier")
            assert self.lanes is not None
            (self.lanes.warp_time if scope == "warp" else self.lanes.time)[self.active()] += 1
            if scope == "global":
                if self.mask is not None:
                    raise InterpreterError("a barrier of the grid that not all blocks come to")
                self.kernels += 1
                self.lanes.kernel = self.kernels
            return 0

        return code

    def _call_allreduce(self, e: Call) -> Code:
        count = int(e.args[0])  # type: ignore[call-overload]
        values, condition = [self.expr(a) for a in e.args[1 : 1 + count]], self.expr(e.args[1 + count])
        targets: list[Any] = list(e.args[2 + count : 2 + 2 * count])
        reducer = self.reducers[-1]
        results = [self.expr(r) for r in reducer.result]
        identity = [self.expr(i) for i in reducer.identity_element]
        assert self.axes is not None
        tags = {self.axes.tags[v] for v in e.args[2 + 2 * count :] if isinstance(v, Var)}

        def code() -> int:
            self.all_active_or_none("an allreduce")
            assert self.lanes is not None and self.axes is not None
            use = self.spread(condition(), "bool")
            given = [np.where(use, self.spread(v(), "int32"), i()) for v, i in zip(values, identity, strict=True)]
            order = _groups(self.lanes, self.axes, tags)
            now = [g[order[:, 0]] for g in given]
            for k in range(1, order.shape[1]):
                self.env.update(zip(reducer.lhs, now, strict=True))
                self.env.update(zip(reducer.rhs, [g[order[:, k]] for g in given], strict=True))
                now = [np.asarray(r()) for r in results]
            active = self.active()
            for target, value in zip(targets, now, strict=True):
                whole = np.empty(self.count, value.dtype)
                whole[order] = value[:, None]
                self.env[target].write(self.lanes, active, np.zeros(len(active), "int64"), whole[active])
            return 0

        return code

    def _call_warp_shuffle(self, e: Call) -> Code:
        kind = e.op.name.rsplit("_", 1)[-1]
        _, value, lane, width = (self.expr(a) for a in e.args[:4])

        def code() -> Any:
            assert self.lanes is not None
            run, offset, size = self.lanes, lane(), int(width())
            given = self.spread(value(), e.dtype)
            own = run.thread % run.warp_size
            group, inside = own // size * size, own % size
            if kind == "down":
                source = np.where(inside + offset < size, own + offset, own)
            elif kind == "up":
                source = np.where(inside - offset >= 0, own - offset, own)
            else:
                source = group + offset % size
            thread = run.thread // run.warp_size * run.warp_size + source
            number = run.block * run.threads + np.minimum(thread, run.threads - 1)
            active = self.active()
            lost = thread[active] >= run.threads
            if self.mask is not None:
                lost |= ~self.mask[number[active]]
            if lost.any():
                raise InterpreterError(
                    f"a shuffle takes the value of lane {int(source[active][lost][0])}, which is not there"
                )
            return given[number]

        return code

    def _call_pointer(self, e: Call) -> Code:
        if isinstance(e.args[0], (Load, BufferLoad)):
            load = e.args[0]
            if isinstance(load, BufferLoad):
                return self.place(load.buffer, load.indices)
            var, index = load.buffer_var, self.expr(load.index)
            return lambda: (self.env[var], index())
        data, offset = e.args[1], self.expr(e.args[2])
        return lambda: (self.env[data], offset())

    def _call_atomic_add(self, e: Call) -> Code:
        pointer, value = self.expr(e.args[0]), self.expr(e.args[1])

        def code() -> Any:  # atomic operations do not race with one another
            memory, index = pointer()
            given, index = self.spread(value(), e.args[1].dtype), self.spread(index, "int64")
            before = np.zeros(self.count, memory.data.dtype)
            for lane in self.active():
                one = np.array([lane])
                before[lane] = memory.read(None, one, index[one])[0]
                memory.write(None, one, index[one], before[lane] + given[lane])
            return before

        return code


def _column(value: Any) -> Any:
    """A scalar of each lane as a vector of one element."""
    return np.asarray(value)[..., None]


def _compact(extents: Sequence[Any]) -> list[int]:
    steps, step = [], 1
    for extent in reversed(extents):
        steps.append(step)
        step *= int(extent)
    return steps[::-1]


def _groups(lanes: Lanes, axes: ThreadAxes, reduced: set[str]) -> np.ndarray:
    """Return, by group of threads that reduce together, its lanes."""
    index = {}
    rest = lanes.thread
    for tag in THREAD_TAGS:
        extent = axes.extent(tag)
        if extent is None:
            raise InterpreterError(f"threads reduce together, and the extent of {tag} is not constant")
        index[tag], rest = rest % extent, rest // extent
    group, inside = lanes.block.copy(), np.zeros_like(lanes.block)
    for tag in reversed(THREAD_TAGS):
        extent = axes.extent(tag) or 1
        if tag in reduced:
            inside = inside * extent + index[tag]
        else:
            group = group * extent + index[tag]
    order: np.ndarray = np.lexsort((inside, group))
    return order.reshape(-1, int(inside.max()) + 1)


_NUMPY: dict[type, Callable[[Any, Any], Any]] = {
    Add: np.add, Sub: np.subtract, Mul: np.multiply, Min: np.minimum, Max: np.maximum, EQ: np.equal, NE: np.not_equal,
    LT: np.less, LE: np.less_equal, GT: np.greater, GE: np.greater_equal,
}  # fmt: skip
_DIVIDE: dict[type, Callable[[Any, Any], Any]] = {
    FloorDiv: np.floor_divide, FloorMod: np.mod, Mod: np.fmod,
    Div: lambda a, b: np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)),
}  # fmt: skip
_EXPR: dict[type, Callable[[ExprCode, Any], Code]] = {
    **dict.fromkeys(_NUMPY, ExprCode._binary), **dict.fromkeys(_DIVIDE, ExprCode._division), And: ExprCode._logic,
    Or: ExprCode._logic, Not: lambda m, e: (lambda a: lambda: np.logical_not(a()))(m.expr(e.a)), Cast: ExprCode._cast,
    Select: ExprCode._select, Ramp: ExprCode._ramp, Broadcast: ExprCode._broadcast, Let: ExprCode._let,
    Load: ExprCode._load, BufferLoad: ExprCode._buffer_load, Shuffle: ExprCode._shuffle, Call: ExprCode._call,
}  # fmt: skip
_CALLS: dict[str, Callable[[ExprCode, Call], Code]] = {
    "if_then_else": ExprCode._call_if, "reinterpret": ExprCode._call_reinterpret, "popcount": ExprCode._call_bits,
    "clz": ExprCode._call_bits, "tvm_storage_sync": ExprCode._call_sync, "atomic_add": ExprCode._call_atomic_add,
    "tvm_thread_allreduce": ExprCode._call_allreduce, "tvm_access_ptr": ExprCode._call_pointer,
    "address_of": ExprCode._call_pointer, "tvm_warp_activemask": lambda m, e: lambda: np.uint32(0xFFFFFFFF),
    "tvm_global_barrier_kinit": lambda m, e: lambda: 0,
    **dict.fromkeys(
        ["tvm_warp_shuffle", "tvm_warp_shuffle_up", "tvm_warp_shuffle_down"], ExprCode._call_warp_shuffle
    ),
}  # fmt: skip
