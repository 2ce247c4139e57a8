"""The rules of nvvm, by the emulator, whose 2^x is exact: the hardware's adds at most two units. Its 1/x is not."""

from __future__ import annotations

import numpy as np
import pytest
from executed import run_on_emulator

from mirlo.tools.conformance.errors import ulp_errors
from mirlo.tools.conformance.meanings import FLOAT
from mirlo.tools.conformance.samples import sample


@pytest.mark.parametrize(("name", "most"), [("exp", 2.0), ("sigmoid", 2.0), ("tanh", 2.5), ("erf", 2.8)])
def test_errors(name: str, most: float) -> None:
    with np.errstate(all="ignore"):
        x = np.concatenate([sample("f32", 4000, FLOAT[name]), np.float32([np.inf, -np.inf, np.nan, 0.0, 88.8, -103.9])])
        kind = f"tensor<{x.size}xf32>"
        text = f"""func.func @main(%0: {kind}) -> {kind} {{
  %y = "relax.{name}"(%0) : ({kind}) -> {kind}
  return %y : {kind}
}}"""
        found, _ = run_on_emulator(text, [x])
        errors = ulp_errors(found, FLOAT[name].function(x.astype(np.longdouble)), "f32")
    assert errors.max() <= most, (x[errors.argmax()], found[errors.argmax()])
