"""Validation of names: text that is not UTF-8 is refused, unprintable characters are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.runtime.names import is_printable, terminal

if TYPE_CHECKING:
    import onnx
    from google.protobuf.message import Message

_NOT_NAMES = frozenset({"doc_string", "metadata_props"})
"""Text fields that the import never reads; exporters write several lines to them."""


def with_plain_names(model: onnx.ModelProto, what: str) -> onnx.ModelProto:
    r"""Return the ModelProto, or a copy in which every name that is not printable is replaced by an escaped one.

    Names reach messages, terminals, generated sources and pages: control characters, line breaks and direction marks
    are written as escape sequences (`\x1b`) here, once, and the model goes by these names from then on. Refuse a model
    in which a name is not text, or in which two names would become one.
    """
    plain = True
    for name in _model_names(model):
        if not isinstance(name, str):
            raise OnnxImportError(f"{what}: the model is damaged: the name {name!r} is not text (UTF-8)")
        plain = plain and is_printable(name)
    if plain:
        return model
    copy = type(model)()
    copy.CopyFrom(model)
    made: dict[str, str] = {}
    _escape(copy, made, what)
    taken = {name for name in _model_names(model) if is_printable(name)}
    for name, new in made.items():
        if new in taken:
            raise OnnxImportError(f"{what}: the model has the names '{new}' and {name!a}, which cannot be told apart")
    return copy


def _escape(message: Message, made: dict[str, str], what: str) -> None:
    """Escape the names of a message and of its submessages."""
    for field, value in message.ListFields():
        if field.name in _NOT_NAMES:
            continue
        if field.name == "external_data" and not all(is_printable(text) for e in value for text in (e.key, e.value)):
            raise OnnxImportError(f"{what}: the name of a file with external data is not printable: {value[0].value!a}")
        repeated = not isinstance(value, (str, bytes, int, float)) and not hasattr(value, "ListFields")
        if field.type == field.TYPE_STRING:
            if repeated:
                for i, text in enumerate(value):
                    value[i] = _unique_name(text, made)
            elif not is_printable(value):
                setattr(message, field.name, _unique_name(value, made))
        elif field.type == field.TYPE_MESSAGE:
            for inner in value if repeated else (value,):
                _escape(inner, made, what)


def _unique_name(text: str, made: dict[str, str]) -> str:
    return text if is_printable(text) else made.setdefault(text, terminal(text))


def _model_names(model: onnx.ModelProto) -> Iterator[str]:
    yield from (model.producer_name, model.producer_version, model.domain)
    yield from (entry.domain for entry in model.opset_import)
    yield from _graph_names(model.graph)
    for function in model.functions:
        yield from (function.name, function.domain, function.overload)
        yield from (*function.input, *function.output, *function.attribute)
        yield from (entry.domain for entry in function.opset_import)
        yield from _attribute_names(function.attribute_proto)
        yield from _node_names(function.node)
        yield from _value_names(function.value_info)


def _graph_names(graph: onnx.GraphProto) -> Iterator[str]:
    yield graph.name
    yield from _value_names(graph.input)
    yield from _value_names(graph.output)
    yield from _value_names(graph.value_info)
    yield from _tensor_names(graph.initializer)
    for sparse in graph.sparse_initializer:
        yield from _tensor_names((sparse.values, sparse.indices))
    yield from _node_names(graph.node)


def _value_names(values: Iterable[onnx.ValueInfoProto]) -> Iterator[str]:
    for value in values:
        yield value.name
        yield from _type_names(value.type)


def _type_names(kind: onnx.TypeProto) -> Iterator[str]:
    """Yield the messages with dim names of a tensor type or of a container."""
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        yield from (dim.dim_param for dim in kind.tensor_type.shape.dim)
    elif which == "sparse_tensor_type":
        yield from (dim.dim_param for dim in kind.sparse_tensor_type.shape.dim)
    elif which == "sequence_type":
        yield from _type_names(kind.sequence_type.elem_type)
    elif which == "optional_type":
        yield from _type_names(kind.optional_type.elem_type)
    elif which == "map_type":
        yield from _type_names(kind.map_type.value_type)


def _tensor_names(tensors: Iterable[onnx.TensorProto]) -> Iterator[str]:
    for tensor in tensors:
        yield tensor.name
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))


def _node_names(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, node.overload, *node.input, *node.output)
        yield from _attribute_names(node.attribute)


def _attribute_names(attributes: Iterable[onnx.AttributeProto]) -> Iterator[str]:
    for attribute in attributes:
        yield from (attribute.name, attribute.ref_attr_name)
        if attribute.HasField("g"):
            yield from _graph_names(attribute.g)
        for graph in attribute.graphs:
            yield from _graph_names(graph)
        if attribute.HasField("t"):
            yield from _tensor_names((attribute.t,))
        yield from _tensor_names(attribute.tensors)
        if attribute.HasField("tp"):
            yield from _type_names(attribute.tp)
