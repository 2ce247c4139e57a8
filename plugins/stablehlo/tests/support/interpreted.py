"""The reference interpreter of StableHLO, which comes with the MLIR bindings, as an oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mirlo_stablehlo.importer import import_stablehlo

import mirlo
from mirlo.extend.frontend import TensorType, dense_attribute, ir, new_context, read_dense, stablehlo


def interpreted(text: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return what the reference interpreter computes."""
    extension = stablehlo()
    context = new_context()
    extension.register_dialect(context)
    extension.register_interpreter_dialect(context)
    with context, ir.Location.unknown():
        module = ir.Module.parse(text)
        (main,) = (op for op in module.body.operations if op.operation.attributes["sym_name"].value == "main")
        kinds = [TensorType.from_mlir(kind) for kind in main.type.inputs]
        given = [dense_attribute(array, kind) for array, kind in zip(arrays, kinds, strict=True) if kind is not None]
        made = extension.eval_module(module, given)
        return [read_dense(value, _type(value)) for value in made]


def _type(value: Any) -> TensorType:
    found = TensorType.from_mlir(value.type)
    assert found is not None
    return found


def require_equal(text: str, *arrays: np.ndarray, tolerance: float = 1e-5) -> None:
    """Compile a program and compare its results with those of the interpreter."""
    module, store = import_stablehlo(text)
    found = mirlo.compile(module, params=store, cache=False, jobs=1)(*arrays)
    wanted = interpreted(text, arrays)
    for ours, theirs in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        if ours.dtype.kind in "biu":
            np.testing.assert_array_equal(ours, theirs)
        else:
            # Sums of terms that cancel are as near as the terms are, not as their sum.
            scale = max(1.0, float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0)))
            np.testing.assert_allclose(
                ours.astype(np.float64), theirs.astype(np.float64), rtol=tolerance, atol=tolerance * scale
            )
