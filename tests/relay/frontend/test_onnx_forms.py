"""Forms in which files say the same: sparse tensors, the name of ONNX's own domain, training mode, links."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from tests.relay.frontend.dynamic_models import floats, machine_of, model_of, outputs_of

from tilewright import relay
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.relay.frontend.onnx.plain import dense, plain_model


def sparse(values: np.ndarray, indices: np.ndarray, shape: tuple[int, ...], name: str = "w") -> onnx.SparseTensorProto:
    places = numpy_helper.from_array(np.asarray(indices, "int64"), f"{name}_indices")
    return helper.make_sparse_tensor(numpy_helper.from_array(values, name), places, list(shape))


COORDINATES = np.array([[0, 1], [1, 0], [2, 3]])
FORMS = {"counted": COORDINATES @ [4, 1], "coordinates": COORDINATES}


@pytest.mark.parametrize("form", FORMS)
def test_sparse_initializers_and_constants(form: str) -> None:
    model = model_of("(float[2, 3] x) => (float[2, 4] y) { p = MatMul(x, w)  c = Identity(d)  y = Add(p, c) }")
    model.graph.sparse_initializer.append(sparse(floats(3), FORMS[form], (3, 4)))
    constant = helper.make_node("Constant", [], ["d"], sparse_value=sparse(floats(1), np.array([2]), (4,), ""))
    model.graph.node.insert(0, constant)
    x = floats(2, 3)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(outputs_of(machine_of(model), {"x": x})[0], expected[0], rtol=1e-5, atol=1e-5)
    assert len(model.graph.sparse_initializer) == 1  # the caller's model is as it was


def test_a_sparse_tensor_without_values_is_zeros() -> None:
    empty = sparse(np.zeros(0, "float32"), np.zeros((0, 2)), (2, 3))
    np.testing.assert_array_equal(dense(empty, "w"), np.zeros((2, 3), "float32"))


@pytest.mark.parametrize("indices", [[[0, 4]], [[-1, 0]], [12], [0, 1]])
def test_indices_of_sparse_tensors_are_checked(indices: list) -> None:
    with pytest.raises(TilewrightError, match=r"sparse initializer 'w' of shape \(3, 4\) has"):
        dense(sparse(floats(1), np.array(indices), (3, 4)), "sparse initializer 'w'")


def test_a_small_file_makes_no_large_sparse_tensor() -> None:
    with pytest.raises(TilewrightError, match="refusing"):
        dense(sparse(floats(1), np.array([0]), (1 << 31, 1 << 10)), "sparse initializer 'w'")


@pytest.mark.parametrize("imported", ["", "ai.onnx"])
def test_the_domain_of_onnx_may_be_named(imported: str) -> None:
    model = model_of("(float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }")
    model.graph.node[0].domain = "ai.onnx"
    model.opset_import[0].domain = imported
    x = floats(2, 3)
    np.testing.assert_array_equal(outputs_of(machine_of(model), {"x": x})[0], np.maximum(x, 0))


def test_a_model_in_plain_form_is_not_copied() -> None:
    model = model_of("(float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }")
    assert plain_model(model) is model


def test_batch_normalization_in_training_mode_is_warned_of() -> None:
    text = """(float[2, 3, 4] x, float[3] s) => (float[2, 3, 4] y) {
      y, m, v = BatchNormalization<training_mode=1>(x, s, s, s, s) }"""
    with pytest.warns(UserWarning, match=r"training mode: .*\(BatchNormalization\).*call \.eval\(\) before the export"):
        relay.frontend.from_onnx(model_of(text))


def test_dropout_in_training_mode_over_named_dimensions_says_what_to_do() -> None:
    text = "(float[n, 3] x) => (float[n, 3] y) <bool t = {1}, float r = {0.5}> { y = Dropout(x, r, t) }"
    with pytest.raises(UnsupportedError, match=r"Dropout.*call \.eval\(\) before the export"):
        relay.frontend.from_onnx(model_of(text))


def test_links_out_of_the_folder_are_refused_with_a_remedy(tmp_path: Path) -> None:
    model = model_of("(float[2, 3] x) => (float[2, 4] y) { y = MatMul(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(floats(3, 4), "w"))
    folder = tmp_path / "snapshot"
    folder.mkdir()
    path = folder / "model.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    (folder / "model.onnx_data").rename(tmp_path / "blob")
    (folder / "model.onnx_data").symlink_to("../blob")
    with pytest.raises(TilewrightError, match=r"refusing to read it, as that is a link out of it\..*cp -rL .*snapshot"):
        relay.frontend.from_onnx(str(path))


def test_dense_tensors_keep_the_data_type() -> None:
    assert dense(sparse(np.array([3], "int64"), np.array([1]), (2,)), "w").tolist() == [0, 3]
