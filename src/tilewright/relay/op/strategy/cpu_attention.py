"""Attention on CPUs: few queries read keys and values where they lie, more of them tile by tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.type import TensorType
from tilewright.relay.op.strategy import generic
from tilewright.relay.op.strategy.implementation import OpStrategy, one_implementation
from tilewright.relay.op.strategy.wrappers import wrap_compute_attention, wrap_topi_schedule
from tilewright.target.features import features
from tilewright.target.target import Target
from tilewright.topi import cpu
from tilewright.topi.cpu.few_queries import few_queries, fits_few_queries
from tilewright.topi.cpu.tile_attention import attention_takes_tiles, schedule_tile_attention, tile_attention


@generic.attention_strategy.provide("cpu")
def attention_strategy_cpu(attrs: Any, inputs: Sequence[Any], out_type: TensorType, target: Target) -> OpStrategy:
    """Hand-written loops for few queries, the processor's tiles for bfloat16, else register tiles."""

    def of_few(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        query, key, value, *masks = inputs
        return [few_queries(query, key, value, masks[0] if masks else None, float(attrs.scale))]

    if target.kind.capabilities.machine_code and fits_few_queries(*inputs[:3]):
        return one_implementation(of_few, wrap_topi_schedule(cpu.schedule_extern), "few_queries.cpu")
    if target.kind.capabilities.machine_code and attention_takes_tiles(features(target), *inputs[:3]):
        compute = wrap_compute_attention(tile_attention)
        return one_implementation(compute, wrap_topi_schedule(schedule_tile_attention), "tile_attention.cpu")
    compute = wrap_compute_attention(cpu.attention)
    return one_implementation(compute, wrap_topi_schedule(cpu.schedule_attention), "attention.cpu")
