"""Checks of a node against its operator's schema: counts, attributes, element types."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from mirlo.frontends.onnx.errors import NodeError, nearest, plural
from mirlo.frontends.onnx.schema_table import table
from mirlo.frontends.onnx.signature import Formal, Signature
from mirlo.frontends.onnx.values import AnyValue

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
        frozenset(attributes),
        frozenset(name for name, attribute in attributes.items() if attribute.required),
    )


def schema_of(domain: str, operator: str, version: int) -> onnx.defs.OpSchema | None:
    """Return the `onnx` package's own schema, or None."""
    import onnx

    try:
        return onnx.defs.get_schema(operator, version, domain)
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


def check(sig: Signature, inputs: Sequence[AnyValue | None], outputs: int, attributes: Sequence[str]) -> None:
    """Refuse a node that its schema does not allow."""
    _check_counts(sig, inputs, outputs)
    for name in attributes:
        if name not in sig.attributes:
            raise NodeError(f"{sig.operator} has no attribute '{name}': {nearest(name, sig.attributes)}")
    for name in sig.required_attributes:
        if name not in attributes:
            raise NodeError(f"{sig.operator} needs the attribute '{name}'")
    _check_types(sig, inputs)


def _check_counts(sig: Signature, inputs: Sequence[AnyValue | None], outputs: int) -> None:
    if len(inputs) > sig.max_inputs:
        raise NodeError(f"{sig.operator} takes at most {plural(sig.max_inputs, 'input')}, got {len(inputs)}")
    if outputs > sig.max_outputs:
        raise NodeError(f"{sig.operator} has at most {plural(sig.max_outputs, 'output')}, got {outputs}")
    if len(inputs) < sig.min_inputs:
        raise NodeError(f"{sig.operator} needs at least {plural(sig.min_inputs, 'input')}, got {len(inputs)}")
    for i, formal in enumerate(sig.inputs):
        if formal.required and (i >= len(inputs) or inputs[i] is None):
            raise NodeError(f"input '{formal.name}' is missing")


def _check_types(sig: Signature, inputs: Sequence[AnyValue | None]) -> None:
    """Check that inputs with a common type constraint have one allowed element type."""
    bound: dict[str, tuple[str, AnyValue]] = {}
    for i, found in enumerate(inputs):
        if found is None:
            continue
        formal = sig.inputs[min(i, len(sig.inputs) - 1)]
        name = sig.input_name(i)
        if formal.allowed and found.onnx_type not in formal.allowed:
            allowed = ", ".join(sorted(t[7:-1] for t in formal.allowed if t.startswith("tensor(")))
            raise NodeError(f"input '{name}' is {found}; {sig.operator} accepts: {allowed or 'no tensor'}")
        if formal.variadic and not formal.homogeneous:
            continue
        first = bound.setdefault(formal.type_name, (name, found))
        if first[1].onnx_type != found.onnx_type:
            raise NodeError(f"inputs '{first[0]}' and '{name}' must have one element type, got {first[1]} and {found}")
