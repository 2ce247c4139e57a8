"""Why models take longer than ONNX Runtime, as profiles show: written by hand, read by the page of results."""

from __future__ import annotations

REASONS = {
    "multimodal/Wav2Vec2ForCTC.dynamo": "attention with a mask that is expanded is not fused: its scores are stored",
    "sklearn/LogisticRegression_zipmap": "dictionaries of ZipMap are made in Python",
    "trees/lightgbm_zipmap": "dictionaries of ZipMap are made in Python",
    "sklearn/SVC_poly": "dictionaries of ZipMap are made in Python",
}
"""By the beginning of a model's name; the first that fits counts."""


def reason_of(model: str) -> str:
    """Return why a model is slow, or that it was not examined."""
    return next((reason for start, reason in REASONS.items() if model.startswith(start)), "not examined")
