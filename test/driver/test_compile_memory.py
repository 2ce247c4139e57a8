"""The memory of a compilation: weights are packed one by one, and pages of the model's file are let go."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from memory_growth import peak_growth
from onnx_models import F32, make_model, node

import mirlo

COUNT, SIZE = 8, 1536


def save_products(path: Path, size: int) -> list[np.ndarray]:
    """Write a chain of products with constants, which are packed; return these."""
    weights = [np.random.default_rng(i).random((size, size), np.float32) / size for i in range(COUNT)]
    nodes = [node("MatMul", f"x{i} w{i}", f"x{i + 1}") for i in range(COUNT)]
    named = {f"w{i}": weight for i, weight in enumerate(weights)}
    onnx.save(make_model(nodes, {"x0": (F32, [4, size])}, [f"x{COUNT}"], named), path)
    return weights


def test_weights_are_in_memory_once(tmp_path: Path) -> None:
    """Beside the packed weights, one of them is in memory a second time, and pages of one are mapped."""

    def compile_and_run(path: Path, weights: list[np.ndarray]) -> None:
        expected = x = np.random.default_rng(9).random((4, len(weights[0])), np.float32)
        for weight in weights:
            expected = expected @ weight
        np.testing.assert_allclose(mirlo.compile(path, jobs=1, cache=False)(x), expected, rtol=1e-4)

    few = save_products(tmp_path / "few.onnx", 32)
    compile_and_run(tmp_path / "few.onnx", few)  # imports
    base = peak_growth(lambda: compile_and_run(tmp_path / "few.onnx", few))
    weights = save_products(tmp_path / "many.onnx", SIZE)
    growth = peak_growth(lambda: compile_and_run(tmp_path / "many.onnx", weights)) - base
    size = sum(weight.nbytes for weight in weights)
    assert size < growth < 1.6 * size
