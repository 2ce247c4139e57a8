"""The graphs of the benchmark models with zero weights, all backed by one sparse file."""

from __future__ import annotations

import math
from pathlib import Path

import onnx

from mirlo.tools.samples import GRAPHS, MARK


def weightless_model(name: str, folder: Path) -> Path:
    """Return the model `name` as a file in a folder."""
    model = onnx.load(GRAPHS / f"{name}.onnx")
    largest = 0
    for tensor in model.graph.initializer:
        if tensor.doc_string.startswith(MARK):
            size = 4 * math.prod(tensor.dims)
            largest = max(largest, size)
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", "zeros.bin"), ("offset", "0"), ("length", str(size))):
                tensor.external_data.add(key=key, value=value)
    with open(folder / "zeros.bin", "wb") as file:
        file.truncate(largest)
    path = folder / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    return path
