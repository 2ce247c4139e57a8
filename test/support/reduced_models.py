"""The benchmark models in sizes that a software device computes in seconds: small images, one layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.utils
import onnxruntime
from commands import benchmark_model

IMAGE = 64
"""Pixels of an image's side, for networks of convolutions."""
LAST = {"bert_base": "layer_norm_2", "gpt2": "layer_norm_2", "vit_base": "layer_norm_2"}
"""What a transformer is cut off after: its first layer."""


def reduced(name: str, folder: Path) -> Path:
    """A benchmark model, reduced, as a file."""
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


def reference(model: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Inputs, and what ONNX Runtime makes of them."""
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    inputs = {}
    for spec in session.get_inputs():
        if spec.type == "tensor(float)":
            inputs[spec.name] = generator.standard_normal(spec.shape, dtype=np.float32)
        elif spec.name == "attention_mask":
            inputs[spec.name] = (np.arange(spec.shape[1]) < spec.shape[1] * 3 // 4).astype(np.int64)[None]
        else:
            inputs[spec.name] = generator.integers(0, 2 if spec.name == "token_type_ids" else 30000, spec.shape)
    names = [output.name for output in session.get_outputs()]
    return inputs, dict(zip(names, session.run(names, inputs), strict=True))
