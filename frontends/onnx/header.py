"""The declarations of an ONNX file, read from the wire format without weights, nodes or libraries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TypeAlias

from mirlo.frontends.onnx.errors import DamagedModelError
from mirlo.frontends.onnx.wire import wire_fields
from mirlo.runtime.records import dataclass

_MODEL_TEXTS = {2: "producer_name", 4: "domain", 6: "description"}
_GRAPH_TEXTS = {2: "graph_name", 10: "graph_description"}
_IR_VERSION, _MODEL_VERSION, _GRAPH, _PROPERTIES = 1, 5, 7, 14
_INPUT, _OUTPUT = 11, 12
_NAME, _TYPE, _TENSOR, _ELEMENT, _SHAPE, _DIM, _SIZE, _SYMBOL = 1, 2, 1, 1, 2, 1, 1, 2
_KEY, _VALUE = 1, 2

Dims: TypeAlias = "tuple[int | str | None, ...]"


@dataclass(frozen=True)
class DeclaredPort:
    """An input or output as the file declares it."""

    element: int = 0
    """The number of the element type in ONNX's `TensorProto.DataType`; 0 for what is no tensor."""
    shape: Dims | None = None
    """Sizes, names, and None for dims without either; None for a tensor of any rank."""


@dataclass
class DeclaredModel:
    """The metadata of a model, and its inputs and outputs by name."""

    ir_version: int = 0
    model_version: int = 0
    texts: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, DeclaredPort] = field(default_factory=dict)
    outputs: dict[str, DeclaredPort] = field(default_factory=dict)


def declared_model(buffer: memoryview, what: str) -> DeclaredModel:
    """Read the declarations of a model from bytes; `what` names them in errors."""
    model = DeclaredModel()
    for entry in wire_fields(buffer, what):
        if entry.number == _IR_VERSION:
            model.ir_version = entry.value
        elif entry.number == _MODEL_VERSION:
            model.model_version = entry.value
        elif entry.number in _MODEL_TEXTS:
            model.texts[_MODEL_TEXTS[entry.number]] = _text(entry.payload)
        elif entry.number == _PROPERTIES:
            key, value = _texts(entry.payload, what, _KEY, _VALUE)
            model.properties[key] = value
        elif entry.number == _GRAPH:
            _read_graph(entry.payload, what, model)
    return model


def _read_graph(buffer: memoryview, what: str, model: DeclaredModel) -> None:
    places: Mapping[int, dict[str, DeclaredPort]] = {_INPUT: model.inputs, _OUTPUT: model.outputs}
    for entry in wire_fields(buffer, what):
        if entry.number in _GRAPH_TEXTS:
            model.texts[_GRAPH_TEXTS[entry.number]] = _text(entry.payload)
        elif entry.number in places:
            (name,) = _texts(entry.payload, what, _NAME)
            places[entry.number][name] = _declared_value(entry.payload, what)


def _declared_value(buffer: memoryview, what: str) -> DeclaredPort:
    element, shape = 0, None
    for tensor in _nested(buffer, what, _TYPE, _TENSOR):
        for entry in wire_fields(tensor, what):
            if entry.number == _ELEMENT:
                element = entry.value
            elif entry.number == _SHAPE:
                shape = tuple(_dim(dim, what) for dim in _nested(entry.payload, what, _DIM))
    return DeclaredPort(element, shape)


def _dim(buffer: memoryview, what: str) -> int | str | None:
    for entry in wire_fields(buffer, what):
        if entry.number == _SIZE:
            # Negative numbers, which exporters write for a size that they do not know, are large in two's complement.
            return entry.value if entry.value < 2**63 else None
        if entry.number == _SYMBOL:
            return _text(entry.payload) or None
    return None


def _nested(buffer: memoryview, what: str, *path: int) -> Iterator[memoryview]:
    """Yield the messages at a path of field numbers."""
    for entry in wire_fields(buffer, what):
        if entry.number == path[0] and len(path) == 1:
            yield entry.payload
        elif entry.number == path[0]:
            yield from _nested(entry.payload, what, *path[1:])


def _texts(buffer: memoryview, what: str, *numbers: int) -> list[str]:
    """Return the texts of these fields of a message, empty where it has none."""
    payloads = {entry.number: entry.payload for entry in wire_fields(buffer, what) if entry.number in numbers}
    return [_text(payloads[number]) if number in payloads else "" for number in numbers]


def _text(payload: memoryview) -> str:
    try:
        return bytes(payload).decode()
    except UnicodeDecodeError as error:
        raise DamagedModelError(f"a text of the model is not UTF-8: {error}") from None
