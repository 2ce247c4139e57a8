"""Boosted trees of LightGBM and XGBoost, converted by onnxmltools."""

from __future__ import annotations

from typing import Any

from .entry import CONVERTED, DYNAMIC, Entry
from .sklearn import FEATURES, ROWS, data


def _boosted(library: str, estimator: str, label: str, classes: int = 3, **options: Any) -> Entry:
    def make() -> bytes:
        import importlib

        from onnxmltools import convert
        from onnxmltools.convert.common.data_types import FloatTensorType

        x, y = data(classes)
        model = getattr(importlib.import_module(library), estimator)(**options).fit(x, y)
        types = [("X", FloatTensorType([None, FEATURES]))]
        extra = {"zipmap": False} if library == "lightgbm" and not label.endswith("zipmap") else {}
        result: bytes = getattr(convert, f"convert_{library}")(model, initial_types=types, **extra).SerializeToString()
        return result

    return Entry(label, "trees", make, (ROWS,), exporters=(CONVERTED,), shapes=(DYNAMIC,))


LIGHT = {"n_estimators": 20, "verbose": -1, "n_jobs": 1, "min_child_samples": 5}
XG = {"n_estimators": 20, "n_jobs": 1, "max_depth": 4}

ENTRIES = (
    _boosted("lightgbm", "LGBMClassifier", "lightgbm_classifier", **LIGHT),
    _boosted("lightgbm", "LGBMClassifier", "lightgbm_zipmap", **LIGHT),
    _boosted("lightgbm", "LGBMClassifier", "lightgbm_binary", 2, **LIGHT),
    _boosted("lightgbm", "LGBMRegressor", "lightgbm_regressor", 0, **LIGHT),
    _boosted("lightgbm", "LGBMRegressor", "lightgbm_quantile", 0, objective="quantile", **LIGHT),
    _boosted("lightgbm", "LGBMClassifier", "lightgbm_dart", boosting_type="dart", **LIGHT),
    _boosted("xgboost", "XGBClassifier", "xgboost_classifier", **XG),
    _boosted("xgboost", "XGBClassifier", "xgboost_binary", 2, **XG),
    _boosted("xgboost", "XGBRegressor", "xgboost_regressor", 0, **XG),
    _boosted("xgboost", "XGBRFRegressor", "xgboost_forest", 0, **XG),
)
