"""Functions: operators defined by a small graph, of the model itself or of ONNX's schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mirlo.frontends.onnx import schema
from mirlo.frontends.onnx.composed import COMPOSED
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.kinds import type_proto
from mirlo.frontends.onnx.model import LoadedModel, opsets_of
from mirlo.frontends.onnx.values import AnyValue

if TYPE_CHECKING:
    import onnx

EXPANSION_DEPTH = 32
"""Deepest nesting of functions; deeper ones are considered recursive."""

EXPANDED_NODES = 50_000
"""Most nodes beyond those of the main graph: a few functions that call each other twice, or nested loops, reach
millions. This number takes about half a minute to compile."""

ADOPTED = {("com.microsoft", "LinearAttention"): (27, ("state_window",))}
"""Operators that ONNX has taken over with the same inputs and outputs: since when, and attributes that it lacks, whose
default value means what ONNX's operator does; their converters refuse other values."""


def local(model: LoadedModel, domain: str, operator: str, overload: str) -> onnx.FunctionProto | None:
    """Return the model's own function for an operator, or None."""
    return model.functions.get((domain, operator, overload))


def of_schema(
    node: onnx.NodeProto, domain: str, version: int, inputs: Sequence[AnyValue | None]
) -> onnx.FunctionProto | None:
    """Return the function body of a node with known input types, which ONNX or `composed.py` defines, or None."""
    import onnx

    composed = COMPOSED.get((domain, node.op_type))
    if composed is not None:
        return composed(node, inputs)
    since, lacking = ADOPTED.get((domain, node.op_type), (0, ()))
    if since:
        domain, version = "", since
    found = schema.schema_of(domain, node.op_type, version)
    if found is None:
        return None
    if found.has_context_dependent_function:
        kinds = [_type_bytes(value) for value in inputs]
        body = None
        for older in _versions(version, found.context_dependent_function_opset_versions):
            try:
                data = found.get_context_dependent_function_with_opset_version(older, node.SerializeToString(), kinds)
            except (ValueError, RuntimeError) as error:
                raise NodeError(f"ONNX gives no function body for these inputs: {error}") from None
            if data:
                body = _of_version(onnx.FunctionProto.FromString(data), domain, older)
                break
    else:
        body = static_body(found, version)
    if body is not None:
        defaults = (attribute.default_value for attribute in found.attributes.values())
        body.attribute_proto.extend(default for default in defaults if default.name)
        body.attribute.extend(lacking)
    return body


def static_body(found: onnx.defs.OpSchema, version: int) -> onnx.FunctionProto | None:
    """Return the function body of a schema that has one for all types, or None."""
    import onnx

    if not found.has_function:
        return None
    for older in _versions(version, found.function_opset_versions):
        body = found.get_function_with_opset_version(older)
        if body:
            proto = onnx.FunctionProto.FromString(body) if isinstance(body, bytes) else body
            return _of_version(proto, found.domain, older)
    return None


def _versions(version: int, written: Sequence[int]) -> list[int]:
    """Return the versions of a function body to ask for: ONNX gives none where an operator in it has changed since."""
    return [version, *sorted((each for each in written if each < version), reverse=True)]


def _of_version(body: onnx.FunctionProto, domain: str, version: int) -> onnx.FunctionProto:
    """Return a body of a schema whose nodes are those of an opset version; other domains count their own."""
    if not domain and not any(opset.domain == "" for opset in body.opset_import):
        body.opset_import.add(domain="", version=version)
    return body


def _type_bytes(value: AnyValue | None) -> bytes:
    if value is None:
        return b""
    return type_proto(value.kind).SerializeToString()


def opsets(body: onnx.FunctionProto, outer: Mapping[str, int]) -> dict[str, int]:
    """Return the opsets of a function's nodes: its own imports, completed by the caller's."""
    return {**outer, **opsets_of(body.opset_import)}


def instantiate(body: onnx.FunctionProto, call: onnx.NodeProto, present: Sequence[bool]) -> list[onnx.NodeProto]:
    """Return the nodes of a function, with the attributes of the call and without its missing inputs.

    An attribute that the call omits is omitted where the function passes it on: the operator there has a default.
    """
    values = {attribute.name: attribute for attribute in body.attribute_proto}
    values.update({attribute.name: attribute for attribute in call.attribute})
    known = set(body.attribute) | {attribute.name for attribute in body.attribute_proto}
    for attribute in call.attribute:
        if attribute.name not in known:
            raise NodeError(f"function '{body.name}' has no attribute '{attribute.name}'")
    absent = {name for name, there in zip(body.input, present, strict=True) if not there}
    return [_instance(node, values, absent) for node in body.node]


def _instance(node: onnx.NodeProto, values: Mapping[str, onnx.AttributeProto], absent: set[str]) -> onnx.NodeProto:
    made = type(node)()
    made.CopyFrom(node)
    for i, name in enumerate(made.input):
        if name in absent:
            made.input[i] = ""
    del made.attribute[:]
    for attribute in node.attribute:
        source = attribute
        if attribute.ref_attr_name:
            source = values.get(attribute.ref_attr_name)
            if source is None:
                continue
        copy = made.attribute.add()
        copy.CopyFrom(source)
        copy.name = attribute.name
        for graph in [copy.g] if copy.HasField("g") else list(copy.graphs):
            instances = [_instance(inner, values, absent) for inner in graph.node]
            del graph.node[:]
            graph.node.extend(instances)
    return made
