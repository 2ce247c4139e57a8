"""Rules of target nvvm that are schedules of primitives: their printed traces can be pasted back and edited."""

from __future__ import annotations

import re

import numpy as np
import pytest
from gpu_traces import MODELS, arrays_of, compile_both

import mirlo
from mirlo.testing.ptx.driver import emulated
from mirlo.tools.explain.model import explain_model

TARGET = "nvvm{chip=sm_80}"


@pytest.mark.parametrize("name", MODELS)
def test_traces_of_rules_make_the_same_code(name: str) -> None:
    ours, theirs, arrays = compile_both(name, TARGET)
    assert ours.artifact.code == theirs.artifact.code
    with emulated("sm_80", races=True):
        results = ours(*arrays)
    np.testing.assert_allclose(results, mirlo.compile(MODELS[name](), tune=False)(*arrays), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    ("choices", "accesses"), [({"width": 2}, ".v2.b32"), ({"width": 1}, ".b32"), ({"runs": 2}, ".v4.b32")]
)
def test_choices_of_a_caller(choices: dict[str, int], accesses: str) -> None:
    model = MODELS["several outputs"]()
    (kernel,) = explain_model(model, target=TARGET, tune=False).kernels
    given = {kernel.name: lambda s: s.apply_rule("wide_points", **choices)}
    compiled = mirlo.compile(model, TARGET, schedules=given, cache=False, tune=False)
    stores = re.findall(r"st\.global(\.\S+)", compiled.artifact.code.decode())
    assert stores == [accesses] * choices.get("runs", 1)
    x, b = arrays_of(model)
    with emulated("sm_80", races=True):
        found = compiled(x, b)
    np.testing.assert_allclose(found, (x + b) / (1 + np.exp(-x - b)), rtol=1e-5, atol=1e-6)
