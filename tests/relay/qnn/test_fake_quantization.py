"""FakeQuantizationToInteger: regions of floats between dequantize and quantize, as quantized operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.op import Op
from tilewright.relay.interpreter import interpret
from tilewright.relay.op import register_fake_quantization_to_integer
from tilewright.relay.qnn.op import dequantize, quantize
from tilewright.relay.qnn.transform import CanonicalizeOps
from tilewright.relay.testing.temp_op_attr import TempOpAttr

RNG = np.random.default_rng(8)
CHANNELS = RNG.uniform(0.002, 0.02, 5).astype("float32")


def const(values: Any, dtype: str = "float32") -> Any:
    return relay.const(np.asarray(values, dtype))


def integers(dtype: str, *shape: int) -> Any:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, endpoint=True, dtype=dtype)


def data(shape: tuple[int, ...], name: str = "x", scale: float = 0.031, zero: int = 3, dtype: str = "int8") -> Any:
    return dequantize(relay.var(name, shape=shape, dtype=dtype), const(scale), const(zero, "int32"))


def weight(*shape: int, axis: int = 0) -> Any:
    zeros = const(np.zeros(5), "int8")
    return dequantize(relay.const(integers("int8", *shape)), const(CHANNELS), zeros, axis=axis)


def bias(scale: float) -> Any:
    whole = RNG.integers(-3000, 3000, 5, dtype="int32")
    return dequantize(relay.const(whole), const(CHANNELS * np.float32(scale)), const(np.zeros(5), "int32"), 0)


def conv() -> Any:
    return relay.nn.conv2d(data((1, 4, 6, 5)), weight(5, 4, 3, 3), padding=(1, 1), channels=5, kernel_size=(3, 3))


def product(name: str) -> Any:
    step = dequantize(relay.const(integers("int8", 5, 7)), const(0.01), const(0, "int8"))
    return relay.nn.dense(data((3, 7), name), step)


def of_bytes(value: Any, dtype: str) -> Any:
    """The expression with all variables of a type."""
    params = relay.analysis.free_vars(value)
    return relay.bind(value, {p: relay.var(p.name_hint, shape=p.type_annotation.shape, dtype=dtype) for p in params})


def rewritten(value: Any, dtype: str = "int8", scale: float = 0.17, zero: int = 5) -> tuple[Any, Any]:
    mod = tvm.IRModule.from_expr(quantize(value, const(scale), const(zero, "int32"), out_dtype=dtype))
    mod = relay.transform.InferType()(mod)
    return mod, relay.transform.FakeQuantizationToInteger()(mod)


def operators(mod: Any) -> set[str]:
    calls = (n.op for n in relay.analysis.nodes(mod) if isinstance(n, relay.Call))
    return {op.name for op in calls if isinstance(op, Op)}


def arguments(mod: Any) -> list[Any]:
    types = [p.checked_type for p in mod["main"].params]
    return [integers(t.dtype, *t.concrete_shape) for t in types]


# Regions that the build computes in integers by itself: the same bits.
EXACT: dict[str, tuple[Callable[[], Any], str]] = {
    "conv2d": (conv, "qnn.conv2d"),
    "conv2d, bias, relu": (lambda: relay.nn.relu(relay.nn.bias_add(conv(), bias(0.031))), "qnn.conv2d"),
    "bias of floats": (lambda: relay.nn.bias_add(conv(), const(RNG.standard_normal(5))), "qnn.conv2d"),
    "dense": (lambda: relay.nn.dense(data((3, 7)), weight(5, 7)), "qnn.dense"),
    "dense, weight turned": (
        lambda: relay.nn.dense(data((3, 7)), relay.transpose(weight(7, 5, axis=1), (1, 0))), "qnn.dense",
    ),
    "dense, row added": (
        lambda: relay.add(relay.nn.dense(data((3, 7)), weight(5, 7)), const(RNG.standard_normal(5))), "qnn.dense",
    ),
    "add": (lambda: data((2, 3, 5)) + data((2, 3, 5), "y", 0.0173, 7), "qnn.add"),
    "max_pool2d": (lambda: relay.nn.max_pool2d(data((1, 2, 6, 6)), (2, 2), (2, 2)), "nn.max_pool2d"),
    "reshape": (lambda: relay.reshape(data((2, 6)), (3, 4)), "reshape"),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("case", EXACT)
def test_a_region_gives_the_bits_that_the_build_gives(case: str, dtype: str) -> None:
    make, operator = EXACT[case]
    before, after = rewritten(of_bytes(make(), dtype), dtype)
    found = operators(after)
    assert operator in found and not {"qnn.dequantize", "qnn.quantize"} & found
    inputs = arguments(before)
    wanted = interpret(CanonicalizeOps()(before), inputs)
    np.testing.assert_array_equal(interpret(after, inputs), wanted)
    assert len(np.unique(wanted)) > 3
    np.testing.assert_array_equal(interpret(CanonicalizeOps()(after), inputs), wanted)


def constant(value: float) -> Any:
    return relay.const(value)


CLOSE: dict[str, tuple[Callable[[], Any], str]] = {
    "batch_matmul": (
        lambda: relay.nn.batch_matmul(data((2, 3, 7)), data((2, 5, 7), "y", 0.02, 5)), "qnn.batch_matmul",
    ),
    "conv2d_transpose": (
        lambda: relay.nn.conv2d_transpose(
            data((1, 3, 4, 4)), dequantize(relay.const(integers("int8", 3, 2, 2, 2)), const(0.01), const(0, "int8"))
        ),
        "qnn.conv2d_transpose",
    ),
    "conv2d, clipped": (lambda: relay.clip(conv(), -1.0, 6.0), "qnn.conv2d"),
    "multiply": (lambda: data((2, 3)) * data((3,), "y", 0.5, 1), "qnn.mul"),
    "add two products": (lambda: product("x") + product("y"), "qnn.add"),
    "subtract": (lambda: data((2, 3)) - data((2, 1), "y", 0.05, 1), "qnn.subtract"),
    "add a number": (lambda: data((2, 3)) + constant(1.5), "qnn.add"),
    "multiply by a large number": (lambda: data((2, 3)) * constant(-300.0), "qnn.mul"),
    "multiply by 0": (lambda: data((2, 3)) * constant(0.0), "qnn.mul"),
    "minimum": (lambda: relay.minimum(data((2, 3)), data((2, 3), "y", 0.05, 1)), "minimum"),
    "maximum with a number": (lambda: relay.maximum(data((2, 3)), constant(0.5)), "maximum"),
    "concatenate": (lambda: relay.concatenate([data((2, 3)), data((2, 1), "y", 0.3, 0)], 1), "qnn.concatenate"),
    "split": (lambda: relay.split(data((2, 6)), 3, axis=1)[1], "split"),
    "pad": (lambda: relay.nn.pad(data((2, 3)), ((1, 0), (0, 2)), 1.25), "nn.pad"),
    "avg_pool2d": (lambda: relay.nn.avg_pool2d(data((1, 2, 6, 6)), (2, 2), (2, 2)), "nn.avg_pool2d"),
    "global_avg_pool2d": (lambda: relay.nn.global_avg_pool2d(data((1, 2, 6, 6))), "nn.global_avg_pool2d"),
    "clip": (lambda: relay.clip(data((2, 30)), -0.7, 1.1), "clip"),
    "depth_to_space": (lambda: relay.nn.depth_to_space(data((1, 8, 2, 3)), 2), "nn.depth_to_space"),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("case", CLOSE)
def test_a_region_is_within_a_step_of_its_floats(case: str, dtype: str) -> None:
    make, operator = CLOSE[case]
    large = case == "multiply by a large number"
    before, after = rewritten(of_bytes(make(), dtype), dtype, 9.0 if large else 0.05)
    found = operators(after)
    assert operator in found and not {"qnn.dequantize", "qnn.quantize"} & found
    inputs = arguments(before)
    wanted = interpret(before, inputs).astype(int)
    assert np.abs(interpret(after, inputs).astype(int) - wanted).max() <= 1
    np.testing.assert_array_equal(interpret(CanonicalizeOps()(after), inputs), interpret(after, inputs))


KEPT: dict[str, Callable[[], Any]] = {
    "no rule": lambda: relay.sigmoid(data((2, 3))),
    "an input in floats": lambda: data((2, 3)) + relay.var("f", shape=(2, 3)),
    "a tensor of floats": lambda: data((2, 3)) * const(RNG.standard_normal((2, 3))),
    "other bytes": lambda: data((2, 3)) + data((2, 3), "y", dtype="uint8"),
    "a weight by input channel": lambda: relay.nn.dense(data((3, 5)), weight(4, 5, axis=1)),
    "a reshape by channel": lambda: relay.reshape(weight(5, 4), (4, 5)),
}


@pytest.mark.parametrize("case", KEPT)
def test_a_region_that_integers_cannot_compute_stays(case: str) -> None:
    before, after = rewritten(KEPT[case]())
    assert tvm.ir.structural_equal(before, after)


def test_by_channel_what_is_chosen_stays_by_channel() -> None:
    scales, zeros = const([1.0, 2.0, 3.0]), const([96, 114, 128], "int32")
    x = relay.var("x", shape=(1, 3, 2, 2), dtype="uint8")
    for value in (relay.nn.relu, lambda v: relay.clip(v, 0.0, 6.0), lambda v: relay.nn.max_pool2d(v, (2, 2))):
        inner = value(dequantize(x, scales, zeros, axis=1))
        mod = relay.transform.InferType()(tvm.IRModule.from_expr(quantize(inner, scales, zeros, 1, "uint8")))
        after = relay.transform.FakeQuantizationToInteger()(mod)
        assert not any(name.startswith("qnn") for name in operators(after))
        inputs = arguments(mod)
        np.testing.assert_array_equal(interpret(after, inputs), interpret(mod, inputs))


def test_regions_behind_each_other_are_all_rewritten() -> None:
    first = quantize(conv(), const(0.1), const(0, "int32"))
    second = relay.nn.max_pool2d(dequantize(first, const(0.1), const(0, "int32")), (2, 2), (2, 2))
    _, after = rewritten(second)
    assert operators(after) == {"qnn.conv2d", "qnn.requantize", "nn.max_pool2d"}


def test_a_vendor_registers_a_rule() -> None:
    seen: list[Any] = []

    def rule(call: Any, type_map: Any) -> list[Any]:
        kind = type_map[call.args[0]]
        seen.append((kind.dtype, float(kind.scale.data.numpy()), int(kind.zero_point.data.numpy())))
        assert isinstance(kind, tvm.ir.TensorAffineType) and type_map[call].dtype == "int8"
        return [relay.op.negative(call.args[0]), kind]

    with TempOpAttr("sigmoid", "FTVMFakeQuantizationToInteger", None):
        register_fake_quantization_to_integer("sigmoid", rule, 11)
        _, after = rewritten(relay.sigmoid(data((2, 3))))
    assert operators(after) == {"negative", "qnn.requantize"}
    assert seen == [("int8", float(np.float32(0.031)), 3)]


def test_affine_types_compare_by_their_parts() -> None:
    def kind(scale: float) -> Any:
        return tvm.ir.TensorAffineType(relay.const(scale), relay.const(3), "int8")

    assert kind(0.5) == kind(0.5) and kind(0.5) != kind(0.25) and hash(kind(0.5)) == hash(kind(0.5))
    whole = tvm.ir.TupleAffineType([kind(0.5), kind(0.25)])
    assert whole == tvm.ir.load_json(tvm.ir.save_json(whole)) and whole.types[1] == kind(0.25)
    assert repr(kind(0.5)) == "TensorAffineType(scale=0.5f, zero_point=3, dtype='int8', axis=-1)"
