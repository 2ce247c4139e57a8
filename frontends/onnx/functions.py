"""Functions: operators defined by a small graph, of the model itself or of ONNX's schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.expansion import EXPANDED_NODES, Key
from mirlo.frontends.onnx.graph import FLOATS, MICROSOFT, AttributeDef, FunctionDef, GraphDef, NodeDef
from mirlo.frontends.onnx.reading import problem_of, read_attributes, read_function
from mirlo.frontends.onnx.schema_table import schema_of
from mirlo.frontends.onnx.values import AnyValue
from mirlo.runtime.kinds import Kind

if TYPE_CHECKING:
    import onnx

ADOPTED = {(MICROSOFT, "LinearAttention"): (27, ("state_window",))}
"""Operators that ONNX has taken over with the same inputs and outputs: since when, and attributes that it lacks, whose
default value means what ONNX's operator does; their converters refuse other values."""


def of_schema(node: NodeDef, version: int, inputs: Sequence[AnyValue | None]) -> FunctionDef | None:
    """Return the function body of a node with known input types, which ONNX or `composed.py` defines, or None."""
    from mirlo.frontends.onnx.composed import COMPOSED  # for operators without a converter only

    composed = COMPOSED.get((node.domain, node.operator))
    if composed is not None:
        return composed(node, inputs)
    domain = node.domain
    since, lacking = ADOPTED.get((domain, node.operator), (0, ()))
    if since:
        domain, version = "", since
    operator_schema = schema_of(domain, node.operator, version)
    if operator_schema is None:
        return None
    body = (
        _body_for(operator_schema, node, version, inputs)
        if operator_schema.has_context_dependent_function
        else static_body(operator_schema, version)
    )
    if body is None:
        return None
    defaults = {each.name: each for each in body.defaults}
    defaults.update({each.name: each for each in _defaults(operator_schema)})
    attributes = body.attributes.union(defaults, lacking)
    return replace(body, defaults=tuple(defaults.values()), attributes=attributes)


def newer_package(node: NodeDef, version: int) -> str:
    """Return the command to install a newer `onnx`, which may define the function of an operator, or "".

    Args:
        node: The operator, of which the installed `onnx` has no function body.
        version: The opset that the model imports of the operator's domain.
    """
    import onnx

    newest = onnx.defs.onnx_opset_version()
    since, _ = ADOPTED.get((node.domain, node.operator), (0 if node.domain else version, ()))
    if since <= newest:
        return ""
    return (
        f"; it may be a function of ONNX's opset {since}, and the installed onnx {onnx.__version__} defines opsets "
        f"up to {newest}: pip install --upgrade onnx"
    )


def _defaults(operator_schema: onnx.defs.OpSchema) -> tuple[AttributeDef, ...]:
    """Return the attributes of an operator that have a default value."""
    declared = (attribute.default_value for attribute in operator_schema.attributes.values())
    return read_attributes(default for default in declared if default.name)


def _body_for(
    operator_schema: onnx.defs.OpSchema, node: NodeDef, version: int, inputs: Sequence[AnyValue | None]
) -> FunctionDef | None:
    """Return the function body that ONNX makes for a node with inputs of these types, or None."""
    from mirlo.frontends.onnx.writing import node_message, type_message

    kinds = [b"" if value is None else type_message(value.kind).SerializeToString() for value in inputs]
    message = node_message(node).SerializeToString()
    for older in _versions(version, operator_schema.context_dependent_function_opset_versions):
        try:
            data = operator_schema.get_context_dependent_function_with_opset_version(older, message, kinds)
        except (ValueError, RuntimeError) as error:
            raise NodeError(f"ONNX gives no function body for these inputs: {error}") from None
        if data:
            return _of_version(read_function(data), operator_schema.domain, older)
    return None


def static_body(operator_schema: onnx.defs.OpSchema, version: int) -> FunctionDef | None:
    """Return the function body of a schema that has one for all types, or None."""
    return _static_body(operator_schema.domain, operator_schema.name, version) if operator_schema.has_function else None


@cache
def _static_body(domain: str, operator: str, version: int) -> FunctionDef | None:
    operator_schema = schema_of(domain, operator, version)
    assert operator_schema is not None
    for older in _versions(version, operator_schema.function_opset_versions):
        body = operator_schema.get_function_with_opset_version(older)
        if body:
            return _of_version(read_function(body), domain, older)
    return None


def _versions(version: int, written: Sequence[int]) -> list[int]:
    """Return the versions of a function body to request: ONNX has none where an operator in the body changed later."""
    return [version, *sorted((each for each in written if each < version), reverse=True)]


def _of_version(body: FunctionDef, domain: str, version: int) -> FunctionDef:
    """Return a body of a schema whose nodes are those of an opset version; other domains count their own."""
    return body if domain or "" in body.opsets else replace(body, opsets={**body.opsets, "": version})


def opsets(body: FunctionDef, outer: Mapping[str, int]) -> dict[str, int]:
    """Return the opsets of a function's nodes: its own imports, completed by the caller's."""
    return {**outer, **body.opsets}


def instantiate(body: FunctionDef, call: NodeDef, present: Sequence[bool]) -> tuple[NodeDef, ...]:
    """Return the nodes of a function, with the attributes of the call and without its missing inputs.

    An attribute that the call omits is omitted where the function passes it on: the operator there has a default.
    """
    values = {attribute.name: attribute for attribute in body.defaults}
    values.update({attribute.name: attribute for attribute in call.attributes})
    for attribute in call.attributes:
        if attribute.name not in body.attributes:
            raise NodeError(f"function '{body.name}' has no attribute '{attribute.name}'")
    absent = {name for name, there in zip(body.inputs, present, strict=True) if not there}
    return tuple(_instance(node, values, absent, body.opsets) for node in body.nodes)


def _instance(
    node: NodeDef, values: Mapping[str, AttributeDef], absent: set[str], versions: Mapping[str, int]
) -> NodeDef:
    """Return a node of a body for one call; graphs in it are copies, so that each call has its own."""
    attributes = []
    for attribute in node.attributes:
        source: AttributeDef | None = attribute
        if attribute.reference:
            source = values.get(attribute.reference)
        if source is None:
            continue
        value = source.value
        if isinstance(value, GraphDef):
            value = _instance_of_graph(value, values, absent, versions)
        elif source.graphs:
            value = tuple(_instance_of_graph(graph, values, absent, versions) for graph in source.graphs)
        attributes.append(AttributeDef(attribute.name, source.kind, value))
    inputs = tuple("" if name in absent else name for name in node.inputs)
    result = replace(node, inputs=inputs, attributes=tuple(attributes))
    if any(attribute.reference for attribute in node.attributes):
        return replace(result, problem=problem_of(result, versions))
    return result


def _instance_of_graph(
    graph: GraphDef, values: Mapping[str, AttributeDef], absent: set[str], versions: Mapping[str, int]
) -> GraphDef:
    return replace(graph, nodes=tuple(_instance(node, values, absent, versions) for node in graph.nodes))


class TooManyIterations(Exception):
    """Nested loops have more nodes than may be unrolled; the outermost one must not be."""


class Expansion:
    """The nodes that an import has copied so far."""

    def __init__(self, defined: Mapping[Key, FunctionDef]) -> None:
        self.defined = defined
        """The model's own functions."""
        self.nodes = 0
        """Imported nodes of functions, branches and loop iterations."""
        self.unrolling = 0
        """Number of loops being unrolled, each inside of the previous one."""
        self.declined: set[GraphDef] = set()
        """Loop bodies that must not be unrolled: when an outer loop is imported again with less known,
        they are not tried again."""
        self.carried: dict[GraphDef, list[Kind]] = {}
        """What bodies of loops carry: an inner loop is imported again with the outer one, and
        need not find out again what changes its sizes."""
        self.iterations = 1
        """The iterations of loops inside of the one that is imported, where only trip counts of the file end them."""
        self._instances: dict[tuple[object, ...], tuple[NodeDef, ...]] = {}
        """The nodes of functions called in the same way before."""

    def count(self, operator: str, name: str) -> None:
        """Count a node inside of a function, loop or branch: a node of this name."""
        self.nodes += 1
        if self.nodes > EXPANDED_NODES:
            raise NodeError(
                f"'{operator}' (node '{name}') and the functions and loops around it come to more "
                f"than {EXPANDED_NODES} nodes: functions that call each other several times, and loops with "
                "a known trip count, are copied at each place"
            )

    def instance(self, body: FunctionDef, call: NodeDef, present: tuple[bool, ...]) -> tuple[NodeDef, ...]:
        """Return the nodes of a function; equal calls share those of the model, so that their loops are the same."""
        if self.defined.get(body.key) is not body:
            return instantiate(body, call, present)
        key = (body, present, *map(_key, call.attributes))
        if key not in self._instances:
            self._instances[key] = instantiate(body, call, present)
        return self._instances[key]


def _key(attribute: AttributeDef) -> tuple[object, ...]:
    """Return a key that is the same for equal attributes; -0.0 is not 0.0."""
    value = attribute.value
    is_number = isinstance(value, float) or attribute.kind == FLOATS
    return attribute.name, attribute.kind, repr(value) if is_number else value
