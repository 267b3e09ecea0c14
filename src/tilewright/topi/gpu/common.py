"""Helpers of the GPU schedules: the target's limits, and loops bound to blocks and threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.ir import dtype as dt
from tilewright.ir.prim_expr import IntImm
from tilewright.target.gpu import gpu_limits
from tilewright.te.schedule.stage import AttachType
from tilewright.tir.expr import IterVar
from tilewright.topi import tag
from tilewright.topi.cpu.accesses import contiguous_suffix
from tilewright.topi.utils import as_list, get_const_tuple, operations

MOST_THREADS = 256  # of a block where nothing asks for more: several blocks then share a multiprocessor
MOST_BLOCKS = 1 << 16  # of a grid; beyond it a thread works on several elements, a grid apart
VECTOR_BYTES = 16  # what a thread reads or writes at once, at most
_VECTOR_DTYPES = ("float32", "int32", "uint32", "float16", "int16", "uint16", "int8", "uint8")


def block_size() -> int:
    """Return the default number of threads in a block."""
    return min(gpu_limits().threads_per_block, MOST_THREADS)


def warp_size() -> int:
    """Return the threads of a warp, which run in step; 32 if the target does not say."""
    warp = gpu_limits().warp
    return min(warp if warp > 1 else 32, block_size())


def constant_extent(axis: IterVar) -> int | None:
    """The extent of a root axis, or None when it is not known."""
    extent = axis.dom.extent if axis.dom is not None else None
    return int(extent) if isinstance(extent, IntImm) else None


def extent_of(axes: Sequence[IterVar]) -> int | None:
    """Iterations of all ``axes`` together, or None when one is not known."""
    extents = [constant_extent(a) for a in axes]
    return None if None in extents else math.prod(e for e in extents if e is not None)


def element_count(tensor: te.Tensor) -> int | None:
    """Number of elements, or None when it is not known."""
    shape = get_const_tuple(tensor.shape)
    return math.prod(shape) if all(isinstance(d, int) for d in shape) else None


def power_of_two(n: int) -> int:
    """The greatest power of two that is at most ``n``."""
    return 1 << (max(n, 1).bit_length() - 1)


def is_reduction(op: Any) -> bool:
    """Return whether the operation reduces."""
    return isinstance(op, te.ComputeOp) and bool(op.reduce_axis)


def is_bound(stage: te.Stage) -> bool:
    """Return whether a loop of the stage is bound to a block or a thread."""
    return any(attr.bind_thread is not None for attr in stage.iter_var_attrs.values())


def at_root(stage: te.Stage) -> bool:
    """Return whether the stage has loops of its own, outside of those of other stages."""
    return stage.attach_type is AttachType.ROOT


def create_schedule(outs: Any) -> te.Schedule:
    """Create the default schedule of the operations of ``outs``."""
    return te.create_schedule([out.op for out in as_list(outs)])


def inline_injective(s: te.Schedule, outs: Any) -> None:
    """Inline every injective operation that is no output, has no threads and is not read by a hand-written loop."""
    computes = list(operations(as_list(outs)))
    kept = {t.op for op in computes if not isinstance(op, te.ComputeOp) for t in op.input_tensors}
    for op in computes:
        injective = isinstance(op, te.ComputeOp) and tag.is_injective(op.tag)
        if injective and op not in s.outputs and op not in kept and not is_bound(s[op]):
            s[op].compute_inline()


def block_axis() -> IterVar:
    """Create blockIdx.x."""
    return te.thread_axis("blockIdx.x")


def bind_elements(s: te.Schedule, op: Any, vectors: bool = True) -> IterVar:
    """Bind each element of ``op``, or a vector of neighbours, to a thread; return the loop of the threads.

    ::

        for i, j: out[i, j]
        ->
        for blockIdx.x, threadIdx.x, [grid,] vector: out[...]

    Beyond ``MOST_BLOCKS`` blocks a thread strides over the grid several times: neighbouring threads still write
    neighbouring elements in each of its steps.
    """
    stage = s[op]
    flat = stage.fuse(*stage.op.axis)
    count = element_count(stage.op.output(0))
    lanes = vector_lanes(stage.op) if vectors and count is not None else 1
    vector = None
    if lanes > 1:
        flat, vector = stage.split(flat, factor=lanes)
    threads = block_size()
    if count is not None:
        items = count // lanes
        threads = min(threads, max(items, 1))
        if items > MOST_BLOCKS * threads:
            step, flat = stage.split(flat, factor=MOST_BLOCKS * threads)
            block, thread = stage.split(flat, factor=threads)
            stage.reorder(block, thread, step)
        else:
            block, thread = stage.split(flat, factor=threads)
    else:
        block, thread = stage.split(flat, factor=threads)
    stage.bind(block, block_axis())
    stage.bind(thread, te.thread_axis("threadIdx.x"))
    if vector is not None:
        stage.vectorize(vector)
    return thread


def vector_lanes(op: Any) -> int:
    """Return how many elements a thread takes at once: as many as are contiguous in everything that ``op`` reads."""
    if op.reduce_axis or any(op.output(k).dtype not in _VECTOR_DTYPES for k in range(op.num_outputs)):
        return 1
    if any(t.dtype not in _VECTOR_DTYPES for t in op.input_tensors):
        return 1
    extent = extent_of(op.axis[len(op.axis) - contiguous_suffix(op) :])
    widest = max([dt.nbytes(op.output(0).dtype), *(dt.nbytes(t.dtype) for t in op.input_tensors)])
    lanes = VECTOR_BYTES // widest
    while lanes > 1 and (not extent or extent % lanes):
        lanes //= 2
    return lanes
