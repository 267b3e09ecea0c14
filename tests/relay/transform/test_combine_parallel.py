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


def followed(operator: Any, data: tuple, weights: list, operands: list, scales: list) -> tvm.IRModule:
    """Branches with something added, an activation, and something that multiplies."""
    x = relay.var("x", shape=data)
    params, fields = [x], []
    for k, (weight, added, scale) in enumerate(zip(weights, operands, scales, strict=True)):
        w, b, s = (relay.var(f"{n}{k}", shape=shape) for n, shape in zip("wbs", (weight, added, scale), strict=True))
        params += [w, b, s]
        fields.append(relay.multiply(s, relay.nn.relu(relay.add(operator(x, w), b))))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, relay.Tuple(fields))))


CONV, DENSE, PRODUCT = relay.nn.conv2d, relay.nn.dense, relay.nn.batch_matmul
TWO_DENSE = (DENSE, (3, 4), [(5, 4), (7, 4)])


@pytest.mark.parametrize(
    ("pass_", "case", "added", "scales", "counts"),
    [
        (CombineParallelConv2D(2), (CONV, (1, 4, 5, 7), [(3, 4, 1, 1), (1, 4, 1, 1)]),
         [(3, 1, 1), (1, 1, 1)], [(1, 3, 1, 1), (1, 1, 1, 1)], (1, 1, 1)),
        (CombineParallelConv2D(2), (CONV, (1, 4, 5, 7), [(3, 4, 1, 1), (2, 4, 1, 1)]),
         [(3, 1, 1), (2, 1, 1)], [(1,), (1,)], (1, 1, 2)),
        (CombineParallelDense(2, to_batch=False), TWO_DENSE, [(5,), (7,)], [(), ()], (1, 1, 1)),
        (CombineParallelDense(2, to_batch=False), TWO_DENSE, [(3, 5), (3, 1)], [(2, 3, 5), (2, 3, 7)], (1, 1, 1)),
        (CombineParallelDense(2, to_batch=False), TWO_DENSE, [(5,), (3, 7)], [(1,), (1,)], (1, 2, 2)),
        (CombineParallelDense(2), (DENSE, (3, 4), [(5, 4)] * 2), [(5,), (5,)], [(), ()], (1, 1, 1)),
        (CombineParallelDense(2), (DENSE, (3, 4), [(5, 4)] * 2), [(3, 5)] * 2, [(5,), (1,)], (1, 1, 2)),
        (CombineParallelBatchMatmul(2), (PRODUCT, (2, 3, 4), [(2, 5, 4), (2, 1, 4)]),
         [(5,), (1,)], [(2, 1, 5), (2, 1, 1)], (1, 1, 1)),
    ],
)  # fmt: skip
def test_what_follows_all_branches_alike_is_combined_too(
    pass_: Any, case: Any, added: list, scales: list, counts: tuple[int, int, int]
) -> None:
    mod = followed(*case, added, scales)
    changed = pass_(mod)
    products = sum(calls(changed, name) for name in ("nn.conv2d", "nn.dense", "nn.batch_matmul"))
    assert (products, calls(changed, "add"), calls(changed, "multiply")) == counts
    same_numbers(mod, changed)


def test_branches_of_which_one_needs_the_other_stay_apart() -> None:
    x, w1, w2 = relay.var("x", shape=(3, 4)), relay.var("w1", shape=(5, 4)), relay.var("w2", shape=(5, 4))
    one = relay.nn.relu(relay.nn.dense(x, w1))
    other = relay.nn.dense(x, w2) + relay.exp(one)
    for body in ([one, other], [relay.nn.dense(x, w1) + one, one]):
        mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x, w1, w2], relay.Tuple(body))))
        same_numbers(mod, CombineParallelDense(2, to_batch=False)(mod))


def test_operators_that_follow_can_be_left() -> None:
    mod = followed(*TWO_DENSE, [(5,), (7,)], [(), ()])
    changed = CombineParallelDense(2, to_batch=False, with_elementwise=False)(mod)
    assert (calls(changed, "nn.dense"), calls(changed, "add")) == (1, 2)
    same_numbers(mod, changed)
