"""Import values as run-time objects, and calls of host functions.

A host function works on objects (string tensors, sequences, optional values) at run time, in Python; tensor
computation between the calls is compiled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.relax.base import object_type
from mirlo.dialects.relax.calls import CallPacked
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.kinds import join, tensor_type
from mirlo.frontends.onnx.values import AnyValue, ListValue, ObjectValue, TensorValue
from mirlo.runtime.kinds import Kind


def call_host(
    function: str, values: Sequence[ir.Value | None], results: Sequence[Kind], **options: object
) -> list[AnyValue]:
    """Call a host function on SSA values; return the results as values of these kinds, without names."""
    types = [tensor_type(kind) for kind in results]
    mlir_types = [object_type() if found is None else found.to_mlir() for found in types]
    given = [value for value in values if value is not None]
    if len(given) < len(values):
        raise ValueError(f"'{function}' needs each of its {len(values)} inputs, found {len(given)}")
    op = CallPacked.build(given, result_types=mlir_types, function=function, options=json.dumps(options))
    return [
        ObjectValue("", kind, ir=value) if found is None else TensorValue("", found, ir=value)
        for kind, found, value in zip(results, types, op.operation.results, strict=True)
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


def object_of(value: AnyValue, ssa: Callable[[AnyValue], ir.Value]) -> ir.Value:
    """Return the SSA value of a value as an object; `ssa` makes that of a tensor or of an object."""
    if isinstance(value, ObjectValue):
        return ssa(value)
    if isinstance(value, TensorValue):
        return _single_result(call_host("mirlo.sequence.same", [ssa(value)], [Kind(value.type.dtype.name)]))
    if isinstance(value, ListValue):
        items = [
            ssa(item) if isinstance(item, (TensorValue, ObjectValue)) else object_of(item, ssa) for item in value.items
        ]
        return _built(items, value.kind)
    if value.value is None:
        return _single_result(call_host("mirlo.sequence.nothing", [], [value.kind]))
    return object_of(value.value, ssa)


MAX_OPERAND_TYPES = 12
"""Operands of different types that a call can hold, in sequence."""


def _built(items: list[ir.Value], kind: Kind) -> ir.Value:
    """Return a sequence of elements, concatenated from pieces."""
    result = _single_result(call_host("mirlo.sequence.construct", items[:MAX_OPERAND_TYPES], [kind]))
    for start in range(MAX_OPERAND_TYPES, len(items), MAX_OPERAND_TYPES):
        result = _single_result(
            call_host("mirlo.sequence.extended", [result, *items[start : start + MAX_OPERAND_TYPES]], [kind])
        )
    return result


def _single_result(values: Sequence[AnyValue]) -> ir.Value:
    (value,) = values
    assert isinstance(value, (TensorValue, ObjectValue)) and value.ir is not None
    return value.ir
