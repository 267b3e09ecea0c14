"""Strategies and TVM's registration functions."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te, topi
from tilewright.contrib import graph_executor
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TilewrightError
from tilewright.ir.op import Op
from tilewright.relay.op.definition import OpDef, OpPattern
from tilewright.relay.op.strategy import OpStrategy, wrap_topi_schedule
from tilewright.te import SpecializedCondition


class ScaleAttrs(Attrs):
    """A factor."""

    factor: float = 2.0


@pytest.fixture
def scale() -> Iterator[Op]:
    """An operator that is declared here and removed afterwards."""

    class Scale(OpDef):
        """data * factor"""

        name = "test.scale"
        inputs = ("data",)
        attrs_type = ScaleAttrs
        pattern = OpPattern.ELEMWISE

        @staticmethod
        def infer_type(types: Any, attrs: Any, solver: Any) -> Any:
            return types[0]

        @staticmethod
        def evaluate(attrs: Any, inputs: Any) -> Any:
            return [inputs[0] * np.float32(attrs.factor)]

    yield Scale.op
    del Op.registry["test.scale"]


def run(expr_of: Any) -> np.ndarray:
    x = relay.var("x", shape=(4,))
    with tvm.transform.PassContext(opt_level=2):
        lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], expr_of(x))), "llvm")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.set_input("x", np.arange(4, dtype="float32"))
    module.run()
    result: np.ndarray = module.get_output(0).numpy()
    return result


def test_a_new_operator_needs_one_declaration_and_a_compute(scale: Op) -> None:
    @relay.op.op.register_compute("test.scale")
    def compute(attrs: Any, inputs: Any, out_type: Any) -> list[te.Tensor]:
        return [topi.multiply(inputs[0], tvm.tir.const(attrs.factor, "float32"))]

    found = run(lambda x: relay.tanh(relay.Call(scale, [x], ScaleAttrs(0.5))))
    np.testing.assert_allclose(found, np.tanh(np.arange(4) * 0.5), rtol=1e-5)


def test_a_strategy_offers_the_implementation_of_highest_priority(scale: Op, caplog: pytest.LogCaptureFixture) -> None:
    def multiply(factor: float) -> Any:
        return lambda attrs, inputs, out_type: [topi.multiply(inputs[0], tvm.tir.const(factor, "float32"))]

    @relay.op.op.register_strategy("test.scale")
    def strategy(attrs: Any, inputs: Any, out_type: Any, target: Any) -> OpStrategy:
        offers = OpStrategy()
        schedule = wrap_topi_schedule(topi.generic.schedule_injective)
        offers.add_implementation(multiply(3.0), schedule, "low", plevel=5)
        offers.add_implementation(multiply(7.0), schedule, "high", plevel=15)
        with SpecializedCondition(inputs[0].shape[0] > 100):
            offers.add_implementation(multiply(9.0), schedule, "for long vectors", plevel=20)
        return offers

    with caplog.at_level("INFO", "te_compiler"):
        np.testing.assert_allclose(run(lambda x: relay.Call(scale, [x], ScaleAttrs())), np.arange(4) * 7.0)
    assert "Using high for test.scale based on highest priority (15)" in caplog.messages


def test_specializations_are_grouped_by_condition() -> None:
    n = te.var("n")
    offers = OpStrategy()
    offers.add_implementation(len, len, "always")
    with SpecializedCondition(n > 16):
        offers.add_implementation(len, len, "large")
        offers.add_implementation(len, len, "large too")
    assert [[i.name for i in s.implementations] for s in offers.specializations] == [["always"], ["large", "large too"]]
    condition = offers.specializations[1].condition
    assert condition is not None and not condition.holds()
    assert SpecializedCondition.current() is None


def test_a_higher_level_overrides_a_registered_attribute(scale: Op) -> None:
    relay.op.op.register_legalize("test.scale", "first", level=10)
    relay.op.op.register_legalize("test.scale", "second", level=11)
    tvm.ir.register_op_attr("test.scale", "FTVMLegalize", "third", level=5)
    assert scale.get_attr("FTVMLegalize") == "second"
    relay.op.op.register_pattern("test.scale", OpPattern.OPAQUE)
    assert scale.get_attr("TOpPattern") == OpPattern.OPAQUE


def test_an_unknown_operator_is_named() -> None:
    with pytest.raises(TilewrightError, match=r"nn\.convolve"):
        relay.op.get("nn.convolve")


@pytest.mark.parametrize(
    ("layouts", "groups", "name"),
    [
        (("NCHW", "OIHW"), 1, "conv2d_nchw.cpu"),
        (("NCHW", "OIHW"), 8, "depthwise_conv2d_nchw.cpu"),
        (("NCHW", "OIHW"), 2, "group_conv2d_nchw.cpu"),
        (("NHWC", "HWIO"), 1, "conv2d_nhwc.cpu"),
        (("NHWC", "HWIO"), 2, "group_conv2d_nhwc.cpu"),
        (("NHWC", "HWOI"), 8, "depthwise_conv2d_nhwc.cpu"),
        (("NHWC", "OHWI"), 1, "conv2d_any_layout.cpu"),
    ],
)
def test_convolutions_choose_by_layout_and_groups(layouts: tuple[str, str], groups: int, name: str) -> None:
    data, kernel = layouts
    sizes = {"N": 1, "C": 8, "H": 6, "W": 6}, {"O": 8, "I": 8 // groups, "H": 3, "W": 3}
    x = relay.var("x", shape=[sizes[0][a] for a in data])
    w = relay.var("w", shape=[sizes[1][a] for a in kernel])
    call = relay.nn.conv2d(x, w, groups=groups, data_layout=data, kernel_layout=kernel)
    inputs = [te.placeholder(v.type_annotation.shape) for v in (x, w)]
    strategy = relay.op.get("nn.conv2d").get_attr("FTVMStrategy")
    out_type = relay.transform.InferTypeLocal(call)
    with tvm.target.Target("llvm") as target:
        offers = strategy(call.attrs, inputs, out_type, target)
    assert [i.name for s in offers.specializations for i in s.implementations] == [name]
