"""Vector lengths that fit a loop."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.core.index_expr import Variable
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.schedule.blocks.evaluate import LoopNestState
from mirlo.passes.schedule.blocks.space import BlockInstance, computed_values


def fitting(lanes: int, extent: int) -> int:
    """Halve `lanes` while the whole loop still fits; a longer loop keeps all of them."""
    while lanes > 1 and lanes // 2 >= extent:
        lanes //= 2
    return lanes


def widest_bytes(instances: Sequence[BlockInstance], axis: Variable) -> int:
    """Return the size of the largest element that differs between lanes, except indices and their conversions."""
    frame = LoopNestState(None, axis, computed_values(instances))
    sizes = [1]
    for instance in instances:
        for value in frame.varying(instance):
            if str(value.type) not in ("index", "i1") and instance.linear(value) is None:
                sizes.append(element_bytes(value.type))
        sizes += [element_bytes(output.element_type) for output in instance.block.outputs]
    return max(sizes)
