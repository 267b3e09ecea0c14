"""Networks through oneDNN: the same answers as PyTorch's, in one library that carries its regions as text."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.models.compiled import assert_close
from tests.tiers import full

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.interpreter import interpret
from tilewright.relay.op.contrib.dnnl import partition_for_dnnl
from tilewright.relay.transform import AnnotateTarget, MergeCompilerRegions, PartitionGraph
from tilewright.runtime.module import num_threads, set_num_threads
from tilewright.testing import zoo


def answers(library: object, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))  # type: ignore[index]
    executor.run(**inputs)
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def check(path: Path) -> tvm.IRModule:
    """Compare with PyTorch, on one thread and two; gives the partitioned module."""
    inputs, outputs = zoo.reference(path)
    partitioned = partition_for_dnnl(*relay.frontend.from_onnx(onnx.load(str(path))))
    library = relay.build(partitioned, "llvm")
    before = num_threads()
    try:
        for threads in (1, 2):
            set_num_threads(threads)
            assert_close(answers(library, inputs), list(outputs.values()))
    finally:
        set_num_threads(before)
    return partitioned


@pytest.mark.parametrize("name", zoo.names())
def test_small_networks(name: str) -> None:
    partitioned = check(zoo.export(name, **zoo.small_options(name)))
    assert len(partitioned.get_global_vars()) > 1


@pytest.mark.parametrize("name", ["densenet121", *full("mobilenet_v2")])
def test_small_networks_with_batch_norms(name: str) -> None:
    check(zoo.export(name, keep_batch_norm=True, **zoo.small_options(name)))


@pytest.mark.soak
@pytest.mark.parametrize("name", zoo.names())
def test_networks_of_full_size(name: str) -> None:
    check(zoo.export(name))


@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2", "densenet121", "inception_v3", "unet"])
def test_a_convolutional_network_is_one_region(name: str) -> None:
    path = zoo.export(name, **zoo.small_options(name))
    partitioned = partition_for_dnnl(*relay.frontend.from_onnx(onnx.load(str(path))))
    assert [v.name_hint for v in partitioned.get_global_vars()] == ["main", "tvmgen_default_dnnl_main_0"]


def network() -> tuple[tvm.IRModule, np.ndarray]:
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(1, 3, 9, 7))
    w, b = (relay.const(rng.standard_normal(s).astype("float32")) for s in [(8, 3, 3, 3), (8,)])
    body = relay.nn.relu(relay.nn.bias_add(relay.nn.conv2d(x, w, padding=(1, 1)), b))
    return tvm.IRModule.from_expr(relay.Function([x], body)), rng.standard_normal((1, 3, 9, 7)).astype("float32")


def test_an_exported_library_carries_its_regions_as_text(tmp_path: Path) -> None:
    mod, data = network()
    relay.build(partition_for_dnnl(mod), "llvm").export_library(tmp_path / "net.so")
    strings = subprocess.run(["readelf", "-p", ".rodata", tmp_path / "net.so"], capture_output=True, check=True).stdout
    assert b'"dnnl.conv2d_bias_relu"' in strings
    loaded = tvm.runtime.load_module(tmp_path / "net.so")
    (found,) = answers(loaded, {"x": data})
    np.testing.assert_allclose(found, interpret(mod, [data]), rtol=1e-4, atol=1e-5)
    regions = [m for m in loaded.imported_modules[0].imported_modules if m.type_key == "dnnl_json"]
    assert regions[0]["get_const_vars"]().splitlines() == [f"tvmgen_default_dnnl_main_0_const_{i}" for i in (0, 1)]


def test_weights_that_passes_have_transposed_are_exported(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weight = relay.const(rng.standard_normal((300, 200)).astype("float32"))
    x = relay.var("x", shape=(2, 300))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, relay.transpose(weight))))
    relay.build(partition_for_dnnl(mod), "llvm").export_library(tmp_path / "net.so")
    data = rng.standard_normal((2, 300)).astype("float32")
    (found,) = answers(tvm.runtime.load_module(tmp_path / "net.so"), {"x": data})
    np.testing.assert_allclose(found, interpret(mod, [data]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["resnet18", "bert_base", *full("densenet121")])
def test_regions_as_c_source_give_the_same_answers(name: str, tmp_path: Path) -> None:
    path = zoo.export(name, **zoo.small_options(name))
    inputs, outputs = zoo.reference(path)
    partitioned = partition_for_dnnl(*relay.frontend.from_onnx(onnx.load(str(path))))
    with tvm.transform.PassContext(opt_level=3, config={"relay.ext.dnnl.codegen": "c"}):
        library = relay.build(partitioned, "llvm")
    assert "dnnl_json" not in {module.type_key for module in library.lib.imported_modules}
    assert '"runtime.dnnl.kernel"' in library.lib.imported_modules[1].get_source()
    library.export_library(tmp_path / "net.so")
    for loaded in (library, tvm.runtime.load_module(tmp_path / "net.so")):
        assert_close(answers(loaded, inputs), list(outputs.values()))


def test_a_form_that_there_is_not_is_refused() -> None:
    partitioned = partition_for_dnnl(network()[0])
    wanted = tvm.transform.PassContext(config={"relay.ext.dnnl.codegen": "c++"})
    with wanted, pytest.raises(tvm.error.TVMError, match="there are 'json', 'c'"):
        relay.build(partitioned, "llvm")


def test_marks_by_hand_get_the_regions_of_tvm_0_8() -> None:
    x = relay.var("x", shape=(2, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.tanh(relay.nn.relu(x))))
    split = tvm.transform.Sequential([AnnotateTarget("dnnl"), MergeCompilerRegions(), PartitionGraph()])(mod)
    assert "tanh" in str(split["main"]) and "nn.relu" not in str(split["main"])


@pytest.mark.parametrize("dtype, shape, reason", [
    ("int8", (2, 3), "int8 tensors are left to the host; oneDNN has float32 ones"),
    ("float32", (2, 0), "has no elements"),
    ("float32", (1, 1, 1, 1, 1, 2), "has more than 5 dimensions"),
])  # fmt: skip
def test_refusals_say_why(dtype: str, shape: tuple[int, ...], reason: str) -> None:
    x = relay.var("x", shape=shape, dtype=dtype)
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x))))
    (fate,) = relay.transform.explain_partition(mod, "dnnl")
    assert fate.region == "" and reason in fate.reason


def test_what_is_added_may_be_no_bias() -> None:
    x, w, y = (relay.var(n, shape=s) for n, s in [("x", (1, 2, 5, 5)), ("w", (2, 2, 1, 1)), ("y", (5, 1))])
    mod = tvm.IRModule.from_expr(relay.Function([x, w, y], relay.nn.relu(relay.nn.conv2d(x, w) + y)))
    fates = tvm.get_global_func("relay.ext.dnnl.explain")(mod)
    assert [fate.reason for fate in fates] == ["the rule target.dnnl takes it"] * 3
    data = [np.random.default_rng(i).standard_normal(p.checked_type.concrete_shape).astype("float32")
            for i, p in enumerate(relay.transform.InferType()(mod)["main"].params)]  # fmt: skip
    (found,) = answers(relay.build(partition_for_dnnl(mod), "llvm"), dict(zip("xwy", data, strict=True)))
    np.testing.assert_allclose(found, interpret(mod, data), rtol=1e-4, atol=1e-5)
