"""Why models take longer than ONNX Runtime, or differ from it: written by hand, read by the page of results."""

from __future__ import annotations

REASONS = {
    "sklearn/LogisticRegression_zipmap": "dictionaries of ZipMap are made in Python",
    "trees/lightgbm_zipmap": "dictionaries of ZipMap are made in Python",
    "sklearn/SVC_poly": "dictionaries of ZipMap are made in Python",
}
"""By the beginning of a model's name; the first that fits counts."""

DIFFERENCES = {
    "torchvision/keypointrcnn_resnet50_fpn.torchscript.static": (
        "rounding decides the size of a heatmap: for one box of 100 the model rounds up a width that is 81.0007 in "
        "ONNX Runtime and where the graph is computed in f64 (82 columns), and 80.9995 here (81 columns). Boxes depart "
        "from those in f64 by 2.5e-5 of the largest, ONNX Runtime's by 5.8e-6, without its optimizations by 3.0e-5"
    ),
}
"""Of models with a wrong result: what was found."""


def reason_of(model: str) -> str:
    """Return why a model is slow, or that it was not examined."""
    return next((reason for start, reason in REASONS.items() if model.startswith(start)), "not examined")


def difference_of(model: str) -> str:
    """Return what was found about a wrong result, as a sentence to append; nothing if it was not examined."""
    return f": {DIFFERENCES[model]}" if model in DIFFERENCES else ""
