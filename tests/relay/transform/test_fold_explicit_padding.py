"""FoldExplicitPadding: pools pad their data themselves, and give what they gave."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.testing import count_ops
from tilewright.relay.transform import FoldExplicitPadding, InferType


@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_pool_takes_in_the_padding_before_it(rank: int, kind: str, ceil_mode: bool, own: int) -> None:
    x = relay.var("x", shape=(1, 3, *(7, 6, 5)[:rank]))
    padded = relay.nn.pad(x, [(0, 0), (0, 0), *[(1, 2)] * rank], float("-inf") if kind == "max" else 0.0)
    options = {"ceil_mode": ceil_mode, "padding": (own,) * rank} | (
        {"count_include_pad": True} if kind == "avg" else {}
    )
    pool = getattr(relay.nn, f"{kind}_pool{rank}d")(padded, pool_size=(3,) * rank, strides=(2,) * rank, **options)
    before = InferType()(tvm.IRModule.from_expr(relay.Function([x], pool)))
    after = FoldExplicitPadding()(before)
    assert count_ops(after["main"]) == {f"nn.{kind}_pool{rank}d": 1}
    data = np.random.default_rng(0).standard_normal((1, 3, *(7, 6, 5)[:rank])).astype("float32")
    want, have = (relay.create_executor("debug", mod=mod).evaluate()(data).numpy() for mod in (before, after))
    np.testing.assert_allclose(have, want, rtol=1e-6)


@pytest.mark.parametrize(("kind", "value"), [("max", 0.0), ("avg", 1.0)])
def test_padding_of_another_value_stays(kind: str, value: float) -> None:
    x = relay.var("x", shape=(1, 3, 7, 6))
    padded = relay.nn.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], value)
    pool = getattr(relay.nn, f"{kind}_pool2d")(padded, pool_size=(3, 3))
    after = FoldExplicitPadding()(InferType()(tvm.IRModule.from_expr(relay.Function([x], pool))))
    assert count_ops(after["main"]) == {"nn.pad": 1, f"nn.{kind}_pool2d": 1}
