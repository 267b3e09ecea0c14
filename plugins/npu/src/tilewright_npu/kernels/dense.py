"""A dense layer by tensor expressions, for the key "npu".

The rows come to the SRAM once. Then, for each 16 units, their weights come, the matrix unit sums, and the sums go.
Two virtual threads take turns at it, each with memory of its own, so that the weights of one are loaded while the
other is computed. Constant weights are packed while compiling, as the matrix unit takes them (NC16n); others are
turned by the DMA.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, topi
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Constant
from tilewright.relay.op import strategy
from tilewright.relay.op.attributes import call
from tilewright.relay.op.nn.dense import DensePack, DensePackAttrs
from tilewright.relay.op.strategy import OpStrategy, wrap_compute_dense
from tilewright.target import Target
from tilewright.topi.kinds import Kind
from tilewright.topi.utils import get_const_tuple
from tilewright_npu.isa import BLOCK
from tilewright_npu.kernels.intrinsics import SRAM, gemm, load_packed, load_rows, load_weights, store_rows

_TYPES = {("float32", "float32"), ("int8", "int32")}
_DENSE = Kind("npu_dense")


def dense(data: te.Tensor, weight: te.Tensor, bias: Any = None, out_dtype: str | None = None) -> te.Tensor:
    """``data (M, K)`` times the transposed ``weight (N, K)``, or packed (N / 16, K, 16); K and N multiples of 16.

    Raises
    ------
    UnsupportedError : of other extents or types, or with a bias
    """
    packed = len(weight.shape) == 3
    (rows, depth), (units, *_) = get_const_tuple(data.shape), get_const_tuple(weight.shape)
    units *= BLOCK if packed else 1
    out = out_dtype or data.dtype
    if depth % BLOCK or units % BLOCK or (data.dtype, out) not in _TYPES or bias is not None:
        raise UnsupportedError(
            f"a dense layer of ({rows}, {depth}) {data.dtype} and ({units}, {depth}) to {out} is no whole number of "
            "the NPU's blocks: 16 channels, float32 to float32 or int8 to int32; partition_for_npu takes any"
        )
    blocks = depth // BLOCK
    near = te.compute((blocks, rows, BLOCK), lambda kb, m, ki: data[m, kb * BLOCK + ki], "rows_near")

    def weight_at(nb: Any, kb: Any, ki: Any, ni: Any) -> Any:
        return weight[nb, kb * BLOCK + ki, ni] if packed else weight[nb * BLOCK + ni, kb * BLOCK + ki]

    tile = te.compute((units // BLOCK, blocks, BLOCK, BLOCK), weight_at, "weights")
    kb, ki = te.reduce_axis((0, blocks), "kb"), te.reduce_axis((0, BLOCK), "ki")
    sums = te.compute(
        (units // BLOCK, rows, BLOCK),
        lambda nb, m, ni: te.sum(near[kb, m, ki].astype(out) * tile[nb, kb, ki, ni].astype(out), axis=[kb, ki]),
        "sums",
    )
    return te.compute((rows, units), lambda m, n: sums[n // BLOCK, m, n % BLOCK], "dense", tag=_DENSE)


def schedule_dense(attrs: Any, outs: Sequence[te.Tensor], target: Target, threads: int = 2) -> te.Schedule:
    """See the head of the file; ``threads`` is the number of virtual threads where the units divide by it."""
    (result,) = outs
    if not _DENSE(result.op):
        raise UnsupportedError(f"the NPU's dense layer takes no {result.op.name} behind it; partition_for_npu does")
    s = te.create_schedule(result.op)
    (sums,) = result.op.input_tensors
    near, tile = sums.op.input_tensors
    rows, units = get_const_tuple(result.shape)
    depth = get_const_tuple(near.shape)[0] * BLOCK
    for stage in (near, tile, sums):
        s[stage].set_scope(SRAM)
    m, n = s[result].op.axis
    outer, inner = s[result].split(n, factor=BLOCK)
    s[result].reorder(outer, m, inner)
    turn = outer
    if units // BLOCK % threads == 0 and threads > 1:
        outer, turn = s[result].split(outer, factor=threads)
        s[result].bind(turn, te.thread_axis("vthread"))
    s[sums].compute_at(s[result], turn)
    s[tile].compute_at(s[result], turn)
    _, sum_rows, columns = s[sums].op.axis
    s[sums].reorder(sum_rows, columns, *s[sums].op.reduce_axis)
    s[near].tensorize(s[near].op.axis[0], load_rows(rows, depth, near.dtype))
    (weight,) = tile.op.input_tensors
    bring = load_packed if len(weight.shape) == 3 else load_weights
    s[tile].tensorize(s[tile].op.axis[1], bring(depth, tile.dtype))
    s[sums].tensorize(sum_rows, gemm(rows, depth, near.dtype, sums.dtype))
    s[result].tensorize(m, store_rows(rows, result.dtype))
    return s


def dense_strategy(attrs: Any, inputs: Sequence[te.Tensor], out_type: Any, target: Target) -> OpStrategy:
    """``nn.dense`` on the NPU: one implementation."""
    made = OpStrategy()
    made.add_implementation(wrap_compute_dense(dense), schedule_dense, "dense.npu")
    return made


def alter_layout(attrs: Any, inputs: Sequence[RelayExpr], types: Sequence[Any], out_type: Any) -> RelayExpr | None:
    """``nn.dense`` with constant weights as ``nn.contrib_dense_pack``, where they are whole blocks."""
    data, weight = types[:2]
    if data.is_dynamic or not isinstance(inputs[1], Constant) or len(data.shape) != 2:
        return None
    units, depth = (int(d) for d in weight.shape)
    if units % BLOCK or depth % BLOCK:
        return None
    return call(DensePack.name, inputs, DensePackAttrs(units, attrs.out_dtype, f"NC{BLOCK}n"))


def register() -> None:
    """Register both for the key "npu"."""
    strategy.dense_strategy.register("npu", dense_strategy, override=True)
    strategy.dense_pack_strategy.register("npu", dense_strategy, override=True)
    topi.nn.dense_alter_layout.register("npu", alter_layout, override=True)
