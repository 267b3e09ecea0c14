"""ComputeInBands: tensors that are too large to be whole are computed in bands of rows, to the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.transform import PassContext
from tilewright.relay.op.slice_rules import Cut
from tilewright.relay.transform.infer_type import infer_type
from tilewright.relay.transform.memory import compute_in_bands
from tilewright.relay.transform.memory.compute_in_bands import best_plan, regions_above, steps_of
from tilewright.relay.transform.memory.graph_memory import GraphMemory
from tilewright.relay.transform.parts import operands_of, part_of
from tilewright.relay.visitor import post_order

RANDOM = np.random.default_rng(7)


def weight(*shape: int) -> relay.Expr:
    return relay.const(RANDOM.standard_normal(shape).astype("float32"))


def image(channels: int, height: int, width: int = 6) -> relay.Var:
    return relay.var("x", shape=(1, channels, height, width))


def function(body: relay.Expr) -> relay.Function:
    return infer_type(relay.Function(relay.analysis.free_vars(body), body))


def data_of(func: relay.Function) -> np.ndarray:
    shape = func.params[0].checked_type.concrete_shape
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def evaluated(func: relay.Function) -> np.ndarray:
    """The meaning of the operators in numpy, one by one."""
    values: dict[Any, Any] = {func.params[0]: data_of(func)}
    for expr in post_order(func.body):
        if isinstance(expr, relay.Constant):
            values[expr] = expr.data.numpy()
        elif isinstance(expr, relay.Call):
            args = [values[item] for item in operands_of(expr)]
            values[expr] = expr.op.get_attr("FEvaluate")(expr.attrs, args)[0]
    result: np.ndarray = values[func.body]
    return result


def small_unet(height: int = 64) -> relay.Function:
    """Two levels, with a skip connection and an enlargement by blocks of channels."""
    x = image(3, height, 32)
    first = relay.nn.relu(relay.nn.conv2d(x, weight(8, 3, 3, 3), padding=(1, 1)))
    skip = relay.nn.relu(relay.nn.conv2d(first, weight(8, 8, 3, 3), padding=(1, 1)))
    low = relay.nn.max_pool2d(skip, (2, 2), (2, 2))
    low = relay.nn.relu(relay.nn.conv2d(low, weight(8, 8, 3, 3), padding=(1, 1)))
    wide = relay.nn.depth_to_space(relay.nn.conv2d(low, weight(32, 8, 1, 1)), 2)
    joined = relay.concatenate([wide, skip], axis=1)
    last = relay.nn.relu(relay.nn.conv2d(joined, weight(8, 16, 3, 3), padding=(1, 1)))
    return function(relay.sigmoid(relay.nn.conv2d(last, weight(1, 8, 1, 1))))


CALLS: dict[str, Any] = {
    "odd height": lambda: relay.nn.conv2d(image(4, 37), weight(5, 4, 3, 3), padding=(1, 1)),
    "stride 2": lambda: relay.nn.conv2d(image(4, 35), weight(5, 4, 3, 3), padding=(1, 1), strides=(2, 2)),
    "dilation": lambda: relay.nn.conv2d(image(4, 33), weight(5, 4, 3, 3), padding=(2, 2), dilation=(2, 2)),
    "groups": lambda: relay.nn.conv2d(image(4, 31), weight(6, 2, 3, 3), padding=(1, 1), groups=2),
    "asymmetric": lambda: relay.nn.conv2d(image(4, 30), weight(5, 4, 4, 3), padding=(0, 1, 3, 1)),
    "large window": lambda: relay.nn.conv2d(image(2, 29), weight(3, 2, 13, 3), padding=(6, 1)),
    "no rows below": lambda: relay.nn.conv2d(image(2, 30), weight(3, 2, 2, 2), strides=(3, 3)),
    "maxima": lambda: relay.nn.max_pool2d(image(4, 37, 7), (3, 3), (2, 2), padding=(1, 1), ceil_mode=True),
    "means": lambda: relay.nn.avg_pool2d(image(4, 37), (3, 3), (2, 2), padding=(1, 1)),
    "means of padding too": lambda: relay.nn.avg_pool2d(image(4, 33), (3, 3), padding=(1, 1), count_include_pad=True),
    "repetition": lambda: relay.nn.upsampling(image(4, 17), 2, 3),
    "blocks": lambda: relay.nn.depth_to_space(image(8, 17), 2, mode="CRD"),
    "slopes": lambda: relay.nn.prelu(image(4, 33), weight(4)),
}


@pytest.mark.parametrize("kind", CALLS)
def test_rows_of_an_operator_are_those_of_the_whole(kind: str) -> None:
    func = function(CALLS[kind]())
    call = func.body
    rows = call.checked_type.concrete_shape[2]
    data = RANDOM.standard_normal(func.params[0].checked_type.concrete_shape).astype("float32")
    constants = [arg.data.numpy() for arg in call.args[1:]]
    whole = call.op.get_attr("FEvaluate")(call.attrs, [data, *constants])[0]
    tried = 0
    for begin, end in [(0, 6), (6, 12), (rows - rows % 2 - 2, rows - rows % 2), (0, rows), (rows - 1, rows)]:
        part = part_of(call, Cut(2, begin, end), in_bands=True)
        if part is None:
            assert kind in ("blocks", "repetition") and (begin % 2 or end % 2)
            continue
        cut = part.operands[0]
        assert cut is not None and cut.axis == 2 and 0 <= cut.begin < cut.end <= data.shape[2]
        found = call.op.get_attr("FEvaluate")(part.attrs, [data[:, :, cut.begin : cut.end], *constants])[0]
        np.testing.assert_allclose(found, whole[:, :, begin:end], rtol=1e-6, atol=1e-6)
        tried += 1
    assert tried >= 3


def test_a_chain_of_two_convolutions_in_text() -> None:
    x = image(8, 1024, 64)
    wide = relay.nn.conv2d(x, weight(32, 8, 3, 3), padding=(1, 1))
    func = function(relay.nn.conv2d(wide, weight(8, 32, 3, 3), padding=(1, 1)))
    plan = best_plan(func, 0.02)
    parts = plan.func.body.args[0].fields
    shapes = [part.checked_type.concrete_shape for part in parts]
    assert shapes == [(1, 8, shapes[0][2], 64)] * len(parts) and len(parts) > 1
    assert {tuple(part.attrs.padding) for part in parts[1:-1]} <= {(0, 1, 0, 1)}
    assert (tuple(parts[0].attrs.padding), tuple(parts[-1].attrs.padding)) == ((1, 1, 0, 1), (0, 1, 1, 1))


def test_bands_hold_every_row_once() -> None:
    func = small_unet(56)
    for region in regions_above(func, 20_000):
        rows = region.last.checked_type.concrete_shape[region.axis]
        for begin in range(0, rows, 8):
            steps = steps_of(region, Cut(region.axis, begin, min(begin + 8, rows)))
            assert not isinstance(steps, relay.Call)
            assert steps[region.last][0] == Cut(region.axis, begin, min(begin + 8, rows))


@pytest.mark.parametrize("height", [64, 52])
def test_a_small_unet_has_the_same_numbers_in_less_memory(height: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute_in_bands, "_LEAST_BYTES", 1024)
    func = small_unet(height)
    banded = best_plan(func, 0.6).func
    assert GraphMemory(banded).planned() < 0.6 * GraphMemory(func).planned()
    np.testing.assert_allclose(evaluated(banded), evaluated(func), rtol=1e-4, atol=1e-5)


@pytest.mark.full
def test_the_library_of_a_small_unet_takes_less_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute_in_bands, "_LEAST_BYTES", 1024)
    func, used, answers = small_unet(), [], []
    for price in (0.0, 0.6):
        with PassContext(opt_level=3, config={"relay.bands.price": price}):
            library = relay.build(tvm.IRModule.from_expr(func), "llvm")
        used.append(library.build_report.activation_bytes)
        executor = tvm.contrib.graph_executor.GraphModule(library["default"](tvm.cpu()))
        executor.run(x=data_of(func))
        answers.append(executor.get_output(0).numpy())
    assert used[1] < 0.7 * used[0]
    for answer in answers:
        np.testing.assert_allclose(answer, evaluated(func), rtol=1e-3, atol=1e-4)


def test_a_tensor_whose_rows_no_rule_finds_stays_whole() -> None:
    x = image(8, 256, 64)
    wide = relay.nn.relu(relay.nn.conv2d(x, weight(32, 8, 3, 3), padding=(1, 1)))
    func = function(relay.nn.conv2d(relay.reverse(wide, axis=2), weight(8, 32, 3, 64), padding=(1, 0)))
    regions = regions_above(func, 600_000)
    assert all(call.op.name != "reverse" for region in regions for call in region.calls)


def test_what_costs_more_than_the_price_is_left_alone() -> None:
    deep: relay.Expr = image(64, 64, 64)
    for _ in range(6):
        deep = relay.nn.conv2d(deep, weight(64, 64, 9, 3), padding=(4, 1))
    func = function(relay.nn.conv2d(deep, weight(1, 64, 9, 3), padding=(4, 1)))
    assert best_plan(func, 0.01).func is func


def test_the_pass_is_off_by_default() -> None:
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(small_unet()))
    assert relay.transform.ComputeInBands()(mod)["main"] is mod["main"]


def test_results_of_the_network_stay_whole() -> None:
    wide = relay.nn.relu(relay.nn.conv2d(image(8, 256, 64), weight(32, 8, 3, 3), padding=(1, 1)))
    func = function(relay.Tuple([wide, relay.nn.conv2d(wide, weight(4, 32, 3, 3), padding=(1, 1))]))
    regions = regions_above(func, 600_000)
    assert [region.last for region in regions] == [func.body.fields[0]]
