"""The accelerators of the tests of `check-target`: correct ones are correct, and each fault is one."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from broken_accelerators import FAULTS, SHOWN_BY_QUANTIZED, VARIANTS, accelerator, float_network, quantized_network

import mirlo

FLOAT, QUANTIZED = float_network(), quantized_network()


def largest_error(model: onnx.ModelProto, target: str) -> float:
    """Return the largest difference to ONNX Runtime on the network."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).uniform(-2.3, 2.7, shape).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    return float(np.abs(mirlo.compile(model, f"{target},llvm", cache=False, jobs=1)(x) - wanted).max())


@pytest.mark.sample(3)
@pytest.mark.parametrize("variant", VARIANTS)
def test_correct_packages(variant: str) -> None:
    target = accelerator("", VARIANTS[variant], f"right_{variant}")
    assert largest_error(FLOAT, target) < 1e-5
    assert largest_error(QUANTIZED, target) == 0


@pytest.mark.sample(3)
@pytest.mark.parametrize("fault", SHOWN_BY_QUANTIZED)
def test_faults(fault: str) -> None:
    assert fault in FAULTS
    assert largest_error(QUANTIZED, accelerator(fault)) > 0.9
