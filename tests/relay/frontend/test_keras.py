"""Keras models by torch.export: what the imported module means is what Keras computes on torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras", reason="the tests' packages have it: make .venv/.develop")

import tilewright as tvm  # noqa: E402
from tilewright import relay  # noqa: E402
from tilewright.relay.frontend.keras import KerasImportError, _choose_backend  # noqa: E402

L = keras.layers
Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def _names_start_anew() -> None:
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)


def spread(model: Any) -> Any:
    """Give weights that begin as zeros or ones other numbers."""
    rng = np.random.default_rng(1)
    for weight in model.weights:
        if str(weight.dtype) == "float32":
            values = rng.uniform(0.5, 1.5, weight.shape) if "variance" in weight.path else rng.normal(size=weight.shape)
            weight.assign(0.4 * values.astype("float32"))
    return model


def drawn(model: Any, batch: int = 2) -> list[Array]:
    """Inputs for a model."""
    rng = np.random.default_rng(2)
    shapes = [(batch, *(4 if d is None else d for d in t.shape[1:])) for t in model.inputs]
    return [
        rng.integers(0, 9, s).astype(t.dtype) if "int" in t.dtype else rng.normal(size=s).astype(t.dtype)
        for s, t in zip(shapes, model.inputs, strict=True)
    ]


def of_keras(model: Any, inputs: Sequence[Array]) -> list[Array]:
    made = model(inputs if len(inputs) > 1 else inputs[0], training=False)
    return [m.detach().numpy() for m in keras.tree.flatten(made)]


def check(inputs: Any, outputs: Any, tolerance: float = 1e-5) -> None:
    """Compare the outputs of a model: interpreted with channels last, as Keras has them."""
    model = spread(keras.Model(inputs, outputs))
    values = drawn(model)
    shapes = {t.name: v.shape for t, v in zip(model.inputs, values, strict=True)}
    mod, params = relay.frontend.from_keras(model, shapes, layout="NHWC")
    given = {t.name: v for t, v in zip(model.inputs, values, strict=True)}
    found = relay.create_executor("debug", mod).evaluate()(**given, **params)
    made = [found.numpy()] if isinstance(found, tvm.nd.NDArray) else [part.numpy() for part in found]
    for place, (got, want) in enumerate(zip(made, of_keras(model, values), strict=True)):
        assert got.shape == want.shape, f"output {place}"
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=f"output {place}")


def test_layers_of_images() -> None:
    x = keras.Input((8, 7, 3), name="x")
    layers = [
        L.Conv2D(4, 3, padding="same", strides=2), L.DepthwiseConv2D(3), L.SeparableConv2D(4, 3),
        L.Conv2DTranspose(4, 3, strides=2, padding="same"), L.BatchNormalization(), L.GroupNormalization(3),
        L.MaxPooling2D(2, padding="same"), L.AveragePooling2D(3, padding="same"), L.GlobalAveragePooling2D(),
        L.GlobalMaxPooling2D(), L.UpSampling2D((2, 3)), L.UpSampling2D(2, interpolation="bilinear"),
        L.ZeroPadding2D(((1, 0), (2, 3))), L.Cropping2D(1), L.Resizing(5, 5), L.CenterCrop(4, 4),
    ]  # fmt: skip
    check(x, [layer(x) for layer in layers])


def test_layers_of_sequences() -> None:
    x = keras.Input((7, 5), name="x")
    layers = [
        L.Conv1D(3, 3, padding="causal", dilation_rate=2), L.Conv1DTranspose(3, 3, strides=2), L.SeparableConv1D(3, 3),
        L.MaxPooling1D(2), L.AveragePooling1D(2), L.GlobalAveragePooling1D(), L.ZeroPadding1D(2), L.Cropping1D(1),
        L.UpSampling1D(2), L.EinsumDense("abc,cd->abd", (None, 6)), L.TimeDistributed(L.Dense(3)),
    ]  # fmt: skip
    check(x, [layer(x) for layer in layers])


def test_layers_of_volumes() -> None:
    x = keras.Input((4, 5, 6, 2), name="x")
    layers = [
        L.Conv3D(3, 2, padding="same"), L.Conv3DTranspose(3, 2, strides=2), L.MaxPooling3D(2),
        L.AveragePooling3D(2, padding="same"), L.GlobalAveragePooling3D(), L.ZeroPadding3D(1), L.UpSampling3D(2),
    ]  # fmt: skip
    check(x, [layer(x) for layer in layers])


def test_recurrent_layers() -> None:
    x = keras.Input((2, 5), name="x")
    layers = [
        L.GRU(3), L.GRU(3, reset_after=False), L.SimpleRNN(3), L.Bidirectional(L.LSTM(3, return_sequences=True)),
    ]  # fmt: skip
    check(x, [*(layer(x) for layer in layers), L.LSTM(3, go_backwards=True)(L.Masking()(x))])


def test_attention() -> None:
    q, k = keras.Input((6, 5), name="q"), keras.Input((7, 5), name="k")
    made = [L.Attention()([q, k]), L.AdditiveAttention()([q, k]), L.MultiHeadAttention(2, 4)(q, k)]
    check([q, k], [*made, L.MultiHeadAttention(2, 4)(q, q, use_causal_mask=True), L.GroupQueryAttention(4, 4, 2)(q, q)])


def test_layers_that_join_and_products() -> None:
    a, b = keras.Input((3, 4), name="a"), keras.Input((3, 4), name="b")
    layers = [
        L.Add(), L.Subtract(), L.Multiply(), L.Average(), L.Maximum(), L.Minimum(), L.Concatenate(axis=1),
        L.Dot(axes=1), L.Dot(axes=2), L.Dot(axes=(2, 2), normalize=True),
    ]  # fmt: skip
    check([a, b], [layer([a, b]) for layer in layers])


def test_layers_that_move_elements() -> None:
    x = keras.Input((2, 3, 4), name="x")
    layers = [
        L.Permute((2, 3, 1)),
        L.Permute((3, 1, 2)),
        L.Reshape((4, -1)),
        L.Reshape((24,)),
        L.Flatten(),
        L.CenterCrop(1, 2),
    ]
    check(x, [*(layer(x) for layer in layers), L.RepeatVector(3)(L.Flatten()(x))])


def test_activations_and_normalizations() -> None:
    x = keras.Input((6, 5), name="x")
    names = (
        "relu sigmoid tanh softplus softsign selu elu gelu silu hard_sigmoid mish exponential leaky_relu log_softmax"
    )
    layers: list[Any] = [L.Activation(name) for name in names.split()]
    layers += [L.Softmax(axis=1), L.ReLU(6.0, 0.1, 0.2), L.PReLU(), L.LayerNormalization(), L.RMSNormalization()]
    layers += [L.UnitNormalization(), L.Rescaling(0.5, 1.0), L.Normalization(mean=0.5, variance=2.0)]
    check(x, [layer(x) for layer in layers])


def test_words() -> None:
    x = keras.Input((3,), dtype="int32", name="x")
    made = [
        L.Embedding(9, 4)(x),
        L.LSTM(3)(L.Embedding(9, 4, mask_zero=True)(x)),
        L.CategoryEncoding(9, "multi_hot")(x),
    ]
    check(x, made)


def test_functions_of_tensors() -> None:
    x, ops = keras.Input((4, 6), name="x"), keras.ops
    made = [
        ops.top_k(x, 2)[0], ops.sort(x), ops.cumsum(x, 1), ops.split(x, 2, 1)[1], ops.einsum("bij,bkj->bik", x, x),
        ops.where(x > 0, x, -x), ops.norm(x, axis=-1), ops.flip(x, 1), ops.roll(x, 1, 1), ops.take(x, [0, 2], axis=1),
    ]  # fmt: skip
    check(x, made)


def network() -> Any:
    x = keras.Input((None, 6, 3), name="image")
    made = L.Conv2D(4, 3, padding="same", activation="relu")(x)
    made = L.Dense(2)(L.GlobalAveragePooling2D()(L.BatchNormalization()(made)))
    return spread(keras.Model(x, made))


def test_what_is_open_in_a_model_is_open_in_the_module(tmp_path: Path) -> None:
    model = network()
    model.save(tmp_path / "net.keras")
    compiled = tvm.compile(tmp_path / "net.keras")
    assert [str(d) for d in compiled.inputs["image"].shape] == ["image_0", "image_1", "6", "3"]
    for size in ((1, 4, 6, 3), (3, 7, 6, 3)):
        x = np.random.default_rng(3).normal(size=size).astype("float32")
        np.testing.assert_allclose(compiled(x), of_keras(model, [x])[0], rtol=1e-5, atol=1e-5)


def test_channels_are_first_by_default_as_in_tvm() -> None:
    model = network()
    mod, params = relay.frontend.from_keras(model, {"image": (1, 3, 4, 6)})
    x = np.random.default_rng(3).normal(size=(1, 4, 6, 3)).astype("float32")
    found = relay.create_executor("debug", mod).evaluate()(x.transpose(0, 3, 1, 2), **params)
    np.testing.assert_allclose(found.numpy(), of_keras(model, [x])[0], rtol=1e-5, atol=1e-5)


def test_inputs_by_name_keep_their_names() -> None:
    b, a = keras.Input((3,), name="b"), keras.Input((3,), name="a")
    model = keras.Model({"b": b, "a": a}, L.Subtract()([b, a]))
    mod, params = relay.frontend.from_keras(model, {"a": (1, 3), "b": (1, 3)})
    found = relay.create_executor("debug", mod).evaluate()(a=np.ones((1, 3), "f"), b=np.zeros((1, 3), "f"), **params)
    assert found.numpy().tolist() == [[-1, -1, -1]]


def test_bad_models_are_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KerasImportError, match="expected a Keras model or the path of one, not a int"):
        relay.frontend.from_keras(3)
    with pytest.raises(KerasImportError, match="has no inputs yet"):
        relay.frontend.from_keras(keras.Sequential([L.Dense(2)]))
    with pytest.raises(KerasImportError, match="no input 'y'; its inputs are 'image'"):
        relay.frontend.from_keras(network(), {"y": (1, 2)})
    network().save(tmp_path / "net.keras")
    whole = (tmp_path / "net.keras").read_bytes()
    (tmp_path / "net.keras").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(KerasImportError, match="no Keras model, or cut off"):
        relay.frontend.from_keras(tmp_path / "net.keras")
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(KerasImportError, match=r"KERAS_BACKEND=torch"):
        relay.frontend.from_keras(network())


@pytest.mark.parametrize(("installed", "chosen"), [(False, "torch"), (True, None)])
def test_keras_begins_on_torch_where_tensorflow_is_not_installed(
    installed: bool, chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "keras")
    monkeypatch.delenv("KERAS_BACKEND")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if installed else None)
    _choose_backend()
    assert os.environ.get("KERAS_BACKEND") == chosen


def test_layers_do_not_behave_as_in_training() -> None:
    x = keras.Input((4, 3), name="x")
    layer = L.BatchNormalization()
    model = spread(keras.Model(x, L.Dropout(0.9)(layer(x))))
    model.train()
    other = keras.Model(x, layer(x))  # shares the layer
    mod, params = relay.frontend.from_keras(other, {"x": (2, 4, 3)})
    value = drawn(other)[0]
    found = relay.create_executor("debug", mod).evaluate()(value, **params)
    np.testing.assert_allclose(found.numpy(), of_keras(other, [value])[0], rtol=1e-5, atol=1e-5)
