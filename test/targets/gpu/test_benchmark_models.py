"""The five models on a GPU agree with ONNX Runtime, in sizes that a software device computes in seconds."""

from __future__ import annotations

import numpy as np
import pytest
from devices import ON_DEVICES
from reduced_models import reduced, reference

import mirlo

pytestmark = ON_DEVICES

SAMPLED = ("resnet50", "bert_base")
TOLERANCE = 1e-4
"""Largest error, relative to the largest value of the output."""


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", ["mobilenetv2", "resnet50", "vit_base", "bert_base", "gpt2"])
def test_agrees_with_onnx_runtime(target: str, name: str, whole: bool) -> None:
    if target == "spirv" and name not in SAMPLED and not whole:
        pytest.skip("in `make nightly`")
    path = reduced(name)
    inputs, expected = reference(path)
    results = mirlo.compile(path, target=target, cache=False).run(inputs)
    assert results.keys() == expected.keys()
    for output, array in expected.items():
        error = np.abs(results[output] - array).max() / np.abs(array).max()
        assert error <= TOLERANCE, f"output '{output}': relative error {error:.2e}"
