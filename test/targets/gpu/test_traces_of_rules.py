"""Rules of target spirv that are schedules of primitives: their printed traces can be pasted back and run."""

from __future__ import annotations

import numpy as np
import pytest
from devices import needs_vulkan
from gpu_traces import MODELS, compile_both

import mirlo


@pytest.mark.sample(0)
@needs_vulkan()
@pytest.mark.parametrize("name", MODELS)
def test_traces_of_rules_make_the_same_code(name: str) -> None:
    ours, theirs, arrays = compile_both(name, "spirv")
    assert ours.artifact.code == theirs.artifact.code
    expected = mirlo.compile(MODELS[name](), tune=False)(*arrays)
    np.testing.assert_allclose(theirs(*arrays), expected, rtol=2e-6, atol=2e-6)
