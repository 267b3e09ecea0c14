"""What targets make of quantized operators: bytes of the types that their instructions multiply."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.op import Op
from tilewright.relay import qnn
from tilewright.relay.interpreter import interpret
from tilewright.relay.qnn.operators.by_target import qnn_dense_legalize
from tilewright.relay.testing.temp_op_attr import TempOpAttr

RNG = np.random.default_rng(5)
X86, ARM = "llvm -mtriple=x86_64-linux-gnu", "llvm -keys=arm_cpu,cpu -mtriple=aarch64-linux-gnu"
TARGETS = {
    "skylake-avx512": (f"{X86} -mcpu=skylake-avx512", ("uint8", "int8")),
    "dot products": (f"{ARM} -mattr=+v8.2a,+dotprod", ("same", "same")),
    "cuda": ("cuda", ("int8", "int8")),
    "SSE2": (f"{X86} -mcpu=x86-64", None),
    "ARMv8": (ARM, None),
}
BYTES = ("int8", "uint8")


def integers(dtype: str, *shape: int) -> Any:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, endpoint=True, dtype=dtype)


def dense(x: Any, w: Any) -> Any:
    zero, one = (relay.const(np.int32(v)) for v in (5, 1))
    return qnn.op.dense(x, w, zero, one, relay.const(0.5), relay.const(0.25), 3)


def conv2d(x: Any, w: Any) -> Any:
    zeros = relay.const(np.array([1, 2, 3], "int32"))
    x, w = relay.reshape(x, (2, 7, 1, 1)), relay.reshape(w, (3, 7, 1, 1))
    return qnn.op.conv2d(x, w, relay.const(5), zeros, relay.const(0.5), relay.const(0.25), (1, 1), 3)


def legalized(make: Any, data: Any, weight: Any, target: str) -> tuple[Any, Any]:
    x, w = (relay.var(n, shape=a.shape, dtype=str(a.dtype)) for n, a in (("x", data), ("w", weight)))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x, w], make(x, w))))
    with tvm.target.Target(target):
        return mod, qnn.transform.Legalize()(mod)


@pytest.mark.parametrize("make", [dense, conv2d], ids=["dense", "conv2d"])
@pytest.mark.parametrize("a", BYTES)
@pytest.mark.parametrize("b", BYTES)
@pytest.mark.parametrize("name", TARGETS)
def test_operands_become_the_bytes_of_the_target(name: str, a: str, b: str, make: Any) -> None:
    data, weight = integers(a, 2, 7), integers(b, 3, 7)
    target, wanted = TARGETS[name]
    before, after = legalized(make, data, weight, target)
    np.testing.assert_array_equal(interpret(after, [data, weight]), interpret(before, [data, weight]))
    calls = [node for node in relay.analysis.nodes(after) if isinstance(node, relay.Call)]
    quantized = [call for call in calls if isinstance(call.op, Op) and call.op.name.startswith("qnn.")]
    if wanted is None:
        assert not quantized
        return
    (call,) = quantized
    found = tuple(arg.checked_type.dtype for arg in call.args[:2])
    assert found == (wanted if wanted[0] != "same" else (b, b))
    if found == (a, b):
        assert tvm.ir.structural_equal(before, after)


@pytest.mark.parametrize(("weight", "kind"), [(1, "float32"), (127, "int32")])
def test_known_weights_are_floats_where_bytes_are_slow_and_sums_exact(weight: int, kind: str) -> None:
    data, rows = integers("uint8", 1, 600, 1, 1), np.full((3, 600, 1, 1), weight, "int8")
    zeros, scale = relay.const(np.array([1, 2, -3], "int32")), relay.const(0.5)

    def make(x: Any, w: Any) -> Any:
        return qnn.op.conv2d(x, relay.const(rows), relay.const(5), zeros, scale, scale, (1, 1), 3)

    before, after = legalized(make, data, rows, f"{X86} -mcpu=haswell")
    np.testing.assert_array_equal(interpret(after, [data, rows]), interpret(before, [data, rows]))
    found = {
        c.attrs.out_dtype for c in relay.analysis.nodes(after) if isinstance(c, relay.Call) and "conv2d" in str(c.op)
    }
    assert kind in found and (kind == "float32") == ("int32" not in found)


def test_a_target_registers_its_own_rule() -> None:
    data, weight = integers("uint8", 2, 7), integers("int8", 3, 7)
    qnn_dense_legalize.register("qnn_demo", lambda attrs, args, types: relay.const(np.zeros((2, 3), "int32")))
    _, after = legalized(dense, data, weight, "llvm -keys=qnn_demo")
    assert "qnn.dense" not in str(after) and "nn.dense" not in str(after)


def test_a_build_follows_what_is_registered_for_an_operator() -> None:
    data, weight = integers("uint8", 2, 7), integers("int8", 3, 7)

    def zeros(attrs: Any, args: Any, types: Any) -> Any:
        return relay.const(np.zeros((2, 3), "int32"))

    x = relay.var("x", shape=data.shape, dtype="uint8")
    with TempOpAttr("qnn.dense", "FTVMQnnLegalize", zeros):
        mod, _ = relay.optimize(tvm.IRModule.from_expr(dense(x, relay.const(weight))), "llvm")
    assert "dense" not in str(mod)


def test_registering_replaces_the_rule_of_a_lower_level() -> None:
    with TempOpAttr("qnn.mul", "FTVMQnnLegalize", None):
        made = relay.qnn.op.register_qnn_legalize("qnn.mul", level=11)(lambda attrs, args, types: args[0])
        assert Op.get("qnn.mul").get_attr("FTVMQnnLegalize") is made
