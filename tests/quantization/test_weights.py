"""Weights of few bits: the files, beside ONNX Runtime, and the errors of the methods on data."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.quantization.networks import network, products

import tilewright
from tilewright.ir.errors import TilewrightError
from tilewright.quantization import quantize_weights
from tilewright.quantization.block_codes import Form, quantized

Array = np.ndarray[Any, Any]


def data(count: int, seed: int = 0) -> list[dict[str, Array]]:
    """Samples whose columns differ in size, as those of language models do."""
    sizes = np.exp(1.5 * np.random.default_rng(9).standard_normal(52))
    rng = np.random.default_rng(seed)
    return [{"x": (rng.standard_normal((3, 52)) * sizes).astype("float32")} for _ in range(count)]


def in_onnx_runtime(model: onnx.ModelProto, values: dict[str, Array]) -> Array:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, values)[0]


@pytest.mark.parametrize("weights", ["int2", "int4", "int8"])
@pytest.mark.parametrize("zero_points", [False, True])
def test_the_file_runs_the_same_in_onnx_runtime(weights: str, zero_points: bool) -> None:
    made = quantize_weights(products(52, 40), weights, block=16, zero_points=zero_points, accuracy_level=1)
    kinds = [node.op_type for node in made.model.graph.node]
    assert kinds == ["MatMulNBits", "Add", "Relu", "MatMulNBits"]
    values = data(1)[0]
    wanted = in_onnx_runtime(made.model, values)
    found = tilewright.compile(made.model)(**values)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())
    most = {"int2": 0.6, "int4": 0.1, "int8": 0.006}[weights]
    assert all(0 < error < most for error in made.errors.values())


def test_codes_are_the_nearest_ones() -> None:
    matrix = np.random.default_rng(1).standard_normal((5, 48)).astype("float32")
    for form in (Form(4, 16), Form(4, 16, True), Form(8, 32)):
        made = quantized(matrix, form, "rtn")
        steps, zeros = (
            np.repeat(part, form.block, axis=1)[:, :48] for part in (made.scales, made.zeros.astype("int32"))
        )
        ends = np.sort([-zeros * steps, (form.last - zeros) * steps], axis=0)
        nearest = np.clip(matrix, *ends)
        assert (np.abs(nearest - matrix) <= np.abs(steps)).all()
        assert (np.abs(made.matrix(48) - nearest) <= 0.501 * np.abs(steps)).all()


def test_a_block_of_zeros_stays_zero() -> None:
    matrix = np.zeros((3, 20), "float32")
    for form in (Form(4, 16), Form(4, 16, True)):
        assert not quantized(matrix, form, "rtn").matrix(20).any()


@pytest.mark.parametrize("zero_points", [False, True])
def test_methods_that_see_data_make_smaller_errors_on_more_of_it(zero_points: bool) -> None:
    model, seen, unseen = products(52, 40), data(40), data(20, seed=1)
    errors = {}
    for method in ("rtn", "awq", "gptq"):
        made = quantize_weights(
            model, "int4", None if method == "rtn" else seen, block=16, method=method, zero_points=zero_points
        )
        pairs = [(in_onnx_runtime(made.model, v), in_onnx_runtime(model, v)) for v in unseen]
        errors[method] = np.mean([np.square(a - b).mean() for a, b in pairs])
    assert errors["awq"] < 0.9 * errors["rtn"]
    assert errors["gptq"] < 0.9 * errors["rtn"]


def test_gptq_of_data_that_are_no_more_than_numbers_apart_is_rounding() -> None:
    matrix = np.random.default_rng(2).standard_normal((4, 32)).astype("float32")
    plain, made = (quantized(matrix, Form(4, 16), method, np.eye(32)) for method in ("rtn", "gptq"))
    np.testing.assert_array_equal(made.codes, plain.codes)


def test_shared_weights_are_written_once() -> None:
    model = network("f (float[3, 32] x) => (float[3, 32] y) { h = MatMul(x, w)\n y = MatMul(h, w) }", w=(32, 32))
    made = quantize_weights(model)
    assert len(made.model.graph.initializer) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "int5"}, "weights is one of int2, int4, int8, not 'int5'"),
        ({"block": 24}, "block is a power of 2 from 16 on, not 24"),
        ({"block": 8}, "block is a power of 2 from 16 on, not 8"),
        ({"method": "gptz"}, "method is one of rtn, awq, gptq, not 'gptz'.*gptq"),
        ({"method": "awq"}, "method awq needs data"),
        ({"accuracy_level": 5}, "accuracy level is 0 to 4, not 5"),
        ({"exclude": ["nothing"]}, "nothing"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TilewrightError, match=message):
        quantize_weights(products(52, 40), **options)
