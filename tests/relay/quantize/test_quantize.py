"""relay.quantize: TVM 0.8's choices and passes; integers beside the float network and beside numpy."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TilewrightError
from tilewright.relay import quantize as qtz
from tilewright.relay.interpreter import interpret
from tilewright.relay.quantize.annotate import RULE
from tilewright.relay.quantize.calibrate import _find_scale_by_percentile
from tilewright.relay.quantize.kl_divergence import _find_scale_by_kl
from tilewright.relay.quantize.realize import _times
from tilewright.relay.quantize.simulated import SimulatedQuantize, simulated_quantize

RNG = np.random.default_rng(5)
ALL = {"skip_conv_layers": [], "skip_dense_layer": False}


def weight(*shape: int) -> Any:
    return relay.const((RNG.standard_normal(shape) / math.sqrt(math.prod(shape[1:]))).astype("float32"))


def network() -> tuple[tvm.IRModule, np.ndarray]:
    x = relay.var("x", shape=(1, 8, 10, 10))
    first = relay.nn.relu(relay.nn.conv2d(x, weight(8, 8, 3, 3), kernel_size=(3, 3), padding=(1, 1), channels=8))
    second = relay.nn.conv2d(first, weight(8, 8, 1, 1), kernel_size=(1, 1), channels=8)
    pooled = relay.nn.max_pool2d(relay.add(first, second), (2, 2), (2, 2))
    y = relay.nn.dense(relay.nn.batch_flatten(pooled), weight(5, 200))
    return tvm.IRModule.from_expr(relay.Function([x], y)), RNG.standard_normal((1, 8, 10, 10)).astype("float32")


def compiled(mod: tvm.IRModule, x: np.ndarray) -> np.ndarray:
    return np.asarray(tvm.compile(mod)(x))


def calls(mod: tvm.IRModule) -> list[Any]:
    found: list[Any] = []
    relay.analysis.post_order_visit(mod["main"], lambda n: found.append(n) if isinstance(n, relay.Call) else None)
    return found


def test_the_defaults_are_those_of_tvm() -> None:
    cfg = qtz.current_qconfig()
    assert (cfg.nbit_input, cfg.nbit_weight, cfg.nbit_activation) == (8, 8, 32)
    assert (cfg.dtype_input, cfg.dtype_weight, cfg.dtype_activation) == ("int8", "int8", "int32")
    assert (cfg.calibrate_mode, cfg.global_scale, cfg.weight_scale) == ("global_scale", 8.0, "power2")
    assert cfg.skip_dense_layer and list(cfg.skip_conv_layers or ()) == [0] and not cfg.do_simulation
    assert cfg.round_for_shift and cfg.debug_enabled_ops is None and cfg.rounding == "UPWARD"
    assert (cfg.calibrate_chunk_by, cfg.partition_conversions) == (-1, "disabled")


def test_the_innermost_configuration_is_current() -> None:
    with qtz.qconfig(global_scale=4.0):
        with qtz.qconfig(nbit_input=4):
            assert (qtz.current_qconfig().nbit_input, qtz.current_qconfig().global_scale) == (4, 8.0)
        assert qtz.current_qconfig().global_scale == 4.0
    assert qtz.current_qconfig().global_scale == 8.0


def test_a_wrong_choice_is_refused_and_an_unknown_field_warned_of() -> None:
    with pytest.raises(TilewrightError, match=r"calibrate_mode of qconfig is one of .* not 'kl'"):
        qtz.qconfig(calibrate_mode="kl")
    with pytest.warns(UserWarning, match=r"no field 'global_scales' \(did you mean 'global_scale'\?\)"):
        qtz.qconfig(global_scales=2.0)


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
@pytest.mark.parametrize("weight_scale", ["power2", "max"])
def test_a_network_in_integers_is_close_to_the_one_in_float(weight_scale: str, rounding: str) -> None:
    mod, x = network()
    exact = interpret(mod, [x])
    with qtz.qconfig(weight_scale=weight_scale, rounding=rounding, **ALL):
        made = qtz.quantize(mod)
    products = [c for c in calls(made) if c.op.name in ("nn.conv2d", "nn.dense")]
    assert [c.checked_type.dtype for c in products] == ["int32"] * 3
    assert {a.checked_type.dtype for c in products for a in c.args} == {"int8"}
    assert np.abs(compiled(made, x) - exact).max() < 0.06 * np.abs(exact).max()


def test_the_simulation_in_float_is_the_network_in_integers() -> None:
    mod, x = network()
    with qtz.qconfig(weight_scale="max", **ALL):
        integers = compiled(qtz.quantize(mod), x)
    with qtz.qconfig(weight_scale="max", do_simulation=True, **ALL):
        simulated = qtz.quantize(mod)
    assert any(c.op is SimulatedQuantize.op for c in calls(simulated))
    np.testing.assert_allclose(compiled(simulated, x), integers, atol=0.03 * np.abs(integers).max())


def test_convolutions_are_left_out_by_number_and_operators_by_name() -> None:
    mod, _ = network()
    with qtz.qconfig(skip_conv_layers=[1]):
        made = qtz.quantize(mod)
    kinds = [c.checked_type.dtype for c in calls(made) if c.op.name in ("nn.conv2d", "nn.dense")]
    assert kinds == ["int32", "float32", "float32"]
    with qtz.qconfig(debug_enabled_ops=["nn.dense"], **ALL):
        made = qtz.quantize(mod)
    kinds = [c.checked_type.dtype for c in calls(made) if c.op.name in ("nn.conv2d", "nn.dense")]
    assert kinds == ["float32", "float32", "int32"]


def test_the_module_that_is_given_stays_as_it_is() -> None:
    mod = relay.transform.InferType()(network()[0])
    before = str(mod)
    with qtz.qconfig(**ALL):
        qtz.quantize(mod)
    assert str(mod) == before


@pytest.mark.covering(1)
@pytest.mark.parametrize("mode", ["kl_divergence", "percentile"])
@pytest.mark.parametrize("chunk_by", [-1, 2])
def test_scales_come_from_a_dataset(mode: str, chunk_by: int) -> None:
    mod, x = network()
    dataset = [{"x": x}, {"x": -x}]
    with qtz.qconfig(calibrate_mode=mode, calibrate_chunk_by=chunk_by, do_simulation=True, **ALL):
        made = qtz.quantize(mod, dataset=dataset)
    first = next(c for c in calls(made) if c.op is SimulatedQuantize.op and c.attrs.kind == qtz.QAnnotateKind.INPUT)
    both = np.concatenate([x, -x]).reshape(-1)
    expected = _find_scale_by_kl(both) if mode == "kl_divergence" else np.sort(np.abs(both))[int(both.size * 0.99999)]
    assert float(first.args[1].data.numpy()) == pytest.approx(expected / 128, rel=1e-6)


def test_a_mode_that_needs_a_dataset_says_so() -> None:
    mod, _ = network()
    with qtz.qconfig(calibrate_mode="percentile", **ALL), pytest.raises(TilewrightError, match="needs a dataset"):
        qtz.quantize(mod)
    with qtz.qconfig(calibrate_mode="percentile", **ALL), pytest.raises(TilewrightError, match="has no samples"):
        qtz.quantize(mod, dataset=[])


def divergence(counts: np.ndarray, start: int, stop: int, steps: int) -> float:
    """Of a histogram between two bins from the same in steps, bin by bin."""
    p = [float(c) for c in counts[start:stop]]
    inside = [0.0, *p[1:]]
    p[0], p[-1] = float(counts[: start + 1].sum()), p[-1] + float(counts[stop:].sum())
    q, merged = [0.0] * len(p), len(p) // steps
    for step in range(steps):
        last = len(p) if step == steps - 1 else (step + 1) * merged
        bins = range(step * merged, last)
        filled = sum(inside[k] != 0 for k in bins)
        for k in bins:
            q[k] = sum(inside[m] for m in bins) / filled if filled and p[k] else 0.0

    def smoothed(values: list[float]) -> list[float]:
        zeros = values.count(0.0)
        taken = 1e-4 * zeros / (len(values) - zeros)
        moved = [v - taken if v else 1e-4 for v in values]
        return [v / sum(moved) for v in moved]

    return sum(a * math.log(a / b) for a, b in zip(smoothed(p), smoothed(q), strict=True))


def test_the_kl_scale_has_the_least_divergence() -> None:
    numbers = np.concatenate([RNG.standard_normal(3000), [9.0, -7.0]])
    found = _find_scale_by_kl(numbers, num_bins=401, num_quantized_bins=31)
    counts, edges = np.histogram(numbers, 401, (-9.0, 9.0))
    losses = {w: divergence(counts, 200 - w, 200 + w + 1, 31) for w in range(15, 201)}
    assert found == pytest.approx(edges[200 + min(losses, key=lambda w: losses[w]) + 1])
    assert found < 7


def test_scales_of_zeros_are_defined() -> None:
    assert _find_scale_by_kl(np.zeros(10)) == 0 and _find_scale_by_percentile(np.zeros(10)) == 0
    x = relay.var("x", shape=(1, 4))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, relay.const(np.zeros((3, 4), "float32")))))
    with qtz.qconfig(calibrate_mode="kl_divergence", **ALL):
        made = qtz.quantize(mod, dataset=[{"x": np.zeros((1, 4), "float32")}])
    np.testing.assert_array_equal(compiled(made, np.ones((1, 4), "float32")), np.zeros((1, 3)))


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
@pytest.mark.parametrize("factor", [0.3, 0.5, 1.7, 3e-5, 1.0, 1000.25])
def test_fixed_point_rounds_halves_as_it_says(rounding: str, factor: float) -> None:
    numbers = np.array([-1000000, -7, -5, -3, -1, 0, 1, 3, 5, 7, 12345678], "int32")
    x = relay.var("x", shape=(11,), dtype="int32")
    with qtz.qconfig(rounding=rounding):
        mod = tvm.IRModule.from_expr(relay.Function([x], _times(x, factor)))
    fraction, exponent = math.frexp(factor)
    exact = Fraction(math.floor(fraction * 2**31 + 0.5)) * Fraction(2) ** (exponent - 31)

    def rounded(value: Fraction) -> int:
        if rounding == "TONEAREST" and value < 0:
            return -math.floor(-value + Fraction(1, 2))
        return math.floor(value + Fraction(1, 2))

    expected = [rounded(int(n) * exact) for n in numbers]
    np.testing.assert_array_equal(compiled(mod, numbers), expected)
    np.testing.assert_array_equal(interpret(mod, [numbers]), expected)


def test_simulated_quantize_rounds_halves_away_and_clips() -> None:
    numbers = np.array([[-9.0, -0.75, -0.25, 0.0, 0.24, 0.25, 0.75, 9.0]], "float32")
    x = relay.var("x", shape=(1, 8))
    value = simulated_quantize(x, *(relay.const(np.float32(v)) for v in (0.5, -7, 7)), qtz.QAnnotateKind.INPUT)
    mod = tvm.IRModule.from_expr(relay.Function([x], value))
    expected = np.array([[-3.5, -1.0, -0.5, 0.0, 0.0, 0.5, 1.0, 3.5]], "float32")
    np.testing.assert_array_equal(compiled(mod, numbers), expected)
    np.testing.assert_array_equal(interpret(mod, [numbers]), expected)


def test_a_rule_of_ones_own_decides_what_is_annotated() -> None:
    op = tvm.ir.Op.get("nn.dense")
    entry = op.attrs[RULE]
    try:
        qtz.register_annotate_function("nn.dense", lambda ref_call, new_args, ctx: None, level=11)
        mod, _ = network()
        with qtz.qconfig(**ALL):
            made = qtz.quantize(mod)
    finally:
        op.attrs[RULE] = entry
    kinds = [c.checked_type.dtype for c in calls(made) if c.op.name in ("nn.conv2d", "nn.dense")]
    assert kinds == ["int32", "int32", "float32"]


def test_conversions_are_functions_of_their_own_with_the_same_answers() -> None:
    x = relay.var("x", shape=(1, 4, 6, 6))
    conv = relay.nn.conv2d(x, weight(4, 4, 3, 3), kernel_size=(3, 3), padding=(1, 1), channels=4)
    mod = tvm.IRModule.from_expr(relay.Function([x], conv))
    with qtz.qconfig(partition_conversions="fully_integral", **ALL):
        parts = qtz.quantize(mod)
    with qtz.qconfig(**ALL):
        whole = qtz.quantize(mod)
    names = sorted(v.name_hint for v in parts.get_global_vars())
    assert names == ["dequantize_outputs", "main", "quantize_inputs", "quantized_main"]
    assert relay.analysis.all_dtypes(parts["quantized_main"]) <= {"int8", "int32"}
    data = RNG.standard_normal((1, 4, 6, 6)).astype("float32")
    found = relay.create_executor("vm", mod=parts, device=tvm.cpu(), target="llvm").evaluate()(data)
    np.testing.assert_array_equal(found.numpy(), compiled(whole, data))


def test_what_is_not_in_integers_is_an_assertion_of_full_integers() -> None:
    mod, _ = network()
    with qtz.qconfig(partition_conversions="fully_integral"), pytest.raises(AssertionError, match=r"no conversion"):
        qtz.quantize(mod)
