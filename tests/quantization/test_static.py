"""tilewright.quantize: the file that it makes, beside ONNX Runtime, numpy and ONNX's reference evaluator."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from tests.quantization.networks import network, residual, samples

import tilewright
from tilewright.ir.errors import TilewrightError
from tilewright.quantization.save import file_bytes
from tilewright.quantization.write import Scale

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"


def on_onnxruntime(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.x64quantprecision", "1")  # or sums of products saturate on some
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def initializer(model: onnx.ModelProto, name: str) -> Any:
    return numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == name))


@pytest.mark.parametrize("activations", ["uint8", "int8"])
@pytest.mark.parametrize("per_channel", [True, False])
def test_the_file_runs_the_same_in_onnx_runtime(activations: str, per_channel: bool) -> None:
    model = residual()
    data = samples(model)
    made = tilewright.quantize(model, data, activations=activations, per_channel=per_channel)
    onnx.checker.check_model(made.model, full_check=True)
    (expected,) = on_onnxruntime(made.model, data[0])
    found = tilewright.compile(made.model)(**data[0])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    (in_float,) = ReferenceEvaluator(model).run(None, data[0])
    assert np.abs(found - in_float).max() < 0.05 * np.abs(in_float).max()


def test_every_convolution_and_what_is_between_them_is_integers_in_onnx_runtime(tmp_path: Path) -> None:
    model = residual()
    made = tilewright.quantize(model, samples(model))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(made.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found = operators(onnx.load(tmp_path / "optimized.onnx"))
    assert found["QLinearConv"] == 2 and found["QLinearAdd"] == 1 and found["QGemm"] == 1
    assert found["QLinearGlobalAveragePool"] == 1 and not found["DequantizeLinear"] and found["QuantizeLinear"] == 1


def test_ranges_are_those_of_the_reference_evaluators_activations() -> None:
    model = residual()
    data = samples(model)
    made = tilewright.quantize(model, data)
    shown = onnx.ModelProto()
    shown.CopyFrom(made.float_model)
    names = ["ra", "c", "rs", "g"]
    shown.graph.output.extend(onnx.helper.make_tensor_value_info(n, 1, None) for n in names)
    runs = [ReferenceEvaluator(shown).run(names, one) for one in data]
    for name, arrays in zip(names, zip(*runs, strict=True), strict=True):
        expected = min(0, *(a.min() for a in arrays)), max(0, *(a.max() for a in arrays))
        if name in ("ra", "rs"):
            np.testing.assert_allclose(made.ranges[name], expected, rtol=1e-5)
        np.testing.assert_allclose(made.scales[name].scale, (expected[1] - expected[0]) / 255, rtol=1e-5)


def test_a_move_and_what_it_moves_have_one_scale() -> None:
    model = residual()
    made = tilewright.quantize(model, samples(model))
    assert made.scales["ra"] == made.scales["p"] and made.scales["g"] == made.scales["f"]
    assert made.scales["rs"] != made.scales["g"]


def test_nothing_stands_between_a_convolution_and_its_activation() -> None:
    model = residual()
    made = tilewright.quantize(model, samples(model))
    makers = {name: node for node in made.model.graph.node for name in node.output}
    relus = [node for node in made.model.graph.node if node.op_type == "Relu"]
    assert [makers[node.input[0]].op_type for node in relus] == ["Conv", "Add"]


def test_weights_are_a_byte_each_and_biases_four() -> None:
    model = residual()
    made = tilewright.quantize(model, samples(model))
    weight, bias = initializer(made.model, "w1_quantized"), initializer(made.model, "b1_quantized")
    scales = initializer(made.model, "w1_quantized_scale")
    assert (weight.dtype, bias.dtype, scales.shape) == (np.int8, np.int32, (8,))
    float_weight, float_bias = initializer(model, "w1"), initializer(model, "b1")
    np.testing.assert_allclose(scales, np.abs(float_weight).max((1, 2, 3)) / 127, rtol=1e-6)
    assert np.abs(weight * scales.reshape(-1, 1, 1, 1) - float_weight).max() <= 0.501 * scales.max()
    step = scales * made.scales["x"].scale
    assert (np.abs(bias * step - float_bias) <= 0.501 * step).all()
    assert not any(t.data_type == 1 and np.prod(t.dims) > 10 for t in made.model.graph.initializer)


def test_a_bias_too_large_for_its_channels_weights_still_fits_32_bits() -> None:
    model = network("f (float[1, 2] x) => (float[1, 2] y) { y = Gemm(x, w, b) }")
    weight, bias = np.array([[1, 1e-9], [1, 0]], "float32"), np.array([1, 1000], "float32")
    model.graph.initializer.extend([numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")])
    data = {"x": np.ones((1, 2), "float32")}
    made = tilewright.quantize(model, data)
    np.testing.assert_allclose(tilewright.compile(made.model)(**data), [[3, 1000]], rtol=1e-2)


def test_batch_normalization_becomes_part_of_the_convolution() -> None:
    model = network(
        """f (float[1, 2, 5, 5] x) => (float[1, 4, 3, 3] z) {
          y = Conv(x, w)
          z = BatchNormalization(y, s, b, m, v)
        }""",
        w=(4, 2, 3, 3), s=(4,), b=(4,), m=(4,),
    )  # fmt: skip
    model.graph.initializer.append(numpy_helper.from_array(np.array([0.5, 1, 2, 3], "float32"), "v"))
    data = samples(model)
    made = tilewright.quantize(model, data)
    assert not operators(made.float_model)["BatchNormalization"]
    (expected,) = ReferenceEvaluator(model).run(None, data[0])
    np.testing.assert_allclose(ReferenceEvaluator(made.float_model).run(None, data[0])[0], expected, atol=1e-5)


def test_a_network_of_matrices_keeps_additions_and_normalization_in_float() -> None:
    model = network(
        """f (float[1, 5, 16] x) => (float[1, 5, 16] y) {
          q = MatMul(x, wq)
          qb = Add(q, bq)
          t = Transpose<perm=[0, 2, 1]>(qb)
          s = MatMul(qb, t)
          p = Softmax<axis=-1>(s)
          m = MatMul(p, qb)
          o = MatMul(m, wo)
          r = Add(o, x)
          y = LayerNormalization(r, g)
        }""",
        wq=(16, 16), bq=(16,), wo=(16, 16), g=(16,),
    )  # fmt: skip
    data = samples(model)
    made = tilewright.quantize(model, data)
    assert made.plan.tensors == ["x", "m"] and not made.plan.followers
    assert made.plan.float_nodes["MatMul_s"] == "both of its operands are computed"
    (expected,) = on_onnxruntime(made.model, data[0])
    np.testing.assert_allclose(tilewright.compile(made.model)(**data[0]), expected, rtol=0, atol=1e-5)


def detector() -> onnx.ModelProto:
    """Convolutions with x * sigmoid(x), a split, joins, pools and a resized picture, as detectors have them."""
    return network(
        """f (float[1, 3, 16, 16] x) => (float[1, 6, 16, 16] y) {
          half = Constant<value_ints=[8, 8]>()
          none = Constant<value_floats=[0.0]>()
          twice = Constant<value_floats=[1.0, 1.0, 2.0, 2.0]>()
          a = Conv<pads=[1, 1, 1, 1], strides=[2, 2]>(x, w1)
          sa = Sigmoid(a)
          ma = Mul(a, sa)
          b, c = Split<axis=1>(ma, half)
          d = Conv<pads=[1, 1, 1, 1]>(c, w2)
          sd = Tanh(d)
          e = Add(sd, c)
          p = MaxPool<kernel_shape=[5, 5], pads=[2, 2, 2, 2], strides=[1, 1]>(e)
          j = Concat<axis=1>(b, e, p)
          r = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(j, , twice)
          y = Conv(r, w3)
        }""",
        w1=(16, 3, 3, 3), w2=(8, 8, 3, 3), w3=(6, 24, 1, 1),
    )  # fmt: skip


def test_a_detector_is_integers_from_its_first_convolution_to_its_last() -> None:
    model = detector()
    data = samples(model)
    made = tilewright.quantize(model, data)
    assert not made.plan.float_nodes
    kinds = sorted(node.op_type for node in made.plan.followers.values())
    assert kinds == ["Add", "Concat", "MaxPool", "Mul", "Resize", "Sigmoid", "Split", "Split", "Tanh"]
    assert made.scales["b"] == made.scales["c"] == made.scales["ma"] and made.scales["p"] == made.scales["e"]
    (expected,) = on_onnxruntime(made.model, data[0])
    found = tilewright.compile(made.model)(**data[0])
    np.testing.assert_allclose(found, expected, rtol=0, atol=2.01 * made.scales["y"].scale)  # of tables' roundings
    (exact,) = ReferenceEvaluator(model).run(None, data[0])
    assert np.sqrt(np.mean((found - exact) ** 2)) < 0.05 * np.sqrt(np.mean(exact**2))


def test_the_bias_of_a_matrix_product_is_integers_so_that_onnx_runtime_computes_it(tmp_path: Path) -> None:
    model = network(
        "f (float[2, 3, 8] x) => (float[2, 3, 8] y) { h = MatMul(x, w) hb = Add(b, h) y = Gelu(hb) }",
        w=(8, 8), b=(8,),
    )  # fmt: skip
    made = tilewright.quantize(model, samples(model))
    assert initializer(made.model, "b_quantized").dtype == np.int32
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(made.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert operators(onnx.load(tmp_path / "optimized.onnx"))["QGemm"] == 1


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_table_of_embeddings_is_bytes(dynamic: bool) -> None:
    model = network(
        "f (int64[2, 3] ids) => (float[2, 3, 8] y) { e = Gather(table, ids) y = MatMul(e, w) }",
        table=(600, 8), w=(8, 8),
    )  # fmt: skip
    ids = np.array([[0, 599, 3], [7, 7, 300]])
    made = tilewright.quantize(model, {"ids": ids}, dynamic=dynamic)
    onnx.checker.check_model(made.model, full_check=True)
    assert initializer(made.model, "table_quantized").dtype == np.int8
    assert not any(t.name == "table" for t in made.model.graph.initializer)
    found = tilewright.compile(made.model)(ids=ids)
    np.testing.assert_allclose(found, on_onnxruntime(made.model, {"ids": ids})[0], rtol=0, atol=1e-5)
    (exact,) = ReferenceEvaluator(model).run(None, {"ids": ids})
    assert np.abs(found - exact).max() < 0.03 * np.abs(exact).max()


def test_a_table_that_something_else_reads_stays_in_float() -> None:
    model = network(
        "f (int64[3] ids) => (float[3, 8] e, float[600, 8] y) { e = Gather(table, ids) y = MatMul(table, w) }",
        table=(600, 8), w=(8, 8),
    )  # fmt: skip
    with pytest.raises(TilewrightError, match="nothing to quantize"):
        tilewright.quantize(model, {"ids": np.array([1, 2, 3])})


def test_named_dimensions_stay_open() -> None:
    model = network(
        "f (float[batch, 7] x) => (float[batch, 3] y) { h = MatMul(x, w) r = Relu(h) y = MatMul(r, v) }",
        w=(7, 9), v=(9, 3),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, 7)).astype("float32")
    made = tilewright.quantize(model, {"x": x})
    (expected,) = on_onnxruntime(made.model, {"x": x[:11]})
    np.testing.assert_allclose(tilewright.compile(made.model)(x[:11]), expected, rtol=0, atol=1e-5)


def test_an_output_that_a_quantized_node_gives_keeps_its_name() -> None:
    model = network(
        "f (float[1, 2, 6, 6] x) => (float[1, 3, 4, 4] y, float[1, 3, 2, 2] z) { y = Conv(x, w) z = Conv(y, v) }",
        w=(3, 2, 3, 3), v=(3, 3, 3, 3),
    )  # fmt: skip
    data = samples(model)
    made = tilewright.quantize(model, data)
    assert [v.name for v in made.model.graph.output] == ["y", "z"]
    for found, expected in zip(
        tilewright.compile(made.model)(**data[0]), on_onnxruntime(made.model, data[0]), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_branches_stay_in_float_with_a_reason() -> None:
    model = network(
        """f (float[1, 4] x, bool c) => (float[1, 4] z) {
          y = MatMul(x, w)
          z = If(c) <then_branch = t () => (float[1, 4] a) { a = Relu(y) },
                     else_branch = e () => (float[1, 4] b) { b = MatMul(y, v) }>
        }""",
        w=(4, 4), v=(4, 4),
    )  # fmt: skip
    data = {"x": np.ones((1, 4), "float32"), "c": np.array(False)}
    made = tilewright.quantize(model, [data])
    assert made.plan.float_nodes["If_z"] == "the graphs inside of a If stay in float"
    np.testing.assert_allclose(tilewright.compile(made.model)(**data), on_onnxruntime(made.model, data)[0], atol=1e-5)


def test_digits_are_read_as_well_as_in_float() -> None:
    with np.load(DIGITS / "heldout.npz") as held:
        pixels, labels = (held["pictures"][:, None] / 16).astype("float32"), held["labels"]
    made = tilewright.quantize(DIGITS / "digits.onnx", {"pixels": pixels[:64]})
    run, exact = tilewright.compile(made.model), tilewright.compile(DIGITS / "digits.onnx")
    right = [np.mean([m(one[None]).argmax() == y for one, y in zip(pixels, labels, strict=True)]) for m in (run, exact)]
    assert right[1] > 0.98 and right[0] >= right[1] - 0.01


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exclude": ["MatMul_h2"]}, r"--exclude MatMul_h2: the model has no such node \(did you mean 'MatMul_h1'\?\)"),
        ({"method": "minmix"}, r"method is one of minmax, entropy, percentile, mse, not 'minmix' \(did you mean"),
        ({"activations": "int4"}, "activations is one of uint8, int8, not 'int4'"),
        ({"percentile": 10}, "percentile is above 50 and at most 100, not 10"),
        ({"exclude": ["MatMul_h1"]}, r"nothing to quantize.*MatMul_h1: excluded"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], message: str) -> None:
    model = network("f (float[1, 4] x) => (float[1, 4] h1) { h1 = MatMul(x, w) }", w=(4, 4))
    with pytest.raises(TilewrightError, match=message):
        tilewright.quantize(model, samples(model), **options)


def test_a_quantized_model_is_refused() -> None:
    model = residual()
    made = tilewright.quantize(model, samples(model))
    with pytest.raises(TilewrightError, match="quantized already: node 'x_QuantizeLinear' is a QuantizeLinear"):
        tilewright.quantize(made.model, samples(model))


def test_activations_that_are_not_finite_are_refused() -> None:
    model = network("f (float[1, 4] x) => (float[1, 4] y) { l = Log(x) y = MatMul(l, w) }", w=(4, 4))
    with pytest.raises(TilewrightError, match="not finite on a sample, in tensor 'l'"):
        tilewright.quantize(model, {"x": np.zeros((1, 4), "float32")})


def test_large_weights_go_to_a_file_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.quantization.save._LARGEST_FILE", 100)
    model = network("f (float[1, 64] x) => (float[1, 64] y) { y = MatMul(x, w) }", w=(64, 64))
    data = samples(model)
    made = tilewright.quantize(model, data)
    made.save(tmp_path / "q.onnx")
    onnx.checker.check_model(made.model)
    assert file_bytes(tmp_path / "q.onnx") == sum(p.stat().st_size for p in tmp_path.iterdir())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["q.onnx", "q.onnx.data"]
    onnx.checker.check_model(tmp_path / "q.onnx")
    found = tilewright.compile(tmp_path / "q.onnx")(**data[0])
    np.testing.assert_array_equal(found, tilewright.compile(made.model)(**data[0]))


def test_nothing_is_left_where_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = residual()
    made = tilewright.quantize(model, samples(model))
    (tmp_path / "q.onnx").write_bytes(b"before")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(onnx, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.save(tmp_path / "q.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["q.onnx"] and (tmp_path / "q.onnx").read_bytes() == b"before"


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("limits", [(-1.0, 3.0), (0.0, 0.0), (-2.0, 0.0), (0.0, 1e-45), (-1e30, 1e30)])
def test_a_scale_holds_zero_and_the_ends_of_its_range(dtype: str, limits: tuple[float, float]) -> None:
    scale = Scale.of(*limits, dtype)
    ends = np.array([0, *limits], "float32")
    assert scale.rounded(ends)[0] == 0 and scale.scale > 0
    assert np.abs(scale.rounded(ends) - ends).max() <= scale.scale * 0.51


def upsampler() -> onnx.ModelProto:
    """Transposed convolutions behind a convolution, as decoders of images have them: plain, and of groups."""
    return network(
        """f (float[2, 3, 9, 7] x) => (float[2, 4, 37, 28] y) {
          a = Conv<pads=[1, 1, 1, 1]>(x, w1, b1)
          ra = Relu(a)
          u = ConvTranspose<strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 0]>(ra, w2, b2)
          ru = Relu(u)
          y = ConvTranspose<group=2, strides=[2, 2], output_padding=[0, 1]>(ru, w3, b3)
        }""",
        w1=(6, 3, 3, 3), b1=(6,), w2=(6, 8, 3, 3), b2=(8,), w3=(8, 2, 3, 3), b3=(4,),
    )  # fmt: skip


@pytest.mark.parametrize("per_channel", [True, False])
def test_transposed_convolutions_become_integers(per_channel: bool) -> None:
    model = upsampler()
    data = samples(model)
    made = tilewright.quantize(model, data, per_channel=per_channel)
    onnx.checker.check_model(made.model, full_check=True)
    assert [layer.node.op_type for layer in made.plan.layers] == ["Conv", "ConvTranspose", "ConvTranspose"]
    assert {initializer(made.model, f"w{i}_quantized").dtype.name for i in (1, 2, 3)} == {"int8"}
    assert initializer(made.model, "w2_quantized_scale").shape == ((8,) if per_channel else ())
    (expected,) = on_onnxruntime(made.model, data[0])
    found = tilewright.compile(made.model)(**data[0])
    (in_float,) = on_onnxruntime(model, data[0])
    step = float(made.scales["y"].scale)
    assert np.abs(found - expected).max() <= 1.01 * step and (found != expected).mean() < 0.01
    assert np.sqrt(np.square(found - in_float).mean()) < 0.02 * np.abs(in_float).max()


def attention() -> onnx.ModelProto:
    """One head of attention: a product of queries and keys, and one of shares and values."""
    return network(
        """f (float[2, 9, 16] x) => (float[2, 9, 16] y) {
          q = MatMul(x, wq)
          k = MatMul(x, wk)
          v = MatMul(x, wv)
          t = Transpose<perm=[0, 2, 1]>(k)
          s = MatMul(q, t)
          p = Softmax<axis=-1>(s)
          m = MatMul(p, v)
          y = MatMul(m, wo)
        }""",
        wq=(16, 16), wk=(16, 16), wv=(16, 16), wo=(16, 16),
    )  # fmt: skip


@pytest.mark.parametrize("activations", ["uint8", "int8"])
def test_products_of_computed_matrices_become_integers_where_asked_for(activations: str) -> None:
    model = attention()
    data = samples(model)
    plain = tilewright.quantize(model, data, activations=activations)
    made = tilewright.quantize(model, data, activations=activations, computed=True)
    onnx.checker.check_model(made.model, full_check=True)
    assert not plain.plan.computed and [node.name for node in made.plan.computed] == ["MatMul_s", "MatMul_m"]
    assert {"q", "k", "t", "p", "v"} <= set(made.plan.tensors) and "MatMul_s" not in made.plan.float_nodes
    (expected,) = on_onnxruntime(made.model, data[0])
    found = tilewright.compile(made.model)(**data[0])
    (in_float,) = ReferenceEvaluator(model).run(None, data[0])
    size = np.abs(in_float).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 + 1.01 * float(made.scales["m"].scale))
    assert np.sqrt(np.square(found - expected).mean()) < 2e-3 * size
    assert np.sqrt(np.square(found - in_float).mean()) < 0.02 * size


def test_computed_products_of_a_dynamic_model_are_refused() -> None:
    with pytest.raises(TilewrightError, match="leave out computed"):
        tilewright.quantize(attention(), dynamic=True, computed=True)
