"""VectorizeLoop: turn each loop marked "vectorized" into operations on vectors.

Before and after::

    for (i: int32, 0, 8) "vectorized" {        B[ramp(0, 1, 8)] = ((float32x8*)A[ramp(0, 1, 8)] + broadcast(1f32, 8))
      B[i] = ((float32*)A[i] + 1f32)
    }

What has no vector form (a branch taken by some lanes, a store of all lanes to one place, a call of an unknown
function) becomes a serial loop of its own; everything around it stays vectorised. A branch whose condition is the same
for a whole vector in nearly all cases is tested once for the vector; the rest are smaller vectors where it is known
which lanes pass, else the serial loop::

    for (x: int32, 0, 13) {                        for (x: int32, 0, 13) {
      for (i: int32, 0, 8) "vectorized" {            if (x < 12) {
        if @tir.likely((((x*8) + i) < 100)) {          B[ramp((x*8), 1, 8)] = broadcast(0f32, 8)
          B[((x*8) + i)] = 0f32                      } else {
        }                                              B[ramp(96, 1, 4)] = broadcast(0f32, 4)
      }                                              }
    }                                              }

A loop of 5 or more iterations that are no power of two becomes several, 40 for example 32 and 8: LLVM would widen the
vectors to the next power of two, with lanes for nothing.

The same is done for the condition of an ``if_then_else`` in a stored value, as padding has them.
Memory allocated inside the loop gets one element for each lane. A loop whose number of iterations depends on outer
loops runs serially.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.arith.analyzer import Analyzer
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import (
    LE,
    LT,
    Add,
    And,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Mul,
    Not,
    PrimExpr,
    Ramp,
    Select,
    Sub,
    Var,
)  # fmt: skip
from tilewright.ir.transform import Pass
from tilewright.tir.analysis import is_intrinsic, is_pure, side_effect
from tilewright.tir.expr import BufferLoad, Load, Reduce, Shuffle
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
    SeqStmt,
    Stmt,
    Store,
    While,
    seq,
)  # fmt: skip
from tilewright.tir.transform.common import ScopedMutator, bind_range, body_pass
from tilewright.tir.transform.rewrite_unsafe_select import is_unsafe
from tilewright.tir.visitor import (
    ExprMutator,
    ExprVisitor,
    StmtExprMutator,
    free_vars,
    stmt_vars,
    substitute,
    with_fresh_vars,
)

# Intrinsics that work lane by lane.
_LANEWISE_NAMES = """
    exp exp2 exp10 expm1 erf normal_tail tanh sigmoid log log2 log10 log1p sqrt rsqrt sin sinh cos cosh tan acos acosh
    asin asinh atan atanh floor ceil trunc round nearbyint fabs fma pow atan2 nextafter hypot copysign ldexp fmod
    isnan isinf isfinite popcount clz abs shift_left shift_right bitwise_and bitwise_or bitwise_xor bitwise_not likely
    q_multiply_shift reinterpret byte_index
"""
_LANEWISE = frozenset(f"tir.{name}" for name in _LANEWISE_NAMES.split())


_WIDENED = 4  # lanes up to which LLVM may widen a vector

_SUMS: dict[type, Callable[[PrimExpr, PrimExpr], PrimExpr]] = {Add: ops.add, Sub: ops.sub}


class _NeedsScalars(Exception):
    """An expression has no vector form."""


class _Vectorizer(StmtExprMutator):
    """Rewrites the body of one loop for all its lanes at once."""

    def __init__(self, var: Var, low: PrimExpr, lanes: int, analyzer: Analyzer) -> None:
        super().__init__()
        self.var = var
        self.low = low
        self.lanes = lanes
        self.analyzer = analyzer
        self.vectors: dict[PrimExpr, PrimExpr] = {var: Ramp(low, ops.const(1, var.dtype), lanes)}
        self.memo.update(self.vectors)

    def widen(self, e: PrimExpr, lanes: int) -> PrimExpr:
        """Widen ``e`` to ``lanes`` lanes."""
        count = dt.lanes(e.dtype)
        if count == lanes:
            return e
        if count != 1:
            raise _NeedsScalars
        return Broadcast(e, lanes)

    def widen_all(self, items: Sequence[PrimExpr]) -> list[PrimExpr]:
        """Widen all items to the lanes of the widest."""
        lanes = max(dt.lanes(i.dtype) for i in items)
        return [self.widen(i, lanes) for i in items]

    def visit_binary(self, e: BinaryExpr) -> PrimExpr:
        """Ramps stay ramps through sums, and products with a scalar."""
        a, b = self.visit_expr(e.a), self.visit_expr(e.b)
        if a is e.a and b is e.b:
            return e
        cls = type(e)
        if dt.lanes(a.dtype) != dt.lanes(b.dtype):
            ramp = self._ramp_with_scalar(cls, a, b)
            if ramp is not None:
                return ramp
        elif isinstance(a, Ramp) and isinstance(b, Ramp) and cls in (Add, Sub):
            return Ramp(_SUMS[cls](a.base, b.base), _SUMS[cls](a.stride, b.stride), a.lanes)
        a, b = self.widen_all((a, b))
        new = cls(a, b)
        return self.analyzer.simplify(new) if cls in (FloorDiv, FloorMod) else new

    def _ramp_with_scalar(self, cls: type, a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
        if isinstance(a, Ramp):
            if cls in (Add, Sub):
                return Ramp(_SUMS[cls](a.base, b), a.stride, a.lanes)
            if cls is Mul:
                return Ramp(ops.mul(a.base, b), ops.mul(a.stride, b), a.lanes)
        elif isinstance(b, Ramp):
            if cls is Add:
                return Ramp(ops.add(a, b.base), b.stride, b.lanes)
            if cls is Sub:
                return Ramp(ops.sub(a, b.base), ops.neg(b.stride), b.lanes)
            if cls is Mul:
                return Ramp(ops.mul(a, b.base), ops.mul(a, b.stride), b.lanes)
        return None

    def visit_not(self, e: Not) -> PrimExpr:
        """Lane by lane."""
        a = self.visit_expr(e.a)
        return e if a is e.a else Not(a)

    def visit_cast(self, e: Cast) -> PrimExpr:
        """Lane by lane."""
        value = self.visit_expr(e.value)
        return e if value is e.value else ops.cast(dt.with_lanes(e.dtype, dt.lanes(value.dtype)), value)

    def visit_select(self, e: Select) -> PrimExpr:
        """Lane by lane; a condition that is the same for all lanes stays scalar."""
        parts = [self.visit_expr(x) for x in (e.condition, e.true_value, e.false_value)]
        if parts[0] is e.condition and parts[1] is e.true_value and parts[2] is e.false_value:
            return e
        values = self.widen_all(parts[1:] if dt.lanes(parts[0].dtype) == 1 else parts)
        return Select(parts[0], *values) if len(values) == 2 else Select(*values)

    def visit_ramp(self, e: Ramp) -> PrimExpr:
        """Vectors of vectors have no form."""
        return self._only_unchanged(e, (e.base, e.stride))

    def visit_broadcast(self, e: Broadcast) -> PrimExpr:
        """Vectors of vectors have no form."""
        return self._only_unchanged(e, (e.value,))

    def visit_shuffle(self, e: Shuffle) -> PrimExpr:
        """Vectors of vectors have no form."""
        return self._only_unchanged(e, (*e.vectors, *e.indices))

    def visit_reduce(self, e: Reduce) -> PrimExpr:
        """A reduction inside an expression has no vector form."""
        return self._only_unchanged(e, (*e.source, e.condition))

    def _only_unchanged(self, e: PrimExpr, parts: Sequence[PrimExpr]) -> PrimExpr:
        if any(self.visit_expr(p) is not p for p in parts):
            raise _NeedsScalars
        return e

    def visit_let(self, e: Let) -> PrimExpr:
        """Make the name a vector when its value is one."""
        value = self.visit_expr(e.value)
        var = self._renamed(e.var, value)
        body = self.visit_expr(e.body)
        return e if value is e.value and body is e.body else Let(var, value, body)

    def _renamed(self, var: Var, value: PrimExpr) -> Var:
        if value.dtype == var.dtype:
            return var
        new = Var(var.name, value.dtype)
        self.vectors[var] = self.memo[var] = new
        return new

    def visit_load(self, e: Load) -> PrimExpr:
        """A vector index loads a vector."""
        index, predicate = self.visit_expr(e.index), self.visit_expr(e.predicate)
        if index is e.index and predicate is e.predicate:
            return e
        if dt.lanes(e.dtype) != 1:
            raise _NeedsScalars
        index, predicate = self.widen_all((index, predicate))
        return Load(
            dt.with_lanes(e.dtype, dt.lanes(index.dtype)), e.buffer_var, self.analyzer.simplify(index), predicate
        )

    def visit_buffer_load(self, e: BufferLoad) -> PrimExpr:
        """Buffers are flat by now; one that is not stays scalar."""
        return self._only_unchanged(e, e.indices)

    def visit_call(self, e: Call) -> PrimExpr:
        """Vectorise lane-wise intrinsics."""
        name = e.op.name if isinstance(e.op, Op) else ""
        if name == "tir.if_then_else":
            return self._if_then_else(e)
        args = self.visit_exprs(e.args)
        if args is e.args:
            return e
        if name not in _LANEWISE:
            raise _NeedsScalars
        if name == "tir.q_multiply_shift":
            wide = [self.widen_all(args[:1])[0], *args[1:]]
            if any(dt.lanes(a.dtype) != 1 for a in args[1:]):
                raise _NeedsScalars
        else:
            wide = self.widen_all(args)
        return Call(dt.with_lanes(e.dtype, dt.lanes(wide[0].dtype)), e.op, wide)

    def _if_then_else(self, e: Call) -> PrimExpr:
        condition = self.visit_expr(e.args[0])
        vector_condition = self.analyzer.simplify(condition)
        if isinstance(vector_condition, Broadcast):
            condition = vector_condition.value
        if isinstance(condition, IntImm):
            return self.visit_expr(e.args[1] if condition.value else e.args[2])
        a, b = self.visit_expr(e.args[1]), self.visit_expr(e.args[2])
        if condition is e.args[0] and a is e.args[1] and b is e.args[2]:
            return e
        if dt.lanes(condition.dtype) == 1:
            a, b = self.widen_all((a, b))
            return Call(a.dtype, e.op, (condition, a, b))
        if side_effect(a) != "pure" or side_effect(b) != "pure" or is_unsafe(a) or is_unsafe(b):
            raise _NeedsScalars
        return Select(*self.widen_all((condition, a, b)))

    def scalarize(self, s: Stmt) -> Stmt:
        """Run ``s`` in a serial loop over the lanes."""
        var = Var(self.var.name + ".s", self.var.dtype)
        body = substitute(s, {self.var: ops.add(self.low, var)})
        return For(var, 0, self.lanes, ForKind.SERIAL, body)

    def visit_stmt(self, stmt: Stmt) -> Stmt:
        """Return the vector form, or a serial loop if there is none."""
        try:
            return super().visit_stmt(stmt)
        except _NeedsScalars:
            return self.scalarize(stmt)

    def visit_store(self, s: Store) -> Stmt:
        """A vector index stores a vector."""
        try:
            return self._vector_store(s)
        except _NeedsScalars:
            guarded = self._guarded_store(s)
            if guarded is None:
                raise
            return guarded

    def _guarded_store(self, s: Store) -> Stmt | None:
        """Store a vector if all lanes take the first value of the choices in ``s``, else run a serial loop."""
        choices = _LaneChoices(self)
        choices.visit_expr(s.value)
        whole: PrimExpr = IntImm("bool", 1)
        for condition in choices.conditions:
            holds = self._holds_for_all(condition)
            if holds is None:
                return None
            whole = ops.logical_and(whole, holds)
        if isinstance(whole, IntImm):
            return None
        taken = _TakeFirst(frozenset(choices.conditions)).visit_expr(s.value)
        vector = self._vector_store(s.replace(value=taken))
        return IfThenElse(self.analyzer.simplify(whole), vector, self.scalarize(s))

    def _vector_store(self, s: Store) -> Stmt:
        value, index, predicate = self.visit_expr(s.value), self.visit_expr(s.index), self.visit_expr(s.predicate)
        if value is s.value and index is s.index and predicate is s.predicate:
            if any(v is s.buffer_var for v in stmt_vars(s.value)):  # an update, done once for each lane
                raise _NeedsScalars
            return s
        if dt.lanes(index.dtype) == dt.lanes(s.index.dtype) or dt.lanes(s.value.dtype) != 1:
            raise _NeedsScalars
        value, index, predicate = self.widen_all((value, index, predicate))
        return Store(s.buffer_var, value, self.analyzer.simplify(index), predicate)

    def visit_buffer_store(self, s: BufferStore) -> Stmt:
        """Buffers are flat by now; one that is not stays scalar."""
        raise _NeedsScalars

    def visit_buffer_realize(self, s: BufferRealize) -> Stmt:
        """Buffers are flat by now; one that is not stays scalar."""
        raise _NeedsScalars

    def visit_if_then_else(self, s: IfThenElse) -> Stmt:
        """A condition that differs between lanes is tested for the whole vector, or lane by lane."""
        condition = self.visit_expr(s.condition)
        if condition is not s.condition:
            simple = self.analyzer.simplify(condition)
            if not isinstance(simple, Broadcast):
                return self._guarded(s)
            condition = simple.value
        then_case = self.visit_stmt(s.then_case)
        else_case = None if s.else_case is None else self.visit_stmt(s.else_case)
        return IfThenElse(condition, then_case, else_case)

    def _guarded(self, s: IfThenElse) -> Stmt:
        if s.else_case is not None:
            raise _NeedsScalars
        count = self._passing_lanes(s.condition)
        if count is not None:
            return self._first_lanes(s.then_case, count)
        whole = self._holds_for_all(s.condition)
        if whole is None or isinstance(whole, IntImm):
            raise _NeedsScalars
        inner = self.visit_stmt(s.then_case)
        if isinstance(inner, For) and inner.loop_var.name == self.var.name + ".s":
            raise _NeedsScalars
        with self.analyzer.constraint_scope(ops.logical_not(whole)):
            count = self._passing_lanes(s.condition)
            rest = self.scalarize(s) if count is None else self._first_lanes(s.then_case, count)
        return IfThenElse(whole, inner, rest)

    def _passing_lanes(self, condition: PrimExpr) -> int | None:
        """Return how many lanes pass, from the first on, when the condition is a bound of the lane by a literal."""
        simple = self.analyzer.simplify(condition)
        if is_intrinsic(simple, "tir.likely"):
            simple = simple.args[0]  # type: ignore[attr-defined]
        if not isinstance(self.low, IntImm) or not isinstance(simple, (LT, LE)):
            return None
        if simple.a is not self.var or not isinstance(simple.b, IntImm):
            return None
        count = simple.b.value - self.low.value + (1 if isinstance(simple, LE) else 0)
        return min(max(count, 0), self.lanes)

    def _first_lanes(self, body: Stmt, count: int) -> Stmt:
        """The first ``count`` lanes of ``body``, as vectors of powers of two."""
        parts: list[Stmt] = []
        start = 0
        while start < count:
            size = 1 << ((count - start).bit_length() - 1)
            low = ops.add(self.low, start)
            if size == 1:
                part = substitute(body, {self.var: low})
            else:
                part = _Vectorizer(self.var, low, size, self.analyzer).visit_stmt(body)
            parts.append(with_fresh_vars(part) if parts else part)
            start += size
        return seq(*parts)

    def _holds_for_all(self, condition: PrimExpr) -> PrimExpr | None:
        """The condition at both ends of the vector, when between them it can only hold too and the ends are simple.

        Conditions on values that are not known while compiling stay with the serial loop.
        """
        known = self.analyzer.context.var_bounds
        conjuncts: list[PrimExpr] = []
        work = [condition]
        while work:
            c = work.pop()
            if isinstance(c, Call) and isinstance(c.op, Op) and c.op.name == "tir.likely":
                work.append(c.args[0])
            elif isinstance(c, And):
                work += [c.b, c.a]
            else:
                conjuncts.append(c)
        result: PrimExpr = IntImm("bool", 1)
        for c in conjuncts:
            if not all(v is self.var or v in known for v in free_vars(c)) or not is_pure(c):
                return None
            if not any(v is self.var for v in free_vars(c)):
                result = ops.logical_and(result, c)
                continue
            simple = self.analyzer.simplify(c)
            if not isinstance(simple, (LT, LE)) or not self._is_linear(simple.a) or not self._is_linear(simple.b):
                return None
            for lane in (0, self.lanes - 1):
                result = ops.logical_and(result, substitute(simple, {self.var: ops.add(self.low, lane)}))
        return self.analyzer.simplify(result)

    def _is_linear(self, e: PrimExpr) -> bool:
        return dt.lanes(e.dtype) == 1 and (self.visit_expr(e) is e or isinstance(self.visit_expr(e), Ramp))

    def visit_for(self, s: For) -> Stmt:
        """A loop inside runs for all lanes together, unless its bounds differ between lanes."""
        low, extent = self.visit_expr(s.min), self.visit_expr(s.extent)
        if low is not s.min or extent is not s.extent:
            raise _NeedsScalars
        conclusions = self.analyzer.context.simplify_memo
        bind_range(self.analyzer, s.loop_var, low, extent)
        if self.analyzer.context.simplify_memo is not conclusions:  # the variable had another range before
            self.memo = dict(self.vectors)
        body = self.visit_stmt(s.body)
        return s if body is s.body else For(s.loop_var, low, extent, s.kind, body, s.thread_binding, s.annotations)

    def visit_while(self, s: While) -> Stmt:
        """A while loop runs lane by lane."""
        raise _NeedsScalars

    def visit_let_stmt(self, s: LetStmt) -> Stmt:
        """Make the name a vector when its value is one."""
        value = self.visit_expr(s.value)
        var = self._renamed(s.var, value)
        body = self.visit_stmt(s.body)
        return s if value is s.value and body is s.body else LetStmt(var, value, body)

    def visit_allocate(self, s: Allocate) -> Stmt:
        """Allocate one element for each lane, along a new innermost dimension."""
        if any(self.visit_expr(x) is not x for x in (*s.extents, s.condition)):
            raise _NeedsScalars
        lane = ops.sub(self.var, self.low)
        body = _PerLane(s.buffer_var, lane, self.lanes).visit_stmt(s.body)
        size = ops.const(self.lanes, s.extents[0].dtype if s.extents else "int32")
        return Allocate(s.buffer_var, s.dtype, (*s.extents, size), s.condition, self.visit_stmt(body), s.annotations)

    def visit_attr(self, s: AttrStmt) -> Stmt:
        """The value must be the same for all lanes."""
        if self.visit_expr(s.value) is not s.value:
            raise _NeedsScalars
        body = self.visit_stmt(s.body)
        return s if body is s.body else s.replace(body=body)

    def visit_assert(self, s: AssertStmt) -> Stmt:
        """The condition must be the same for all lanes."""
        if self.visit_expr(s.condition) is not s.condition:
            raise _NeedsScalars
        body = self.visit_stmt(s.body)
        return s if body is s.body else s.replace(body=body)

    def visit_seq(self, s: SeqStmt) -> Stmt:
        """Each statement by itself."""
        return StmtExprMutator.visit_seq(self, s)

    def visit_evaluate(self, s: Evaluate) -> Stmt:
        """An effect happens once for each lane."""
        if is_pure(s.value):
            return s
        raise _NeedsScalars


class _LaneChoices(ExprVisitor):
    """Conditions of if_then_else that differ between lanes."""

    def __init__(self, vectorizer: _Vectorizer) -> None:
        super().__init__()
        self.vectorizer = vectorizer
        self.conditions: dict[PrimExpr, None] = {}

    def visit_call(self, e: Call) -> None:
        if is_intrinsic(e, "tir.if_then_else"):
            condition = e.args[0]
            if any(v is self.vectorizer.var for v in free_vars(condition)):
                self.conditions[condition] = None
        super().visit_call(e)


class _TakeFirst(ExprMutator):
    """Replaces choices with one of some conditions by their first value."""

    def __init__(self, conditions: frozenset[PrimExpr]) -> None:
        super().__init__()
        self.conditions = conditions

    def visit_call(self, e: Call) -> PrimExpr:
        if is_intrinsic(e, "tir.if_then_else") and e.args[0] in self.conditions:
            return self.visit_expr(e.args[1])
        return super().visit_call(e)


class _PerLane(StmtExprMutator):
    """Gives every lane its own element of an allocation."""

    def __init__(self, buffer_var: Var, lane: PrimExpr, lanes: int) -> None:
        super().__init__()
        self.buffer_var = buffer_var
        self.lane = lane
        self.lanes = lanes

    def _index(self, index: PrimExpr) -> PrimExpr:
        if dt.lanes(index.dtype) != 1:
            raise _NeedsScalars
        return ops.add(ops.mul(index, self.lanes), self.lane)

    def visit_load(self, e: Load) -> PrimExpr:
        """Move the index."""
        new = super().visit_load(e)
        assert isinstance(new, Load)
        return new.replace(index=self._index(new.index)) if e.buffer_var is self.buffer_var else new

    def visit_store(self, s: Store) -> Stmt:
        """Move the index."""
        new = super().visit_store(s)
        assert isinstance(new, Store)
        return new.replace(index=self._index(new.index)) if s.buffer_var is self.buffer_var else new

    def visit_call(self, e: Call) -> PrimExpr:
        """The address may not go elsewhere."""
        if any(a is self.buffer_var for a in e.args):
            raise _NeedsScalars
        return super().visit_call(e)


class _FindVectorized(ScopedMutator):
    def visit_for(self, s: For) -> Stmt:
        if s.kind != ForKind.VECTORIZED:
            return super().visit_for(s)
        extent = self.analyzer.simplify(s.extent)
        if not isinstance(extent, IntImm):
            if any(v in self.analyzer.context.var_bounds for v in free_vars(extent)):
                # bound inference gave a size that changes from one outer iteration to the next
                return super().visit_for(s.replace(kind=ForKind.SERIAL))
            raise TilewrightError(
                f"the vectorized loop {s.loop_var.name} has {s.extent} iterations; the number must be known while "
                "compiling: split the axis by a constant factor and vectorize the inner part"
            )
        if extent.value > _WIDENED and extent.value & (extent.value - 1):
            return self._in_parts(s, extent.value)
        self.bind(s.loop_var, s.min, extent)
        body = self.visit_stmt(s.body)
        if extent.value <= 1:
            return Evaluate(0) if extent.value < 1 else substitute(body, {s.loop_var: s.min})
        return _Vectorizer(s.loop_var, s.min, extent.value, self.analyzer).visit_stmt(body)

    def _in_parts(self, s: For, extent: int) -> Stmt:
        """The loop as several, each with a power of two of iterations."""
        parts: list[Stmt] = []
        low = s.min
        for lanes in (1 << bit for bit in reversed(range(extent.bit_length())) if extent >> bit & 1):
            var = Var(s.loop_var.name, s.loop_var.dtype)
            body = substitute(s.body, {s.loop_var: var})
            part = For(var, low, ops.const(lanes, var.dtype), s.kind, body, s.thread_binding, s.annotations)
            parts.append(self.visit_stmt(part if not parts else with_fresh_vars(part)))
            low = ops.add(low, lanes)
        return seq(*parts)

    def visit_expr(self, expr: PrimExpr) -> PrimExpr:
        return expr


def vectorize_loop(stmt: Stmt) -> Stmt:
    """Vectorise the loops of ``stmt`` that are marked so, the innermost first."""
    return _FindVectorized().visit_stmt(stmt)


def skip_vectorize(stmt: Stmt) -> Stmt:
    """Make the marked loops serial instead."""

    class _Serial(StmtExprMutator):
        def visit_for(self, s: For) -> Stmt:
            new = super().visit_for(s)
            if isinstance(new, For) and new.kind == ForKind.VECTORIZED:
                return For(new.loop_var, new.min, new.extent, ForKind.SERIAL, new.body, None, new.annotations)
            return new

        def visit_expr(self, expr: PrimExpr) -> PrimExpr:
            return expr

    return _Serial().visit_stmt(stmt)


def VectorizeLoop(enable_vectorize: bool = True) -> Pass:
    """The pass; when not enabled, marked loops become serial."""
    return body_pass("VectorizeLoop", vectorize_loop if enable_vectorize else skip_vectorize)
