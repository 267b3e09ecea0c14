"""The operators of Strassen's method, and where AlterOpLayout puts them, against numpy."""

import math
from typing import Any

import numpy as np
import pytest
from tests.relay.op.harness import case, check_kernels, check_meaning, check_type, random

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.errors import TypeInferenceError
from tilewright.relay.type_infer import infer_expr
from tilewright.topi.nn.strassen import transform_weight

STRASSEN = "nn.contrib_dense_strassen_without_weight_transform"
DATA, WEIGHT = random(13, 48), random(64, 48, seed=1)

CASES = [
    case(
        "strassen",
        relay.nn.contrib_dense_strassen_without_weight_transform,
        [DATA, transform_weight(WEIGHT, 16, 12)],
        DATA @ WEIGHT.T,
        rtol=0,
        atol=1e-5 * np.abs(DATA @ WEIGHT.T).max(),
    ),
    case(
        "weights",
        lambda a: relay.nn.contrib_dense_strassen_weight_transform(a, 16, 12),
        [WEIGHT],
        transform_weight(WEIGHT, 16, 12),
    ),
]


@pytest.mark.parametrize("item", CASES, ids=str)
def test_meaning(item: Any) -> None:
    check_type(item)
    check_meaning(item)


def test_kernels() -> None:
    check_kernels(CASES)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 2, 4, 16, 16), r"data \(13, 48\) and transformed weight \(2, 2, 4, 16, 16\) do not fit"),
        ((2, 2, 7, 12, 16), r"data \(13, 48\) and transformed weight \(2, 2, 7, 12, 16\) do not fit"),
        ((2, 2, 4, 12), r"weight should have 5 dimensions, found 4"),
    ],
)
def test_weights_that_do_not_fit_are_named(shape: tuple, message: str) -> None:
    data = relay.var("x", shape=(13, 48))
    with pytest.raises(TypeInferenceError, match=message):
        infer_expr(relay.nn.contrib_dense_strassen_without_weight_transform(data, relay.var("w", shape=shape)))


@pytest.mark.parametrize(("block", "chunk"), [(24, 12), (16, 10), (0, 12)])
def test_blocks_that_do_not_divide_the_weight_are_refused(block: int, chunk: int) -> None:
    with pytest.raises(TypeInferenceError, match="should divide the weight"):
        infer_expr(relay.nn.contrib_dense_strassen_weight_transform(relay.var("w", shape=(64, 48)), block, chunk))


def layers(rows: int = 256) -> tuple[Any, np.ndarray, np.ndarray]:
    """Two dense layers with a bias, GELU and a residual: the function, an input, and the result."""
    x, weights, bias = random(rows, 384), [random(384, 384, seed=1) / 8, random(384, 384, seed=2) / 8], random(384)
    data = relay.var("x", shape=x.shape)
    hidden = relay.nn.gelu(relay.nn.bias_add(relay.nn.dense(data, relay.const(weights[0])), relay.const(bias)))
    func = relay.Function([data], relay.add(relay.nn.dense(hidden, relay.const(weights[1])), data))
    exact = x.astype(np.float64) @ weights[0].T + bias
    inner = exact * (np.vectorize(math.erf)(exact / np.sqrt(2)) + 1) / 2
    return func, x, inner @ weights[1].T + x


def dense_operators(func: Any, on: bool | None, target: str = "llvm -mcpu=skylake-avx512 -num-cores=2") -> list[Any]:
    config = {} if on is None else {"relay.dense.strassen": on}
    with tvm.transform.PassContext(opt_level=3, config=config):
        mod = relay.optimize(tvm.IRModule.from_expr(func), target, fuse=False)[0]
    calls: list[Any] = []
    relay.analysis.post_order_visit(mod["main"], lambda e: calls.append(e) if isinstance(e, relay.Call) else None)
    return [c for c in calls if "dense" in c.op.name]


@pytest.mark.parametrize("on", [None, True, False])
def test_the_option_turns_it_off(on: bool | None) -> None:
    found = dense_operators(layers()[0], on)
    assert [c.op.name for c in found] == ["nn.contrib_dense_pack" if on is False else STRASSEN] * 2
    assert all(isinstance(c.args[1], relay.Constant) for c in found)


def test_few_rows_and_weights_that_are_no_constants_stay_direct() -> None:
    assert [c.op.name for c in dense_operators(layers(64)[0], True)] == ["nn.contrib_dense_pack"] * 2
    x, w = relay.var("x", shape=(256, 384)), relay.var("w", shape=(384, 384))
    assert STRASSEN not in [c.op.name for c in dense_operators(relay.Function([x, w], relay.nn.dense(x, w)), True)]


@pytest.mark.parametrize("on", [True, False])
def test_layers_agree_with_numpy(on: bool) -> None:
    func, x, want = layers()
    with tvm.transform.PassContext(opt_level=3, config={"relay.dense.strassen": on}):
        lib: Any = relay.build(tvm.IRModule.from_expr(func), "llvm -num-cores=2 -mattr=-amx-tile")
    assert lib.build_report.dense_layers == {"Strassen" if on else "direct": 2}
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.run(x=x)
    assert np.abs(module.get_output(0).numpy() - want).max() <= 5e-6 * np.abs(want).max()
