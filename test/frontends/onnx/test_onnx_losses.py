"""Losses in every operator set, their reductions, weights and ignored classes, compared with f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_models import F32, I64, make_model, node

import mirlo

CLASSES = 7


def _expected(x: np.ndarray, t: np.ndarray, w: np.ndarray | None, reduction: str, ignored: int | None) -> np.ndarray:
    """Return a loss of logarithms of probabilities, in f64."""
    is_read = np.ones(t.shape, bool) if ignored is None else t != ignored
    of = np.where(is_read, t, 0)
    weight = (np.ones(CLASSES) if w is None else w.astype(np.float64))[of] * is_read
    loss = -np.take_along_axis(x, of[:, None], 1)[:, 0] * weight
    return {"none": loss, "sum": loss.sum(), "mean": loss.sum() / weight.sum()}[reduction]


@pytest.mark.sample(3)
@pytest.mark.parametrize("opset", [12, 13, 18, 22])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("operator", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_losses(operator: str, reduction: str, opset: int) -> None:
    rng = np.random.default_rng(opset)
    for scale, ignored, weighted, dims in (
        (1, None, True, (3,)), (1e4, 2, False, ()), (1e30, None, False, (2, 2)), (1, -1, True, (3,)),
    ):  # fmt: skip
        x = (scale * rng.standard_normal((5, CLASSES, *dims))).astype(np.float32)
        t = rng.integers(0, CLASSES, (5, *dims))
        t.reshape(-1)[0] = 0 if ignored is None else ignored
        w = (0.5 + rng.random(CLASSES)).astype(np.float32) if weighted else None
        given: dict[str, Any] = {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored})
        inputs = {"x": (F32, x.shape), "t": (I64, t.shape)} | ({"w": (F32, w.shape)} if w is not None else {})
        model = make_model([node(operator, " ".join(inputs), "y", **given)], inputs, ["y"], opset=opset)
        wide = x.astype(np.float64)
        if operator.startswith("Softmax"):
            shifted = wide - wide.max(1, keepdims=True)
            wide = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
        expected = _expected(wide, t, w, reduction, ignored)
        found = mirlo.compile(model, cache=False).run({"x": x, "t": t, **({"w": w} if w is not None else {})})["y"]
        np.testing.assert_allclose(found, expected, rtol=3e-6, atol=3e-6 * np.abs(wide).max())
