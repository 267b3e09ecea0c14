"""Builders that are derived from declarations: what they take, what they refuse, and how editors see them."""

from __future__ import annotations

import inspect

import pytest
from tests.relay.op import operator_table
from tests.relay.op.builder_stubs import PACKAGES, stub

from tilewright import relay
from tilewright.ir.errors import TilewrightError


def x() -> relay.Var:
    return relay.var("x", shape=(2, 3))


@pytest.mark.parametrize("package", PACKAGES)
def test_stubs_are_current(package: str) -> None:
    path, text = stub(package)
    assert path.read_text() == text, "run: python -m tests.relay.op.builder_stubs"


def test_the_table_of_operators_is_current() -> None:
    text = operator_table.PAGE.read_text()
    assert operator_table.page(text) == text, "run: python -m tests.relay.op.operator_table"
    traits = "out_elemwise_fusable | yes | in_float32, fast=nn.fast_softmax, kind=softmax, transcendental"
    assert f"| `nn.softmax` | data | axis=-1 | 1 | {traits} |" in text


def test_attributes_are_read_as_their_fields_say() -> None:
    call = relay.nn.conv2d(x(), x(), strides=2, padding=(1, 2), kernel_size=3, out_dtype=None)
    assert (call.attrs.strides, call.attrs.kernel_size, call.attrs.out_dtype) == ((2, 2), (3, 3), "")
    assert call.attrs.padding == (1, 2, 1, 2)
    assert relay.nn.conv1d(x(), x(), strides=2, padding=1).attrs.padding == (1, 1)


def test_numbers_become_constants() -> None:
    call = relay.nn.bias_add(x(), 1.5, axis=0)
    assert isinstance(call.args[1], relay.Constant) and call.attrs.axis == 0


def test_lists_become_tuples_where_an_operator_takes_a_tuple() -> None:
    assert isinstance(relay.concatenate([x(), x()], axis=1).args[0], relay.Tuple)


def test_what_the_program_computes_is_an_operand_of_the_dynamic_form() -> None:
    shape = relay.var("s", shape=(2,), dtype="int64")
    call = relay.reshape(x(), shape, allowzero=True)
    assert str(call.op) == "dyn.reshape" and list(call.args[1:]) == [shape]
    assert (call.attrs.newshape, call.attrs.allowzero) == ((), True)
    assert str(relay.reshape(x(), relay.const([3, 2])).op) == "reshape"


def test_a_missing_argument_is_named() -> None:
    with pytest.raises(TypeError, match=r"bias_add\(\) missing 1 required positional argument: 'bias'"):
        relay.nn.bias_add(x())


def test_an_unknown_argument_is_named() -> None:
    with pytest.raises(TypeError, match=r"softmax\(\) got an unexpected keyword argument 'axes'"):
        relay.nn.softmax(x(), axes=1)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: relay.nn.softmax(x(), axis=1.5), "^nn.softmax: axis: dimensions are whole numbers, got 1.5"),
        (lambda: relay.nn.leaky_relu(x(), "much"), "^nn.leaky_relu: alpha: could not convert string to float"),
        (lambda: relay.nn.conv2d(x(), x(), strides=(1, 2, 3)), "^nn.conv2d: strides: expected 1 or 2 values"),
        (lambda: relay.concatenate(3, axis=0), "^concatenate: data: expected a list or tuple of expressions"),
        (lambda: relay.image.resize1d(x(), x()), "^image.resize1d: size: the shape is computed by the model itself"),
    ],
)
def test_an_argument_that_cannot_be_read_is_named_with_its_operator(build: object, message: str) -> None:
    with pytest.raises((TypeError, ValueError, TilewrightError), match=message):
        build()  # type: ignore[operator]


def test_a_builder_tells_its_signature_and_where_it_is() -> None:
    dense = relay.nn.dense
    assert list(inspect.signature(dense).parameters) == ["data", "weight", "units", "out_dtype"]
    assert (dense.__module__, dense.__name__) == ("tilewright.relay.op.nn.dense", "dense")
    assert "Attributes:" in str(dense.__doc__)
