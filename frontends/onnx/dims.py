"""Sizes given by dim name, for all inputs of a model at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirlo.dialects.core.input_sizes import sized_shapes
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx import model as models
from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.frontends.onnx.inputs import Shapes, graph_inputs, identifier, input_types


def shapes_with_dims(
    model: models.Source, shapes: Shapes | None, dims: Mapping[str, int]
) -> dict[str, Sequence[int | str]]:
    """Return input shapes in which these dims have these sizes, in addition to `shapes`."""
    loaded = models.load(model)
    inputs = graph_inputs(loaded.content.graph, shapes)
    declared = _tensors(input_types(inputs, None, loaded.name))
    given = _tensors(input_types(inputs, shapes, loaded.name))
    try:
        return sized_shapes(loaded.name, declared, given, dims, {text: identifier(text) for text in dims})
    except ValueError as error:
        raise OnnxImportError(str(error)) from None


def _tensors(types: Mapping[str, object]) -> dict[str, TensorType]:
    return {name: kind for name, kind in types.items() if isinstance(kind, TensorType)}
