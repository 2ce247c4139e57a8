"""Names must be text. The protobuf library hands over names that are not valid UTF-8 as bytes, in damaged files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mirlo.frontends.onnx.errors import OnnxImportError


def require_text(model: Any, what: str) -> None:
    """Refuse a ModelProto in which a name that the import reads is not text."""
    for name in _model_names(model):
        if not isinstance(name, str):
            raise OnnxImportError(f"{what}: the model is damaged: the name {name!r} is not text (UTF-8)")


def _model_names(model: Any) -> Iterator[Any]:
    yield from (entry.domain for entry in model.opset_import)
    yield from _graph_names(model.graph)
    for function in model.functions:
        yield from (function.name, function.domain, function.overload)
        yield from (*function.input, *function.output, *function.attribute)
        yield from (entry.domain for entry in function.opset_import)
        yield from (attribute.name for attribute in function.attribute_proto)
        yield from _node_names(function.node)


def _graph_names(graph: Any) -> Iterator[Any]:
    yield graph.name
    for value in (*graph.input, *graph.output):
        yield value.name
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
    for tensor in graph.initializer:
        yield tensor.name
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))
    yield from _node_names(graph.node)


def _node_names(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, node.overload, *node.input, *node.output)
        for attribute in node.attribute:
            yield from (attribute.name, attribute.ref_attr_name)
            if attribute.HasField("g"):
                yield from _graph_names(attribute.g)
            for graph in attribute.graphs:
                yield from _graph_names(graph)
            if attribute.HasField("t"):
                yield attribute.t.name
                yield from (text for entry in attribute.t.external_data for text in (entry.key, entry.value))
