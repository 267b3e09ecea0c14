"""Schedule of any graph of computes: which operations are kernels, and which run inside of others.

Injective computes are inlined. A reduction whose only reader is an element-wise compute of its shape is computed in
that one's threads; normalizations take a block per row (``normalization``); everything else is a kernel of its own.
Hand-written loops bind their threads themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.ir.errors import UnsupportedError
from tilewright.target.target import Target
from tilewright.tir.stmt import AttrStmt, For, Store
from tilewright.tir.visitor import StmtVisitor
from tilewright.topi import tag
from tilewright.topi.gpu.common import (
    at_root,
    bind_elements,
    constant_extent,
    create_schedule,
    inline_injective,
    is_bound,
    is_reduction,
)
from tilewright.topi.gpu.normalization import NORMALIZATIONS, bind_normalization
from tilewright.topi.gpu.reduction import bind_reduction
from tilewright.topi.utils import as_list, operations

_KERNELS = ("thread_extent", "pipeline_exec_scope", "device_scope")


def schedule_kernels(outs: Any) -> te.Schedule:
    """Schedule every compute of ``outs`` in threads."""
    s = create_schedule(outs)
    schedule_rest(s, outs)
    return s


def schedule_pool(outs: Any, layout: str) -> te.Schedule:
    """Schedule pooling over windows; ``layout`` makes no difference."""
    return schedule_kernels(outs)


def schedule_rest(s: te.Schedule, outs: Any) -> None:
    """Bind threads to the root stages that have none yet, after inlining the injective ones."""
    inline_injective(s, outs)
    found = list(operations(as_list(outs)))
    for op in found:
        if isinstance(op, te.ExternOp):
            _check_threads(op)
        elif NORMALIZATIONS(op) and _is_open(s, op):  # before what follows, which is part of its kernel
            bind_normalization(s, op, outs)
    for op in found:
        if not isinstance(op, te.ComputeOp) or not _is_open(s, op):
            continue
        if is_reduction(op):
            bind_reduction(s, op)
            continue
        reduced = _reduced_for(s, op)
        if reduced is not None:
            bind_reduction(s, reduced, op)
        else:
            bind_elements(s, op)


def _is_open(s: te.Schedule, op: Any) -> bool:
    """Return whether nothing is decided yet about where an operation runs."""
    return at_root(s[op]) and not is_bound(s[op])


class _Loops(StmtVisitor):
    """Finds work outside of kernels; a host loop may launch kernels."""

    outside: For | None = None
    kernels = 0

    def visit_attr(self, s: AttrStmt) -> None:
        if s.attr_key in _KERNELS:
            self.kernels += 1
        else:
            super().visit_attr(s)

    def visit_for(self, s: For) -> None:
        before = self.kernels
        super().visit_for(s)
        if self.kernels == before:
            self.outside = self.outside or s

    def visit_store(self, s: Store) -> None:
        self.outside = self.outside or s  # type: ignore[assignment]

    visit_buffer_store = visit_store  # type: ignore[assignment]


def _check_threads(op: te.ExternOp) -> None:
    """Refuse hand-written loops whose work is bound to no threads."""
    loops = _Loops()
    loops.visit_stmt(op.body)
    if loops.outside is not None:
        target = Target.current()
        kind = target.kind.name if target is not None else "a GPU"
        name = (op.tag or op.name).removesuffix("_cpu")
        raise UnsupportedError(
            f"{name} has no schedule for {kind}: its loops are written for one processor. Run it on the CPU: "
            f'relay.build(mod, target={{"cpu": "llvm", "gpu": "{kind}"}}) with relay.annotation.on_device(call, "cpu")'
        )


def _reduced_for(s: te.Schedule, op: Any) -> Any | None:
    """Return the only reduction that ``op`` reads element by element as its only reader, or None."""
    found = [t.op for t in _stored_inputs(s, op) if is_reduction(t.op)]
    if len(set(found)) != 1 or not at_root(s[found[0]]) or is_bound(s[found[0]]) or found[0] in s.outputs:
        return None
    source: Any = found[0]
    extents = [[constant_extent(a) for a in each.axis] for each in (op, source)]
    readers = [r for r in s.stages if found[0] in [t.op for t in r.op.input_tensors]]
    alone = all(r.op is op or not at_root(r) for r in readers)
    return found[0] if extents[0] == extents[1] and alone else None


def _stored_inputs(s: te.Schedule, op: Any) -> Sequence[te.Tensor]:
    """Return the tensors that ``op`` reads from memory, looking through inlined operations."""
    found: list[te.Tensor] = []
    pending, seen = [op], {op}
    for current in pending:
        for t in current.input_tensors:
            if isinstance(t.op, te.ComputeOp) and tag.is_injective(t.op.tag) and not at_root(s[t.op]):
                if t.op not in seen:
                    seen.add(t.op)
                    pending.append(t.op)
            else:
                found.append(t)
    return found
