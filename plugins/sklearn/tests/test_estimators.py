"""`mirlo.compile` of estimators: each compiled method gives the results of the estimator's own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx", reason="needs skl2onnx: make test-sklearn")

from mirlo_sklearn.compiled import METHODS  # noqa: E402
from sklearn import (  # noqa: E402  # noqa: E402
    cluster,
    datasets,
    decomposition,
    ensemble,
    impute,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)

import mirlo  # noqa: E402
from mirlo.extend.frontend import FrontendError

X, Y = datasets.make_classification(300, 10, n_classes=3, n_informative=6, random_state=0)
WORDS = np.array(["low", "middle", "high"])[Y]
PAIR = np.stack([Y, -Y], 1)

Case = tuple[Callable[[], Any], Any]
CASES: dict[str, Case] = {
    "forest": (lambda: ensemble.RandomForestClassifier(20, random_state=0), Y),
    "forest of words": (lambda: ensemble.RandomForestClassifier(20, random_state=0), WORDS),
    "scaled logistic regression": (
        lambda: pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()), WORDS,
    ),
    "scaled forest": (
        lambda: pipeline.make_pipeline(preprocessing.StandardScaler(), ensemble.RandomForestRegressor(10)), Y,
    ),
    "gradient boosting": (lambda: ensemble.GradientBoostingRegressor(n_estimators=10), Y),
    "isolation forest": (lambda: ensemble.IsolationForest(n_estimators=20, random_state=0), None),
    "tree": (lambda: tree.DecisionTreeClassifier(max_depth=4), Y > 0),
    "svc": (lambda: svm.SVC(), Y > 0),
    "linear svc": (lambda: svm.LinearSVC(), Y),
    "neighbours": (lambda: neighbors.KNeighborsClassifier(), Y),
    "ridge": (lambda: linear_model.Ridge(), Y),
    "ridge of two": (lambda: linear_model.Ridge(), PAIR),
    "means": (lambda: cluster.KMeans(3, random_state=0), None),
    "scaler": (lambda: preprocessing.StandardScaler(), None),
    "components": (lambda: decomposition.PCA(3), None),
    "naive bayes": (lambda: naive_bayes.GaussianNB(), Y),
    "perceptron": (lambda: neural_network.MLPClassifier((8,), random_state=0), Y),
    "stack": (lambda: ensemble.StackingClassifier([("a", tree.DecisionTreeClassifier(max_depth=3))]), Y),
}  # fmt: skip


def _fitted(make: Callable[[], Any], y: Any, x: np.ndarray = X) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make().fit(x, y)


def _check(model: Any, x: np.ndarray, required: tuple[str, ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = mirlo.compile(model, x[:1], cache=False)
    offered = [name for name in METHODS if hasattr(compiled, name)]
    assert set(required) <= set(offered)
    for name in offered:
        expected, found = np.asarray(getattr(model, name)(x)), getattr(compiled, name)(x)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), name
        if expected.dtype.kind in "fc":
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max(), err_msg=name)
        else:
            np.testing.assert_array_equal(found, expected, err_msg=name)


@pytest.mark.sample(12)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES)
def test_methods_are_those_of_the_estimator(case: str, dtype: Any) -> None:
    make, y = CASES[case]
    x = X.astype(dtype)
    model = _fitted(make, y, x)
    _check(model, x, tuple(name for name in ("predict", "predict_proba") if hasattr(model, name)))


@pytest.mark.parametrize("dtype, neighbors", [(np.float32, 1), (np.float64, 3)])
def test_neighbours_impute_missing_values(dtype: Any, neighbors: int) -> None:
    r = np.random.default_rng(0)
    full = r.random((40, 4)).astype(dtype)
    some = np.where(r.random(full.shape) < 0.2, np.nan, full).astype(dtype)
    model = impute.KNNImputer(n_neighbors=neighbors).fit(some)
    compiled = mirlo.compile(model, some[:1], cache=False)
    for x in (some, some[:1], full, full[:0]):
        expected = model.transform(x) if len(x) else x
        np.testing.assert_allclose(compiled.transform(x), expected, rtol=1e-6)
    none = full.copy()
    none[3] = np.nan  # skl2onnx's model is not valid for a row without a distance, in ONNX Runtime as well
    with pytest.raises(mirlo.MirloError, match="select_scatter"):
        compiled.transform(none)


@pytest.mark.parametrize("library, classifier, regressor", [
    ("lightgbm", "LGBMClassifier", "LGBMRegressor"), ("xgboost", "XGBClassifier", "XGBRegressor"),
])  # fmt: skip
def test_libraries_of_trees(library: str, classifier: str, regressor: str) -> None:
    module = pytest.importorskip(library, reason=f"needs {library}: make test-sklearn")
    pytest.importorskip("onnxmltools", reason="needs onnxmltools: make test-sklearn")
    x = X.astype(np.float32)
    quiet = {"verbose": -1} if library == "lightgbm" else {}
    make_classifier = lambda: getattr(module, classifier)(n_estimators=10, **quiet)  # noqa: E731
    _check(_fitted(make_classifier, Y, x), x, ("predict", "predict_proba"))
    _check(_fitted(lambda: getattr(module, regressor)(n_estimators=10, **quiet), Y, x), x, ("predict",))
    if library == "lightgbm":  # XGBoost's thresholds are values of the data: rounding of the scaler decides
        piped = lambda: pipeline.make_pipeline(preprocessing.StandardScaler(), make_classifier())  # noqa: E731
        _check(_fitted(piped, Y, x), x, ("predict", "predict_proba"))


def test_computation_in_f64_that_has_no_such_form_is_announced() -> None:
    model = _fitted(*CASES["gradient boosting"])
    with pytest.warns(UserWarning, match="GradientBoostingRegressor has no form in f64 and is computed in f32"):
        mirlo.compile(model, X[:1], cache=False)


def test_what_cannot_be_compiled_is_named() -> None:
    model = _fitted(*CASES["svc"])
    compiled = mirlo.compile(model, X[:1], cache=False)
    with pytest.raises(AttributeError):
        _ = compiled.transform
    with pytest.raises(FrontendError, match=r"mirlo.compile\(estimator, X\[:1\]\)"):
        mirlo.compile(model)
    with pytest.raises(FrontendError, match="two dims, found a ndarray of shape"):
        mirlo.compile(model, X[0])

    class Own(linear_model.Ridge):  # type: ignore[misc]
        def predict(self, x: Any) -> Any:
            return super().predict(x) + 1

    with pytest.raises(FrontendError, match="cannot convert Own|does not predict what the estimator does"):
        mirlo.compile(_fitted(Own, Y), X[:1], cache=False)
