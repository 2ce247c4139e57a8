"""A compiled estimator: the methods whose results are outputs of the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import numpy as np

from mirlo.extend.frontend import CompiledModel, FrontendError, InputSpec
from mirlo.extend.runtime import ELEMENT_TYPES, numpy_dtype

if TYPE_CHECKING:
    import os

    import pandas

METHODS = ("predict", "predict_proba", "decision_function", "transform", "score_samples")
"""Methods of estimators from rows of data to arrays."""
TOLERANCE = 1e-3
"""Largest relative difference between an output and a method's result: f32 against f64."""


Rows: TypeAlias = "np.ndarray | pandas.DataFrame"


class CompiledEstimator:
    """An estimator that computes with compiled code.

    It has the methods `predict`, `predict_proba`, `decision_function`, `transform` and `score_samples` of the estimator
    if the model computes them; each was compared with the estimator's own result for the example. `executable` is the
    compiled model, `estimator` the original.
    """

    predict: Callable[[Rows], np.ndarray]

    def __init__(self, executable: CompiledModel, estimator: object, rows: Rows) -> None:
        self.executable = executable
        self.estimator = estimator
        outputs = self._outputs(rows)
        for name in METHODS:
            expected = _result(estimator, name, rows)
            if expected is None:
                continue
            output = _output_equal_to(expected, outputs)
            if output is not None:
                setattr(self, name, self._method(output, expected))
            elif name == "predict":
                raise FrontendError(
                    f"{type(estimator).__name__}: the converted model does not predict what the estimator does for the "
                    "rows of the example; its converter does not support how it is set up"
                )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the compiled model to a `.mirlo` file."""
        self.executable.save(path)

    def __getattr__(self, name: str) -> NoReturn:
        if name in METHODS and hasattr(self.__dict__.get("estimator"), name):
            kind = type(self.estimator).__name__
            raise AttributeError(f"the compiled model has no output for {name} of {kind}; call estimator.{name}")
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __repr__(self) -> str:
        return f"<CompiledEstimator of {type(self.estimator).__name__}: {self.executable!r}>"

    def _outputs(self, rows: Rows) -> list[np.ndarray]:
        results = self.executable(*self._inputs(rows))
        return [np.asarray(array) for array in (results if isinstance(results, tuple) else (results,))]

    def _inputs(self, rows: Rows) -> list[np.ndarray]:
        """Return the arrays of the inputs: all data in one, or one per column."""
        specs = self.executable.inputs
        if hasattr(rows, "columns"):
            columns = [np.asarray(rows[name]).reshape(-1, 1) for name in rows.columns]
            return [_typed(column, spec) for column, spec in zip(columns, specs, strict=True)]
        return [_typed(np.asarray(rows), specs[0])]

    def _method(self, index: int, expected: np.ndarray) -> Callable[[Rows], np.ndarray]:
        rest, dtype = expected.shape[1:], expected.dtype

        def compute(rows: Rows) -> np.ndarray:
            result = self._outputs(rows)[index]
            if not rest and result.ndim == 2 and result.shape[1] == 2:
                result = result[:, 1]
            return result.reshape(result.shape[0], *rest).astype(dtype, copy=False)

        return compute


def _result(estimator: object, name: str, rows: Rows) -> np.ndarray | None:
    """Return the result of an estimator's method for the example; None if it has no such method.

    Some estimators were fitted to f64 and refuse f32.
    """
    method = getattr(estimator, name, None)
    if method is None:
        return None
    try:
        return np.asarray(method(rows))
    except ValueError:
        if not isinstance(rows, np.ndarray) or rows.dtype != np.float32:
            raise
        return np.asarray(method(rows.astype(np.float64)))


def _typed(array: np.ndarray, spec: InputSpec) -> np.ndarray:
    """Return an array in the type of an input of numbers."""
    kind = getattr(spec, "kind", None)
    name = getattr(spec, "dtype", None) or str(kind and kind.name)
    return np.ascontiguousarray(array, numpy_dtype(name)) if name in ELEMENT_TYPES else array


def _output_equal_to(expected: np.ndarray, outputs: list[np.ndarray]) -> int | None:
    """Return the index of the output that equals these values; for two columns of scores, compare the second."""
    for index, output in enumerate(outputs):
        if expected.ndim == 1 and output.ndim == 2 and output.shape[1] == 2:
            output = output[:, 1]
        if output.size == expected.size and output.shape[:1] == expected.shape[:1] and _close(expected.ravel(), output):
            return index
    return None


def _close(expected: np.ndarray, actual: np.ndarray) -> bool:
    if expected.dtype.kind not in "fiub" or actual.dtype.kind not in "fiub":
        return bool((expected.astype(str) == actual.ravel().astype(str)).all())
    scale = max(1.0, float(np.abs(expected.astype(float)).max(initial=0)))
    return bool(
        np.allclose(actual.ravel().astype(float), expected.astype(float), rtol=TOLERANCE, atol=TOLERANCE * scale)
    )
