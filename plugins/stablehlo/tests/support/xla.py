"""XLA as an oracle for StableHLO programs that JAX does not write."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from mirlo.extend.frontend import ir, new_context, stablehlo


def run_xla(text: str, arrays: list[np.ndarray], results: list[tuple[tuple[int, ...], str]]) -> list[np.ndarray]:
    """Return what XLA computes for a program whose results have these shapes and types."""
    import jax
    from jax import export

    specs = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
    same: Any = jax.jit(lambda *_: [jax.numpy.zeros(shape, kind) for shape, kind in results], keep_unused=True)
    with jax.enable_x64(True):
        exported = dataclasses.replace(export.export(same)(*specs), mlir_module_serialized=_portable(text))
        return [np.asarray(made) for made in jax.jit(exported.call)(*arrays)]


def _portable(text: str) -> bytes:
    extension = stablehlo()
    context = new_context()
    extension.register_dialect(context)
    with context:
        made: bytes = extension.serialize_portable_artifact(ir.Module.parse(text), extension.get_minimum_version())
    return made
