"""Where operators go, and why not elsewhere; regions that are taken only where they pay."""

from __future__ import annotations

import numpy as np
import pytest
from tests.relay.transform.texts import parse

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TilewrightError
from tilewright.ir.op import Op
from tilewright.relay.dataflow_pattern import is_constant, is_op, wildcard
from tilewright.relay.interpreter import interpret
from tilewright.relay.transform import AnnotateTarget, PartitionGraph, RegionCost, explain_partition

NET = """
    def @main(%x: Tensor[(1, 4, 6, 6), float32], %w: Tensor[(4, 4, 3, 3), float32], %b: Tensor[(4), float32]) {
      %0 = nn.bias_add(nn.conv2d(%x, %w, padding=[1, 1, 1, 1]), %b);
      %1 = exp(nn.relu(%0));
      nn.softmax(nn.relu(nn.conv2d(%1, %w, padding=[1, 1, 1, 1])))
    }"""

CONV = is_op("nn.conv2d")(wildcard(), wildcard())
RELU = is_op("nn.relu")


def fates(table: list, text: str = NET, compiler: str = "my") -> list[tuple[str, str, str]]:
    return [(f.operator, f.region, f.reason) for f in explain_partition(parse(text), compiler, table)]


def test_every_operator_is_told_of_in_order() -> None:
    assert fates([("my.conv_relu", RELU(CONV))]) == [
        ("nn.conv2d", "", "my.conv_relu: expected nn.relu, found nn.bias_add"),
        ("nn.bias_add", "", "my has no rule and no pattern for nn.bias_add"),
        ("nn.relu", "", "my.conv_relu: expected nn.conv2d, found nn.bias_add"),
        ("exp", "", "my has no rule and no pattern for exp"),
        ("nn.conv2d", "my_main_0", "part of my.conv_relu"),
        ("nn.relu", "my_main_0", "part of my.conv_relu"),
        ("nn.softmax", "", "my has no rule and no pattern for nn.softmax"),
    ]


@pytest.mark.parametrize(
    ("table", "text", "reason"),
    [
        ([("my.a", RELU(CONV), lambda match: False)], NET, "my.a: its check refuses the match that ends in nn.relu"),
        (
            [("my.a", is_op("nn.conv2d")(wildcard(), is_constant()))],
            NET,
            "my.a: expected a constant, found %w",
        ),
        (
            [("my.a", is_op("exp")(is_op("sqrt")(wildcard())))],
            "def @main(%x: Tensor[(2), float32]) { %0 = sqrt(%x); add(exp(%0), %0) }",
            "my.a: something inside of the match is used outside of it, or is part of a larger match",
        ),
        (
            [("my.a", is_op("exp")(is_op("sqrt")(wildcard())))],
            "def @main(%x: Tensor[(2), float32]) { sqrt(%x) }",
            "my.a: nothing follows sqrt",
        ),
        (
            [("my.a", is_op("sqrt")(wildcard()), lambda m: False), ("my.b", is_op("sqrt")(is_constant()))],
            "def @main(%x: Tensor[(2), float32]) { sqrt(%x) }",
            "my.a: its check refuses the match that ends in sqrt; my.b: expected a constant, found %x",
        ),
    ],
)
def test_reasons(table: list, text: str, reason: str) -> None:
    assert reason in [fate[2] for fate in fates(table, text)]


def test_rules_of_operators_answer_too() -> None:
    tvm.ir.register_op_attr("exp", "target.my", lambda call: True)
    tvm.ir.register_op_attr("nn.softmax", "target.my", lambda call: False)
    try:
        found = {operator: (region, reason) for operator, region, reason in fates([])}
    finally:
        Op.get("exp").reset_attr("target.my")
        Op.get("nn.softmax").reset_attr("target.my")
    assert found["exp"] == ("my_main_0", "the rule target.my takes it")
    assert found["nn.softmax"] == ("", "the rule target.my of nn.softmax refuses it")


def test_regions_have_the_names_that_partitioning_gives_them() -> None:
    mod = parse(NET)
    steps = [relay.transform.AnnotateTarget("dnnl"), relay.transform.MergeCompilerRegions(), PartitionGraph()]
    result = tvm.transform.Sequential(steps)(mod)
    regions = {f"tvmgen_default_{f.region}" for f in explain_partition(mod, "dnnl", []) if f.region}
    assert regions == {v.name_hint for v in result.get_global_vars()} - {"main"}


def test_a_compiler_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(TilewrightError, match=r"no operator has a rule target.nobody.*there are rules for: .*dnnl"):
        explain_partition(parse(NET), "nobody")


def test_a_region_is_taken_only_where_it_pays() -> None:
    mod = AnnotateTarget("dnnl")(parse(NET))
    asked: list[str] = []

    def cost(func: relay.Function) -> RegionCost:
        asked.append(func.attrs["global_symbol"])
        elements = int(np.prod([int(d) for d in func.ret_type.shape]))
        is_conv = "nn.conv2d" in str(func)
        return RegionCost(external=elements * 1e-9, host=elements * (1e-8 if is_conv else 1e-9), transfers=1e-7)

    result = PartitionGraph(cost=cost)(mod)
    assert len(asked) == 4
    assert sorted(v.name_hint for v in result.get_global_vars()) == [
        "main", "tvmgen_default_dnnl_main_0", "tvmgen_default_dnnl_main_3",
    ]  # fmt: skip
    inputs = [np.random.default_rng(0).standard_normal(s).astype("float32") for s in [(1, 4, 6, 6), (4, 4, 3, 3), (4,)]]
    np.testing.assert_array_equal(interpret(result, inputs), interpret(parse(NET), inputs))


def test_regions_of_several_results_may_stay_too() -> None:
    text = """
        def @main(%x: Tensor[(2), float32]) {
          %0 = nn.relu(%x);
          (exp(%0), sqrt(add(%0, %0)))
        }"""
    steps = [AnnotateTarget("dnnl"), relay.transform.MergeCompilerRegions()]
    mod = tvm.transform.Sequential(steps)(parse(text))
    assert len(PartitionGraph()(mod).get_global_vars()) == 2
    stays = PartitionGraph(cost=lambda func: RegionCost(1.0, 1.0))(mod)
    x = np.array([-1, 4], "float32")
    assert len(stays.get_global_vars()) == 1
    for got, expected in zip(interpret(stays, [x]), interpret(parse(text), [x]), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_what_is_no_cost_is_refused() -> None:
    mod = AnnotateTarget("dnnl")(parse(NET))
    with pytest.raises(TilewrightError, match="the cost of @tvmgen_default_dnnl_main_0 is a float"):
        PartitionGraph(cost=lambda func: 1.0)(mod)


def _dynamic() -> tvm.IRModule:
    """A convolution in an unknown batch, and a dense layer behind which an unknown number of values is added."""
    x, d, b = (
        relay.var(name, shape=shape)
        for name, shape in (("x", (relay.Any(), 4, 6, 6)), ("d", (3, 4)), ("b", (relay.Any(),)))
    )
    weight, bias, matrix = (relay.const(np.ones(shape, "float32")) for shape in ((4, 4, 3, 3), (4,), (5, 4)))
    conv = relay.nn.relu(relay.nn.bias_add(relay.nn.conv2d(x, weight, padding=(1, 1)), bias))
    return tvm.IRModule.from_expr(relay.Function([x, d, b], relay.Tuple([conv, relay.nn.dense(d, matrix) + b])))


@pytest.mark.parametrize("compiler", ["dnnl", "ccompiler", "npu"])
def test_operators_of_unknown_shapes_stay_on_the_host_with_the_reason(compiler: str) -> None:
    if compiler == "npu":
        pytest.importorskip("tilewright_npu")
    found = {fate.operator: fate for fate in explain_partition(_dynamic(), compiler)}
    for operator in ("nn.relu", "add"):
        assert found[operator].region == ""
        assert "(?" in found[operator].reason and "is not known" in found[operator].reason


def test_a_check_that_fails_on_unknown_shapes_refuses() -> None:
    def small(match: relay.Call) -> bool:
        return int(match.checked_type.shape[0]) < 9

    found = explain_partition(_dynamic(), "my", [("my.relu", RELU(wildcard()), small)])
    (fate,) = (fate for fate in found if fate.operator == "nn.relu")
    assert fate.region == ""
    assert (
        "refuses the match that ends in nn.relu: the shape of Tensor[(?, 4, 6, 6), float32] is not known" in fate.reason
    )
    assert "TypeError" in fate.reason
