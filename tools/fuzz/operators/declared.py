"""Nodes of operators of plug-ins, whose classes declare their names in ONNX and their meanings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.core.attributes import REQUIRED, Attribute, Float, Int
from mirlo.dialects.core.errors import OpError
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.core.types import TensorType
from mirlo.tools.bisect.declared import declared_operators
from mirlo.tools.fuzz.pool import GraphValue, NodeDraft, ValuePool

if TYPE_CHECKING:
    from mirlo.dialects.core.op import DialectOp

WEIGHT = 4.0
"""As often as all unary operators of ONNX: there are few, and they are what the user is after."""


def declared_planners() -> list[tuple[float, Callable[[ValuePool], NodeDraft | None]]]:
    """Return a planner for each operator of a plug-in that can be drawn."""
    return [(WEIGHT, partial(plan, cls)) for cls in declared_operators()]


def plan(cls: type[DialectOp], pool: ValuePool) -> NodeDraft | None:
    """Plan a node on values that the operator's inference accepts, or None."""
    named, infer = cls.ONNX, getattr(cls, "infer", None)
    assert named is not None and infer is not None
    inputs: list[GraphValue | None] = []
    types: list[TensorType | list[TensorType] | None] = []
    for field in cls._operand_layout.fields:
        if field.kind == "optional":
            inputs.append(None)
            types.append(None)
            continue
        first = next((value for value in inputs if value is not None), None)
        again = first is not None and Trait.ELEMENTWISE in cls.TRAITS
        value = pool.broadcastable(first, np.float32) if again and first else pool.floats(dtype=np.float32)
        inputs.append(value)
        tensor_type = TensorType.of(value.shape, "f32")
        types.append([tensor_type] if field.kind == "variadic" else tensor_type)
    attributes = {name: _attribute(declared, pool) for name, declared in cls._attributes.items()}
    if any(value is REQUIRED for value in attributes.values()):
        return None
    try:
        result = infer(*types, **attributes)
    except (OpError, ValueError, IndexError, TypeError):
        return None
    names = dict(named.attributes)
    onnx_attributes = {names.get(name, name): _plain(v) for name, v in attributes.items() if v is not None}
    count = len(result) if isinstance(result, tuple) else 1
    return NodeDraft(named.operator, tuple(inputs), onnx_attributes, count, domain=named.domain)


def _attribute(declared: Attribute, pool: ValuePool) -> object:
    """Return the default, or sometimes another value of the same kind."""
    if declared.choices:
        return pool.choice(tuple(declared.choices))
    if isinstance(declared, Float) and declared.default is not None and pool.chance(0.5):
        return pool.choice((0.25, 0.5, 0.125, 1.5))
    if isinstance(declared, Int) and declared.default is REQUIRED:
        return pool.number(1, 3)
    return declared.default


def _plain(value: object) -> object:
    return int(value) if isinstance(value, bool) else value
