"""The testing networks: TVM's recorded text, shapes, and parameters that are the same in every run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilewright import relay
from tilewright.ir.module import IRModule
from tilewright.ir.structural import structural_hash
from tilewright.ir.type import TensorType
from tilewright.relay.testing.init import Constant, Initializer, Xavier, create_workload
from tilewright.runtime.ndarray import NDArray

GOLDEN = Path(__file__).parents[2] / "golden" / "relay"
Workload = tuple[IRModule, dict[str, NDArray]]
testing = relay.testing


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("mlp", lambda: testing.mlp.get_workload(1)),
        ("resnet18", lambda: testing.resnet.get_workload(num_layers=18)),
        ("mobilenet", lambda: testing.mobilenet.get_workload()),
        ("squeezenet", lambda: testing.squeezenet.get_workload()),
        ("dcgan", lambda: testing.dcgan.get_workload(1)),
        ("lstm", lambda: testing.lstm.get_workload(3, 4)),
    ],
)
def test_workload_prints_as_tvm_s(name: str, make: Callable[[], Workload]) -> None:
    mod, _ = make()
    assert mod.astext(show_meta_data=False) == (GOLDEN / f"{name}.txt").read_text()


def shapes(net: relay.Function) -> tuple[tuple[int, ...], int]:
    """Shape of the result, and the number of parameters' elements."""
    mod = relay.transform.InferType()(IRModule.from_expr(net))
    sizes = [np.prod(p.checked_type.concrete_shape) for p in mod["main"].params if p.name_hint != "data"]
    return mod["main"].checked_type.ret_type.concrete_shape, int(sum(sizes))


@pytest.mark.parametrize(
    ("make", "shape", "size"),
    [
        (lambda: testing.vgg.get_net(2, (3, 224, 224), 1000, "float32", 11), (2, 1000), 132_863_336),
        (lambda: testing.vgg.get_net(1, (3, 224, 224), 1000, "float32", 16), (1, 1000), 138_357_544),
        (lambda: testing.vgg.get_net(1, (3, 32, 32), 10, "float32", 13, True), (1, 10), None),
        (lambda: testing.densenet.get_net(121, batch_size=1), (1, 1000), None),
        (lambda: testing.densenet.get_net(169, 10, 1), (1, 10), None),
        (lambda: testing.inception_v3.get_net(1, 1000, (3, 299, 299), "float32"), (1, 1000), None),
        (lambda: testing.resnet.get_net(1, 1000, 50), (1, 1000), None),
        (lambda: testing.resnet.get_net(3, 10, 20, (3, 28, 28)), (3, 10), None),
        (lambda: testing.resnet.get_net(1, 10, 18, (64, 64, 3), "NHWC"), (1, 10), None),
        (lambda: testing.mobilenet.get_net(1, 10, (64, 64, 3), layout="NHWC"), (1, 10), None),
        (lambda: testing.dqn.get_net(2), (2, 18), 1_693_362),
        (lambda: testing.dqn.get_net(1, 6, (84, 84, 4), layout="NHWC"), (1, 6), None),
        (lambda: testing.squeezenet.get_net(1, (3, 64, 64), 10, "1.1", "float32"), (1, 10), None),
        (lambda: testing.lstm.get_net(2, 5, 3), (3, 5), 2 * 2 * (4 * 5 * 5 + 4 * 5)),
    ],
)
def test_networks_type_check(make: Callable[[], relay.Function], shape: tuple[int, ...], size: int | None) -> None:
    found, elements = shapes(make())
    assert found == shape
    assert size is None or elements == size


def test_a_depth_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="no ResNet has 19 layers"):
        testing.resnet.get_net(1, 10, 19)
    with pytest.raises(ValueError, match="no VGG has 12 layers"):
        testing.vgg.get_net(1, (3, 224, 224), 10, "float32", 12)


def test_parameters_are_the_same_in_every_run() -> None:
    first, second = testing.mlp.get_workload(1)[1], testing.mlp.get_workload(1)[1]
    assert list(first) == [f"fc{i}_{k}" for i in (1, 2, 3) for k in ("weight", "bias")]
    for name, value in first.items():
        np.testing.assert_array_equal(value.numpy(), second[name].numpy())
    np.random.seed(0)  # as TVM's numbers: its global generator, seeded with 0
    scale = np.sqrt(3 / ((784 + 128) / 2))
    expected = np.random.uniform(-scale, scale, (128, 784)).astype("float32")
    np.testing.assert_allclose(first["fc1_weight"].numpy(), expected, rtol=1e-6)


def test_workloads_are_the_same_program_each_time() -> None:
    assert structural_hash(testing.mlp.get_workload(1)[0]) == structural_hash(testing.mlp.get_workload(1)[0])


def test_initializers() -> None:
    ones = np.zeros((3,), "float32")
    Initializer()("bn_gamma", ones)
    assert (ones == 1).all()
    weight = np.zeros((4, 1, 3, 3), "float32")
    Xavier("gaussian", "in", 2)("x_depthwise_weight", weight)
    assert np.isfinite(weight).all() and 0.1 < weight.std() < 1
    Constant(3.0)("weight", weight)
    assert (weight == 3).all()
    with pytest.raises(ValueError, match="no initial value for the parameter 'thing'"):
        Initializer()("thing", ones)


def test_create_workload_leaves_data_to_the_caller() -> None:
    x, w = relay.var("data", shape=(1, 4)), relay.var("weight", shape=(2, 4))
    mod, params = create_workload(relay.Function([x, w], relay.nn.dense(x, w)))
    assert list(params) == ["weight"]
    assert mod["main"].checked_type.ret_type == TensorType((1, 2))


def test_run_opt_pass_gives_a_body_for_an_expression() -> None:
    x = relay.var("x", shape=(2,))
    assert isinstance(testing.run_infer_type(relay.add(x, x)), relay.Call)
    assert isinstance(testing.run_infer_type(relay.Function([x], x)), relay.Function)
    assert testing.count_ops(relay.add(relay.add(x, x), relay.tanh(x))) == {"add": 2, "tanh": 1}


def test_scope_builder_writes_lets_and_branches() -> None:
    x, c = relay.var("x", shape=()), relay.var("c", "bool")
    builder = relay.ScopeBuilder()
    y = builder.let("y", relay.add(x, x))
    with builder.if_scope(c):
        builder.ret(y)
    with builder.else_scope():
        builder.ret(builder.let("z", relay.tanh(y)))
    assert str(relay.Function([x, c], builder.get())).split("\n")[1:] == [
        "  let %y = add(%x, %x);", "  if (%c) {", "    %y", "  } else {",
        "    let %z = tanh(%y);", "    %z", "  }", "}",
    ]  # fmt: skip
    with pytest.raises(RuntimeError, match="ret"):
        relay.ScopeBuilder().get()
