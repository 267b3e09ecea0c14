"""Helpers: a network's part for oneDNN, with nothing done to the network before, and running it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay import transform
from tilewright.relay.op.contrib import get_pattern_table


def partitioned(mod: tvm.IRModule) -> tvm.IRModule:
    """The passes that marks and regions need, and no others; all operators have to go to oneDNN."""
    passes = [
        transform.InferType(),
        transform.MergeComposite(get_pattern_table("dnnl") or ()),
        transform.AnnotateTarget("dnnl"),
        transform.MergeCompilerRegions(),
        transform.PartitionGraph(),
    ]
    with tvm.transform.PassContext(config={"relay.ext.dnnl.all_operators": True}):
        split = tvm.transform.Sequential(passes)(mod)
    called = [e for e in relay.analysis.post_order(split["main"]) if isinstance(e, relay.Call)]
    assert not [e for e in called if isinstance(e.op, tvm.ir.Op)], "an operator stayed on the host"
    return split


def nodes_of(split: tvm.IRModule) -> list[str]:
    """The names of the operators in the JSON of the one region."""
    (module,) = [m for m in relay.build(split, "llvm").lib.imported_modules if m.type_key == "dnnl_json"]
    return [node["name"] for node in json.loads(module.get_source())["nodes"] if node["op"] == "kernel"]


def run_partitioned(split: tvm.IRModule, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """All results, after two runs: the second finds the memory of the first."""
    executor = graph_executor.GraphModule(relay.build(split, "llvm")["default"](tvm.cpu()))
    for i, array in enumerate(inputs):
        executor.set_input(f"p{i}", array)
    executor.run()
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]
