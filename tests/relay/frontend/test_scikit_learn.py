"""Models and pipelines of scikit-learn, as skl2onnx writes them, beside ONNX Runtime."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import onnxruntime
import pytest
from skl2onnx import to_onnx
from sklearn import (
    cluster,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_selection,
    impute,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    preprocessing,
    svm,
    tree,
)
from sklearn.datasets import make_classification, make_regression
from sklearn.pipeline import make_pipeline, make_union

import tilewright as tvm
from tilewright import relay

LOGISTIC = functools.partial(linear_model.LogisticRegression, max_iter=200)
CLASSIFIERS: dict[str, Any] = {
    "logistic": LOGISTIC,
    "perceptron": linear_model.Perceptron,
    "ridge classifier": linear_model.RidgeClassifier,
    "sgd": functools.partial(linear_model.SGDClassifier, loss="log_loss", random_state=0),
    "linear svc": svm.LinearSVC,
    "svc": svm.SVC,
    "nu svc": svm.NuSVC,
    "tree": functools.partial(tree.DecisionTreeClassifier, random_state=0),
    "forest": functools.partial(ensemble.RandomForestClassifier, 10, random_state=0),
    "extra trees": functools.partial(ensemble.ExtraTreesClassifier, 10, random_state=0),
    "gradient boosting": functools.partial(ensemble.GradientBoostingClassifier, n_estimators=10, random_state=0),
    "ada boost": functools.partial(ensemble.AdaBoostClassifier, n_estimators=3, random_state=0),
    "bagging": functools.partial(ensemble.BaggingClassifier, n_estimators=3, random_state=0),
    "mlp": functools.partial(neural_network.MLPClassifier, hidden_layer_sizes=(8,), max_iter=30, random_state=0),
    "k-means": functools.partial(cluster.KMeans, 4, n_init=1, random_state=0),
    "gaussian naive bayes": naive_bayes.GaussianNB,
    "bernoulli naive bayes": naive_bayes.BernoulliNB,
    "k-NN": neighbors.KNeighborsClassifier,
    "lda": discriminant_analysis.LinearDiscriminantAnalysis,
    "qda": discriminant_analysis.QuadraticDiscriminantAnalysis,
    "standard scaler": lambda: make_pipeline(preprocessing.StandardScaler(), LOGISTIC()),
    "min-max scaler": lambda: make_pipeline(preprocessing.MinMaxScaler(), LOGISTIC()),
    "robust scaler": lambda: make_pipeline(preprocessing.RobustScaler(), LOGISTIC()),
    "normalizer": lambda: make_pipeline(preprocessing.Normalizer(), LOGISTIC()),
    "normalizer l1": lambda: make_pipeline(preprocessing.Normalizer("l1"), LOGISTIC()),
    "binarizer": lambda: make_pipeline(preprocessing.Binarizer(threshold=0.2), LOGISTIC()),
    "pca": lambda: make_pipeline(decomposition.PCA(4), LOGISTIC()),
    "polynomials": lambda: make_pipeline(preprocessing.PolynomialFeatures(2), LOGISTIC()),
    "best features": lambda: make_pipeline(feature_selection.SelectKBest(k=4), LOGISTIC()),
    "union": lambda: make_pipeline(make_union(preprocessing.StandardScaler(), decomposition.PCA(3)), LOGISTIC()),
}
REGRESSORS: dict[str, Any] = {
    "linear": linear_model.LinearRegression,
    "ridge": linear_model.Ridge,
    "svr": svm.SVR,
    "nu svr, sigmoid": functools.partial(svm.NuSVR, kernel="sigmoid"),
    "tree": functools.partial(tree.DecisionTreeRegressor, random_state=0),
    "forest": functools.partial(ensemble.RandomForestRegressor, 10, random_state=0),
    "gradient boosting": functools.partial(ensemble.GradientBoostingRegressor, n_estimators=10, random_state=0),
    "mlp": functools.partial(neural_network.MLPRegressor, hidden_layer_sizes=(8,), max_iter=30, random_state=0),
    "k-NN": neighbors.KNeighborsRegressor,
}


@functools.cache
def _data(classes: int) -> tuple[np.ndarray, np.ndarray]:
    if not classes:
        x, y = make_regression(120, 6, random_state=0)
        return x.astype("float32"), y / 100
    x, y = make_classification(120, 6, n_informative=5, n_redundant=0, n_classes=classes, random_state=0)
    return x.astype("float32"), y


def _agree(made: Any, x: np.ndarray, y: np.ndarray, tolerance: float = 1e-4, rows: int = 13) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = to_onnx(made.fit(x, y), x[:1])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (name,) = (i.name for i in session.get_inputs())
    wanted = session.run(None, {name: x[:rows]})
    mod, params = relay.frontend.from_onnx(model, {name: (rows, x.shape[1])})
    result = relay.create_executor("debug", mod).evaluate()(x[:rows], **params)
    found = [result.numpy()] if isinstance(result, tvm.nd.NDArray) else [part.numpy() for part in result]
    for got, want in zip(found, wanted, strict=True):
        array = np.array([list(row.values()) for row in want]) if isinstance(want, list) else want  # what ZipMap makes
        assert got.shape == array.shape
        np.testing.assert_allclose(got, array, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_gives_onnx_runtime_s_answers(name: str, classes: int) -> None:
    _agree(CLASSIFIERS[name](), *_data(classes))


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_regressor_gives_onnx_runtime_s_answers(name: str) -> None:
    _agree(REGRESSORS[name](), *_data(0))


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_of_support_vectors_are_those_that_onnx_runtime_approaches(classes: int) -> None:
    """ONNX Runtime stops 0.005 before the solution."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _agree(svm.SVC(probability=True, random_state=0), *_data(classes), tolerance=5e-3)


def test_missing_values_are_replaced() -> None:
    x, y = _data(3)
    x = np.where(np.arange(x.size).reshape(x.shape) % 7 == 0, np.nan, x).astype("float32")
    _agree(make_pipeline(impute.SimpleImputer(), LOGISTIC()), x, y)


@pytest.mark.parametrize(
    "encoder", [lambda: preprocessing.OneHotEncoder(handle_unknown="ignore"), preprocessing.OrdinalEncoder]
)
def test_categories_that_are_numbers_are_encoded(encoder: Any) -> None:
    x = np.random.default_rng(0).integers(0, 4, (120, 3))
    _agree(make_pipeline(encoder(), tree.DecisionTreeClassifier(random_state=0)), x, _data(3)[1])


def test_a_compiled_forest_gives_onnx_runtime_s_answers() -> None:
    x, y = _data(3)
    model = to_onnx(ensemble.RandomForestClassifier(10, random_state=0).fit(x, y), x[:1], options={"zipmap": False})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for rows in (1, 50):
        wanted = session.run(None, {"X": x[:rows]})
        mod, params = relay.frontend.from_onnx(model, {"X": (rows, 6)})
        found = relay.create_executor("graph", mod).evaluate()(x[:rows], **params)
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)


def test_a_forest_takes_as_many_rows_as_there_are_at_run_time() -> None:
    x, y = _data(3)
    model = to_onnx(ensemble.RandomForestClassifier(5, random_state=0).fit(x, y), x[:1], options={"zipmap": False})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    mod, _ = relay.frontend.from_onnx(model, freeze_params=True)
    run = relay.create_executor("vm", mod).evaluate()
    for rows in (1, 3, 40):
        for got, want in zip(run(x[:rows]), session.run(None, {"X": x[:rows]}), strict=True):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)
