"""Vector lengths that fit a loop."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.index_expr import Variable
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.view import OperandView
from mirlo.passes.schedule.blocks.instance import BlockInstance, computed_values


def fitting(lanes: int, extent: int) -> int:
    """Halve `lanes` while the whole loop still fits; a longer loop keeps all of them."""
    while lanes > 1 and lanes // 2 >= extent:
        lanes //= 2
    return lanes


def widest_bytes(instances: Sequence[BlockInstance], axis: Variable) -> int:
    """Return the size of the largest element that differs between lanes, except indices and their conversions."""
    lanes = _Lanes(instances, axis)
    sizes = [1]
    for instance in instances:
        for value in lanes.varying(instance):
            is_index = instance.linear(value) is not None or _becomes_index(value)
            if str(value.type) not in ("index", "i1") and not is_index:
                sizes.append(element_bytes(value.type))
        sizes += [element_bytes(output.element_type) for output in instance.block.outputs]
    return max(sizes)


def gathered_bytes(instances: Sequence[BlockInstance], axis: Variable) -> int:
    """Return the size of the smallest element that lanes load at indices of their own; 0 if they load none."""
    lanes = _Lanes(instances, axis)
    varying = [value for instance in instances for value in lanes.varying(instance)]
    gathered = [value for value in varying if _is_extracted(value)]
    return min((element_bytes(value.type) for value in gathered), default=0)


def narrowest_stored_bytes(instances: Sequence[BlockInstance], axis: Variable) -> int:
    """Return the size of the smallest element that lanes store next to each other; 0 if they store none."""
    outputs = [(each, output) for each in instances if not each.block.is_reduction for output in each.block.outputs]
    sizes = (element_bytes(output.element_type) for each, output in outputs if each.flat(output).coefficient(axis) == 1)
    return min(sizes, default=0)


def _is_extracted(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.operation.name == "tensor.extract"


def _becomes_index(value: ir.Value) -> bool:
    """Return whether an element is used as an index only, whose conversion takes no instruction."""
    names = [use.owner.operation.name for use in value.uses]
    return bool(names) and all(name == "arith.index_cast" for name in names)


class _Lanes:
    """Which values of bodies differ between the lanes along a loop."""

    def __init__(self, instances: Sequence[BlockInstance], axis: Variable) -> None:
        self._axis = axis
        self._made = computed_values(instances)
        self._varying: dict[BlockInstance, set[ir.Value]] = {}

    def varying(self, instance: BlockInstance) -> set[ir.Value]:
        """Return the needed values of a body that differ between lanes."""
        if instance not in self._varying:
            values = self._varying[instance] = set()
            for value in instance.needed:
                if self._varies(instance, value, values):
                    values.add(value)
        return self._varying[instance]

    def _varies(self, instance: BlockInstance, value: ir.Value, varying: set[ir.Value]) -> bool:
        if instance.known(value) is not None:
            return False
        expression = instance.linear(value)
        if expression is not None:
            return bool(expression.coefficient(self._axis) != 0)
        operand = instance.argument_operands.get(value)
        if operand is not None:
            return operand.map is not None and self._operand_varies(instance, operand)
        if isinstance(value.owner, ir.Block):
            return True  # the accumulator of a reduction
        return any(v in varying for v in instance.arguments_of(value.owner.operation))

    def _operand_varies(self, instance: BlockInstance, operand: OperandView) -> bool:
        if operand.value in self._made:
            producer, value = self._made[operand.value]
            return value in self.varying(producer)
        return any(dim.coefficient(self._axis) != 0 for dim in instance.dims(operand))
