"""The description of a session's model: its declared inputs and outputs, and the metadata of its file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field

from mirlo.driver.inference.values import element_text, kind_type, tensor_type
from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.frontends.onnx.header import DeclaredModel, DeclaredPort, declared_model
from mirlo.runtime import system
from mirlo.runtime.artifact import TensorSpec
from mirlo.runtime.compiled_program import Port
from mirlo.runtime.records import dataclass

_FIRST_WITH_DEFAULTS = 4
"""The first version of ONNX's format in which an initializer with the name of an input is a default value."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output of a model: its name, its dims, and its type (`tensor(float)`).

    A dynamic dim is the name that the model gives it, or None if it gives none.
    """

    name: str
    shape: list[int | str | None]
    type: str


@dataclass(frozen=True)
class ModelMetadata:
    """The metadata of a model's file."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


class ModelDescription:
    """The inputs, outputs and metadata of a session's model."""

    def __init__(
        self, declared: DeclaredModel | None, inputs: Sequence[TensorSpec | Port], outputs: Sequence[TensorSpec | Port]
    ) -> None:
        self._declared = declared
        """What the model's file declares; None for a compiled model."""
        found_inputs, found_outputs = ({}, {}) if declared is None else (declared.inputs, declared.outputs)
        names = _declared_names(found_inputs, inputs)
        self.inputs = [_node_arg(spec, found_inputs.get(spec.name), names) for spec in inputs]
        self.outputs = [_node_arg(spec, found_outputs.get(spec.name), names) for spec in outputs]

    @property
    def metadata(self) -> ModelMetadata:
        """Return the metadata; that of a compiled model is empty."""
        model = self._declared
        if model is None:
            return ModelMetadata()
        return ModelMetadata(
            model.texts.get("producer_name", ""), model.texts.get("graph_name", ""), model.texts.get("domain", ""),
            model.texts.get("description", ""), model.texts.get("graph_description", ""), model.model_version,
            dict(model.properties),
        )  # fmt: skip

    @property
    def defaults(self) -> list[NodeArg]:
        """Return the declared inputs that have a default value, which sessions use."""
        model = self._declared
        if model is None or model.ir_version < _FIRST_WITH_DEFAULTS:
            return []
        known = {argument.name for argument in self.inputs}
        return [
            NodeArg(name, list(value.shape or ()), element_text(value.element)) for name, value in model.inputs.items()
            if name not in known
        ]  # fmt: skip


def declaration_of(model: object) -> DeclaredModel | None:
    """Return the description of a model by its path, bytes or message; None if it is not an ONNX model."""
    if isinstance(model, (str, os.PathLike)):
        with open(model, "rb") as file:
            buffer = memoryview(system.map_file(file, file.seek(0, 2)))
    elif isinstance(model, (bytes, bytearray, memoryview)):
        buffer = memoryview(model).cast("B")
    elif hasattr(model, "SerializeToString"):
        buffer = memoryview(model.SerializeToString())
    else:
        return None
    try:
        return declared_model(buffer, str(model) if isinstance(model, (str, os.PathLike)) else "the model")
    except OnnxImportError:
        return None  # a file of IR


_DimNames = Mapping[str, str | None]
"""The name that the model gives a dim, None for none, by the name that the compiled model has for it."""


def _declared_names(declared: Mapping[str, DeclaredPort], inputs: Sequence[TensorSpec | Port]) -> _DimNames:
    names: dict[str, str | None] = {}
    for spec in inputs:
        port = declared.get(spec.name)
        shape = shape_of(spec)
        if port is None or port.shape is None or len(port.shape) != len(shape):
            continue
        for dim, text in zip(shape, port.shape, strict=True):
            if isinstance(dim, str) and not isinstance(text, int):
                names.setdefault(dim, text)
    return names


def _node_arg(spec: TensorSpec | Port, port: DeclaredPort | None, names: _DimNames) -> NodeArg:
    shape = shape_of(spec)
    kind = tensor_type(spec.dtype) if isinstance(spec, TensorSpec) else kind_type(spec.kind)
    if port is not None and port.shape is not None and len(port.shape) == len(shape):
        return NodeArg(spec.name, [_dim(*pair) for pair in zip(shape, port.shape, strict=True)], kind)
    if port is None and not names:
        return NodeArg(spec.name, list(shape), kind)
    return NodeArg(spec.name, [dim if isinstance(dim, int) else names.get(dim) for dim in shape], kind)


def _dim(compiled: int | str, declared: int | str | None) -> int | str | None:
    """Return the size of a dim, or its name in the model if it is dynamic."""
    return compiled if isinstance(compiled, int) else declared


def shape_of(spec: TensorSpec | Port) -> tuple[int | str, ...]:
    """Return the dims of an input or output; none for what is no tensor."""
    return spec.shape if isinstance(spec, TensorSpec) else spec.kind.shape or ()


def kind_of(spec: TensorSpec | Port) -> str:
    """Return the element type of a tensor, or the kind of value of another input or output."""
    return spec.dtype if isinstance(spec, TensorSpec) else spec.kind.name
