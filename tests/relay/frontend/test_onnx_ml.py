"""Operators of ai.onnx.ml, beside ONNX Runtime."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import UnsupportedError
from tilewright.relay.frontend.onnx.context import OnnxImportError

ML, RNG = "ai.onnx.ml", np.random.default_rng(11)
X = RNG.normal(size=(9, 4)).astype("float32")
KINDS = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "float64": TensorProto.DOUBLE}


@pytest.fixture(autouse=True)
def same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has the same numbers, whichever run before it."""
    monkeypatch.setattr(sys.modules[__name__], "RNG", np.random.default_rng(3))


def model(
    name: str, inputs: list[np.ndarray], outputs: int, version: int = 3, kinds: tuple[int, ...] = (), **attributes: Any
) -> onnx.ModelProto:
    """A model of one operator."""
    node = helper.make_node(name, [f"x{i}" for i in range(len(inputs))], [f"y{i}" for i in range(outputs)], domain=ML)
    for key, value in attributes.items():
        node.attribute.append(helper.make_attribute(key, value))
    given = [
        helper.make_tensor_value_info(f"x{i}", KINDS[str(a.dtype)], [f"rows{i}", *a.shape[1:]])
        for i, a in enumerate(inputs)
    ]
    types = kinds or (TensorProto.FLOAT,)
    made = [helper.make_tensor_value_info(f"y{i}", types[min(i, len(types) - 1)], None) for i in range(outputs)]
    graph = helper.make_graph([node], "g", given, made)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def agree(
    made: onnx.ModelProto, inputs: list[np.ndarray], tolerance: float = 1e-5, columns: int | None = None
) -> list[np.ndarray]:
    """Compare with ONNX Runtime; of scores the first ``columns``."""
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {f"x{i}": a for i, a in enumerate(inputs)})
    mod, params = relay.frontend.from_onnx(made, {f"x{i}": a.shape for i, a in enumerate(inputs)})
    result = relay.create_executor("debug", mod).evaluate()(*inputs, **params)
    found = [result.numpy()] if isinstance(result, tvm.nd.NDArray) else [part.numpy() for part in result]
    for got, want in zip(found, wanted, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        part = slice(columns if want.ndim > 1 else None)
        np.testing.assert_allclose(got[..., part], want[..., part], rtol=tolerance, atol=tolerance)
    return found


LABELLED = (TensorProto.INT64, TensorProto.FLOAT)
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"]


@pytest.mark.parametrize("post_transform", TRANSFORMS)
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_linear_classifier(classes: int, post_transform: str) -> None:
    made = model(
        "LinearClassifier",
        [X],
        2,
        1,
        LABELLED,
        coefficients=RNG.normal(size=classes * 4).tolist(),
        intercepts=(RNG.normal(size=classes) * 0.1).tolist(),
        classlabels_ints=list(range(5, 5 + max(classes, 2))),
        post_transform=post_transform,
    )
    agree(made, [X])


def test_linear_regressor_of_several_targets() -> None:
    values = {"coefficients": RNG.normal(size=8).tolist(), "intercepts": [0.5, -1.0], "targets": 2}
    agree(model("LinearRegressor", [X], 1, 1, **values), [X])


def test_scaler() -> None:
    agree(model("Scaler", [X], 1, 1, offset=[1.0, 2.0, 0.0, -1.0], scale=[2.0, 0.5, 1.0, 3.0]), [X])
    agree(model("Scaler", [X], 1, 1, offset=[1.0], scale=[2.0]), [X])


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer_leaves_rows_of_zeros(norm: str) -> None:
    data = np.abs(X) * (np.arange(9) != 4)[:, None].astype("float32")
    agree(model("Normalizer", [data], 1, 1, norm=norm), [data])


def test_binarizer() -> None:
    agree(model("Binarizer", [X], 1, 1, threshold=0.25), [X])


def test_imputer_of_floats_and_integers() -> None:
    data = np.where(RNG.random((9, 4)) < 0.3, np.nan, X).astype("float32")
    values = {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": float("nan")}
    agree(model("Imputer", [data], 1, 1, **values), [data])
    whole = RNG.integers(0, 3, (9, 4))
    values = {"imputed_value_int64s": [7, 8, 9, 10], "replaced_value_int64": 1}
    agree(model("Imputer", [whole], 1, 1, (TensorProto.INT64,), **values), [whole])


def test_one_hot_encoder_has_no_column_for_what_is_not_listed() -> None:
    data = RNG.integers(0, 5, (6, 2))
    agree(model("OneHotEncoder", [data], 1, 1, cats_int64s=[3, 0, 1], zeros=1), [data])


def test_feature_vectorizer() -> None:
    other = RNG.normal(size=(9, 2)).astype("float32")
    agree(model("FeatureVectorizer", [X, other], 1, 1, inputdimensions=[4, 2]), [X, other])


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_svm_regressor(kernel: str) -> None:
    values = {
        "kernel_type": kernel, "kernel_params": [0.3, 0.5, 3.0], "n_supports": 5, "rho": [0.2],
        "support_vectors": RNG.normal(size=20).tolist(), "coefficients": RNG.normal(size=5).tolist(),
    }  # fmt: skip
    agree(model("SVMRegressor", [X], 1, 1, **values), [X], 1e-4)
    agree(model("SVMRegressor", [X], 1, 1, one_class=1, **values), [X])


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_svm_classifier_votes(classes: int) -> None:
    pairs = classes * (classes - 1) // 2
    made = model(
        "SVMClassifier",
        [X],
        2,
        1,
        LABELLED,
        kernel_type="RBF",
        kernel_params=[0.3, 0.0, 3.0],
        vectors_per_class=list(range(2, 2 + classes)),
        support_vectors=RNG.normal(size=4 * sum(range(2, 2 + classes))).tolist(),
        coefficients=RNG.normal(size=(classes - 1) * sum(range(2, 2 + classes))).tolist(),
        rho=(RNG.normal(size=pairs) * 0.1).tolist(),
        classlabels_ints=list(range(classes)),
    )
    agree(made, [X], 1e-4)


# ------------------------------------------------------------------------------------------- trees

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def trees(
    prefix: str, modes: list[str], columns: int, positive: bool = False, nan: list[int] | None = None
) -> dict[str, Any]:
    """Attributes of two trees: a node with two nodes below it, and four leaves each."""
    leaves = [(tree, leaf, column) for tree in range(2) for leaf in range(3, 7) for column in range(columns)]
    weights = RNG.normal(size=len(leaves))
    return {
        "nodes_treeids": [0] * 7 + [1] * 7,
        "nodes_nodeids": [*range(7)] * 2,
        "nodes_featureids": [0, 1, 2, 0, 0, 0, 0, 3, 2, 1, 0, 0, 0, 0],
        "nodes_values": [0.0, 1.0, -1.0, 0.0, 0.0, 0.0, 0.0] * 2,
        "nodes_modes": (modes[:3] + ["LEAF"] * 4) + (modes[3:] + ["LEAF"] * 4),
        "nodes_truenodeids": [1, 3, 5, 0, 0, 0, 0] * 2,
        "nodes_falsenodeids": [2, 4, 6, 0, 0, 0, 0] * 2,
        "nodes_missing_value_tracks_true": nan or [0] * 14,
        f"{prefix}_treeids": [tree for tree, _, _ in leaves],
        f"{prefix}_nodeids": [leaf for _, leaf, _ in leaves],
        f"{prefix}_ids": [column for _, _, column in leaves],
        f"{prefix}_weights": (np.abs(weights) if positive else weights).astype("float32").tolist(),
    }


ROUNDED = np.round(RNG.normal(size=(60, 4))).astype("float32")
WITH_GAPS = np.where(RNG.random((60, 4)) < 0.2, np.nan, ROUNDED).astype("float32")


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("mode", MODES)
def test_tree_ensemble_regressor(mode: str, aggregate: str) -> None:
    values = trees("target", [mode] * 6, 2)
    extra = {"base_values": [0.5, -0.25]} if aggregate in ("SUM", "AVERAGE") else {}
    agree(
        model("TreeEnsembleRegressor", [ROUNDED], 1, n_targets=2, aggregate_function=aggregate, **values, **extra),
        [ROUNDED],
    )


@pytest.mark.parametrize("tracks", [0, 1])
def test_missing_values_follow_the_branch_that_the_node_says(tracks: int) -> None:
    values = trees("target", MODES[:1] * 6, 1, nan=[tracks] * 14)
    agree(model("TreeEnsembleRegressor", [WITH_GAPS], 1, n_targets=1, **values), [WITH_GAPS])


def test_trees_of_mixed_tests_and_double_precision() -> None:
    data = ROUNDED.astype("float64")
    agree(model("TreeEnsembleRegressor", [data], 1, n_targets=2, **trees("target", MODES, 2)), [data])


@pytest.mark.parametrize("post_transform", TRANSFORMS)
@pytest.mark.parametrize("classes", [2, 3])
def test_tree_ensemble_classifier(classes: int, post_transform: str) -> None:
    values = trees("class", MODES[:1] * 6, classes)
    made = model("TreeEnsembleClassifier", [ROUNDED], 2, 3, LABELLED, classlabels_int64s=[*range(classes)],
                 post_transform=post_transform, **values)  # fmt: skip
    label, _ = agree(made, [ROUNDED])
    assert len(np.unique(label)) > 1


@pytest.mark.parametrize("post_transform", ["NONE", "LOGISTIC", "PROBIT"])
@pytest.mark.parametrize("positive", [False, True])
def test_one_score_of_two_classes_becomes_two(positive: bool, post_transform: str) -> None:
    values = trees("class", MODES[:1] * 6, 1, positive)
    if post_transform == "PROBIT":
        values["class_weights"] = [abs(w) * 0.2 + 0.05 for w in values["class_weights"]]
    made = model("TreeEnsembleClassifier", [ROUNDED], 2, 3, LABELLED, classlabels_int64s=[4, 9],
                 post_transform=post_transform, **values)  # fmt: skip
    if post_transform == "PROBIT":  # ONNX Runtime does not write the second column
        agree(made, [ROUNDED], 1e-4, columns=1)
    else:
        agree(made, [ROUNDED], 1e-4)


def test_a_tree_that_leads_back_to_itself_is_refused() -> None:
    values = trees("target", MODES[:1] * 6, 1)
    values["nodes_truenodeids"] = [1, 0, 5, 0, 0, 0, 0] * 2
    made = model("TreeEnsembleRegressor", [X], 1, n_targets=1, **values)
    with pytest.raises(OnnxImportError, match=r"lead back|roots"):
        relay.frontend.from_onnx(made, {"x0": X.shape})


def test_a_feature_that_is_not_there_is_refused() -> None:
    values = trees("target", MODES[:1] * 6, 1) | {"nodes_featureids": [99] * 14}
    with pytest.raises(OnnxImportError, match=r"test features 99 to 99 of 4"):
        relay.frontend.from_onnx(model("TreeEnsembleRegressor", [X], 1, n_targets=1, **values), {"x0": X.shape})


def test_labels_that_are_strings_are_refused_by_name() -> None:
    values = {"coefficients": [1.0] * 8, "intercepts": [0.0, 0.0], "classlabels_strings": ["yes", "no"]}
    made = model("LinearClassifier", [X], 2, 1, (TensorProto.STRING, TensorProto.FLOAT), **values)
    with pytest.raises(UnsupportedError, match=r"LinearClassifier.*strings"):
        relay.frontend.from_onnx(made, {"x0": X.shape})


def test_the_message_about_a_missing_operator_names_its_domain_s_version() -> None:
    made = model("CastMap", [X], 1, 1)
    made.graph.input[0].CopyFrom(
        helper.make_value_info(
            "x0", helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(1, []))
        )
    )
    with pytest.raises(UnsupportedError, match=r"ai\.onnx\.ml\.CastMap \(opset 1\)"):
        relay.frontend.from_onnx(made)


def test_trees_need_to_know_how_many_features_there_are() -> None:
    made = model("TreeEnsembleRegressor", [X], 1, n_targets=1, **trees("target", MODES[:1] * 6, 1))
    made.graph.input[0].type.tensor_type.shape.dim[1].Clear()
    with pytest.raises(UnsupportedError, match=r"dimension 1 .* must be known"):
        relay.frontend.from_onnx(made)
