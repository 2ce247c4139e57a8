"""Estimators of scikit-learn, converted by skl2onnx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .entry import CONVERTED, DYNAMIC, Entry, Input

FEATURES = 8
ROWS = Input("X", ("rows", FEATURES))


def data(classes: int = 3) -> Any:
    """Return 200 rows of features, and their labels; with 0 classes, numbers."""
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, FEATURES)).astype(np.float32)
    value = x @ rng.standard_normal(FEATURES) + np.sin(3 * x[:, 0])
    if not classes:
        return x, value.astype(np.float32)
    return x, np.digitize(value, np.quantile(value, np.arange(1, classes) / classes))


def _estimator(module: str, name: str, label: str = "", classes: int = 3, zipmap: bool = False, counts: bool = False,
               **options: Any) -> Entry:  # fmt: skip
    def make() -> bytes:
        import importlib

        from skl2onnx import to_onnx
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import MinMaxScaler

        model = getattr(importlib.import_module(f"sklearn.{module}"), name)(**options)
        if counts:
            model = make_pipeline(MinMaxScaler(clip=True), model)
        x, y = data(classes)
        model.fit(x, y)
        settings = (
            {}
            if zipmap or module == "mixture" or not hasattr(model, "predict_proba")
            else {id(model): {"zipmap": False}}
        )
        converted: bytes = to_onnx(model, x[:1], options=settings or None).SerializeToString()
        return converted

    return Entry(label or name, "sklearn", make, (ROWS,), exporters=(CONVERTED,), shapes=(DYNAMIC,))


def _pipeline(label: str, build: Callable[[], Any], classes: int = 3) -> Entry:
    def make() -> bytes:
        from skl2onnx import to_onnx

        x, y = data(classes)
        converted: bytes = to_onnx(build().fit(x, y), x[:1]).SerializeToString()
        return converted

    return Entry(label, "sklearn", make, (ROWS,), exporters=(CONVERTED,), shapes=(DYNAMIC,))


def _union() -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import KBinsDiscretizer, StandardScaler

    parts = [("scale", StandardScaler(), [0, 1, 2]), ("bins", KBinsDiscretizer(4), [3, 4]), ("pca", PCA(2), [5, 6, 7])]
    return make_pipeline(ColumnTransformer(parts), LogisticRegression())


def _stack() -> Any:
    from sklearn.ensemble import RandomForestClassifier, StackingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB

    parts = [("forest", RandomForestClassifier(5, random_state=0)), ("bayes", GaussianNB())]
    return StackingClassifier(parts, LogisticRegression())


def _vote() -> Any:
    from sklearn.ensemble import VotingRegressor
    from sklearn.linear_model import Ridge
    from sklearn.tree import DecisionTreeRegressor

    return VotingRegressor([("ridge", Ridge()), ("tree", DecisionTreeRegressor(max_depth=4))])


ENTRIES = (
    _estimator("linear_model", "LinearRegression", classes=0),
    _estimator("linear_model", "Ridge", classes=0),
    _estimator("linear_model", "Lasso", classes=0),
    _estimator("linear_model", "BayesianRidge", classes=0),
    _estimator("linear_model", "LogisticRegression"),
    _estimator("linear_model", "LogisticRegression", "LogisticRegression_zipmap", zipmap=True),
    _estimator("linear_model", "LogisticRegression", "LogisticRegression_binary", classes=2),
    _estimator("linear_model", "SGDClassifier", loss="log_loss"),
    _estimator("linear_model", "RidgeClassifier"),
    _estimator("linear_model", "Perceptron"),
    _estimator("svm", "SVC", probability=True),
    _estimator("svm", "SVC", "SVC_poly", kernel="poly"),
    _estimator("svm", "SVR", classes=0),
    _estimator("svm", "LinearSVC"),
    _estimator("svm", "OneClassSVM"),
    _estimator("svm", "NuSVC"),
    _estimator("neighbors", "KNeighborsClassifier"),
    _estimator("neighbors", "KNeighborsRegressor", classes=0),
    _estimator("neighbors", "RadiusNeighborsRegressor", classes=0, radius=4.0),
    _estimator("naive_bayes", "GaussianNB"),
    _estimator("naive_bayes", "BernoulliNB"),
    _estimator("naive_bayes", "MultinomialNB", counts=True),
    _estimator("naive_bayes", "ComplementNB", counts=True),
    _estimator("tree", "DecisionTreeClassifier"),
    _estimator("tree", "DecisionTreeRegressor", classes=0),
    _estimator("ensemble", "RandomForestClassifier", n_estimators=20, random_state=0),
    _estimator("ensemble", "RandomForestRegressor", classes=0, n_estimators=20, random_state=0),
    _estimator("ensemble", "ExtraTreesClassifier", n_estimators=20, random_state=0),
    _estimator("ensemble", "GradientBoostingClassifier", n_estimators=20),
    _estimator("ensemble", "GradientBoostingRegressor", classes=0, n_estimators=20),
    _estimator("ensemble", "HistGradientBoostingClassifier", max_iter=10),
    _estimator("ensemble", "AdaBoostClassifier", n_estimators=10),
    _estimator("ensemble", "BaggingRegressor", classes=0),
    _estimator("ensemble", "IsolationForest", n_estimators=20),
    _estimator("neural_network", "MLPClassifier", max_iter=50),
    _estimator("neural_network", "MLPRegressor", classes=0, max_iter=50),
    _estimator("gaussian_process", "GaussianProcessRegressor", classes=0),
    _estimator("gaussian_process", "GaussianProcessClassifier", classes=2),
    _estimator("discriminant_analysis", "LinearDiscriminantAnalysis"),
    _estimator("discriminant_analysis", "QuadraticDiscriminantAnalysis"),
    _estimator("cluster", "KMeans", n_clusters=4, n_init=1),
    _estimator("mixture", "GaussianMixture", n_components=3),
    _estimator("decomposition", "PCA", n_components=4),
    _estimator("decomposition", "TruncatedSVD", n_components=4),
    _estimator("preprocessing", "StandardScaler"),
    _estimator("preprocessing", "RobustScaler"),
    _estimator("preprocessing", "Normalizer"),
    _estimator("preprocessing", "PolynomialFeatures", degree=3),
    _estimator("preprocessing", "KBinsDiscretizer"),
    _estimator("preprocessing", "PowerTransformer"),
    _estimator("preprocessing", "Binarizer"),
    _estimator("impute", "SimpleImputer"),
    _estimator("feature_selection", "SelectKBest", k=4),
    _pipeline("ColumnTransformer", _union),
    _pipeline("StackingClassifier", _stack),
    _pipeline("VotingRegressor", _vote, 0),
)  # fmt: skip
