"""Parameters in the code (``-link-params``): a graph executor finds them there."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.target.codegen.c.linked_params import linked_params

RNG = np.random.default_rng(3)
WEIGHT = RNG.normal(size=(5, 7)).astype("float32")
BIAS = np.int64([-(1 << 63), (1 << 63) - 1, 0, -1, 5])
X = RNG.normal(size=(2, 7)).astype("float32")


def build(target: str, link: bool = True) -> object:
    x, bias = relay.var("x", shape=(2, 7)), relay.const(BIAS)
    out = relay.Tuple([relay.nn.dense(x, relay.const(WEIGHT)), relay.bitwise_xor(bias, relay.const(np.int64(0)))])
    module = tvm.IRModule.from_expr(relay.Function([x], out))
    with tvm.transform.PassContext(opt_level=0):  # constants stay what they are
        return relay.build(module, f"{target} -link-params={int(link)}")


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("exported", [False, True])
def test_an_executor_of_the_code_alone_has_the_parameters(target: str, exported: bool, tmp_path: Path) -> None:
    factory = build(target)
    library = factory.get_lib()
    if exported:
        library.export_library(tmp_path / "lib.so")
        library = tvm.runtime.load_module(tmp_path / "lib.so")
    executor = graph_executor.create(factory.get_graph_json(), library, tvm.cpu())
    executor.run(x=X)
    np.testing.assert_allclose(executor.get_output(0).numpy(), X @ WEIGHT.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(executor.get_output(1).numpy(), BIAS)


def test_a_library_has_its_parameters_once(tmp_path: Path) -> None:
    big = relay.const(RNG.normal(size=(200, 500)).astype("float32"))
    x = relay.var("x", shape=(1, 500))
    module = tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, big)))
    sizes = []
    for link in (0, 1):
        factory = relay.build(module, f"llvm -link-params={link}")
        factory.export_library(tmp_path / f"{link}.so")
        sizes.append((tmp_path / f"{link}.so").stat().st_size)
        assert sum(p.numpy().size for p in factory.get_params().values()) >= 100_000
        model = tvm.load(tmp_path / f"{link}.so")
        np.testing.assert_allclose(model(np.ones((1, 500), "float32")).sum(), big.data.numpy().sum(), rtol=1e-3)
    assert abs(sizes[1] - sizes[0]) < 100_000 < 400_000 < sizes[0]


def test_a_parameter_outlives_its_executor_and_can_be_replaced() -> None:
    factory = build("llvm")
    executor = graph_executor.create(factory.get_graph_json(), factory.get_lib(), tvm.cpu())
    name = next(n for n, p in factory.get_params().items() if p.shape == (5, 7))
    found = executor.get_input(name)
    executor.set_input(name, np.zeros((5, 7), "float32"))
    executor.run(x=X)
    assert not executor.get_output(0).numpy().any()
    del executor, factory
    gc.collect()
    np.testing.assert_array_equal(found.numpy(), WEIGHT)


def test_parameters_in_the_code_of_another_machine_are_set_as_inputs(tmp_path: Path) -> None:
    factory = build("llvm")
    factory.get_lib().export_library(tmp_path / "lib.so")
    server = tvm.rpc.Server("127.0.0.1", port=0)
    try:
        remote = tvm.rpc.connect("127.0.0.1", server.port)
        remote.upload(str(tmp_path / "lib.so"))
        library = remote.load_module("lib.so")
        executor = graph_executor.create(factory.get_graph_json(), library, remote.cpu())
        executor.set_input(**factory.get_params())
        executor.run(x=X)
        np.testing.assert_allclose(executor.get_output(0).numpy(), X @ WEIGHT.T, rtol=1e-5, atol=1e-5)
        del executor, library, remote
    finally:
        server.terminate()


def test_the_function_tells_addresses_by_storage() -> None:
    factory = build("c")
    graph = json.loads(factory.get_graph_json())
    lookup = factory.get_lib()["_lookup_linked_param"]
    storages = {graph["attrs"]["storage_id"][1][graph["node_row_ptr"][i]] for i in graph["arg_nodes"]}
    assert sum(lookup(s) is not None for s in storages) == len(storages) - 1  # all but x
    assert lookup(1 << 20) is None


def test_elements_are_written_exactly() -> None:
    halves = np.float16([1, -2])
    text = linked_params([
        (3, "a", np.float32([1.5, -0.0, np.inf, -np.inf, np.nan]), "float32"),
        (4, "b", np.int8([-128, 127]), "int8"), (5, "c", halves, "float16"), (6, "d", np.zeros(0, "int32"), "int32"),
    ])  # fmt: skip
    assert "float __tvm_param__a[5] = {\n  0x1.8p+0, -0x0.p+0, INFINITY, -INFINITY, NAN\n};" in text
    assert "int8_t __tvm_param__b[2] = {\n  -0x80, +0x7f\n};" in text
    assert "uint16_t __tvm_param__c[2] = {\n  0x3c00, 0xc000\n};" in text
    assert "int32_t __tvm_param__d[1] = {\n  0\n};" in text
    assert "case 4: found = (void*)__tvm_param__b; break;" in text
