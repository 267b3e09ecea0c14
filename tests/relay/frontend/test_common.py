"""Helpers of front ends outside of the package, by TVM's names."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.frontend import common

ATTRS = common.StrAttrsDict(
    {"kernel": "(3, 5)", "axis": "[0, None, -1]", "pads": "((0, 1), (2, 3))", "eps": "1e-3", "flag": "True",
     "none": "None", "n": "7", "name": "same", "scales": "[0.5,2]"}
)  # fmt: skip


@pytest.mark.parametrize(
    ("method", "key", "expected"),
    [
        ("get_int_list", "kernel", (3, 5)),
        ("get_int_tuple", "axis", (0, None, -1)),
        ("get_tuple_tuple_int", "pads", ((0, 1), (2, 3))),
        ("get_float", "eps", 1e-3),
        ("get_bool", "flag", True),
        ("get_bool", "none", False),
        ("get_int", "none", None),
        ("get_int", "n", 7),
        ("get_str", "name", "same"),
        ("get_float_tuple", "scales", (0.5, 2.0)),
        ("has_attr", "n", True),
        ("has_attr", "m", False),
    ],
)
def test_attributes_are_read_from_texts(method: str, key: str, expected: object) -> None:
    assert getattr(ATTRS, method)(key) == expected


def test_an_attribute_without_a_default_is_required() -> None:
    assert ATTRS.get_int("m", 4) == 4
    with pytest.raises(AttributeError, match="Required attribute m not found; there is axis, eps"):
        ATTRS.get_int("m")


def test_converters_rename_attributes() -> None:
    x, w = relay.var("x", shape=(1, 4, 5, 5)), relay.var("w", shape=(4, 2, 3, 3))
    convert = common.AttrCvt(
        "conv2d",
        transforms={"group": ("groups", 1), "pad": ("padding", (0, 0), tuple)},
        ignores=["workspace"],
        extras={"channels": 4},
    )
    call = convert([x, w], {"group": 2, "pad": [1, 1], "workspace": 9, "kernel_size": (3, 3)})
    assert (call.attrs.groups, list(call.attrs.padding), call.attrs.channels) == (2, [1, 1, 1, 1], 4)
    assert common.infer_shape(call) == (1, 4, 5, 5)


def test_converters_refuse() -> None:
    x = relay.var("x", shape=(2,))
    with pytest.raises(NotImplementedError, match="Attribute b in operator relu"):
        common.AttrCvt("relu", excludes=["b"])([x], {"b": 1})
    with pytest.raises(RuntimeError, match="only odd"):
        common.AttrCvt("relu", custom_check=(lambda attrs: attrs["k"] % 2 == 1, "only odd"))([x], {"k": 2})
    with pytest.raises(tvm.error.OpNotImplemented, match=r"no operator nn\.nothing"):
        common.get_relay_op("nn.nothing")


def test_operators_are_found_in_their_packages() -> None:
    assert common.get_relay_op("relu") is relay.nn.relu
    assert common.get_relay_op("image.resize2d") is relay.image.resize2d
    assert common.Renamer("exp")([relay.var("x", shape=(2,))], {"tvm_custom": 1}).op.name == "exp"


def test_the_table_keeps_first_expressions_and_constants() -> None:
    table = common.ExprTable()
    first, second = relay.var("a"), relay.var("b")
    table.set_expr("a", first)
    table.set_expr("a", second)
    assert table.get_expr("a") is first
    table.set_expr("a", second, force_override=True)
    assert table.get_expr("a") is second
    weight = table.new_const(np.zeros((2, 3), "float32"))
    assert table.has_expr(weight.name_hint)  # type: ignore[attr-defined]
    assert common.infer_shape(weight) == (2, 3)


def test_values_are_computed_where_they_can_be() -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(3,))
    params = {"x": tvm.nd.array(np.float32([1, 2]))}
    np.testing.assert_array_equal(common.infer_value(x + relay.const(1.0), params).numpy(), [2, 3])
    value, known = common.try_infer_value(x, parameters=params, on_success=lambda v: v.sum())
    assert (value, known) == (3, True)
    assert common.try_infer_value(y, parameters=params) == (y, False)
    assert common.infer_value_simulated(relay.shape_of(y), params).numpy().tolist() == [3]
    with pytest.raises(tvm.TVMError, match="depends on y"):
        common.infer_value(y, params)
    np.testing.assert_array_equal(common.try_resolve_var_to_const(x, params).data.numpy(), [1, 2])  # type: ignore[attr-defined]
    assert common.try_resolve_var_to_const(y, params) is y


def test_shapes_known_and_unknown() -> None:
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(relay.Any(), 3))
    assert common.shape_of(x).data.numpy().tolist() == [2, 3]  # type: ignore[attr-defined]
    assert common.shape_of(y).op.name == "shape_of"  # type: ignore[attr-defined]
    assert (common.infer_channels(x), common.infer_channels(x, transpose=True)) == (2, 3)
    parts = common.unbind(x, axis=1)
    assert [common.infer_shape(part) for part in parts] == [(2,)] * 3
    assert common.infer_shape(common.ensure_scalar_shape(relay.var("z", shape=(1, 1)))) == ()
    with pytest.raises(tvm.TVMError, match="one element"):
        common.ensure_scalar_shape(x)
