"""``relay.op.contrib.dnnl.partition_for_dnnl``: preparation and partitioning of a network for oneDNN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext, Sequential
from tilewright.relay import transform
from tilewright.relay.expr import Call
from tilewright.relay.op.contrib.dnnl import ALL_OPERATORS, FUSABLE
from tilewright.relay.op.contrib.register import get_pattern_table
from tilewright.relay.op.nn.bias_add import BiasAdd
from tilewright.relay.op.nn.norm import BatchNorm, LayerNorm
from tilewright.relay.op.tensor.binary import add
from tilewright.relay.transform.bind_params import with_params
from tilewright.relay.transform.partition.explain_partition import OperatorFate, explain_partition


def preparation() -> list[Pass]:
    """Return the passes before patterns are matched, all of them passes of ``relay.build``."""
    return [
        transform.InferType(),
        transform.InlineFunctions(),
        transform.ToGraphNormalForm(),
        transform.FoldConstant(),
        transform.SimplifyInference(_is_better_in_parts),
        transform.SimplifyExpr(),
        transform.FoldConstant(),
        transform.FoldScaleAxis(),
        transform.CanonicalizeOps(),
        transform.FoldConstant(),
        transform.RecognizeLayerNorm(),
        transform.RecognizeActivations(),
        transform.MergeTransposes(),
        transform.SinkReshape(),
        transform.FoldConstant(),
    ]


def _is_better_in_parts(call: Call) -> bool:
    """Return whether to simplify a normalization: oneDNN has its own, but batch norms after convolutions fold into
    weights.
    """
    if call.op is not BatchNorm.op:
        return call.op is not LayerNorm.op
    data = call.args[0]
    if isinstance(data, Call) and data.op in (BiasAdd.op, add.op):
        data = data.args[0]
    return isinstance(data, Call) and str(data.op) in FUSABLE


def prepare(mod: IRModule) -> IRModule:
    """Bring the network to the form of which oneDNN takes most."""
    with PassContext(opt_level=3):
        return Sequential(preparation(), name="relay.dnnl.prepare")(mod)


def partition(mod: IRModule, params: Mapping[str, Any]) -> IRModule:
    """See ``partition_for_dnnl``."""
    bound = mod.copy()
    if params:
        bound["main"] = with_params(bound["main"], params)
    table = get_pattern_table("dnnl") or ()
    regions: list[Pass] = [
        transform.MergeComposite(table),
        transform.AnnotateTarget("dnnl"),
        transform.MergeCompilerRegions(),
        transform.PartitionGraph(),
    ]
    prepared = prepare(bound)
    with PassContext(opt_level=3, config={ALL_OPERATORS: True}):
        return Sequential(regions, name="relay.dnnl.partition")(prepared)


def explain(mod: IRModule) -> list[OperatorFate]:
    """Return how ``partition_for_dnnl`` treats each operator of a network with its parameters, after its
    preparation.
    """
    prepared = prepare(mod)
    with PassContext(config={ALL_OPERATORS: True}):
        return explain_partition(prepared, "dnnl")
