"""Schedule of layer normalisation: a parallel loop over rows, each of which stays in cache until it is done."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir import dtype as dt
from tilewright.topi import tag
from tilewright.topi.cpu.common import (
    PARALLEL_WORK,
    constant_extent,
    create_schedule,
    find_anchor,
    fuse_all,
    machine,
    operations,
    output_tensors,
    reduce_in_lanes,
    split_vector,
    vector_lanes,
    worth_threads,
)
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.reduction import is_reduction, schedule_reduce

_FETCHED_AHEAD = 6144  # bytes between what is normalised and what is fetched


def schedule_layer_norm(outs: Any) -> te.Schedule:
    """Schedule ``topi.nn.layer_norm`` with injective computes before and after it.

    What computes the data is run once for each row, into a buffer of a row's size; what uses the result has loops of
    its own. Norms over other axes than the last are scheduled as the reductions that they are.
    """
    tensors = output_tensors(outs)
    anchor = find_anchor(tensors, lambda op: op.tag == "layer_norm")
    rows = [] if anchor is None else list(anchor.axis[:-1])
    if anchor is None or not rows or list(anchor.attrs["axes"]) != [len(rows)] or _is_empty(anchor):
        return schedule_reduce(outs)
    s = create_schedule(tensors)
    data = anchor.attrs["data"].op
    moments = anchor.attrs["steps"]
    for op in operations(tensors):
        if op not in (anchor, data, *moments) and op not in s.outputs and isinstance(op, te.ComputeOp):
            s[op].compute_inline()
    stage = s[anchor]
    row = fuse_all(stage, rows) or rows[0]
    column = anchor.axis[-1]
    lanes = vector_lanes(anchor.output(0).dtype)
    block, vector = split_vector(stage, column, constant_extent(column), lanes)
    if vector not in (None, block) and isinstance(data, te.PlaceholderOp):
        # Three passes over a row leave memory idle for the time of two, unless the rows to come are fetched meanwhile.
        stage.prefetch(data.output(0), block, _FETCHED_AHEAD // (lanes * dt.nbytes(data.output(0).dtype)))
    steps = [data, *moments] if isinstance(data, te.ComputeOp) and tag.is_injective(data.tag) else [*moments]
    for op in reversed(steps):
        s[op].compute_at(stage, row)
        if is_reduction(op):
            reduce_in_lanes(s, op.output(0), 4 if machine().vector_registers >= 16 else 2)
        elif op is data:
            split_vector(s[op], op.axis[-1], constant_extent(column), vector_lanes(data.output(0).dtype))
    if worth_threads(anchor, PARALLEL_WORK // 4):
        stage.parallel(row)
    if tensors[0].op is not anchor:
        schedule_injective_from_existing(s, tensors[0])
    return s


def _is_empty(op: Any) -> bool:
    return any(constant_extent(axis) == 0 for axis in op.axis)
