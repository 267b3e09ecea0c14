"""``partition_for``: partition a network for an external compiler, as ``tilewright compile --partition`` does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.module import IRModule
from tilewright.ir.transform import Sequential
from tilewright.relay.op.contrib.register import get_pattern_table, load_compiler
from tilewright.relay.transform.bind_params import with_params
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.transform.partition.annotate_target import AnnotateTarget
from tilewright.relay.transform.partition.explain_partition import check_is_known
from tilewright.relay.transform.partition.merge_compiler_regions import MergeCompilerRegions
from tilewright.relay.transform.partition.merge_composite import MergeComposite
from tilewright.relay.transform.partition.partition_graph import PartitionGraph
from tilewright.runtime.registry import get_global_func


def partition_for(compiler: str, mod: IRModule, params: Mapping[str, Any]) -> IRModule:
    """Return the module with a function for each part that ``compiler`` takes.

    A compiler that prepares networks first has a global function ``relay.ext.NAME.partition(mod, params)``; for others
    the patterns are merged, the operators they take are marked, and adjacent ones become one region.

    Args:
        compiler: a compiler of this package, or one that an installed package brings.
        mod: the network.
        params: arrays for parameters of ``main`` by name; they become constants.

    Raises:
        TilewrightError: there is no such compiler, or a check of it fails.
    """
    load_compiler(compiler)
    check_is_known(compiler)
    own = get_global_func(f"relay.ext.{compiler}.partition", allow_missing=True)
    if own is not None:
        made: IRModule = own(mod, dict(params))
        return made
    bound = mod.copy()
    bound["main"] = with_params(bound["main"], params)
    passes = [
        InferType(), MergeComposite(get_pattern_table(compiler) or ()), AnnotateTarget(compiler),
        MergeCompilerRegions(), PartitionGraph(),
    ]  # fmt: skip
    return Sequential(passes, name="relay.partition")(bound)
