"""Import values as run-time objects, and calls of host functions.

A host function works on objects (string tensors, sequences, optional values) at run time, in Python; tensor
computation between the calls is compiled.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.relax.base import object_type
from mirlo.dialects.relax.calls import CallPacked
from mirlo.frontends.builder import GraphBuilder
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.values import AnyValue, ListValue, ObjectValue, join, tensor_type
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.kinds import Kind


class ObjectBuilder(GraphBuilder, ABC):
    """A function that is being built, with run-time objects beside tensors."""

    @abstractmethod
    def ssa(self, value: AnyValue) -> ir.Value:
        """Return the SSA value of any value: a tensor or a run-time object."""


def call_host(
    builder: GraphBuilder, function: str, values: Sequence[ir.Value | None], results: Sequence[Kind], **options: object
) -> list[AnyValue]:
    """Call a host function on SSA values; return the results as values of these kinds, without names."""
    types = [tensor_type(kind) for kind in results]
    mlir_types = [object_type() if type_ is None else type_.to_mlir() for type_ in types]
    operands = [value for value in values if value is not None]
    if len(operands) < len(values):
        raise ValueError(f"'{function}' needs each of its {len(values)} inputs, found {len(operands)}")
    op = CallPacked.build(operands, result_types=mlir_types, function=function, options=json.dumps(options))
    return [
        ObjectValue("", kind, value) if type_ is None else builder.tensor(value)
        for kind, type_, value in zip(results, types, op.operation.results, strict=True)
    ]


def common_kind(values: Sequence[AnyValue], what: str) -> Kind:
    """Return the most specific kind of all these values."""
    result = values[0].kind
    for value in values[1:]:
        joined = join(result, value.kind)
        if joined is None:
            raise NodeError(f"{what} must be of one kind, got {result} and {value.kind}")
        result = joined
    return result


def object_of(value: AnyValue, body: ObjectBuilder) -> ir.Value:
    """Return the SSA value of a value as an object."""
    if isinstance(value, ObjectValue):
        return body.ssa(value)
    if isinstance(value, Tensor):
        return _single_result(call_host(body, "mirlo.sequence.same", [body.full(value)], [Kind(value.type.dtype.name)]))
    if isinstance(value, ListValue):
        items = [
            body.ssa(item) if isinstance(item, (Tensor, ObjectValue)) else object_of(item, body) for item in value.items
        ]
        return _built(items, value.kind, body)
    if value.value is None:
        return _single_result(call_host(body, "mirlo.sequence.nothing", [], [value.kind]))
    return object_of(value.value, body)


MAX_OPERAND_TYPES = 12
"""Operands of different types that a call can hold, in sequence."""


def _built(items: list[ir.Value], kind: Kind, body: ObjectBuilder) -> ir.Value:
    """Return a sequence concatenated from pieces."""
    result = _single_result(call_host(body, "mirlo.sequence.construct", items[:MAX_OPERAND_TYPES], [kind]))
    for start in range(MAX_OPERAND_TYPES, len(items), MAX_OPERAND_TYPES):
        result = _single_result(
            call_host(body, "mirlo.sequence.extended", [result, *items[start : start + MAX_OPERAND_TYPES]], [kind])
        )
    return result


def _single_result(values: Sequence[AnyValue]) -> ir.Value:
    (value,) = values
    assert isinstance(value, (Tensor, ObjectValue)) and value.value is not None
    return value.value
