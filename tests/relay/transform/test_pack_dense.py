"""Weights of dense layers are packed while compiling, in blocks that the columns fill or are padded to."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.errors import TilewrightError


@pytest.mark.parametrize("mcpu", ["x86-64", "haswell", "skylake-avx512"])
@pytest.mark.parametrize("units", [1, 3, 10, 33, 97])
def test_columns_of_a_dense_layer_that_fill_no_block_are_padded(units: int, mcpu: str) -> None:
    rng = np.random.default_rng(units)
    x, w, b = (rng.standard_normal(shape).astype("float32") for shape in ((5, 12), (units, 12), (units,)))
    layer = relay.nn.bias_add(relay.nn.dense(relay.var("x", shape=(5, 12)), relay.const(w)), relay.const(b))
    module = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(layer), relay.nn.relu(layer)))
    with tvm.transform.PassContext(opt_level=3):
        text = str(relay.build_module.optimize(module, f"llvm -mcpu={mcpu}", fuse=False)[0])
        library = relay.build(module, "llvm" if mcpu == "skylake-avx512" else f"llvm -mcpu={mcpu}")
    assert "contrib_dense_pack" in text
    assert f"Tensor[(5, {units}), float32]" in text
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(x=x)
    np.testing.assert_allclose(executor.get_output(0).numpy(), np.maximum(x @ w.T + b, 0), rtol=1e-4, atol=1e-5)


def _product(a: relay.Expr, b: relay.Expr) -> relay.Expr:
    """``a @ b`` as a dense layer or a batched product, both of which take ``b`` transposed."""
    if len(relay.transform.InferTypeLocal(a).shape) == 2:
        return relay.nn.dense(a, relay.transpose(b, axes=(1, 0)))
    return relay.nn.batch_matmul(a, relay.transpose(b, axes=(0, 2, 1)))


@pytest.mark.covering(1)
@pytest.mark.parametrize("batch", [(), (1,), (6,)])
@pytest.mark.parametrize(("m", "n"), [(1, 100), (67, 1), (1, 1)])
@pytest.mark.parametrize("k", [1, 5, 48])
@pytest.mark.parametrize("turned", [False, True])
def test_a_matrix_that_is_read_once_is_not_transposed(batch: tuple, m: int, n: int, k: int, turned: bool) -> None:
    rng = np.random.default_rng(k)
    shapes = {"a": (*batch, k, m) if turned else (*batch, m, k), "b": (*batch, k, n)}
    arrays = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    a, b = (relay.var(name, shape=shape) for name, shape in shapes.items())
    swapped = (0, 2, 1) if batch else (1, 0)
    product = _product(relay.transpose(a, axes=swapped) if turned else a, b)
    module = tvm.IRModule.from_expr(relay.Function([a, b], product))
    with tvm.transform.PassContext(opt_level=3):
        text = str(relay.build_module.optimize(module, "llvm", fuse=False)[0])
        library = relay.build(module, "llvm")
    if batch or k >= 16:
        assert " transpose(" not in text
        assert "layout_transform" not in text
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(**arrays)
    left = arrays["a"].transpose(swapped) if turned else arrays["a"]
    np.testing.assert_allclose(executor.get_output(0).numpy(), left @ arrays["b"], rtol=1e-4, atol=1e-5)


def test_a_packed_weight_without_room_for_the_units_is_refused() -> None:
    data, weight = relay.var("x", shape=(5, 7)), relay.var("w", shape=(2, 7, 16))
    for units in (33, 16):
        layer = relay.nn.contrib_dense_pack(data, weight, "NC16n", units)
        with pytest.raises(TilewrightError, match=f"units is {units}, but the weight has 32 columns"):
            relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([data, weight], layer)))
