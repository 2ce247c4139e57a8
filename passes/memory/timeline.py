"""The operations of a function in execution order, and the live ranges of tensors.

Steps are numbered in pre-order; an operation with regions has a number before its regions and one after. A value
from outside of a loop is needed until the loop ends, as each iteration reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

from mirlo.dialects.bindings import ir
from mirlo.runtime.records import dataclass

LOOPS = frozenset({"scf.for", "scf.while"})
REGIONS = frozenset({"scf.if", *LOOPS})
"""Operations with regions that the planner supports."""


@dataclass
class TimelineBlock:
    """A block: its operations and its terminator."""

    arguments: list[ir.Value]
    steps: list[TimelineStep]
    terminator: ir.Operation
    end: int
    """The number of the terminator."""


@dataclass
class TimelineStep:
    """An operation and its range of steps: from `start` to `end`, the same number if it has no regions."""

    op: ir.Operation
    start: int
    end: int = 0
    bodies: list[TimelineBlock] = field(default_factory=list)

    @property
    def is_loop(self) -> bool:
        return self.op.name in LOOPS


class Timeline:
    """The numbered steps of a block and the blocks in it."""

    def __init__(self, block: ir.Block) -> None:
        self._clock = 0
        self.body = self._body(block)

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _body(self, block: ir.Block) -> TimelineBlock:
        operations = [op.operation for op in block.operations]
        steps = [self._step(op) for op in operations[:-1]]
        return TimelineBlock(list(block.arguments), steps, operations[-1], self._tick())

    def _step(self, op: ir.Operation) -> TimelineStep:
        step = TimelineStep(op, self._tick())
        if op.name in REGIONS:
            step.bodies = [self._body(region.blocks[0]) for region in op.regions if len(region.blocks)]
        step.end = self._tick() if step.bodies else step.start
        return step

    def steps(self) -> Iterator[TimelineStep]:
        """Yield all steps, outer ones before inner ones."""
        return _steps_of(self.body)

    def operations(self) -> list[ir.Operation]:
        return [step.op for step in self.steps()]

    def last_uses(self, root: Callable[[ir.Value], ir.Value]) -> dict[ir.Value, int]:
        """Return the last step that needs each root. Roots are the tensors that others are views of."""
        last: dict[ir.Value, int] = {}
        depth: dict[ir.Value, int] = {}

        def use(values: Sequence[ir.Value], number: int, loops: list[TimelineStep]) -> None:
            for value in values:
                storage = root(value)
                around = depth.get(storage, 0)
                needed = loops[around].end if len(loops) > around else number
                last[storage] = max(last.get(storage, 0), needed)

        def visit(body: TimelineBlock, loops: list[TimelineStep]) -> None:
            depth.update((argument, len(loops)) for argument in body.arguments)
            for step in body.steps:
                use(list(step.op.operands), step.start, loops)
                inner = [*loops, step] if step.is_loop else loops
                for nested in step.bodies:
                    visit(nested, inner)
                depth.update((value, len(loops)) for value in step.op.results)
            use(list(body.terminator.operands), body.end, loops)

        visit(self.body, [])
        return last


def _steps_of(body: TimelineBlock) -> Iterator[TimelineStep]:
    for step in body.steps:
        yield step
        for nested in step.bodies:
            yield from _steps_of(nested)


def is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


def tensors(values: Sequence[ir.Value]) -> list[ir.Value]:
    """Return the values that need a buffer; the others are scalars, which stay as they are."""
    return [value for value in values if is_tensor(value)]
