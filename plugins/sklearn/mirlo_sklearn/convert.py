"""Conversion of a fitted estimator to an ONNX model, by skl2onnx."""

from __future__ import annotations

import warnings
from collections.abc import Container
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from mirlo.extend.frontend import ConvertedModel, ExampleInputs, FrontendError, require_package
from mirlo_sklearn.compiled import CompiledEstimator, Rows
from mirlo_sklearn.libraries import register_libraries

if TYPE_CHECKING:
    import onnx

MAX_MESSAGE = 300
"""Most characters of a converter's message that are shown."""


class SklearnImportError(FrontendError):
    """An estimator that cannot be converted."""


def convert_estimator(model: object, example: ExampleInputs) -> ConvertedModel:
    """Convert an estimator; the example is rows of data, whose type decides the type of computation."""
    if not hasattr(model, "get_params"):
        kind = f"{type(model).__module__.partition('.')[0]}.{type(model).__name__}"
        raise SklearnImportError(
            f"a {kind} is no estimator with scikit-learn's interface. Of xgboost, compile an XGBClassifier or "
            "XGBRegressor, into which `load_model` reads what a Booster saved; of lightgbm, an LGBMClassifier or "
            "LGBMRegressor"
        )
    if example.kwargs or example.dynamic_shapes is not None or example.args is None or len(example.args) != 1:
        raise SklearnImportError("an estimator needs rows of its data as an example: mirlo.compile(estimator, X[:1])")
    rows = example.args[0]
    if not hasattr(rows, "shape") or len(rows.shape) != 2 or rows.shape[0] < 1:
        raise SklearnImportError(
            f"the example must be rows of data, an array or a DataFrame of two dims, found {_describe(rows)}"
        )
    require_package("skl2onnx", "sklearn")
    register_libraries(model)
    proto = _to_onnx(model, rows)
    return ConvertedModel(proto, lambda executable: CompiledEstimator(executable, model, rows))


def _to_onnx(model: object, rows: Rows) -> onnx.ModelProto:
    """Return the ONNX model, in f64 for data in f64 if the converter supports it."""
    if isinstance(rows, np.ndarray) and rows.dtype == np.float64:
        try:
            return _converted(model, rows)
        except SklearnImportError as problem:
            narrow = _converted(model, rows.astype(np.float32))
            warnings.warn(
                f"{type(model).__name__} has no form in f64 and is computed in f32: {problem}",
                stacklevel=5,
            )
            return narrow
    return _converted(model, rows)


def _converted(model: object, rows: Rows) -> onnx.ModelProto:
    import onnx
    import skl2onnx
    from sklearn.base import is_classifier

    wanted: dict[str, bool] = {}
    if is_classifier(model):
        wanted["zipmap"] = False
        if not hasattr(model, "predict_proba"):
            wanted["raw_scores"] = True
    known = _known_options(model)
    options = {name: value for name, value in wanted.items() if name in known}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = skl2onnx.to_onnx(
                model, rows[:1], options={id(model): options} if options else None, target_opset=_opsets(skl2onnx)
            )
            # The converter declares types that it does not check.
            onnx.shape_inference.infer_shapes(result, check_type=True, strict_mode=True)
    except Exception as error:
        raise SklearnImportError(f"skl2onnx cannot convert {type(model).__name__}: {_brief(error)}") from error
    return result


def _known_options(model: object) -> Container[str]:
    """Return the names of the options that an estimator's converter has."""
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common._registration import get_converter

    alias = sklearn_operator_name_map.get(type(model))
    return (get_converter(alias).get_allowed_options() or ()) if alias is not None else ()


def _opsets(skl2onnx: ModuleType) -> dict[str, int]:
    """Return the operator sets to convert to; not all estimators support the newest tree ensembles."""
    return {"": min(skl2onnx.get_latest_tested_opset_version(), 21), "ai.onnx.ml": 3}


def _describe(rows: object) -> str:
    shape = getattr(rows, "shape", None)
    return f"a {type(rows).__name__}" + (f" of shape {tuple(shape)}" if shape is not None else "")


def _brief(error: Exception) -> str:
    """Return the beginning of a message, since converters quote whole models."""
    text = " ".join(str(error).split())
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}..."
