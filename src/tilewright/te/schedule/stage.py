"""Stages: the loops of one operation, and the primitives that change them.

A stage starts with one loop for each root iteration variable of its operation (``leaf_iter_vars``, outermost first).
Primitives replace leaves by new ones and remember how (``relations``):

    relation ::= Split(parent, outer, inner, factor | nparts) | Fuse(outer, inner, fused)
               | Rebase(parent, rebased) | Singleton(iter)
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import PrimExpr, StringImm
from tilewright.te.operation import ComputeOp, Operation, PlaceholderOp
from tilewright.te.tensor import Tensor
from tilewright.tir.expr import IterVar, IterVarType, Range

if TYPE_CHECKING:
    from tilewright.te.schedule.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Split:
    """parent = outer * factor + inner; exactly one of ``factor`` and ``nparts`` is set."""

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: PrimExpr | None
    nparts: PrimExpr | None


@dataclass(frozen=True, eq=False)
class Fuse:
    """fused = outer * extent(inner) + inner"""

    outer: IterVar
    inner: IterVar
    fused: IterVar


@dataclass(frozen=True, eq=False)
class Rebase:
    """parent = rebased + min(parent); made while lowering, so that loops start at 0."""

    parent: IterVar
    rebased: IterVar


@dataclass(frozen=True, eq=False)
class Singleton:
    """A loop of one iteration, made by fusing nothing (a scalar output)."""

    iter: IterVar


Relation = Split | Fuse | Rebase | Singleton
Axes = IterVar | Sequence[IterVar]


class AttachType(enum.IntEnum):
    """Attachment of a stage; the numbers are TVM's.

    ROOT is the outermost level of the stage's group, or of the whole program when it is in none.
    """

    ROOT = 1
    INLINE = 2
    SCOPE = 4
    SCAN_UPDATE = 5


@dataclass(frozen=True)
class Ahead:
    """A request of ``Stage.prefetch``: ``tensor``, ``offset`` iterations ahead, of ``loop`` unless None."""

    tensor: Tensor
    offset: PrimExpr
    loop: IterVar | None
    stream: bool


@dataclass
class IterVarAttr:
    """Annotations of one loop, made by the primitives."""

    iter_type: IterVarType = IterVarType.DataPar
    bind_thread: IterVar | None = None
    prefetch: list[Ahead] = field(default_factory=list)
    tensor_intrin: Any = None
    dim_align_factor: int = 0
    dim_align_offset: int = 0
    pragmas: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def pragma_keys(self) -> tuple[StringImm, ...]:
        """The names of the pragmas."""
        return tuple(StringImm(key) for key, _ in self.pragmas)

    @property
    def pragma_values(self) -> tuple[PrimExpr | None, ...]:
        """The values of the pragmas; None for one that has none."""
        return tuple(None if value is None else ops.as_expr(value) for _, value in self.pragmas)

    def copy(self) -> IterVarAttr:
        """Return a copy that can be changed independently."""
        return replace(self, prefetch=list(self.prefetch), pragmas=list(self.pragmas))


_SPLITTABLE = (IterVarType.DataPar, IterVarType.CommReduce, IterVarType.Ordered)
_KIND_NAMES = {
    IterVarType.DataPar: "data-parallel axis",
    IterVarType.CommReduce: "reduction axis",
    IterVarType.Ordered: "scan axis",
    IterVarType.ThreadIndex: "thread axis",
    IterVarType.Opaque: "axis that is not a loop",
}


class Stage:
    """One operation and its loops: the operation's axes, and those made by split and fuse.

    A stage without operation is a group (``Schedule.create_group``): it attaches its stages that are not attached to
    one another.
    """

    def __init__(self, op: Operation | None, schedule: Schedule) -> None:
        self.op: Any = op  # a ComputeOp has axes and a body, others have not
        self.origin_op = op
        self.schedule = schedule
        axes = op.root_iter_vars if op is not None else ()
        self.all_iter_vars: list[IterVar] = list(axes)
        self.leaf_iter_vars: list[IterVar] = [iv for iv in axes if iv.iter_type is not IterVarType.Opaque]
        self.group: Stage | None = None
        self.relations: list[Relation] = []
        self.iter_var_attrs: dict[IterVar, IterVarAttr] = {}
        self.env_thread_axes: list[IterVar] = []
        self.store_predicate: PrimExpr | None = None
        self.attach_type = AttachType.ROOT
        self.attach_stage: Stage | None = None
        self.attach_ivar: IterVar | None = None
        self.scope = ""
        self.is_output = False
        self.is_double_buffered = False

    @property
    def name(self) -> str:
        """Name of the operation."""
        return "group" if self.op is None else str(self.op.name)

    @property
    def num_child_stages(self) -> int:
        """Number of stages and groups directly in a group."""
        return sum(s.group is self for s in (*self.schedule.stages, *self.schedule.groups))

    @property
    def attach_spec(self) -> Stage:
        """The stage or group whose attachment holds for this one: the outermost group attached as far out."""
        spec = self
        while spec.attach_type is AttachType.ROOT and spec.group is not None:
            spec = spec.group
        return spec

    def groups_around(self) -> list[Stage]:
        """The groups that this is in, innermost first."""
        found: list[Stage] = []
        group = self.group
        while group is not None:
            found.append(group)
            group = group.group
        return found

    def __repr__(self) -> str:
        return f"stage({self.name}, {self.op})"

    def _fail(self, what: str) -> TilewrightError:
        return TilewrightError(f"stage {self.name}: {what}")

    def _position(self, axis: Any, what: str) -> int:
        """Return the position of a leaf axis; raises TilewrightError with the reason when it is none."""
        if not isinstance(axis, IterVar):
            raise self._fail(f"{what} takes an axis (IterVar), got {type(axis).__name__} {axis!r}")
        for index, leaf in enumerate(self.leaf_iter_vars):
            if leaf is axis:
                return index
        name = axis.var.name
        present = ", ".join(iv.var.name for iv in self.leaf_iter_vars) or "none"
        if any(axis is iv for iv in self.all_iter_vars):
            raise self._fail(f"{what}: axis {name} was already split or fused; the axes now are {present}")
        raise self._fail(f"{what}: axis {name} does not belong to this stage; its axes are {present}")

    def _splittable(self, axis: Any, what: str) -> int:
        position = self._position(axis, what)
        if axis.iter_type not in _SPLITTABLE:
            raise self._fail(f"{what}: {axis.var.name} is a {_KIND_NAMES[axis.iter_type]} and cannot be changed so")
        return position

    def attr(self, axis: IterVar) -> IterVarAttr:
        """Return the annotations of ``axis``, creating them if there are none."""
        return self.iter_var_attrs.setdefault(axis, IterVarAttr(axis.iter_type))

    def split(self, parent: IterVar, factor: Any = None, nparts: Any = None) -> tuple[IterVar, IterVar]:
        """Split a loop into two.

        args:
            parent: the loop
            factor: extent of the inner loop, or
            nparts: extent of the outer loop
        rewrite:
            for i in 0..n: s(i)
            ->
            for i.outer in 0..ceil(n / factor):
              for i.inner in 0..factor:
                if i.outer*factor + i.inner < n: s(i.outer*factor + i.inner)      the test only where it may fail
        returns: (outer, inner)
        """
        position = self._splittable(parent, "split")
        if (factor is None) == (nparts is None):
            raise self._fail(f"split of {parent.var.name}: give either factor or nparts")
        dtype = parent.var.dtype
        outer = IterVar(None, _like(parent, ".outer"), parent.iter_type)
        inner = IterVar(None, _like(parent, ".inner"), parent.iter_type)
        relation = Split(
            parent,
            outer,
            inner,
            None if factor is None else self._positive(parent, "factor", factor, dtype),
            None if nparts is None else self._positive(parent, "nparts", nparts, dtype),
        )
        self.relations.append(relation)
        self.all_iter_vars += [outer, inner]
        self.leaf_iter_vars[position : position + 1] = [outer, inner]
        return outer, inner

    def _positive(self, axis: IterVar, what: str, value: Any, dtype: str) -> PrimExpr:
        expr = ops.cast(dtype, ops.as_expr(value))
        if ops.is_const_int(expr) and int(expr) <= 0:  # type: ignore[call-overload]
            raise self._fail(f"split of {axis.var.name}: {what} must be positive, got {expr}")
        return expr

    def fuse(self, *args: IterVar) -> IterVar:
        """Fuse adjacent loops, outermost first, into one; fusing nothing makes a loop of one iteration.

        args:
            args: the loops
        rewrite:
            for i in 0..n:
              for j in 0..m: s(i, j)
            ->
            for i.j.fused in 0..n*m: s(i.j.fused // m, i.j.fused % m)
        returns: the new loop
        """
        if not args:
            single = IterVar(Range(0, 1), "singleton", IterVarType.DataPar)
            self.relations.append(Singleton(single))
            self.all_iter_vars.append(single)
            self.leaf_iter_vars.insert(0, single)
            return single
        fused = args[0]
        self._splittable(fused, "fuse")
        for axis in args[1:]:
            fused = self._fuse_two(fused, axis)
        return fused

    def _fuse_two(self, outer: IterVar, inner: IterVar) -> IterVar:
        first, second = self._splittable(outer, "fuse"), self._splittable(inner, "fuse")
        if first == second + 1:
            outer, inner, first, second = inner, outer, second, first
        if second != first + 1:
            raise self._fail(
                f"fuse: {outer.var.name} and {inner.var.name} are not adjacent; the axes are "
                f"{', '.join(iv.var.name for iv in self.leaf_iter_vars)}: reorder them first"
            )
        kind = max(outer.iter_type, inner.iter_type)
        dtype = max(outer.var.dtype, inner.var.dtype, key=dt.bits)
        fused = IterVar(None, type(outer.var)(f"{outer.var.name}.{inner.var.name}.fused", dtype), kind)
        self.relations.append(Fuse(outer, inner, fused))
        self.all_iter_vars.append(fused)
        self.leaf_iter_vars[first : second + 1] = [fused]
        return fused

    def reorder(self, *args: IterVar) -> None:
        """Put loops into a new order, in the positions that they occupy together.

        args:
            args: loops of this stage, outermost first
        rewrite (reorder(j, i)):
            for i in 0..n:
              for j in 0..m: s
            ->
            for j in 0..m:
              for i in 0..n: s
        """
        positions = [self._position(axis, "reorder") for axis in args]
        if len(set(positions)) != len(positions):
            raise self._fail(f"reorder: an axis is given twice in {', '.join(a.var.name for a in args)}")
        for position, axis in zip(sorted(positions), args, strict=True):
            self.leaf_iter_vars[position] = axis

    def tile(
        self, x_parent: IterVar, y_parent: IterVar, x_factor: Any, y_factor: Any
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two loops and put both outer ones outside.

        args:
            x_parent, y_parent: the loops
            x_factor, y_factor: extents of the inner loops
        rewrite:
            for x in 0..n:
              for y in 0..m: s
            ->
            for x.outer: for y.outer: for x.inner in 0..x_factor: for y.inner in 0..y_factor: s
        returns: (x.outer, y.outer, x.inner, y.inner)
        """
        x_outer, x_inner = self.split(x_parent, factor=x_factor)
        y_outer, y_inner = self.split(y_parent, factor=y_factor)
        self.reorder(x_outer, y_outer, x_inner, y_inner)
        return x_outer, y_outer, x_inner, y_inner

    def _annotate(self, var: Axes, kind: IterVarType, what: str, refuse: Sequence[IterVarType] = ()) -> None:
        for axis in _as_axes(var):
            self._position(axis, what)
            if axis.iter_type in refuse:
                raise self._fail(
                    f"{what}: {axis.var.name} is a {_KIND_NAMES[axis.iter_type]}, whose iterations depend on one "
                    "another; use rfactor to make part of a reduction parallel"
                )
            self.attr(axis).iter_type = kind

    def vectorize(self, var: Axes) -> None:
        """Run the iterations of a loop of constant extent as one vector.

        args:
            var: a data-parallel loop, or several
        rewrite:
            for i in 0..4: C[i] = A[i]
            ->
            C[ramp(0, 1, 4)] = A[ramp(0, 1, 4)]
        """
        self._annotate(var, IterVarType.Vectorized, "vectorize", (IterVarType.CommReduce, IterVarType.Ordered))

    def unroll(self, var: Axes) -> None:
        """Write out every iteration of a loop of constant extent.

        args:
            var: a loop, or several
        rewrite:
            for i in 0..2: s(i)
            ->
            s(0); s(1)
        """
        self._annotate(var, IterVarType.Unrolled, "unroll")

    def parallel(self, var: Axes) -> None:
        """Share the iterations of a loop among the threads of the pool.

        args:
            var: a data-parallel loop, or several
        rewrite:
            for i in 0..n: s
            ->
            for i in 0..n "parallel": s
        """
        self._annotate(var, IterVarType.Parallelized, "parallel", (IterVarType.CommReduce, IterVarType.Ordered))

    def bind(self, ivar: IterVar, thread_ivar: IterVar) -> None:
        """Let the threads of ``thread_ivar`` be the iterations of a loop.

        args:
            ivar: a loop
            thread_ivar: from te.thread_axis
        rewrite:
            for i in 0..64: s(i)
            ->
            attr [IterVar(threadIdx.x)] "thread_extent" = 64: s(threadIdx.x)

        The threads of a ``threadIdx`` axis may reduce together: each reduces what its index says, then all their
        results are combined (``LowerThreadAllreduce``), and every thread has the whole::

            for k in 0..64: B[0] += A[k]
            ->
            attr [IterVar(threadIdx.x)] "thread_extent" = 64: allreduce(A[threadIdx.x], t); B[0] = t
        """
        self._position(ivar, "bind")
        if not isinstance(thread_ivar, IterVar) or thread_ivar.iter_type is not IterVarType.ThreadIndex:
            raise self._fail(f"bind: the second argument must be a te.thread_axis, got {thread_ivar!r}")
        if ivar.iter_type is IterVarType.CommReduce and thread_ivar.thread_tag.startswith("blockIdx"):
            raise self._fail(
                f"bind: {ivar.var.name} is a reduction axis, and blocks cannot add to one value; bind it to threadIdx, "
                "or rfactor it and bind the axis of the partial result"
            )
        self.attr(ivar).bind_thread = thread_ivar

    def env_threads(self, threads: Axes) -> None:
        """Run the whole of a scan inside threads.

        args:
            threads: one thread axis or several
        rewrite:
            s
            ->
            attr [IterVar(threadIdx.x)] "thread_extent" = n: s
        """
        for axis in _as_axes(threads):
            if axis.dom is None:
                raise self._fail(f"env_threads: {axis.thread_tag} has no extent; give te.thread_axis one")
            self.env_thread_axes.append(axis)

    def set_scope(self, scope: str) -> Stage:
        """Keep the stage's result in memory of ``scope`` ("global", "local", "shared").

        rewrite:
            allocate(B, [n])
            ->
            allocate(B, [n]), storage_scope = local
        """
        self.scope = scope
        return self

    def set_store_predicate(self, predicate: PrimExpr) -> None:
        """Store only where ``predicate`` holds; typically that a thread index is 0.

        rewrite:
            B[i] = v
            ->
            if predicate: B[i] = v
        """
        self.store_predicate = ops.as_expr(predicate)

    def compute_at(self, parent: Stage, scope: IterVar) -> Stage:
        """Attach this stage inside a loop of a consumer, to compute what one iteration needs.

        args:
            parent: stage of a consumer (or one that contains all consumers)
            scope: loop of ``parent``
        rewrite:
            for i in 0..n: B[i] = f(A[i])
            for i in 0..n: C[i] = g(B[i])
            ->
            for i in 0..n:
              B[i] = f(A[i])
              C[i] = g(B[i])
        """
        if not isinstance(parent, Stage):
            raise self._fail(f"compute_at takes a stage, such as s[C], got {type(parent).__name__}")
        if parent is self:
            raise self._fail("compute_at: a stage cannot be computed inside its own loops")
        self._refuse_in_scan("compute_at")
        parent._position(scope, f"compute_at of {self.name}")
        if self.group is not None and self.group not in parent.groups_around():
            raise self._fail(f"compute_at: {parent.name} is outside the group (or the scan) that this is in")
        if self.op is not None and not self.schedule.consumes(parent.op, self.op):
            raise self._fail(
                f"compute_at: {parent.op.name} does not read {self.op.name}, directly or through other stages; "
                "compute it at a stage that does"
            )
        self.attach_type, self.attach_stage, self.attach_ivar = AttachType.SCOPE, parent, scope
        return self

    def compute_inline(self) -> None:
        """Write the value at every use instead of storing it.

        rewrite:
            for i in 0..n: B[i] = A[i] + 1
            for i in 0..n: C[i] = B[i] * 2
            ->
            for i in 0..n: C[i] = (A[i] + 1) * 2
        """
        self._refuse_in_scan("compute_inline")
        if self.op is None:
            raise self._fail("compute_inline: a group has no value; inline the stages in it")
        if isinstance(self.op, PlaceholderOp):
            raise self._fail("compute_inline: an input is not computed")
        if not isinstance(self.op, ComputeOp):
            raise self._fail(f"compute_inline: only element-wise computes can be inlined, not {type(self.op).__name__}")
        if self.op.reduce_axis:
            raise self._fail("compute_inline: a reduction cannot be inlined; use compute_at")
        if self.is_output:
            raise self._fail("compute_inline: it is an output of the schedule, which must be stored")
        self.attach_type = AttachType.INLINE

    def compute_root(self) -> Stage:
        """Compute the whole tensor before its consumers: the default, undoing compute_at and compute_inline."""
        self._refuse_in_scan("compute_root")
        self.attach_type, self.attach_stage, self.attach_ivar = AttachType.ROOT, None, None
        return self

    def _refuse_in_scan(self, what: str) -> None:
        if self.is_scan_update() or self.attach_type is AttachType.SCAN_UPDATE:
            raise self._fail(f"{what}: it is the update of a scan, whose place is fixed")

    def is_scan_update(self) -> bool:
        """Return whether this stage computes the next state of a scan."""
        scans = [g.attach_stage.op for g in self.groups_around() if g.attach_type is AttachType.SCAN_UPDATE]  # type: ignore[union-attr]
        return any(self.op is t.op for scan in scans for t in scan.update)

    def tensorize(self, var: IterVar, tensor_intrin: Any) -> None:
        """Replace a loop and all inside it by a hardware intrinsic that computes the same.

        args:
            var: the outermost loop of the block
            tensor_intrin: from te.decl_tensor_intrin; its reference compute must match the block
        rewrite:
            for i.inner in 0..16:
              for k in 0..l: C[i.outer*16 + i.inner] += A[...]*B[...]
            ->
            gemv(&C[i.outer*16], &A[...], &B[...])
        """
        self._position(var, "tensorize")
        attr = self.attr(var)
        attr.iter_type, attr.tensor_intrin = IterVarType.Tensorized, tensor_intrin

    def pragma(self, var: IterVar, pragma_type: str, pragma_value: Any = None) -> None:
        """Attach a named hint to a loop, for later passes ("auto_unroll_max_step", "unroll_explicit", "import_llvm").

        args:
            var: a loop
            pragma_type, pragma_value: name and value (a number or a string)
        rewrite:
            for i: s
            ->
            attr [IterVar(i)] "pragma_<type>" = value: for i: s
        """
        if pragma_type == "unroll":
            self.unroll(var)
            return
        if pragma_type == "vectorize":
            self.vectorize(var)
            return
        self._position(var, "pragma")
        self.attr(var).pragmas.append((pragma_type, pragma_value))

    def prefetch(
        self, tensor: Tensor, var: IterVar, offset: Any, ahead: IterVar | None = None, stream: bool = False
    ) -> None:
        """Prefetch the part of ``tensor`` that is read ``offset`` iterations of ``var`` later.

        args:
            tensor: an input of this stage
            var: a loop
            offset: number of iterations ahead
            ahead: a loop around ``var``, of this stage or of one that it is attached to, whose iterations count
                instead. The reads of its later iteration are spread evenly over all iterations of ``var`` inside
                it, so that memory is evenly busy; they must be contiguous. Its last iteration fetches for its
                first one in the next iteration of the loop around it.
            stream: caches need not keep it once it was read, and rather keep other data; not together with ``ahead``
        rewrite:
            for i: s(A[i])
            ->
            for i: prefetch(A[i + offset]); s(A[i])
        rewrite (ahead=i):
            for i: for j: s(A[i])
            ->
            for i: for j: prefetch(line j of A[i + offset]); s(A[i])
        """
        self._position(var, "prefetch")
        if not any(tensor is t for t in self.op.input_tensors):
            raise self._fail(f"prefetch: {tensor.name} is not read by this stage")
        if stream and ahead is not None:
            raise self._fail("prefetch: what is fetched for a later iteration of ahead must stay in a cache until then")
        self.attr(var).prefetch.append(Ahead(tensor, ops.as_expr(offset), ahead, stream))

    def storage_align(self, axis: IterVar, factor: int, offset: int) -> None:
        """Pad the stored tensor so that the stride of ``axis`` is ``k*factor + offset`` elements.

        args:
            axis: an axis of the operation
            factor, offset: in elements
        rewrite (axis 0, factor 16, offset 1):
            allocate(B, [n, 16]); B[i*16 + j]
            ->
            allocate(B, [n, 17]); B[i*17 + j]
        """
        if not any(axis is iv for iv in self.op.root_iter_vars):
            raise self._fail("storage_align takes an axis of the operation (op.axis), not one made by split or fuse")
        attr = self.attr(axis)
        attr.dim_align_factor, attr.dim_align_offset = int(factor), int(offset)

    def double_buffer(self) -> None:
        """Keep two copies of the stage's result, so that the next is computed while the last is read.

        rewrite:
            allocate(B, [n]); for i: {B = f(i); g(B)}
            ->
            allocate(B, [2*n]); B[0] = f(0); for i: {B[(i + 1) % 2] = f(i + 1); g(B[i % 2])}
        """
        if self.is_output:
            raise self._fail("double_buffer: it is an output of the schedule, which has one fixed buffer")
        self.is_double_buffered = True


def _as_axes(value: Axes) -> list[IterVar]:
    return [value] if isinstance(value, IterVar) else list(value)


def _like(axis: IterVar, suffix: str) -> Any:
    return type(axis.var)(axis.var.name + suffix, axis.var.dtype)
