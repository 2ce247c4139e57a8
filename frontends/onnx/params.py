"""ONNX files as parameter files, for IR that was saved without its weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.frontends.onnx.model import LoadedModel, load
from mirlo.runtime.errors import ParameterError
from mirlo.runtime.params import ParameterStore, register_reader

if TYPE_CHECKING:
    import onnx


def file_tensors(model: LoadedModel) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yield tensors of the main graph that become parameters under their own name: initializers, Constant nodes."""
    for tensor in model.proto.graph.initializer:
        yield tensor.name, tensor
    for node in model.proto.graph.node:
        if node.op_type == "Constant" and len(node.output) == 1:
            for attribute in node.attribute:
                if attribute.name == "value" and attribute.HasField("t"):
                    yield node.output[0], attribute.t


def read_parameters(path: Path, store: ParameterStore) -> None:
    """Add the tensors of a model's main graph to a store, as views of the file."""
    try:
        model = load(path)
        for name, tensor in file_tensors(model):
            if name and name not in store:
                packed = model.weights.packed(tensor)
                array = model.weights.array(tensor, name) if packed is None else packed[0]
                store.add(name, array, source=path)
    except OnnxImportError as error:
        raise ParameterError(str(error)) from None


register_reader(".onnx", read_parameters)
