"""CombineParallelConv2D, -Dense and -BatchMatmul: the same numbers from one operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.transform import CombineParallelBatchMatmul, CombineParallelConv2D, CombineParallelDense


def calls(mod: tvm.IRModule, name: str) -> int:
    return str(mod["main"]).count(f"{name}(")


def same_numbers(mod: tvm.IRModule, changed: tvm.IRModule) -> None:
    """By the interpreter, whose operators are numpy's."""
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(p.checked_type.concrete_shape).astype("float32") for p in mod["main"].params]
    one, other = (relay.create_executor("debug", mod=m).evaluate()(*values) for m in (mod, changed))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-5)


def branches(operator: Any, data: tuple[int, ...], weights: list[tuple[int, ...]]) -> tvm.IRModule:
    x = relay.var("x", shape=data)
    variables = [relay.var(f"w{k}", shape=shape) for k, shape in enumerate(weights)]
    body = relay.Tuple([relay.tanh(operator(x, w)) for w in variables])
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x, *variables], body)))


@pytest.mark.parametrize("to_batch", [False, True])
@pytest.mark.parametrize("data", [(3, 4), (1, 4), (2, 3, 4), (2, 1, 3, 4)])
def test_dense_layers_of_any_rank(data: tuple[int, ...], to_batch: bool) -> None:
    mod = branches(relay.nn.dense, data, [(5, 4)] * 3)
    changed = CombineParallelDense(3, to_batch=to_batch)(mod)
    if to_batch:
        batched = len(data) == 2
        assert calls(changed, "nn.batch_matmul") == int(batched) and calls(changed, "nn.dense") == (0 if batched else 3)
    else:
        assert calls(changed, "nn.dense") == 1
    same_numbers(mod, changed)


@pytest.mark.parametrize("to_batch", [False, True])
def test_dense_layers_of_several_widths(to_batch: bool) -> None:
    mod = branches(relay.nn.dense, (3, 4), [(5, 4), (7, 4), (5, 4), (1, 4)])
    changed = CombineParallelDense(2, to_batch=to_batch)(mod)
    assert calls(changed, "nn.dense") == (2 if to_batch else 1)
    same_numbers(mod, changed)
    assert CombineParallelDense(5, to_batch=to_batch)(mod)["main"] is mod["main"]


@pytest.mark.parametrize("widths", [(5, 5, 5), (1, 6, 2)])
def test_batched_products(widths: tuple[int, ...]) -> None:
    mod = branches(relay.nn.batch_matmul, (2, 3, 4), [(2, n, 4) for n in widths])
    changed = CombineParallelBatchMatmul(3)(mod)
    assert calls(changed, "nn.batch_matmul") == 1
    same_numbers(mod, changed)


def test_products_that_do_not_fit_stay() -> None:
    mod = branches(relay.nn.batch_matmul, (2, 3, 4), [(1, 5, 4), (2, 5, 4), (2, 5, 4)])
    assert calls(CombineParallelBatchMatmul(3)(mod), "nn.batch_matmul") == 3

    def plain(x: Any, w: Any) -> Any:
        return relay.nn.batch_matmul(x, w, transpose_b=False)

    mod = branches(plain, (2, 3, 4), [(2, 4, 5)] * 3)
    assert calls(CombineParallelBatchMatmul(3)(mod), "nn.batch_matmul") == 3


def test_convolutions() -> None:
    mod = branches(
        lambda x, w: relay.nn.conv2d(x, w, padding=(1, 1)), (1, 3, 5, 5), [(2, 3, 3, 3), (4, 3, 3, 3), (2, 3, 3, 3)]
    )
    changed = CombineParallelConv2D(3)(mod)
    assert calls(changed, "nn.conv2d") == 1
    same_numbers(mod, changed)


def test_a_build_combines_layers_of_higher_rank() -> None:
    mod = branches(relay.nn.dense, (2, 3, 4), [(5, 4)] * 3)
    with tvm.transform.PassContext(opt_level=4):
        relay.build(mod, "llvm")


def test_layers_are_counted_along_the_longest_path() -> None:
    x = relay.var("x", shape=(2, 4))
    y = relay.nn.dense(x, relay.const(np.ones((4, 4), "float32")))
    z = relay.add(relay.nn.dense(relay.tanh(y), relay.const(np.ones((4, 4), "float32"))), y)
    assert relay.analysis.count_layers(z, ["nn.dense"]) == 2
    assert relay.analysis.count_layers(tvm.IRModule.from_expr(z), ["nn.dense", "tanh"]) == 3
    assert relay.analysis.count_layers(z, ["nn.conv2d"]) == 0


def test_the_synthetic_network_builds() -> None:
    mod, params = relay.testing.synthetic.get_workload()
    assert [int(n) for n in mod["main"].body.checked_type.shape] == [1, 3, 24, 12]
    fused, _ = relay.optimize(mod, "llvm", params)
    assert calls(fused, "nn.conv2d") + calls(fused, "nn.contrib_conv2d_NCHWc") == 2
