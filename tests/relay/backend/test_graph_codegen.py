"""The graph JSON against what TVM 0.8 wrote (tests/golden/graph_json): same nodes, names and wiring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.runtime import GraphModule

GOLDEN = Path(__file__).parents[2] / "golden" / "graph_json"
# TVM 0.8's "llvm" means a baseline processor; ours means this machine's.
BASELINE = {"llvm": "llvm -mcpu=x86-64", "c": "c -mcpu=x86-64"}


def conv_bias_relu() -> tvm.IRModule:
    d1 = relay.var("d1", shape=(1, 32, 56, 56))
    w1 = relay.var("w1", shape=(32, 32, 3, 3))
    b1 = relay.var("b1", shape=(32,))
    conv = relay.nn.conv2d(d1, w1, padding=(1, 1), channels=32, kernel_size=(3, 3))
    return tvm.IRModule.from_expr(relay.Function([d1, w1, b1], relay.nn.relu(relay.nn.bias_add(conv, b1))))


def structure(text: str) -> dict[str, Any]:
    """A graph without what may differ: hashes, the choice of storage, and what TVM does not write."""
    graph = json.loads(text)
    graph.pop("metadata", None)
    for node in graph["nodes"]:
        node.get("attrs", {}).pop("hash", None)
    del graph["attrs"]["storage_id"]
    graph["attrs"].pop("storage_offset", None)
    return graph


@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_conv_bias_relu_gives_the_graph_of_tvm(target: str, opt_level: int) -> None:
    with tvm.transform.PassContext(opt_level=opt_level):
        graph, _, _ = relay.build(conv_bias_relu(), target=BASELINE[target])
    golden = (GOLDEN / f"conv_bias_relu.{target}.opt{opt_level}.json").read_text()
    assert structure(graph) == structure(golden)


def test_the_graph_tells_inputs_outputs_and_what_made_it_where_tvm_stops_reading() -> None:
    x, w = relay.var("x", shape=(3, 4)), relay.var("w", shape=(4,))
    func = relay.Function([x, w], relay.Tuple([relay.add(x, w), relay.exp(x)]))
    module = tvm.IRModule.from_expr(func).with_attr("output_names", ["sum", "power"])
    library = relay.build(module, "llvm", params={"w": np.ones(4, "float32")})
    graph = json.loads(library.get_graph_json())
    assert list(graph)[-1] == "metadata"
    assert graph["metadata"]["inputs"] == ["x"] and graph["metadata"]["outputs"] == ["sum", "power"]
    assert graph["metadata"]["made_by"] == f"Tilewright {tvm.__version__}"
    executor = GraphModule(library["default"](tvm.cpu(0)))
    found = executor.infer({"x": np.zeros((3, 4), "float32")})
    assert (found["sum"] == 1).all() and (found["power"] == 1).all()
    assert executor.get_input_info() == ({"x": (3, 4)}, {"x": "float32"})
    # names of another number than there are outputs are those of something else
    other = relay.build(module.with_attr("output_names", ["sum"]), "llvm")
    assert GraphModule(other["default"](tvm.cpu(0))).get_output_names() == ["output_0", "output_1"]


def test_equal_constants_are_one_parameter() -> None:
    x = relay.var("x", shape=(3, 4))
    values = np.array([1, 2, np.nan, 4], "float32")
    other = np.array([1, 2, -np.nan, 4], "float32")  # the same but for the sign bit of NaN
    terms = [relay.nn.softmax(relay.add(x, relay.const(v))) for v in (values, values.copy(), other)]
    body = relay.Tuple([*terms, relay.add(x, relay.const(values.reshape(1, 4)))])
    library = relay.build(tvm.IRModule.from_expr(relay.Function([x], body)), "llvm")
    assert sorted(p.shape for p in library.params.values()) == [(1, 4), (4,), (4,)]
