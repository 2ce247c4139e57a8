"""ONNX files as parameter files, for IR that was saved without its weights."""

from __future__ import annotations

from pathlib import Path

from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.frontends.onnx.model import load
from mirlo.runtime.errors import ParameterError
from mirlo.runtime.params import ParameterStore


def read_parameters(path: Path, store: ParameterStore) -> None:
    """Add the tensors of a model's main graph to a store, as views of the file."""
    try:
        model = load(path)
        for name, tensor in model.content.parameters.items():
            if name and name not in store:
                packed = model.weights.packed(tensor)
                array = model.weights.array(tensor, name) if packed is None else packed[0]
                store.add(name, array, source=path)
    except OnnxImportError as error:
        raise ParameterError(str(error)) from None
