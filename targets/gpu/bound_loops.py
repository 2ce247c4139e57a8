"""Loops that are bound to hardware axes, and the blocks and threads of a launch that they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from math import prod

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import integer_of
from mirlo.passes.lower.calls import find
from mirlo.passes.registry import PassError
from mirlo.passes.targets import ThreadLimits
from mirlo.runtime.records import dataclass

Axis = tuple[str, int]
"""`block` or `thread`, and the number of the dim."""
AXES: dict[str, Axis] = {f"{kind}Idx.{dim}": (kind, i) for kind in ("block", "thread") for i, dim in enumerate("xyz")}
"""Hardware axes, as `T.thread_binding` names them."""


@dataclass
class LaunchExtents:
    """The size of a launch: blocks of a grid, and threads of a block."""

    name: str
    """The function, for errors."""
    loops: Sequence[ir.Operation]
    grid: list[int | ir.Value] = field(default_factory=lambda: [1, 1, 1])
    threads: list[int] = field(default_factory=lambda: [1, 1, 1])

    @staticmethod
    def of(loops: Sequence[ir.Operation], name: str) -> LaunchExtents:
        """Return the extents that bound loops need, as one axis has one extent."""
        extents = LaunchExtents(name, loops)
        for loop in loops:
            extents._add(loop)
        return extents

    def _add(self, loop: ir.Operation) -> None:
        name = loop.opview.thread
        if name not in AXES:
            raise PassError(f"there is no hardware axis '{name}': there are {', '.join(AXES)}", loop.location)
        if any(other.opview.thread == name for other in loops_around(loop)):
            raise PassError(
                f"{self.name}: this loop and one around it are both bound to '{name}': bind it to another axis, or "
                "leave it serial",
                loop.location,
            )
        kind, dim = AXES[name]
        if kind == "thread":
            self.threads[dim] = max(self.threads[dim], thread_extent(loop))
            return
        extent = extent_of(loop)
        if (before := self.grid[dim]) not in (1, extent):
            extents = " and ".join(str(each) if isinstance(each, int) else "a dynamic one" for each in (before, extent))
            raise PassError(
                f"{self.name}: one launch runs loops over '{name}' with the extents {extents}: give them one "
                "extent and test the index, or give each memory of threads of its own, for a launch of its own",
                loop.location,
            )
        self.grid[dim] = extent

    def require_limits(self, limits: ThreadLimits, target: str) -> None:
        """Require that a block of the target has as many threads as loops are bound to."""
        where = f"of target '{target}'" if target else "of GPUs"
        listed = ", ".join(f"{n} on 'threadIdx.{dim}'" for n, dim in zip(self.threads, "xyz", strict=True) if n > 1)
        for dim, (extent, most) in enumerate(zip(self.threads, limits.max_block, strict=True)):
            if extent > most:
                raise PassError(
                    f"{self.name}: a loop bound to 'threadIdx.{'xyz'[dim]}' has {extent} iterations, and blocks "
                    f"{where} have at most {most} threads along this axis: split it, and bind fewer",
                    next(loop for loop in self._thread_loops(dim) if thread_extent(loop) == extent).location,
                )
        if prod(self.threads) > limits.max_threads:
            raise PassError(
                f"{self.name}: loops are bound to {prod(self.threads)} threads of a block ({listed}), and "
                f"blocks {where} have at most {limits.max_threads}: split them, and bind fewer iterations",
                next(loop for dim in range(3) for loop in self._thread_loops(dim)).location,
            )

    def _thread_loops(self, dim: int) -> list[ir.Operation]:
        return [loop for loop in self.loops if axis_of(loop) == ("thread", dim)]


def bound_loops(op: ir.Operation | ir.OpView) -> list[ir.Operation]:
    """Return the bound loops in an operation."""
    return [loop for loop in find(op, "tir.for") if loop.opview.kind == "bound"]


def find_axis(op: ir.Operation) -> Axis | None:
    """Return the axis of a bound loop, or None for other operations."""
    return AXES[op.opview.thread] if op.name == "tir.for" and op.opview.kind == "bound" else None


def axis_of(loop: ir.Operation) -> Axis:
    """Return the axis of a bound loop."""
    return AXES[loop.opview.thread]


def loops_around(loop: ir.Operation) -> list[ir.Operation]:
    """Return the bound loops that a loop is nested in, innermost first."""
    loops: list[ir.Operation] = []
    parent = loop.parent
    while parent is not None:
        op = parent.operation
        if op.name == "tir.for" and op.opview.kind == "bound":
            loops.append(op)
        parent = op.parent
    return loops


def extent_of(loop: ir.Operation) -> int | ir.Value:
    """Return the number of iterations of a bound loop."""
    low, high = list(loop.operands)[:2]
    if integer_of(low) != 0:
        raise PassError("a loop bound to a hardware axis starts at 0", loop.location)
    number = integer_of(high)
    return high if number is None else number


def thread_extent(loop: ir.Operation) -> int:
    """Return the number of iterations of a loop over threads, which is fixed."""
    extent = extent_of(loop)
    if not isinstance(extent, int):
        raise PassError(
            f"a loop bound to '{loop.opview.thread}' has a dynamic extent, and a block of threads has a fixed size: "
            "split it, bind an inner loop of fixed extent, and test the index",
            loop.location,
        )
    return extent
