"""The benchmark models in sizes that a software device computes in seconds: small images, one layer."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.utils
from commands import MODELS

from mirlo.benchmarks.gpu.build.models import reference
from mirlo.tools import samples

__all__ = ["reduced", "reference"]

IMAGE = 64
"""Pixels of an image's side, for networks of convolutions."""
LAST = {"bert_base": "layer_norm_2", "gpt2": "layer_norm_2", "vit_base": "layer_norm_2"}
"""What a transformer is cut off after: its first layer."""


def reduced(name: str) -> Path:
    """Return a benchmark model, reduced, as a file that tests share."""
    graph = samples.GRAPHS / f"{name}.onnx"
    path = samples.file_in(MODELS, f"{name}-reduced", graph.read_bytes() + Path(__file__).read_bytes())
    if path.exists():
        return path
    model = onnx.load(graph)
    if name in LAST:
        extractor = onnx.utils.Extractor(model)
        model = extractor.extract_model([value.name for value in model.graph.input], [LAST[name]])
    else:
        del model.graph.value_info[:]
        for dim in model.graph.input[0].type.tensor_type.shape.dim[2:]:
            dim.dim_value = IMAGE
    return samples.write(samples.fill_weights(model), path)
