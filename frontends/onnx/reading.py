"""Reading of an ONNX model: from the messages of a file to the typed graph, with checks.

Only this file and three others know the messages: `model.py` parses them, `old.py` converts models of older opsets, and
`writing.py` calls the `onnx` package. What is checked here: names are text and distinguishable, operator sets are
named, graphs and types are not nested without end; nodes have the attributes and as many inputs and outputs as their
schemas say. Conditions on types of values are checked when nodes are converted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirlo.frontends.onnx import graph as G
from mirlo.frontends.onnx.dtypes import FIELDS
from mirlo.frontends.onnx.errors import DamagedModelError, OnnxImportError, nearest, plural
from mirlo.frontends.onnx.expansion import require_expandable
from mirlo.frontends.onnx.graph import (
    AttributeDef,
    AttributeValue,
    FunctionDef,
    GraphDef,
    ModelDef,
    NodeDef,
    TensorDef,
    TypeDef,
    ValueDef,
    wrong_kind,
)
from mirlo.frontends.onnx.schema_table import Signature, signature
from mirlo.runtime.names import is_printable, terminal

if TYPE_CHECKING:
    import onnx

OLDEST_OPSET, NEWEST_OPSET = 7, 28
"""Versions of the default opset that the converters support."""
DEPTH = 64
"""Deepest nesting of graphs, and of types in sequences and optionals (protobuf itself stops files at 100 messages)."""

_EXTERNAL = 1
"""TensorProto.DataLocation.EXTERNAL."""
_FIELD_DTYPES: dict[str, type[np.generic]] = {
    "float_data": np.float32, "double_data": np.float64, "int32_data": np.int32, "int64_data": np.int64,
    "uint64_data": np.uint64,
}  # fmt: skip
_CASES = {"sparse_tensor_type": "sparse tensor"}
"""What a TypeProto is, where its field is not named for it."""


def read_model(proto: onnx.ModelProto, data: Mapping[bytes, memoryview], what: str) -> ModelDef:
    r"""Return the model of a message; `what` names it in errors.

    `data` are the elements of tensors whose `raw_data` is one of its keys. Names reach messages, terminals, generated
    sources and pages: control characters, line breaks and direction marks are written as escape sequences (`\x1b`)
    here, once, and the model goes by these names from then on. Refuse a model in which a name is not text, or in which
    two names would become one.
    """
    proto = _supported(proto, what)
    reader = _Reader(data, what)
    opsets = reader.versions = reader.opsets(proto.opset_import)
    functions = [reader.function(function) for function in proto.functions]
    model = ModelDef(
        reader.graph(proto.graph),
        opsets,
        {function.key: function for function in functions},
        proto.ir_version,
        f"{reader.name(proto.producer_name)} {reader.name(proto.producer_version)}" if proto.producer_name else "",
    )
    reader.name(proto.domain)
    reader.refuse_ambiguous_names()
    if model.functions:
        require_expandable(model, what)
    return model


def _supported(proto: onnx.ModelProto, what: str) -> onnx.ModelProto:
    """Return a model, converted to the oldest supported opset if it is older."""
    if not proto.HasField("graph"):
        raise DamagedModelError(f"{what}: not an ONNX model: it has no graph")
    if not proto.opset_import:
        raise DamagedModelError(f"{what}: not an ONNX model, or a truncated one: it imports no operator set")
    version = _version(proto)
    if version > NEWEST_OPSET:
        raise OnnxImportError(
            f"{what}: the model uses operator set {version}; supported are those up to {NEWEST_OPSET}: "
            "export it with an older one"
        )
    if version >= OLDEST_OPSET:
        return proto
    if proto.functions:
        raise OnnxImportError(
            f"{what}: the model uses operator set {version} and has functions, which came with operator set 15: "
            "export it with that or a later one"
        )
    from mirlo.frontends.onnx.old import modernized  # for old models only

    return modernized(proto, OLDEST_OPSET, what)


def is_old(proto: onnx.ModelProto) -> bool:
    """Return whether the opset of a model is older than those that the converters support."""
    return _version(proto) < OLDEST_OPSET


def _version(proto: onnx.ModelProto) -> int:
    """Return the version of the default operator set; the oldest supported one for models without it."""
    versions = [entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    return versions[-1] if versions else OLDEST_OPSET


def read_function(message: onnx.FunctionProto | bytes) -> FunctionDef:
    """Return a function that the `onnx` package defines, of its message or the bytes of one."""
    import onnx

    proto = onnx.FunctionProto.FromString(message) if isinstance(message, bytes) else message
    return _Reader({}, f"function '{proto.name}'").function(proto)


def read_attributes(protos: Iterable[onnx.AttributeProto]) -> tuple[AttributeDef, ...]:
    """Return attributes that the `onnx` package defines."""
    return _Reader({}, "a schema").attributes(protos)


def read_values(protos: Iterable[onnx.ValueInfoProto]) -> tuple[ValueDef, ...]:
    """Return values whose types the `onnx` package found."""
    return _Reader({}, "the model").values(protos)


class _Reader:
    """Reads the messages of one model."""

    def __init__(self, data: Mapping[bytes, memoryview], what: str) -> None:
        self.data = data
        self.what = what
        self._names: dict[str, str] = {}
        """The names of the model, with those that stand for them."""
        self._depth = 0
        self.versions: Mapping[str, int] = {}
        """The versions of the operators that are read, by domain."""

    def name(self, text: str) -> str:
        """Return a name, in which what is not printable is escaped."""
        result = self._names.get(text)
        if result is None:
            if not isinstance(text, str):
                raise OnnxImportError(f"{self.what}: the model is damaged: the name {text!r} is not text (UTF-8)")
            result = self._names[text] = text if is_printable(text) else terminal(text)
        return result

    def refuse_ambiguous_names(self) -> None:
        for name, new in self._names.items():
            if new != name and self._names.get(new) == new:
                raise OnnxImportError(
                    f"{self.what}: the model has the names '{new}' and {name!a}, which cannot be distinguished"
                )

    def names(self, texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(self.name, texts))

    def domain(self, text: str) -> str:
        return "" if text == "ai.onnx" else self.name(text)

    def opsets(self, imports: Sequence[onnx.OperatorSetIdProto]) -> dict[str, int]:
        """Return versions by domain of an `opset_import` field."""
        return {self.domain(entry.domain): entry.version for entry in imports}

    def function(self, proto: onnx.FunctionProto) -> FunctionDef:
        defaults = self.attributes(proto.attribute_proto)
        for value in proto.value_info:
            self.value(value)
        outer, opsets = self.versions, self.opsets(proto.opset_import)
        self.versions = {**outer, **opsets}
        result = FunctionDef(
            self.name(proto.name), self.domain(proto.domain), self.name(proto.overload),
            self.names(proto.input), self.names(proto.output), self.nodes(proto.node),
            frozenset(self.names(proto.attribute)).union(default.name for default in defaults),
            defaults, self.versions,
        )  # fmt: skip
        self.versions = outer
        return result

    def graph(self, proto: onnx.GraphProto) -> GraphDef:
        self._enter("graphs")
        for sparse in proto.sparse_initializer:
            self.tensor(sparse.values)
            self.tensor(sparse.indices)
        result = GraphDef(
            self.name(proto.name), self.nodes(proto.node), self.values(proto.input), self.values(proto.output),
            self.values(proto.value_info), tuple(map(self.tensor, proto.initializer)), bool(proto.sparse_initializer),
        )  # fmt: skip
        self._depth -= 1
        return result

    def _enter(self, what: str) -> None:
        self._depth += 1
        if self._depth > DEPTH:
            raise DamagedModelError(f"{self.what}: not an ONNX model: {what} are nested more than {DEPTH} deep")

    def nodes(self, protos: Iterable[onnx.NodeProto]) -> tuple[NodeDef, ...]:
        return _checked([self.node(proto, index) for index, proto in enumerate(protos)], self.versions)

    def node(self, proto: onnx.NodeProto, index: int) -> NodeDef:
        operator = self.name(proto.op_type)
        return NodeDef(
            self.name(proto.name) or f"{operator}_{index}", operator, self.domain(proto.domain),
            self.name(proto.overload), self.names(proto.input), self.names(proto.output),
            self.attributes(proto.attribute), index,
        )  # fmt: skip

    def attributes(self, protos: Iterable[onnx.AttributeProto]) -> tuple[AttributeDef, ...]:
        return tuple(
            AttributeDef(self.name(proto.name), proto.type, self.attribute(proto), self.name(proto.ref_attr_name))
            for proto in protos
        )

    def attribute(self, proto: onnx.AttributeProto) -> AttributeValue:
        """Return the value of an attribute: the field that belongs to its type."""
        kind = proto.type
        if kind == G.INT:
            return proto.i  # type: ignore[no-any-return]
        if kind == G.FLOAT:
            return proto.f  # type: ignore[no-any-return]
        if kind == G.STRING:
            return proto.s  # type: ignore[no-any-return]
        if kind == G.INTS:
            return tuple(proto.ints)
        if kind == G.FLOATS:
            return tuple(proto.floats)
        if kind == G.STRINGS:
            return tuple(proto.strings)
        if kind == G.TENSOR:
            return self.tensor(proto.t)
        if kind == G.GRAPH:
            return self.graph(proto.g)
        if kind == G.TENSORS:
            return tuple(map(self.tensor, proto.tensors))
        if kind == G.GRAPHS:
            return tuple(map(self.graph, proto.graphs))
        return self.type(proto.tp) if kind == G.TYPE else None

    def values(self, protos: Iterable[onnx.ValueInfoProto]) -> tuple[ValueDef, ...]:
        return tuple(map(self.value, protos))

    def value(self, proto: onnx.ValueInfoProto) -> ValueDef:
        return ValueDef(self.name(proto.name), self.type(proto.type))

    def type(self, proto: onnx.TypeProto) -> TypeDef:
        field = proto.WhichOneof("value")
        if field is None:
            return TypeDef()
        if field in ("tensor_type", "sparse_tensor_type"):
            tensor = getattr(proto, field)
            dims = tuple(map(self.dim, tensor.shape.dim)) if tensor.HasField("shape") else None
            return TypeDef(_CASES.get(field, "tensor"), tensor.elem_type, dims)
        self._enter("types")
        if field == "map_type":
            result = TypeDef("map", key=proto.map_type.key_type, element=self.type(proto.map_type.value_type))
        elif field in ("sequence_type", "optional_type"):
            result = TypeDef(field.removesuffix("_type"), element=self.type(getattr(proto, field).elem_type))
        else:
            result = TypeDef(field.removesuffix("_type"))
        self._depth -= 1
        return result

    def dim(self, proto: onnx.TensorShapeProto.Dimension) -> int | str | None:
        if proto.HasField("dim_value"):
            # Exporters write -1 for a size that they do not know.
            return proto.dim_value if proto.dim_value >= 0 else None
        return self.name(proto.dim_param) or None

    def tensor(self, proto: onnx.TensorProto) -> TensorDef:
        """Return where the elements of a tensor are, without reading them."""
        raw = external = numbers = None
        if proto.data_location == _EXTERNAL or proto.external_data:
            external = self.external(proto)
        if external is None and proto.HasField("raw_data"):
            raw = proto.raw_data
            raw = self.data.get(raw, raw)
        elif external is None:
            field = FIELDS.get(proto.data_type)
            numbers = None if field is None else _numbers(getattr(proto, field), _FIELD_DTYPES[field])
        return TensorDef(
            self.name(proto.name), proto.data_type, tuple(proto.dims), raw, numbers, tuple(proto.string_data),
            external, proto.HasField("segment"),
        )  # fmt: skip

    def external(self, proto: onnx.TensorProto) -> dict[str, str] | None:
        """Return the entries of external data; None for a tensor whose data is in the model after all."""
        entries = proto.external_data
        for entry in entries:
            if not is_printable(self._text(entry.key)) or not is_printable(self._text(entry.value)):
                raise OnnxImportError(
                    f"{self.what}: the name of a file with external data is not printable: {entries[0].value!a}"
                )
        return {entry.key: entry.value for entry in entries} if proto.data_location == _EXTERNAL else None

    def _text(self, text: str) -> str:
        self.name(text)
        return text


def _numbers(values: Sequence[float], dtype: type[np.generic]) -> np.ndarray:
    result = np.fromiter(values, dtype, len(values))
    result.flags.writeable = False
    return result


def _checked(nodes: Sequence[NodeDef], versions: Mapping[str, int]) -> tuple[NodeDef, ...]:
    """Return nodes with the problem of each one; `versions` are those of operators by domain."""
    problems = [problem_of(node, versions) for node in nodes]
    return tuple(replace(node, problem=text) if text else node for node, text in zip(nodes, problems, strict=True))


def problem_of(node: NodeDef, versions: Mapping[str, int]) -> str:
    """Return the problem of a node that does not depend on its inputs; '' if there is none."""
    version = versions.get(node.domain)
    sig = None if version is None else signature(node.domain, node.operator, version)
    names: set[str] = set()
    for attribute in node.attributes:
        if attribute.name in names:
            return f"attribute '{attribute.name}' is given twice"
        names.add(attribute.name)
    return "" if sig is None else _problem_of_counts(sig, node) or _problem_of_attributes(sig, node)


def _problem_of_counts(sig: Signature, node: NodeDef) -> str:
    inputs, outputs = len(node.inputs), len(node.outputs)
    if inputs > sig.max_inputs:
        return f"{sig.operator} takes at most {plural(sig.max_inputs, 'input')}, got {inputs}"
    if outputs > sig.max_outputs:
        return f"{sig.operator} has at most {plural(sig.max_outputs, 'output')}, got {outputs}"
    if inputs < sig.min_inputs:
        return f"{sig.operator} needs at least {plural(sig.min_inputs, 'input')}, got {inputs}"
    return ""


def _problem_of_attributes(sig: Signature, node: NodeDef) -> str:
    for attribute in node.attributes:
        name, kind = attribute.name, sig.attributes.get(attribute.name)
        if kind is None:
            return f"{sig.operator} has no attribute '{name}': {nearest(name, sig.attributes)}"
        if attribute.kind != kind and not (attribute.reference and attribute.kind == G.UNDEFINED):
            return wrong_kind(attribute, kind)
    present = {attribute.name for attribute in node.attributes}
    missing = sorted(sig.required_attributes - present)
    return f"{sig.operator} needs the attribute '{missing[0]}'" if missing else ""
