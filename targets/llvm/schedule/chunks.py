"""Vectorization of a loop: lanes, unroll factor, and tail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.value import index
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.blocks.lanes import fitting
from mirlo.passes.schedule.blocks.space import BlockInstance
from mirlo.passes.schedule.loops import for_loop, if_any
from mirlo.passes.schedule.vectors import may_trap
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.cost import INTRINSIC_OPERATIONS

Step = Callable[[Sequence[int | ir.Value], int, int, list[ir.Value]], list[ir.Value]]
"""Takes the start of each of some vectors (an integer or a value), their lanes, the active lanes, and the values
carried from vector to vector; returns the carried values."""


@dataclass(frozen=True)
class DynamicChunks:
    """A loop of dynamic length: `unroll` vectors at a time, then single ones, then at most one of each smaller size."""

    lanes: int
    unroll: int
    extent: Dim

    @property
    def has_narrow_tail(self) -> bool:
        return self.lanes > 1 and self.extent // self.lanes * self.lanes != self.extent

    def emit(
        self, step: Step, carried: list[ir.Value], parallel: bool = False, limit: ir.Value | None = None
    ) -> list[ir.Value]:
        """Emit all vectors of the loop, or those before a limit."""
        lanes = self.lanes
        at: Dim = 0
        widths = [(lanes, self.unroll)] + [(lanes >> i, 1) for i in range(lanes.bit_length())]
        for width, count in widths:
            together = width * count
            end = self.extent // together * together
            if end == at:
                continue

            def whole(first: ir.Value, *held: ir.Value, width: int = width, count: int = count) -> list[ir.Value]:
                return step([plus(first, u * width) for u in range(count)], width, width, list(held))

            stop = end if limit is None else create("arith.minsi", limit.type, limit, index(end))
            if width < lanes:
                # What is left is less than twice as much.
                carried = if_any(at, stop, whole, carried)
            else:
                carried = for_loop(
                    at, stop, together, whole, carried, parallel=parallel and count == self.unroll, rolled=lanes > 1
                )
            at = end
        return carried

    def emit_before(self, limit: ir.Value, step: Step, carried: list[ir.Value]) -> list[ir.Value]:
        """Emit the vectors before an index, which is a multiple of the step or the end."""
        return self.emit(step, carried, limit=limit)


@dataclass(frozen=True)
class Chunks:
    """A loop of `main` elements, `unroll` vectors at a time, and a tail of (start, lanes, active) vectors."""

    lanes: int
    unroll: int
    main: int
    rest: tuple[tuple[int, int, int], ...]

    @property
    def has_narrow_tail(self) -> bool:
        """Return whether some vectors of the tail have fewer lanes."""
        return any(lanes != self.lanes for _, lanes, _ in self.rest)

    def emit(self, step: Step, carried: list[ir.Value], parallel: bool = False) -> list[ir.Value]:
        """Emit all vectors of the loop."""
        lanes, unroll = self.lanes, self.unroll

        def whole(first: int | ir.Value, held: list[ir.Value]) -> list[ir.Value]:
            return step([plus(first, u * lanes) for u in range(unroll)], lanes, lanes, held)

        if self.main == lanes * unroll:
            carried = whole(0, carried)
        elif self.main:
            carried = for_loop(
                0, self.main, lanes * unroll, lambda i, *held: whole(i, list(held)), carried, parallel=parallel
            )
        for start, width, active in self.rest:
            carried = step([start], width, active, carried)
        return carried

    def emit_before(self, limit: ir.Value, step: Step, carried: list[ir.Value]) -> list[ir.Value]:
        """Emit the vectors before an index, which is a multiple of the step or the end."""
        lanes, unroll = self.lanes, self.unroll
        parts = [(0, self.main, lanes * unroll, lanes, lanes, unroll)]
        parts += [(start, start + active, active, width, active, 1) for start, width, active in self.rest]
        for start, stop, size, width, active, count in parts:
            if start == stop:
                continue
            end = create("arith.minsi", limit.type, limit, index(stop))

            def some(
                first: ir.Value, *held: ir.Value, width: int = width, active: int = active, count: int = count
            ) -> list[ir.Value]:
                return step([plus(first, u * width) for u in range(count)], width, active, list(held))

            carried = for_loop(start, end, size, some, carried)
        return carried


@overload
def plus(start: int, by: int) -> int: ...


@overload
def plus(start: ir.Value, by: int | ir.Value) -> ir.Value: ...


@overload
def plus(start: int, by: ir.Value) -> ir.Value: ...


def plus(start: int | ir.Value, by: int | ir.Value) -> int | ir.Value:
    """Return the sum of two indices, each an integer or a value."""
    if isinstance(start, int) and isinstance(by, int):
        return start + by
    if isinstance(start, int) or isinstance(by, int):
        value, number = (by, start) if isinstance(start, int) else (start, by)
        assert isinstance(value, ir.Value) and isinstance(number, int)
        return create("arith.addi", value.type, value, index(number)) if number else value
    return create("arith.addi", start.type, start, by)


def chunks(extent: Dim, lanes: int, unroll: int, masked: bool) -> Chunks | DynamicChunks:
    """Divide a loop into whole vectors and a tail: one masked vector, or a few of smaller powers of two."""
    if not isinstance(extent, int):
        return DynamicChunks(lanes, unroll, extent)
    lanes = fitting(lanes, extent)
    if not masked and lanes > extent:
        lanes //= 2
    unroll = max(1, min(unroll, extent // lanes))
    main = extent // (lanes * unroll) * lanes * unroll
    rest = []
    at = main
    while at < extent:
        left = extent - at
        width = lanes
        if left < lanes:
            # A power of two needs no mask.
            width = 1 << (left.bit_length() - 1)
            if masked and width != left:
                width *= 2
        rest.append((at, width, min(width, left)))
        at += min(width, left)
    return Chunks(lanes, unroll, main, tuple(rest))


def can_mask(instances: Sequence[BlockInstance], machine: Machine) -> bool:
    """Return whether lanes may be masked: masks are cheap, and computing inactive lanes does not trap."""
    return machine.masked and not any(may_trap(instance.block.body_ops) for instance in instances)


def work(instances: Sequence[BlockInstance]) -> int:
    """Estimate the operations per element."""
    return sum(
        INTRINSIC_OPERATIONS if _is_intrinsic(value) else 1 for instance in instances for value in instance.needed
    )


def has_intrinsics(instances: Sequence[BlockInstance]) -> bool:
    """Return whether a math function is computed for each element."""
    return any(_is_intrinsic(value) for instance in instances for value in instance.needed)


def _is_intrinsic(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.operation.name.startswith("tir.")
