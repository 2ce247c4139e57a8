"""The benchmark models in sizes that a software device computes in seconds: small images, one layer."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.utils
from commands import benchmark_model

from mirlo.benchmarks.gpu.build.models import reference

__all__ = ["reduced", "reference"]

IMAGE = 64
"""Pixels of an image's side, for networks of convolutions."""
LAST = {"bert_base": "layer_norm_2", "gpt2": "layer_norm_2", "vit_base": "layer_norm_2"}
"""What a transformer is cut off after: its first layer."""


def reduced(name: str, folder: Path) -> Path:
    """Return a benchmark model, reduced, as a file."""
    model = onnx.load(benchmark_model(name))
    if name in LAST:
        extractor = onnx.utils.Extractor(model)
        model = extractor.extract_model([value.name for value in model.graph.input], [LAST[name]])
    else:
        del model.graph.value_info[:]
        for dim in model.graph.input[0].type.tensor_type.shape.dim[2:]:
            dim.dim_value = IMAGE
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    return path
