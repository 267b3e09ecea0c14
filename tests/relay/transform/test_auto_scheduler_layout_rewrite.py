"""AutoSchedulerLayoutRewrite: constants in other layouts, which the kernel undoes until a schedule reads them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.transform.layout import auto_scheduler_layout_rewrite as rewriting
from tilewright.relay.visitor import post_order


def test_packed_array_visits_elements_in_the_order_of_its_parts() -> None:
    weight = np.arange(24).reshape(6, 4)
    packed = rewriting.packed_array(weight, [(0, 3), (1, 4), (0, 2)])
    assert packed.shape == (3, 4, 2)
    for i, k, j in np.ndindex(packed.shape):
        assert packed[i, k, j] == weight[2 * i + j, k]


@pytest.mark.parametrize("parts", [[(1, 5), (0, 7)], [(0, 7), (1, 1), (1, 5)]])
def test_constants_are_packed_and_the_kernel_reads_them_unpacked(
    parts: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Sequence[int]] = []

    def choose(func: relay.Function, constant: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
        asked.append(constant)
        return dict.fromkeys(constant, parts)

    monkeypatch.setattr(rewriting, "packing_choosers", [choose])
    rng = np.random.default_rng(0)
    data, weight = rng.standard_normal((3, 5)).astype("float32"), rng.standard_normal((7, 5)).astype("float32")
    x = relay.var("x", shape=(3, 5))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, relay.const(weight))))
    mod = relay.transform.FuseOps()(relay.transform.InferType()(mod))
    packed = relay.transform.AutoSchedulerLayoutRewrite()(mod)
    assert asked == [[1]]
    constants = [e.data.shape for e in post_order(packed["main"]) if isinstance(e, relay.Constant)]
    assert constants == [tuple(extent for _, extent in parts)]
    found = relay.create_executor("debug", packed).evaluate()(data).numpy()
    np.testing.assert_allclose(found, data @ weight.T, rtol=1e-5, atol=1e-6)
    (kernel,) = (
        e.op for e in post_order(packed["main"]) if isinstance(e, relay.Call) and isinstance(e.op, relay.Function)
    )
    plain, which = rewriting.without_packing(kernel)
    assert which == [1]
    assert "transpose" not in plain.astext()


def test_kernels_without_constants_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(func: relay.Function, constant: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
        raise AssertionError("nothing is constant")

    monkeypatch.setattr(rewriting, "packing_choosers", [choose])
    x, w = relay.var("x", shape=(3, 5)), relay.var("w", shape=(7, 5))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w)))
    mod = relay.transform.FuseOps()(relay.transform.InferType()(mod))
    assert tvm.ir.structural_equal(relay.transform.AutoSchedulerLayoutRewrite()(mod), mod)
