"""Signatures of ONNX's operators by version, and the check of a node's inputs against them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.schema_table import Formal, Signature, table
from mirlo.frontends.onnx.values import AnyValue, onnx_type

if TYPE_CHECKING:
    import onnx


@cache
def signature(domain: str, operator: str, version: int) -> Signature | None:
    """Return the signature of an operator at an opset, or None if there is no such operator."""
    known = table()
    return defined(domain, operator, version) if known is None else known.find(domain, operator, version)


def defined(domain: str, operator: str, version: int) -> Signature | None:
    """Return the signature from the `onnx` package itself."""
    schema = schema_of(domain, operator, version)
    if schema is None:
        return None
    attributes = schema.attributes
    return Signature(
        operator,
        schema.since_version,
        tuple(_formal(p) for p in schema.inputs),
        tuple(_formal(p) for p in schema.outputs),
        schema.min_input,
        schema.max_input,
        schema.max_output,
        {name: attribute.type.value for name, attribute in attributes.items()},
        frozenset(name for name, attribute in attributes.items() if attribute.required),
    )


def schema_of(domain: str, operator: str, version: int) -> onnx.defs.OpSchema | None:
    """Return the `onnx` package's own schema, or None."""
    import onnx

    try:
        # Versions are 32-bit integers there; a file may have any.
        return onnx.defs.get_schema(operator, min(version, 2**31 - 1), domain)
    except onnx.defs.SchemaError:
        return None


def _formal(parameter: onnx.defs.OpSchema.FormalParameter) -> Formal:
    from onnx.defs import OpSchema

    option = OpSchema.FormalParameterOption
    return Formal(
        parameter.name,
        parameter.option == option.Single,
        parameter.option == option.Variadic,
        parameter.is_homogeneous,
        parameter.type_str,
        frozenset(parameter.types),
    )


def check_inputs(sig: Signature, inputs: Sequence[AnyValue | None]) -> None:
    """Check that required inputs are there, and those with a common type constraint have one allowed element type."""
    for i, formal in enumerate(sig.inputs):
        if formal.required and (i >= len(inputs) or inputs[i] is None):
            raise NodeError(f"input '{formal.name}' is missing")
    bound: dict[str, tuple[str, AnyValue]] = {}
    for i, value in enumerate(inputs):
        if value is None:
            continue
        formal = sig.inputs[min(i, len(sig.inputs) - 1)]
        name = sig.input_name(i)
        if formal.allowed and onnx_type(value) not in formal.allowed:
            allowed = ", ".join(sorted(t[7:-1] for t in formal.allowed if t.startswith("tensor(")))
            raise NodeError(f"input '{name}' is {value}; {sig.operator} accepts: {allowed or 'no tensor'}")
        if formal.variadic and not formal.homogeneous:
            continue
        first = bound.setdefault(formal.type_name, (name, value))
        if onnx_type(first[1]) != onnx_type(value):
            raise NodeError(f"inputs '{first[0]}' and '{name}' must have one element type, got {first[1]} and {value}")
