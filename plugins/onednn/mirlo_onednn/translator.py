"""A function of a plan under construction: its values, its nodes, and drafts of operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mirlo.extend.codegen import ExternalFunction, ExternalNode, ExternalValue
from mirlo.extend.runtime import MirloError
from mirlo_onednn import plan
from mirlo_onednn.post_ops import BINARY, ELTWISE, with_constant, with_operand


class TranslationError(MirloError, ValueError):
    """An operator in a region that no pattern matches."""


@dataclass(frozen=True)
class PrimitiveDraft:
    """An operation of the library for an operator, before its post-ops are known."""

    op: str
    operands: dict[str, str]
    attributes: dict[str, Any] = field(default_factory=dict)
    post_ops: tuple[plan.PostOp, ...] = ()
    axes: tuple[int, ...] | None = None
    """The library's order of axes, if it differs: axis i of its result is axis `axes[i]` of the operator's."""
    shape: tuple[int, ...] | None = None
    """The shape of the library's result, if the operator's result is a view of it."""


class Translator:
    """Collects the values and nodes of one function."""

    def __init__(self, function: ExternalFunction) -> None:
        self.function = function
        self.tensors: dict[str, plan.PlanTensor] = {}
        self.nodes: list[plan.PrimitiveNode] = []
        self.params: dict[str, str] = {}
        self.literals: dict[str, np.ndarray] = {}
        self._made = 0
        self._names: dict[ExternalValue, str] = {}

    def value(self, value: ExternalValue) -> str:
        """Return the name of a value."""
        known = self._names.get(value)
        if known is None:
            known = self._names[value] = self.new(shape_of(value))
            if value.constant is not None:
                self.params[known] = value.constant
        return known

    def new(self, shape: Sequence[int]) -> str:
        """Return a name for a new value of this shape."""
        name = f"t{self._made}"
        self._made += 1
        self.tensors[name] = plan.PlanTensor(tuple(shape), "f32")
        return name

    def literal(self, array: np.ndarray) -> str:
        """Add a constant of the plan."""
        name = self.new(array.shape)
        self.literals[name] = array.astype(np.float32)
        return name

    def add(self, op: str, operands: dict[str, str], shape: Sequence[int], **attributes: Any) -> str:
        """Add a node; return the name of its result."""
        name = self.new(shape)
        self.nodes.append(plan.PrimitiveNode(op, operands, name, attributes))
        return name

    def reshaped(self, name: str, shape: Sequence[int]) -> str:
        """Add a view of a value under another shape."""
        return name if self.tensors[name].shape == tuple(shape) else self.add("reshape", {"x": name}, shape)

    def permuted(self, name: str, axes: Sequence[int]) -> str:
        """Add a view of a value with its axes in another order."""
        if tuple(axes) == tuple(range(len(axes))):
            return name
        shape = self.tensors[name].shape
        return self.add("permute", {"x": name}, [shape[axis] for axis in axes], axes=tuple(axes))

    def post_ops(
        self, node: ExternalNode, value: ExternalValue, axes: tuple[int, ...] | None = None
    ) -> tuple[plan.PostOp, ...]:
        """Return an elementwise operator on a value as post-ops."""
        if node.op in ELTWISE:
            return ELTWISE[node.op](node.attributes)
        if node.op not in BINARY:
            raise TranslationError(f"target 'onednn' cannot apply {node} to a result")
        left, right = node.inputs
        is_second = left is value
        other = right if is_second else left
        number = scalar_value(other)
        result = None if number is None else with_constant(node.op, number, is_second)
        if result is None:
            result = with_operand(node.op, self._operand(other, shape_of(value), axes), is_second)
        if result is None:
            raise TranslationError(f"target 'onednn' cannot apply {node} to a result")
        return result

    def _operand(self, value: ExternalValue, shape: tuple[int, ...], axes: tuple[int, ...] | None) -> str:
        """Return the second operand of a binary operator, in the library's order of axes of the first."""
        name = self.value(value)
        if axes is None:
            return name
        own = self.tensors[name].shape
        return self.permuted(self.reshaped(name, (1,) * (len(shape) - len(own)) + own), axes)

    def finish(self, draft: PrimitiveDraft, value: ExternalValue) -> None:
        """Add the node of a draft, with this value of the region as its result."""
        result = self.value(value)
        shape = shape_of(value)
        name = result
        if draft.axes is not None:
            name = self.new([shape[axis] for axis in draft.axes])
        elif draft.shape is not None and draft.shape != shape:
            name = self.new(draft.shape)
        self.nodes.append(plan.PrimitiveNode(draft.op, draft.operands, name, draft.attributes, draft.post_ops))
        if name == result:
            return
        if draft.axes is not None:
            back = tuple(draft.axes.index(axis) for axis in range(len(shape)))
            self.nodes.append(plan.PrimitiveNode("permute", {"x": name}, result, {"axes": back}))
        else:
            self.nodes.append(plan.PrimitiveNode("reshape", {"x": name}, result))

    def finished(self) -> plan.PrimitiveRegion:
        """Return the function; results that are returned twice, or not computed here, are copied."""
        inputs = tuple(self.value(value) for value in self.function.inputs)
        outputs: list[str] = []
        for value in self.function.outputs:
            name = self.value(value)
            if name in outputs or name in inputs or name in self.params:
                name = self.add("reshape", {"x": name}, self.tensors[name].shape)
            outputs.append(name)
        return plan.PrimitiveRegion(
            self.function.name, inputs, tuple(outputs), self.tensors, tuple(self.nodes), self.params, self.literals
        )


def shape_of(value: ExternalValue) -> tuple[Any, ...]:
    """Return the shape of a value: integers, and dynamic dims as text."""
    return tuple(dim if isinstance(dim, int) else str(dim) for dim in value.type.shape)


def scalar_value(value: ExternalValue) -> float | None:
    """Return the value of a constant with one element, or None."""
    if value.constant is None or value.type.rank and any(dim != 1 for dim in shape_of(value)):
        return None
    array = value.array
    return None if array is None else float(array.reshape(-1)[0])
