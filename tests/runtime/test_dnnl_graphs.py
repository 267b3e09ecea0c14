"""Regions for oneDNN whose JSON lies, under the sanitizers; TVM 0.8's libraries; and oneDNN that is not there."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.native_objects import NATIVE, SANITIZED, runtime_objects

from tilewright import runtime
from tilewright.runtime.module import load_from_blob
from tilewright.runtime.onednn import find_library

Graph = dict[str, Any]


def node(kind: str, name: str, *shapes: list[int], inputs: list[int] | None = None, **attrs: list[str]) -> dict:
    """A node in TVM's form; attributes are lists of strings."""
    own: dict[str, Any] = {key: [value] for key, value in attrs.items()}
    own |= {"shape": [list(shapes)], "dtype": [["float32"] * len(shapes)]}
    return {"op": kind, "name": name, "inputs": [[i, 0, 0] for i in inputs or []], "attrs": own}


def graph() -> Graph:
    """conv + bias + relu, twice, the second with a summand; then pooling, flattening, dense, softmax."""
    conv = {"strides": ["1", "1"], "padding": ["1", "1", "1", "1"], "dilation": ["1", "1"], "groups": ["1"],
            "data_layout": ["NCHW"], "kernel_layout": ["OIHW"]}  # fmt: skip
    shape = [1, 4, 6, 5]
    nodes = [
        node("input", "x", shape),
        node("input", "w", [4, 4, 3, 3]),
        node("input", "b", [4, 1, 1]),
        node("input", "v", [3, 4]),
        node("kernel", "dnnl.conv2d_bias_relu", shape, inputs=[0, 1, 2], **conv),
        node("kernel", "dnnl.conv2d_bias_sum_relu", shape, inputs=[4, 1, 2, 4], **conv),
        node("kernel", "nn.global_avg_pool2d", [1, 4, 1, 1], inputs=[5], layout=["NCHW"]),
        node("kernel", "nn.batch_flatten", [1, 4], inputs=[6]),
        node("kernel", "nn.dense", [1, 3], inputs=[7, 3], units=["3"]),
        node("kernel", "nn.softmax", [1, 3], inputs=[8], axis=["-1"]),
        node("kernel", "transpose", [3, 1], inputs=[9], axes=["1", "0"]),
        node("kernel", "concatenate", [6, 1], inputs=[10, 10], axis=["0"]),
        node("kernel", "add", [6, 4], inputs=[11, 7]),
    ]
    return {"nodes": nodes, "arg_nodes": [0, 1, 2, 3], "heads": [[12, 0, 0]], "node_row_ptr": list(range(14))}


@pytest.fixture(scope="module")
def build_all(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[str]], list[str]]:
    """Builds the regions of texts under ASan and UBSan; what each came to."""
    folder = tmp_path_factory.mktemp("regions")
    sources = [str(NATIVE / "tests" / "dnnl" / "regions.c"), *runtime_objects("gcc", *SANITIZED)]
    command = ["gcc", "-std=c11", *SANITIZED, f"-I{NATIVE / 'include'}", *sources, "-o", str(folder / "regions")]
    subprocess.run([*command, "-lpthread", "-ldl"], check=True)

    def build(texts: list[str], library: str | None = None) -> list[str]:
        paths = [folder / f"{i}.json" for i in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        # Intel's libraries do not give back all of their memory
        sanitizers = {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1"}
        # under ASan, dlopen does not look where the library that calls it says
        sanitizers["LD_LIBRARY_PATH"] = str(Path(find_library()).parent)
        settings = os.environ | sanitizers | {"TILEWRIGHT_DNNL": find_library() if library is None else library}
        done = subprocess.run([str(folder / "regions"), *paths], env=settings, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-500:] + done.stderr[-4000:]
        return done.stdout.splitlines()

    return build


BUILT = "region: it takes 4 tensors and 1 results, and is given 0"


def lies() -> Iterator[tuple[str, Graph | str]]:
    """What is wrong with a graph, as its error says it, and the graph."""

    def lie(words: str, *changes: tuple[Any, ...]) -> tuple[str, Graph]:
        wrong = deepcopy(graph())
        for *path, last, value in changes:
            place: Any = wrong
            for step in path:
                place = place[step]
            place[last] = value
        return words, wrong

    yield BUILT, graph()
    yield "JSON", '{"nodes": ['
    yield "the graph has no list of nodes", "[]"
    yield "the graph has no results", {**graph(), "heads": []}
    yield lie("the graph has no list of nodes", ("nodes", []))
    yield lie("one of the 4 nodes before it", ("nodes", 4, "inputs", 0, [4, 0, 0]))
    yield lie("one of the 4 nodes before it", ("nodes", 4, "inputs", 0, [-1, 0, 0]))
    yield lie("one of the 4 nodes before it", ("nodes", 4, "inputs", 0, [0, 7, 0]))
    yield lie("one of the 13 nodes before it", ("heads", 0, [99, 0, 0]))
    yield lie("node 4 (nn.fly): this runtime knows no such operator", ("nodes", 4, "name", "nn.fly"))
    yield lie("a node is", ("nodes", 0, "op", "tvm"))
    yield lie("it has 2 inputs; expected 3 to 3", ("nodes", 4, "inputs", [[0, 0, 0], [1, 0, 0]]))
    yield lie("its shape is said to be (9, 9), and what it computes has the shape (1, 4, 6, 5)",
              ("nodes", 4, "attrs", "shape", [[[9, 9]]]))  # fmt: skip
    yield lie("an extent is not a positive integer", ("nodes", 0, "attrs", "shape", [[[1, 0]]]))
    yield lie("a shape is too large", ("nodes", 0, "attrs", "shape", [[[2**31 - 1] * 3]]))
    yield lie("a shape is a list of at most 12 extents", ("nodes", 0, "attrs", "shape", [[[1] * 13]]))
    yield lie("its data type is int8; there is float32", ("nodes", 0, "attrs", "dtype", [["int8"]]))
    yield lie('its attribute "strides" is not a list of 2 integers', ("nodes", 4, "attrs", "strides", [[]]))
    yield lie('its attribute "strides" has "0"; expected an integer of 1 or more',
              ("nodes", 4, "attrs", "strides", [["0", "1"]]))  # fmt: skip
    yield lie(
        "its weights are for 12 channels in 3 groups, and its data has 4", ("nodes", 4, "attrs", "groups", [["3"]])
    )
    yield lie("its data_layout is NHWC; there is NCHW", ("nodes", 4, "attrs", "data_layout", [["NHWC"]]))
    yield lie("its bias has not one value for each output channel", ("nodes", 2, "attrs", "shape", [[[5]]]))
    yield lie("its data is [..., inputs] and its weights [outputs, inputs]", ("nodes", 3, "attrs", "shape", [[[3, 9]]]))
    yield lie("it has no axis 7", ("nodes", 9, "attrs", "axis", [["7"]]))
    yield lie("its axes are no permutation", ("nodes", 10, "attrs", "axes", [["1", "1"]]))
    yield lie("there is no activation", ("nodes", 4, "name", "dnnl.conv2d_bias_fly"))
    yield lie("region has 1 constants in its graph and 0 names of constants", ("nodes", 1, "op", "const"))
    yield lie("is an output that no operator computes",
              ("nodes", 5, "attrs", "shape", [[[1, 4, 6, 5], [2]]]), ("nodes", 5, "attrs", "dtype", [["float32"] * 2]),
              ("nodes", 6, "inputs", [[5, 1, 0]]))  # fmt: skip


@pytest.mark.full
def test_each_lie_is_one_clear_error(build_all: Callable[[list[str]], list[str]]) -> None:
    told = list(lies())
    said = build_all([text if isinstance(text, str) else json.dumps(text) for _, text in told])
    assert [(words, line) for (words, _), line in zip(told, said, strict=True) if words not in line] == []


def test_damaged_graphs_are_refused_or_built(build_all: Callable[[list[str]], list[str]]) -> None:
    rng = random.Random(0)
    texts = []
    for _ in range(150):
        text = list(json.dumps(graph()))
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(text))
            text[place] = rng.choice(["", "0", "9", '"', "]", "-", str(2**31), text[place] * 2])
        texts.append("".join(text))
    assert len(build_all(texts)) == len(texts)


def test_without_onednn_the_error_says_what_to_install(build_all: Callable[..., list[str]]) -> None:
    (said,) = build_all([json.dumps(graph())], "/nonexistent/libdnnl.so.3")
    assert (
        said.startswith("oneDNN cannot be loaded: /nonexistent/libdnnl.so.3") and "pip install tilewright[dnnl]" in said
    )


def region(text: Graph, constants: tuple[str, ...] = ()) -> runtime.Module:
    return runtime.get_global_func("runtime.DNNLJSONRuntimeCreate")("region", json.dumps(text), constants)


def test_tensors_have_to_be_those_of_the_graph() -> None:
    run = region(graph())["region"]
    shapes = [(1, 4, 6, 5), (4, 4, 3, 3), (4, 1, 1), (3, 4), (6, 4)]
    tensors = [runtime.array(np.zeros(shape, "float32")) for shape in shapes]
    run(*tensors)
    np.testing.assert_allclose(tensors[-1].numpy(), 1 / 3, rtol=1e-6)
    wrong = [
        (
            runtime.array(np.zeros((1, 4, 6, 6), "float32")),
            r"node 0 \(x\): it is given a tensor of shape \(1, 4, 6, 6\)",
        ),
        (runtime.array(np.zeros((1, 4, 6, 5), "float64")), r"node 0 \(x\): it is given a tensor of float64"),
        (3, "its argument 0 is no tensor"),
    ]
    for given, words in wrong:
        with pytest.raises(runtime.TVMError, match=words):
            run(given, *tensors[1:])


def test_constants_are_wanted_before_the_first_run() -> None:
    text = graph()
    text["nodes"][1]["op"] = "const"
    module = region(text, ("w",))
    assert (module["get_symbol"](), module["get_const_vars"]()) == ("region", "w")
    with pytest.raises(runtime.TVMError, match="__init_region has not given it its constants"):
        module["region"]()
    with pytest.raises(runtime.TVMError, match="it takes 1 constants and is given 0"):
        module["__init_region"]()
    with pytest.raises(runtime.TVMError, match=r"node 1 \(w\): it is given a tensor of shape \(4,\)"):
        module["__init_region"](runtime.array(np.zeros(4, "float32")))
    with pytest.raises(runtime.TVMError, match='is "other" in the list of names'):
        region(text, ("other",))["__init_region"](runtime.array(np.zeros((4, 4, 3, 3), "float32")))


def test_a_library_that_tvm_0_8_exported_runs(golden: Path) -> None:
    def exponential(given: runtime.NDArray, result: runtime.NDArray) -> None:
        result.copyfrom(np.exp(given.numpy()))

    host = runtime.create_module("llvm", {"tvmgen_default_fused_exp": exponential}.get)
    root = load_from_blob((golden / "blob" / "tvm_dev_mblob.bin").read_bytes(), host)
    recorded = np.load(golden / "blob" / "io.npz")
    executor = runtime.GraphModule(root["default"](runtime.cpu()))
    executor.run(x=recorded["x"])
    np.testing.assert_allclose(executor.get_output(0).numpy(), recorded["y"], rtol=1e-5)
