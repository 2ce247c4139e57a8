"""Numbers that nodes leave out are those of the standard."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_models import make_model, node

import mirlo


@pytest.mark.parametrize("operator", ["Selu", "HardSigmoid", "LeakyRelu"])
def test_numbers_that_a_node_leaves_out_are_those_of_the_standard_in_f64_too(operator: str) -> None:
    model = make_model([node(operator, "x", "y")], {"x": (onnx.TensorProto.DOUBLE, [5])}, ["y"], opset=21)
    x = np.array([-3.0, -1.5, -0.25, 0.5, 2.0])
    expected = ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(mirlo.compile(model)(x), expected, rtol=1e-13)
