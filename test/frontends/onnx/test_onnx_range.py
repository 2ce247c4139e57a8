"""Ranges of 16-bit floats, whose elements are computed in another type since version 27 of ONNX."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_models import make_model, node

import mirlo
from mirlo.testing import oracle

HALVES = {"f16": (TensorProto.FLOAT16, np.float16), "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}


@oracle.needs_onnx(1, 22)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("stash", [None, TensorProto.FLOAT, TensorProto.DOUBLE])
@pytest.mark.parametrize("is_constant", [True, False])
def test_elements_are_rounded_once(dtype: str, stash: int | None, is_constant: bool) -> None:
    code, numpy_type = HALVES[dtype]
    bounds = {name: np.array(number, numpy_type) for name, number in (("a", 0.1), ("b", 40.0), ("c", 0.1))}
    attributes = {} if stash is None else {"stash_type": stash}
    inputs = {} if is_constant else {name: (code, []) for name in bounds}
    model = make_model([node("Range", "a b c", "y", **attributes)], inputs, ["y"], {}, opset=27)
    for name, array in bounds.items() if is_constant else ():
        model.graph.initializer.append(helper.make_tensor(name, code, [], array.tobytes(), raw=True))
    feed = {} if is_constant else bounds
    (wanted,) = ReferenceEvaluator(model).run(None, feed)
    np.testing.assert_array_equal(np.asarray(mirlo.compile(model, cache=False)(**feed)), wanted)


@pytest.mark.parametrize("activations", [["Tanh", "Tanh"], ["Relu", "Tanh"]])
def test_the_second_activation_of_one_direction_is_not_used(activations: list[str]) -> None:
    """The default in the schema of RNN names both directions."""
    random = np.random.default_rng(0)
    weights = {
        "w": random.standard_normal((1, 4, 2)).astype(np.float32),
        "r": random.standard_normal((1, 4, 4)).astype(np.float32),
    }
    x = random.standard_normal((1, 3, 2)).astype(np.float32)

    def run(names: list[str]) -> np.ndarray:
        layer = node("RNN", "x w r", "_ y", hidden_size=4, activations=names)
        model = make_model([layer], {"x": (TensorProto.FLOAT, [1, 3, 2])}, ["y"], weights, opset=21)
        return np.asarray(mirlo.compile(model, cache=False)(x=x))

    np.testing.assert_array_equal(run(activations), run(activations[:1]))
