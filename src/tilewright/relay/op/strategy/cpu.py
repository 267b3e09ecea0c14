"""Strategies and layouts of operators on CPUs: topi.cpu's computes and schedules.

No other modules of Relay but ``cpu_byte_dense`` and ``cpu_nbits`` use ``topi.cpu``: this one registers its strategies
and schedules for the target key "cpu", and chooses how AlterOpLayout packs convolutions and products for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tilewright import topi
from tilewright.autotvm.task.choices import ALGORITHM, choose, choose_part, choosing_as, text_of
from tilewright.autotvm.task.dispatcher import DispatchContext
from tilewright.autotvm.task.space import ConfigEntity, OtherOptionEntity
from tilewright.autotvm.task.topi_integration import TaskExtractEnv
from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.transform import PassContext
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call, Constant
from tilewright.relay.facts import is_whole
from tilewright.relay.op.attributes import call, ints
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.conv_attrs import ConvAttrs
from tilewright.relay.op.nn import strassen, winograd
from tilewright.relay.op.nn.conv2d import Conv2DAttrs
from tilewright.relay.op.nn.conv_common import share_computed
from tilewright.relay.op.nn.dense import BatchMatmulAttrs, DensePackAttrs, MatmulAttrs
from tilewright.relay.op.nn.widen import WidenWeight
from tilewright.relay.op.relations import known
from tilewright.relay.op.strategy import cpu_attention as _registers_attention  # noqa: F401
from tilewright.relay.op.strategy import cpu_nbits as _registers_itself  # noqa: F401
from tilewright.relay.op.strategy import generic
from tilewright.relay.op.strategy.cpu_byte_conv2d import is_packed_for_words, of_words, pack_conv2d_of_words
from tilewright.relay.op.strategy.cpu_byte_dense import has_small_weights, is_legal, pack_bytes
from tilewright.relay.op.strategy.dense_rows import is_shared, rows_of_layout
from tilewright.relay.op.strategy.implementation import Compute, OpStrategy, one_implementation
from tilewright.relay.op.strategy.wrappers import (
    channels_last,
    compute_bitserial_conv2d,
    compute_bitserial_dense,
    conv2d_form,
    conv2d_task,
    dense_task,
    flat_rows,
    in_any_layout,
    is_depthwise,
    transposed_in_any_layout,
    ungrouped,
    wrap_compute_batch_matmul,
    wrap_compute_conv2d,
    wrap_compute_deformable_conv2d,
    wrap_compute_dense,
    wrap_compute_dense_pack,
    wrap_compute_layer_norm,
    wrap_compute_matmul,
    wrap_compute_softmax,
    wrap_compute_winograd,
    wrap_conv2d_form,
    wrap_topi_compute,
    wrap_topi_schedule,
)
from tilewright.target.features import features
from tilewright.target.generic_func import GenericFunc
from tilewright.target.interfaces import is_freestanding
from tilewright.target.target import Target
from tilewright.topi import cpu
from tilewright.topi.cpu.common import typical_extent, vector_lanes
from tilewright.topi.cpu.layouts import COLUMN_BLOCK, DIRECT, OUT_BLOCK, PLAIN, STRASSEN, WINOGRAD
from tilewright.topi.cpu.model.conv2d_cost import choose_winograd_tile, winograd_tile_sizes
from tilewright.topi.cpu.model.float_tiles import float_tiles
from tilewright.topi.cpu.strassen import choose_strassen, strassen_layouts
from tilewright.topi.cpu.winograd import schedule_winograd_weight_transform

# Schedules

for _generic, _schedule in (
    (generic.schedule_injective, cpu.schedule_injective),
    (generic.schedule_reduce, cpu.schedule_reduce),
    (generic.schedule_extern, cpu.schedule_extern),
    (generic.schedule_lrn, cpu.schedule_reduce),
    (generic.schedule_bitpack, cpu.schedule_bitpack),
    (generic.schedule_conv2d_winograd_weight_transform, schedule_winograd_weight_transform),
):
    _generic.provide("cpu", wrap_topi_schedule(_schedule))


@generic.schedule_pool.provide("cpu")
def schedule_pool_cpu(attrs: Any, outs: Sequence[Any], target: Target) -> Any:
    """Schedule pooling over windows."""
    with target:
        return cpu.schedule_pool(outs, attrs.layout)


@generic.schedule_adaptive_pool.provide("cpu")
def schedule_adaptive_pool_cpu(attrs: Any, outs: Sequence[Any], target: Target) -> Any:
    """Schedule adaptive pooling."""
    with target:
        return cpu.schedule_adaptive_pool(outs, attrs.layout)


# Strategies

_CONV2D: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "conv2d_nchw": (cpu.conv2d_nchw, cpu.schedule_conv2d_nchw),
    "group_conv2d_nchw": (cpu.group_conv2d_nchw, cpu.schedule_group_conv2d_nchw),
    "depthwise_conv2d_nchw": (topi.nn.depthwise_conv2d_nchw, cpu.schedule_depthwise_conv2d_nchw),
    "conv2d_nhwc": (topi.nn.conv2d_nhwc, cpu.schedule_conv2d_nhwc),
    "group_conv2d_nhwc": (topi.nn.group_conv2d_nhwc, cpu.schedule_conv2d_nhwc),
    "depthwise_conv2d_nhwc": (topi.nn.depthwise_conv2d_nhwc, cpu.schedule_depthwise_conv2d_nhwc),
    "conv2d_hwcn": (topi.nn.conv2d_hwcn, cpu.schedule_conv2d_hwcn),
    "conv2d_any_layout": (cpu.group_conv2d_nchw, cpu.schedule_group_conv2d_nchw),
}


@generic.conv2d_strategy.provide("cpu")
def conv2d_strategy_cpu(attrs: ConvAttrs, inputs: Sequence[Any], out_type: TensorType, target: Target) -> OpStrategy:
    """Return the strategy of nn.conv2d, by layouts and groups."""
    form = conv2d_form(attrs, inputs[0].shape, inputs[1].shape)
    compute, schedule = _CONV2D[form]
    return one_implementation(wrap_conv2d_form(form, compute), wrap_topi_schedule(schedule), f"{form}.cpu")


@generic.conv2d_winograd_NCHWc_without_weight_transform_strategy.provide("cpu")
def conv2d_winograd_strategy_cpu(
    attrs: winograd.Conv2DWinogradAttrs, inputs: Sequence[Any], out_type: TensorType, target: Target
) -> OpStrategy:
    """Return the strategy of a Winograd convolution of packed channels; the name states the tile size."""
    schedule = wrap_topi_schedule(cpu.schedule_conv2d_NCHWc_winograd)
    compute = wrap_compute_winograd(cpu.conv2d_NCHWc_winograd)
    return one_implementation(compute, schedule, f"conv2d_NCHWc_winograd{attrs.form}.cpu")


def _register(strategy: GenericFunc, name: str, compute: Compute, schedule: Any) -> None:
    """Register one implementation for CPUs as ``name``."""

    def implementation(attrs: Any, inputs: Sequence[Any], out_type: TensorType, target: Target) -> OpStrategy:
        return one_implementation(compute, wrap_topi_schedule(schedule), f"{name}.cpu")

    strategy.provide("cpu", implementation)


def _register_all() -> None:
    def packed(compute: Any) -> Compute:
        return wrap_compute_conv2d(compute, need_data_layout=True, need_out_layout=True)

    conv1d = channels_last(topi.nn.group_conv1d_nwc, 1, in_any_layout(topi.nn.group_conv1d_ncw, 1))
    conv3d = channels_last(topi.nn.conv3d_ndhwc, 3, in_any_layout(topi.nn.conv3d_ncdhw, 3))
    transposed1d = transposed_in_any_layout(ungrouped(topi.nn.conv1d_transpose_ncw), 1)
    transposed2d = transposed_in_any_layout(cpu.conv2d_transpose_nchw, 2)
    transposed3d = transposed_in_any_layout(ungrouped(topi.nn.conv3d_transpose_ncdhw), 3)

    def deformable(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        kernel = partial(cpu.deformable_conv2d_packed, layout=attrs.data_layout)
        return wrap_compute_deformable_conv2d(kernel)(attrs, inputs, out_type)

    dense, matmul = wrap_compute_dense(cpu.dense_nopack), wrap_compute_matmul(topi.nn.matmul)
    batch_matmul = wrap_compute_batch_matmul(cpu.batch_matmul, need_out_dtype=True)
    softmax, fast_softmax, log_softmax = (
        wrap_compute_softmax(f) for f in (topi.nn.softmax, topi.nn.fast_softmax, topi.nn.log_softmax)
    )
    for strategy, name, compute, schedule in (
        (generic.depthwise_conv2d_NCHWc_strategy, "depthwise_conv2d_NCHWc", packed(cpu.depthwise_conv2d_NCHWc),
         cpu.schedule_depthwise_conv2d_NCHWc),
        (generic.bitserial_conv2d_strategy, "bitserial_conv2d", compute_bitserial_conv2d, cpu.schedule_bitserial),
        (generic.bitserial_dense_strategy, "bitserial_dense", compute_bitserial_dense, cpu.schedule_bitserial),
        (generic.conv1d_strategy, "conv1d_ncw", conv1d, cpu.schedule_conv1d_ncw),
        (generic.conv3d_strategy, "conv3d_ncdhw", conv3d, cpu.schedule_conv3d_ncdhw),
        (generic.conv1d_transpose_strategy, "conv1d_transpose", transposed1d, cpu.schedule_conv_direct),
        (generic.conv2d_transpose_strategy, "conv2d_transpose", transposed2d, cpu.schedule_conv2d_transpose_nchw),
        (generic.conv3d_transpose_strategy, "conv3d_transpose", transposed3d, cpu.schedule_conv_direct),
        (generic.deformable_conv2d_strategy, "deformable_conv2d", deformable, cpu.schedule_deformable_conv2d),
        (generic.dense_strategy, "dense_nopack", flat_rows(dense), cpu.schedule_dense),
        (generic.matmul_strategy, "matmul", flat_rows(matmul), cpu.schedule_matmul),
        (generic.dense_pack_strategy, "dense_pack", wrap_compute_dense_pack(cpu.dense_pack), cpu.schedule_dense_pack),
        (generic.dense_strassen_strategy, "dense_strassen", wrap_topi_compute(cpu.dense_strassen),
         cpu.schedule_dense_strassen),
        (generic.batch_matmul_strategy, "batch_matmul", batch_matmul, cpu.schedule_batch_matmul),
        (generic.softmax_strategy, "softmax", softmax, cpu.schedule_softmax),
        (generic.fast_softmax_strategy, "fast_softmax", fast_softmax, cpu.schedule_softmax),
        (generic.log_softmax_strategy, "log_softmax", log_softmax, cpu.schedule_softmax),
        (generic.layer_norm_strategy, "layer_norm", wrap_compute_layer_norm(cpu.layer_norm), cpu.schedule_layer_norm),
    ):  # fmt: skip
        _register(strategy, name, compute, schedule)


@generic.conv2d_NCHWc_strategy.provide("cpu")
def conv2d_NCHWc_strategy_cpu(
    attrs: Conv2DAttrs, inputs: Sequence[Any], out_type: TensorType, target: Target
) -> OpStrategy:
    """Convolution of packed channels, of floats, or of words of bytes or bfloat16."""
    small = bool(attrs.small_weights)
    name = "conv2d_NCHWc_int8" if is_packed_for_words(inputs[0], inputs[1], small) else "conv2d_NCHWc"

    def kernel(*args: Any) -> Any:
        return cpu.conv2d_NCHWc_int8(*args, small) if name == "conv2d_NCHWc_int8" else cpu.conv2d_NCHWc(*args)

    compute = wrap_compute_conv2d(kernel, need_data_layout=True, need_out_layout=True)
    return one_implementation(compute, wrap_topi_schedule(getattr(cpu, f"schedule_{name}")), f"{name}.cpu")


_register_all()


# Layouts


def _target() -> Target:
    """Return the target for which a layout is chosen."""
    target = Target.current(allow_none=False)
    assert target is not None
    return target


@topi.nn.conv2d_alter_layout.provide("cpu")
def conv2d_alter_layout_cpu(
    attrs: ConvAttrs, inputs: Sequence[RelayExpr], tinfos: Sequence[Any], out_type: TensorType
) -> RelayExpr | None:
    """Pack channels by the vector width, NCHW to NCHW{b}c, where a packed kernel exists.

    The configuration is that of a record for the convolution (``conv2d_task``), else the model's choice.
    """
    words_packed = pack_conv2d_of_words(attrs, inputs, tinfos) if of_words(tinfos) else None
    if words_packed is not None:
        return words_packed
    task = conv2d_task(attrs, *tinfos[:2])
    constant = _is_known(inputs[1])
    chosen = _recorded(task) if task is not None else ""
    if not chosen:
        return pack_conv2d(attrs, inputs, tinfos, constant)
    tuned = attrs.replace(tuned=chosen)
    with choosing_as(chosen):
        return pack_conv2d(tuned, inputs, tinfos, constant) or call("nn.conv2d", inputs, tuned)


def _is_known(weight: RelayExpr) -> bool:
    """Return whether a weight is known when the library is loaded."""
    if isinstance(weight, Call) and weight.op is WidenWeight.op:
        return True
    return isinstance(weight, Constant) and not is_whole(weight)


def _recorded(task: tuple[Any, ...]) -> str:
    """Return the tuned configuration of a task as text, empty if there is none; task extraction notes the task."""
    tracing = TaskExtractEnv.current
    if tracing is not None and tracing.tracing:
        tracing.add_task(task[0], task[1:])
    context = DispatchContext.current
    config = context.query(_target(), task) if not context.is_fallback() else None
    if not isinstance(config, ConfigEntity):
        return ""
    of_tvm = config.code_hash is None and any(name in config for name in (OUT_BLOCK, COLUMN_BLOCK))
    if of_tvm and ALGORITHM not in config:
        config[ALGORITHM] = OtherOptionEntity(DIRECT)
    return text_of(config)


def pack_conv2d(attrs: ConvAttrs, inputs: Sequence[RelayExpr], tinfos: Sequence[Any], constant: bool) -> Call | None:
    """Return the packed form of an NCHW convolution for the configuration in force (``autotvm.task.choices``).

    ``constant``: whether the weight is known when the library is loaded. None where channels are not packed.
    """
    data, weight = (t.shape for t in tinfos[:2])
    if attrs.data_layout != "NCHW" or attrs.kernel_layout != "OIHW":
        return None
    if any(known(d) is None for d in (data[1], *weight)):
        return None
    channels_in, channels_out, *size = (int(known(d) or 0) for d in (data[1], weight[0], *weight[2:]))
    dtype, depthwise = tinfos[0].dtype, is_depthwise(attrs, data)
    arguments = channels_in, channels_out, int(attrs.groups), dtype
    best = cpu.conv2d_layouts(*arguments, _target(), math.prod(size))
    if best is None and (depthwise or choose(ALGORITHM, [PLAIN, DIRECT], PLAIN) == PLAIN):
        return None
    packed = attrs.replace(channels=channels_out, kernel_size=tuple(size))
    plain = best is not None and not depthwise and constant and attrs.out_dtype in ("", dtype)
    if best is not None and plain and not any(isinstance(d, AnyDim) for d in data[2:]):
        of_image = known(data[0]), channels_in, *map(typical_extent, data[2:])
        tile = _winograd_tile(packed, of_image, tinfos[1].dtype)
        if tile is not None:
            return winograd.winograd_call(inputs, _in_layouts(packed, best, best.kernel_layout), tile)
    chosen = cpu.choose_layouts(*arguments, math.prod(size))
    if chosen is None:
        return None
    name = "nn.contrib_depthwise_conv2d_NCHWc" if depthwise else "nn.contrib_conv2d_NCHWc"
    return call(name, inputs, _in_layouts(packed, chosen, chosen.direct_kernel_layout))


def _in_layouts(attrs: Any, chosen: cpu.Conv2dLayouts, kernel_layout: str) -> Any:
    return attrs.replace(data_layout=chosen.data_layout, kernel_layout=kernel_layout, out_layout=chosen.out_layout)


def _winograd_tile(attrs: Any, shape: Sequence[Any], dtype: str) -> int | None:
    """Return the tile size of Winograd's method for a convolution of a constant weight; None for another method.

    Parameters
    ----------
    attrs : of ``nn.conv2d``, channels and kernel_size among them
    shape : (n, c, h, w) of the data, n None when it is not known
    """
    dilation, window = ((pair[0], pair[1]) for pair in (ints(attrs.dilation), ints(attrs.kernel_size)))
    groups = int(attrs.groups)
    batch, channels, height, width = (1 if d is None else int(d) for d in shape)
    extents = batch, channels // groups, int(attrs.channels)
    sizes = winograd_tile_sizes(extents, dtype, winograd.allowed_tile_sizes(), groups)
    top, left, bottom, right = padding_of(attrs.padding, 2)
    reach = (window[0] - 1) * dilation[0], (window[1] - 1) * dilation[1]
    out = height + top + bottom - reach[0], width + left + right - reach[1]
    if {*ints(attrs.strides)} != {1} or window == (1, 1) or min(*out, batch) < 1 or not sizes:
        return None
    if is_freestanding(_target()):  # transformed weights take room, and there is no place to keep them between runs
        return None
    inside = share_computed(attrs, (height, width), window, out)
    best = choose_winograd_tile(extents, out, inside, dtype, sizes, _target(), dilation, window, groups)
    ways = {DIRECT: None, **{f"{WINOGRAD}{size}": size for size in sizes}}
    return ways[choose(ALGORITHM, list(ways), f"{WINOGRAD}{best}" if best else DIRECT)]


@topi.nn.dense_alter_layout.provide("cpu")
def dense_alter_layout_cpu(
    attrs: Any, inputs: Sequence[RelayExpr], tinfos: Sequence[Any], out_type: TensorType
) -> RelayExpr | None:
    """Use Strassen's method where it is faster, else pack the weight by the vector width, NC to NC{b}n.

    The configuration is that of a record for the layer (``dense_task``), else the model's choice. The matrix of a
    product with a vector stays as it is, since it is read only once.
    """
    target, (data, weight) = _target(), tinfos[:2]
    if weight.is_dynamic or len(data.shape) != 2 or not isinstance(data.shape[1], IntImm):
        return None
    task = dense_task(attrs, data, weight)
    if is_legal(attrs, data, weight) and isinstance(inputs[1], Constant):
        chosen = _recorded(task) if task is not None else ""
        with choosing_as(chosen):
            packed = pack_bytes(attrs, inputs, tinfos, target, has_small_weights(inputs[1]), chosen)
        if packed is not None:
            return packed
    rows, units = typical_extent(data.shape[0]), int(weight.shape[0])
    if data.is_dynamic and not isinstance(inputs[1], Constant):
        return None
    once = rows == 1 and not isinstance(inputs[1], Constant)
    laid_out = typical_extent(rows_of_layout(data.shape[0], weight))
    block = None if once else cpu.dense_block(laid_out, units, int(data.shape[1]), data.dtype, target)
    if block is None:
        return _vector_product(attrs, inputs, rows) if 1 in (rows, units) else None
    chosen = _recorded(task) if task is not None else ""
    with choosing_as(chosen):
        return pack_dense(attrs, inputs, tinfos, block, _is_known(inputs[1]), chosen)


def pack_dense(
    attrs: Any, inputs: Sequence[RelayExpr], tinfos: Sequence[Any], block: int, constant: bool, tuned: str = ""
) -> Call:
    """Return the form of a dense layer for the configuration in force (``autotvm.task.choices``).

    Parameters
    ----------
    tinfos : types of data (m, k) and weight (n, k)
    block : columns of a block of a packed weight, by the model
    constant : whether the weight is known when the library is loaded
    tuned : the configuration in force, as text
    """
    data, weight = tinfos[:2]
    units = int(weight.shape[0])
    alike = data.dtype == weight.dtype and attrs.out_dtype in ("", data.dtype)
    allowed = PassContext.current().option(strassen.OPTION) and not is_freestanding(_target())
    if constant and alike and not data.is_dynamic and allowed and not is_shared(weight):
        rows, inner = (int(d) for d in data.shape)
        tiles = float_tiles(features(_target()), rows, units, inner, data.dtype)
        layout = None if tiles and tiles.is_faster else _strassen_layout(rows, inner, units, data.dtype)
        if layout is not None:
            return strassen.strassen_call(inputs, *layout, tuned)
    lanes = vector_lanes(attrs.out_dtype or data.dtype)
    block = choose_part(COLUMN_BLOCK, units, [lanes, 2 * lanes, 3 * lanes], block, whole=False)
    return call("nn.contrib_dense_pack", inputs, DensePackAttrs(units, attrs.out_dtype, f"NC{block}n", tuned))


def pack_dense_of_task(attrs: Any, inputs: Sequence[RelayExpr], tinfos: Sequence[Any], target: Target) -> Call:
    """As ``pack_dense`` for a task, whose weight counts as known: it is packed even where the model would not."""
    (rows, inner), units = (int(d) for d in tinfos[0].shape), int(tinfos[1].shape[0])
    dtype = tinfos[0].dtype
    if is_legal(attrs, *tinfos[:2]):  # bytes that stay bytes where 16 bits are exact, too, are of small weights
        packed = pack_bytes(attrs, inputs, tinfos, target, small=dtype == "uint8")
        if packed is not None:
            return packed
    block = cpu.dense_block(rows, units, inner, dtype, target) or vector_lanes(attrs.out_dtype or dtype)
    return pack_dense(attrs, inputs, tinfos, block, constant=True)


def _strassen_layout(rows: int, inner: int, units: int, dtype: str) -> tuple[int, int] | None:
    """Return block and chunk of the weight of a dense layer by Strassen's method; None for another method."""
    arguments = rows, units, inner, dtype, _target()
    layouts = strassen_layouts(*arguments)
    best = choose_strassen(*arguments) if layouts else None
    if not layouts or choose(ALGORITHM, [DIRECT, STRASSEN], STRASSEN if best else DIRECT) == DIRECT:
        return None
    block, chunk = best or layouts[0]
    block = choose("strassen_block", [b for b, _ in layouts], block)
    fitting = [c for b, c in layouts if b == block]
    return block, choose("strassen_chunk", fitting, chunk if chunk in fitting else fitting[0])


def _vector_product(attrs: Any, inputs: Sequence[RelayExpr], rows: int) -> RelayExpr | None:
    """Return a product with one row or one column without the transposition of the matrix; None where there is
    none.
    """
    data, weight = inputs
    matrix = _transposed(weight if rows == 1 else data, (1, 0))
    if matrix is None:
        return None
    operands = [data, matrix] if rows == 1 else [matrix, weight]
    return call("nn.matmul", operands, MatmulAttrs(attrs.units, attrs.out_dtype, rows != 1, rows != 1))


def _transposed(expr: RelayExpr, axes: tuple[int, ...]) -> RelayExpr | None:
    """Return the operand if ``expr`` transposes it by ``axes``, else None."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or expr.op.name != "transpose":
        return None
    found: Any = expr.attrs
    order = found.axes or range(len(axes) - 1, -1, -1)
    return expr.args[0] if tuple(int(a) % len(axes) for a in order) == axes else None


@topi.nn.batch_matmul_alter_layout.provide("cpu")
def batch_matmul_alter_layout_cpu(
    attrs: Any, inputs: Sequence[RelayExpr], tinfos: Sequence[Any], out_type: TensorType
) -> RelayExpr | None:
    """Remove the transposition of matrices: packing and products with vectors read any order."""
    a, b = inputs
    vector = 1 in [known(d) for d in out_type.shape[1:]]
    plain_a, plain_b = _transposed(a, (0, 2, 1)) if vector else None, _transposed(b, (0, 2, 1))
    if plain_a is None and plain_b is None:
        return None
    flags = (bool(attrs.transpose_a) != (plain_a is not None), bool(attrs.transpose_b) != (plain_b is not None))
    return call("nn.batch_matmul", [plain_a or a, plain_b or b], BatchMatmulAttrs(attrs.out_dtype, *flags))
