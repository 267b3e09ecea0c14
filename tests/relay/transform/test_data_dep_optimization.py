"""Programs changed with their weights give what they gave before, against numpy and the program as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TilewrightError

RNG = np.random.default_rng(3)


def pruned(rows: int, columns: int, block: tuple[int, int], density: float) -> np.ndarray[Any, Any]:
    """A matrix of which ``density`` of the blocks hold numbers, the first among them."""
    kept = RNG.random((rows // block[0], columns // block[1])) < density
    kept[0, 0] = True
    return (np.kron(kept, np.ones(block)) * RNG.normal(size=(rows, columns))).astype("float32")


def run(func: relay.Function, params: dict[str, Any], data: np.ndarray[Any, Any]) -> Any:
    lib = relay.build(tvm.IRModule.from_expr(func), "llvm", params=params)
    module = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.run(data=data)
    return module.get_output(0).numpy()


def operators(func: relay.Function) -> dict[str, int]:
    return relay.analysis.list_op_freqs(tvm.IRModule.from_expr(func))


@pytest.mark.parametrize("shape", [(8, 16), (1, 8), (7, 5)])
def test_weights_are_transposed_once(shape: tuple[int, int]) -> None:
    x, w = relay.var("data", shape=(3, shape[0])), relay.var("w", shape=shape)
    func = relay.Function([x, w], relay.nn.dense(x, relay.transpose(w, (1, 0))))
    params = {"w": tvm.nd.array(RNG.normal(size=shape).astype("float32"))}
    made, turned = relay.data_dep_optimization.simplify_fc_transpose.convert(func, params)
    assert list(turned) == ["w.T"] and "transpose" not in operators(made) and list(params) == ["w"]
    data = RNG.normal(size=(3, shape[0])).astype("float32")
    np.testing.assert_allclose(run(made, turned, data), data @ params["w"].numpy(), rtol=1e-4, atol=1e-5)


def test_a_weight_that_is_used_as_it_is_stays() -> None:
    x, w = relay.var("data", shape=(4, 4)), relay.var("w", shape=(4, 4))
    func = relay.Function([x, w], relay.nn.dense(x, relay.transpose(w, (1, 0))) + w)
    params = {"w": tvm.nd.array(RNG.normal(size=(4, 4)).astype("float32"))}
    made, turned = relay.data_dep_optimization.simplify_fc_transpose.convert(func, params)
    assert sorted(turned) == ["w", "w.T"]
    data = RNG.normal(size=(4, 4)).astype("float32")
    weight = params["w"].numpy()
    np.testing.assert_allclose(run(made, turned, data), data @ weight + weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("block", [(8, 1), (1, 1), (4, 2)])
def test_dense_layers_of_pruned_weights_become_sparse(block: tuple[int, int]) -> None:
    x = relay.var("data", shape=(3, 24))
    weights = [relay.var("sparse", shape=(16, 24)), relay.var("full", shape=(8, 16))]
    func = relay.Function([x, *weights], relay.nn.dense(relay.nn.relu(relay.nn.dense(x, weights[0])), weights[1]))
    values = [pruned(16, 24, block, 0.1), pruned(8, 16, (1, 1), 1.0)]
    params = {w.name_hint: tvm.nd.array(v) for w, v in zip(weights, values, strict=True)}
    made, kept = relay.data_dep_optimization.bsr_dense.convert(func, params, block, 0.5)
    assert operators(made)["nn.sparse_dense"] == 1 and operators(made)["nn.dense"] == 1
    assert sorted(kept) == ["full", "sparse.data", "sparse.indices", "sparse.indptr"]
    data = RNG.normal(size=(3, 24)).astype("float32")
    wanted = np.maximum(data @ values[0].T, 0) @ values[1].T
    np.testing.assert_allclose(run(made, kept, data), wanted, rtol=1e-4, atol=1e-5)


def test_blocks_that_do_not_divide_a_weight_leave_it() -> None:
    x, w = relay.var("data", shape=(1, 5)), relay.var("w", shape=(7, 5))
    func = relay.Function([x, w], relay.nn.dense(x, w))
    made, kept = relay.data_dep_optimization.bsr_dense.convert(
        func, {"w": tvm.nd.array(pruned(7, 5, (1, 1), 0.1))}, (2, 1), 0.1
    )
    assert list(kept) == ["w"] and operators(made) == {"nn.dense": 1}


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("window", [1, 3])
def test_convolutions_of_pruned_weights_become_sparse(layout: str, window: int) -> None:
    matrix = pruned(16, 8 * window * window, (8, 1), 0.2)
    if layout == "NHWC":
        weight, shape, kernel_layout = matrix.T.reshape(window, window, 8, 16), (1, 6, 5, 8), "HWIO"
    else:
        weight, shape, kernel_layout = matrix.reshape(16, 8, window, window), (1, 8, 6, 5), "OIHW"
    x, w = relay.var("data", shape=shape), relay.var("w", shape=weight.shape)
    options = {"kernel_size": window, "channels": 16, "padding": window // 2}
    conv = relay.nn.conv2d(x, w, data_layout=layout, kernel_layout=kernel_layout, **options)
    func = relay.Function([x, w], relay.nn.relu(conv))
    params = {"w": tvm.nd.array(np.ascontiguousarray(weight))}
    made, kept = relay.data_dep_optimization.bsr_conv2d.convert(func, params, (8, 1), 0.3, layout, window)
    assert operators(made)["nn.sparse_conv2d"] == 1 and "nn.conv2d" not in operators(made)
    data = RNG.normal(size=shape).astype("float32")
    np.testing.assert_allclose(run(made, kept, data), run(func, params, data), rtol=1e-4, atol=1e-4)


def test_convolutions_of_pruned_constants_become_sparse() -> None:
    rng = np.random.default_rng(3)
    weight = pruned(16, 8 * 9, (8, 1), 0.2).reshape(16, 8, 3, 3)
    x, other = relay.var("data", shape=(1, 8, 6, 5)), rng.standard_normal((16, 16, 1, 1)).astype("float32")
    y = relay.nn.conv2d(x, relay.const(weight), padding=1, kernel_size=(3, 3), channels=16)
    func = relay.Function([x], relay.nn.conv2d(y, relay.const(other), kernel_size=(1, 1), channels=16))
    data = rng.standard_normal((1, 8, 6, 5)).astype("float32")
    made, kept = relay.data_dep_optimization.bsr_conv2d.convert2(func, {}, (8, 1), 0.3, "NCHW", 3)
    assert operators(made)["nn.sparse_conv2d"] == 1 and operators(made)["nn.conv2d"] == 1
    assert set(kept) == {p.name_hint for p in made.params} - {"data"} and len(kept) == 3
    np.testing.assert_allclose(run(made, kept, data), run(func, {}, data), rtol=1e-4, atol=1e-4)


def test_convolutions_with_strides_stay() -> None:
    x, w = relay.var("data", shape=(1, 8, 6, 6)), relay.var("w", shape=(8, 8, 1, 1))
    func = relay.Function([x, w], relay.nn.conv2d(x, w, strides=2, kernel_size=1, channels=8))
    params = {"w": tvm.nd.array(pruned(8, 8, (8, 1), 0.1).reshape(8, 8, 1, 1))}
    made, _ = relay.data_dep_optimization.bsr_conv2d.convert(func, params, (8, 1), 0.1, "NCHW")
    assert operators(made) == {"nn.conv2d": 1}
    with pytest.raises(TilewrightError, match="NHWC or NCHW, not 'NCHW8c'"):
        relay.data_dep_optimization.bsr_conv2d.convert(func, params, (8, 1), 0.1, "NCHW8c")
