"""What declarations of operators promise: traits are true, and every hook has a reader."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.op import Op
from tilewright.relay.op.definition import HOOKS, TRAITS, Homogeneous
from tilewright.relay.op.views import is_reshape

SOURCES = Path(relay.__file__).parents[1]


def data() -> relay.Var:
    return relay.var("x", shape=(2, 3, 1, 4))


RESHAPES = {
    "reshape": lambda: relay.reshape(data(), (4, -1)),
    "contrib_reverse_reshape": lambda: relay.reverse_reshape(data(), (-1, 4)),
    "reshape_like": lambda: relay.reshape_like(data(), relay.var("like", shape=(6, 4))),
    "expand_dims": lambda: relay.expand_dims(data(), 1, 2),
    "squeeze": lambda: relay.squeeze(data()),
    "nn.batch_flatten": lambda: relay.nn.batch_flatten(data()),
}
SAME_SHAPE = ("dyn.any_dims", "dyn.with_dims")  # what is known of the dimensions changes


def test_these_operators_are_reshapes() -> None:
    assert {name for name, op in Op.registry.items() if op.get_attr("TReshapeOp")} == {*RESHAPES, *SAME_SHAPE}


@pytest.mark.parametrize("name", sorted(RESHAPES))
def test_a_reshape_keeps_the_elements_and_their_order(name: str) -> None:
    call = RESHAPES[name]()
    assert is_reshape(call)
    x = np.arange(24, dtype="float32").reshape(2, 3, 1, 4)
    mod = tvm.IRModule.from_expr(call)
    rest = [np.zeros([int(d) for d in p.type_annotation.shape], "float32") for p in mod["main"].params[1:]]
    result = relay.create_executor("debug", mod=mod).evaluate()(x, *rest).numpy()
    assert result.shape != x.shape
    np.testing.assert_array_equal(result.ravel(), x.ravel())


def test_moves_of_data_are_no_reshapes() -> None:
    assert not is_reshape(relay.transpose(data()))
    assert not is_reshape(data())


@pytest.mark.parametrize("hook", sorted({*HOOKS.values(), *TRAITS.values()}))
def test_every_hook_and_trait_of_a_declaration_has_a_reader(hook: str) -> None:
    files = [
        f for f in SOURCES.rglob("*.py") if not f.as_posix().endswith(("relay/op/definition.py", "relay/op/op.py"))
    ]
    assert any(f'"{hook}"' in f.read_text() for f in files), f"nothing reads {hook}"


def test_a_registration_that_nothing_would_read_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"of nn\.relu would be ignored: this version has no pass .*; leave"):
        relay.op.register_external_compiler("nn.relu", lambda *args: None)


def test_attributes_are_what_the_constructor_takes_again() -> None:
    x, w = relay.var("x", shape=(1, 4, 8, 8)), relay.var("w", shape=(8, 2, 3, 3))
    conv = relay.nn.conv2d(x, w, (2, 1), (1, 0, 2, 1), groups=2, channels=8, kernel_size=(3, 3), out_dtype="float32")
    assert tvm.ir.structural_equal(relay.nn.conv2d(x, w, **dict(conv.attrs)), conv)


def test_operators_say_how_central_they_are() -> None:
    levels = {
        "log": 1,
        "nn.conv2d": 2,
        "ceil": 3,
        "broadcast_to": 4,
        "image.resize2d": 5,
        "topk": 6,
        "nn.attention": 10,
    }
    assert {name: relay.op.get(name).support_level for name in levels} == levels


def declared_with(trait: str) -> list[str]:
    return sorted(name for name, op in Op.registry.items() if op.has_attr(trait))


def evaluate(name: str, *arrays: np.ndarray) -> np.ndarray:
    op = Op.get(name)
    attributes = {
        "axis": 0,
        "dtype": "float32",
        "keepdims": True,
        "exclude": False,
        "exclusive": False,
        "shape": (2, 3),
    }
    (result,) = op.get_attr("FEvaluate")(SimpleNamespace(**attributes), arrays)
    return np.asarray(result)


VALUES = np.array([[1.5, -2.25, 0.5], [3, -1, 7]], "float32")


@pytest.mark.parametrize("name", declared_with("TNeutral"))
def test_a_neutral_operand_changes_nothing(name: str) -> None:
    left, right = Op.get(name).get_attr("TNeutral")
    if left is not None:
        np.testing.assert_array_equal(evaluate(name, np.full_like(VALUES, left), VALUES), VALUES)
    np.testing.assert_array_equal(evaluate(name, VALUES, np.full_like(VALUES, right)), VALUES)


@pytest.mark.parametrize("name", declared_with("TAbsorbing"))
def test_an_absorbing_operand_is_the_result(name: str) -> None:
    number = np.full_like(VALUES, Op.get(name).get_attr("TAbsorbing"))
    for operands in ((number, VALUES), (VALUES, number)):
        np.testing.assert_array_equal(evaluate(name, *operands), number)


@pytest.mark.parametrize("name", declared_with("TFixedPoints"))
def test_a_fixed_point_is_kept_by_all_elements(name: str) -> None:
    op = Op.get(name)
    for number in op.get_attr("TFixedPoints"):
        result = evaluate(name, *[np.full_like(VALUES, number), VALUES][: op.num_inputs])
        np.testing.assert_array_equal(result, np.full_like(result, number))


@pytest.mark.parametrize("name", declared_with("TFinite"))
def test_finite_operators_are_finite_at_zero_and_at_their_own_results(name: str) -> None:
    op, value = Op.get(name), np.zeros((2, 3), "float32")
    attrs = SimpleNamespace(a_min=0.0, a_max=6.0, alpha=0.1)
    for _ in range(3):
        (value,) = op.get_attr("FEvaluate")(attrs, [value] * op.num_inputs)
        assert np.isfinite(value).all()


def on_images(name: str, x: np.ndarray) -> np.ndarray:
    """Evaluate the operator of NCHW data, or data of as many dimensions as its name says."""
    build = getattr(relay.nn, name.removeprefix("nn."))
    options = {"pool_size": 2, "padding": 1} if "pool_size" in inspect.signature(build).parameters else {}
    call = build(relay.var("x", shape=x.shape), **options)
    (result,) = call.op.get_attr("FEvaluate")(call.attrs, [x])
    return np.asarray(result)


def images(name: str) -> np.ndarray:
    rank = int(name[-2]) if name.endswith("d") else 2
    return np.random.default_rng(0).standard_normal((2, 3, *(5, 4, 3)[:rank])).astype("float32")


@pytest.mark.parametrize("name", declared_with("THomogeneous"))
def test_scales_of_channels_pass_through_what_is_homogeneous(name: str) -> None:
    x = images(name)
    signs = [-2, 0.5, 3] if Op.get(name).get_attr("THomogeneous") is Homogeneous.ANY else [2, 0.5, 3]
    scale = np.array(signs, "float32").reshape(3, *[1] * (x.ndim - 2))
    np.testing.assert_allclose(on_images(name, x * scale), on_images(name, x) * scale, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", declared_with("TChannelwise"))
def test_a_channel_is_computed_of_that_channel_alone(name: str) -> None:
    x = images(name)
    np.testing.assert_array_equal(on_images(name, x)[:, 1:2], on_images(name, x[:, 1:2]))
