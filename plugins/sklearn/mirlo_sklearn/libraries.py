"""Converters for estimators of other libraries, also as steps of a pipeline."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from mirlo.extend.frontend import require_package


@dataclass(frozen=True)
class _Converter:
    """A class of estimators, and the location of its converter."""

    library: str
    estimator: str
    module: str
    function: str
    is_classifier: bool


_LIGHTGBM = "onnxmltools.convert.lightgbm.operator_converters.LightGbm", "convert_lightgbm"
_XGBOOST = "onnxmltools.convert.xgboost.operator_converters.XGBoost", "convert_xgboost"
_CONVERTERS = (
    _Converter("lightgbm", "LGBMClassifier", *_LIGHTGBM, True),
    _Converter("lightgbm", "LGBMRegressor", *_LIGHTGBM, False),
    _Converter("xgboost", "XGBClassifier", *_XGBOOST, True),
    _Converter("xgboost", "XGBRegressor", *_XGBOOST, False),
)


def register_libraries(model: object) -> None:
    """Register the converters of the libraries whose estimators a model consists of."""
    used = set(_libraries_in(model, set()))
    for converter in _CONVERTERS:
        if converter.library in used:
            _register(converter)


def _libraries_in(value: object, seen: set[int]) -> Iterator[str]:
    """Yield the packages of an estimator and of those among its parameters."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, (list, tuple)):
        for element in value:
            yield from _libraries_in(element, seen)
    elif hasattr(value, "get_params") and not isinstance(value, type):
        yield type(value).__module__.partition(".")[0]
        for parameter in value.get_params(deep=False).values():
            yield from _libraries_in(parameter, seen)


def _register(converter: _Converter) -> None:
    from skl2onnx import update_registered_converter
    from skl2onnx.common import shape_calculator as shapes

    require_package("onnxmltools", "sklearn")
    calculate = "calculate_linear_classifier_output_shapes"
    if not converter.is_classifier:
        calculate = "calculate_linear_regressor_output_shapes"
    update_registered_converter(
        getattr(sys.modules[converter.library], converter.estimator),
        f"{converter.library}{converter.estimator}",
        getattr(shapes, calculate),
        getattr(importlib.import_module(converter.module), converter.function),
        options={"nocl": [True, False], "zipmap": [True, False, "columns"]} if converter.is_classifier else None,
    )
