"""Non-maximum suppression: the best boxes without those that overlap a better one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.tir.compute import (
    INDEX,
    Expr,
    LoopBuilder,
    Variable,
    at_most_last,
    constant,
    lift,
    maximum,
    minimum,
    select,
)
from mirlo.dialects.tir.compute.loops import Buffer
from mirlo.passes.legalize.helpers import ordered_bits, shape_of, tensor_type, wide, wide_dtype
from mirlo.passes.rules import legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder

LANES = 8
"""Scores, or boxes, that are compared at once, by vectors."""
LEVELS = 4
"""Levels of the tree of scores: an element of the last one stands for 512 boxes."""


@legalize("relax.non_max_suppression")
def non_max_suppression(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    images, classes, boxes_count = shape_of(op.scores)
    kind = wide_dtype(tensor_type(op.boxes).dtype)
    (most,) = op.most

    def body(
        loops: LoopBuilder,
        boxes: Buffer,
        scores: Buffer,
        limit: Buffer,
        overlap: Buffer,
        threshold: Buffer,
        selected: Buffer,
        count: Buffer,
    ) -> None:
        used = loops.variable(0, "index")
        queue = _BoxQueue(loops, boxes_count, kind)
        kept = _KeptBoxes(loops, most, kind)

        def key(n: Expr, c: Expr, box: Expr) -> Expr:
            bits = ordered_bits(wide(scores[n, c, box]))
            return bits if threshold is None else select(scores[n, c, box] > threshold[()], bits, 0)

        for n, c in loops.nest((images, classes)):
            queue.fill(partial(key, n, c))
            kept.clear()
            bound = loops.let(minimum(limit[()].cast("i64").cast(INDEX), most))
            for _ in loops.while_(lambda bound=bound: queue.has_boxes() & (kept.count.get() < bound)):  # type: ignore[misc]
                box = queue.pop()
                numbers = [loops.let(wide(boxes[n, box, i])) for i in range(4)]
                candidate = _Box.of(loops, numbers, op.center)
                with loops.if_(~kept.overlaps(candidate, wide(overlap[()]))):
                    kept.append(candidate)
                    row = loops.let(used.get())
                    with loops.if_(row < selected.shape[0]):
                        _write_row(selected, row, [value.cast("i64") for value in (n, c, box)])
                        used.set(row + 1)
        for row in loops.range(loops.let(used.get()), selected.shape[0]):
            _write_row(selected, row, (0, 0, 0))
        count[()] = used.get().cast("i64")

    return b.call_loops(body, op.boxes, op.scores, op.limit, op.overlap, op.threshold)


def _write_row(selected: Buffer, row: Expr, values: Sequence[Expr | int]) -> None:
    for position, value in enumerate(values):
        selected[row, position] = value


class _BoxQueue:
    """The boxes of a class that are left, the best one first, and of equal scores the first one.

    A tree of scores: an element of a level is the largest of LANES elements of the level below. Scores are unsigned
    integers in their order; 0 stands for no box.
    """

    def __init__(self, loops: LoopBuilder, count: Dim, kind: DType) -> None:
        self.loops = loops
        self.count = count
        self.zero = constant(0, f"u{kind.bits}")
        rows = count // LANES + 1
        # All levels have the size of the second one, so that sizes of memory have one division: dims are compared.
        shapes = [rows * LANES, *[rows + LANES] * (LEVELS - 1)]
        self.levels = [loops.scratch((size,), self.zero.dtype) for size in shapes]
        self.groups = [loops.let(lift(count, INDEX) // LANES**i + 1) for i in range(1, LEVELS + 1)]
        self.best = loops.variable(self.zero, self.zero.dtype)
        self.best_group = loops.variable(0, "index")

    def fill(self, key: Callable[[Expr], Expr]) -> None:
        """Add all boxes, each with its score as an integer."""
        loops, leaves = self.loops, self.levels[0]
        for box in loops.range(self.count):
            leaves[box] = key(box)
        for box in loops.range(self.count, self.groups[0] * LANES):
            leaves[box] = self.zero
        for i in range(1, LEVELS):
            for group in loops.range(self.groups[i - 1]):
                self.levels[i][group] = self._largest(self.levels[i - 1], group)
            for group in loops.range(self.groups[i - 1], self.groups[i] * LANES):
                self.levels[i][group] = self.zero
        self._find_best()

    def has_boxes(self) -> Expr:
        return (self.best.get() > 0) & (lift(self.count, INDEX) > 0)

    def pop(self) -> Expr:
        """Remove and return the best box."""
        loops = self.loops
        group, best = loops.let(self.best_group.get()), loops.let(self.best.get())
        path = []
        # A level has the largest of each group of the one below: as many elements as that has groups.
        for level, size in zip(reversed(self.levels), [*reversed(self.groups[:-1]), self.count], strict=True):
            lanes = [level[group * LANES + lane].equals(best) for lane in range(LANES)]
            indices = [select(is_there, constant(lane, "i32"), LANES) for lane, is_there in enumerate(lanes)]
            first = minimum(reduce(minimum, indices), LANES - 1)
            group = loops.let(at_most_last(group * LANES + first.cast(INDEX), size))
            path.append(group)
        box = path[-1]
        self.levels[0][box] = self.zero
        for below, level, position in zip(self.levels[:-1], self.levels[1:], reversed(path[:-1]), strict=True):
            level[position] = self._largest(below, position)
        self._find_best()
        return box

    def _find_best(self) -> None:
        loops, top = self.loops, self.levels[-1]
        self.best.set(self.zero)
        self.best_group.set(0)
        for group in loops.range(self.groups[-1]):
            largest = loops.let(self._largest(top, group))
            with loops.if_(largest > self.best.get()):
                self.best.set(largest)
                self.best_group.set(group)

    def _largest(self, level: Buffer, group: Expr) -> Expr:
        return reduce(maximum, [level[group * LANES + lane] for lane in range(LANES)])


class _Box:
    """The corners of a box, and its area, which is NaN if one of its numbers is."""

    def __init__(self, corners: Sequence[Expr], area: Expr) -> None:
        self.corners = corners
        self.area = area

    @classmethod
    def of(cls, loops: LoopBuilder, numbers: Sequence[Expr], center: bool) -> _Box:
        """Return the box of the four numbers of a model."""
        pairs = [(numbers[i], numbers[i + 2]) for i in range(2)]
        if center:
            spans = [(at - size / 2.0, at + size / 2.0) for at, size in pairs]
        else:
            spans = [(minimum(a, b), maximum(a, b)) for a, b in pairs]
        corners = [loops.let(corner) for span in spans for corner in span]
        return cls(corners, loops.let((corners[1] - corners[0]) * (corners[3] - corners[2])))

    def overlaps(self, other: _Box, most: Expr) -> Expr:
        """Return whether intersection over union exceeds `most`."""
        sides = []
        for i in (0, 2):
            # Not `minimum`: for NaN either will do, as the areas are NaN.
            low = select(self.corners[i] > other.corners[i], self.corners[i], other.corners[i])
            high = select(self.corners[i + 1] < other.corners[i + 1], self.corners[i + 1], other.corners[i + 1])
            side = high - low
            sides.append(select(side > 0.0, side, constant(0, side.dtype)))
        common = sides[0] * sides[1]
        return (common > 0.0) & (common / (self.area + other.area - common) > most)


class _KeptBoxes:
    """The boxes of a class that were selected, number by number."""

    def __init__(self, loops: LoopBuilder, most: Dim, kind: DType) -> None:
        self.loops = loops
        # Whole vectors from the last box on.
        self.columns = [loops.scratch(((most // LANES + 2) * LANES,), kind) for _ in range(5)]
        self.count: Variable = loops.variable(0, "index")

    def clear(self) -> None:
        self.count.set(0)

    def append(self, box: _Box) -> None:
        position = self.loops.let(self.count.get())
        for column, number in zip(self.columns, (*box.corners, box.area), strict=True):
            column[position] = number
        self.count.set(position + 1)

    def overlaps(self, box: _Box, most: Expr) -> Expr:
        """Return whether one of the boxes overlaps another one too much."""
        loops = self.loops
        most = loops.let(most)
        is_suppressed, first = loops.variable(False, "bool"), loops.variable(0, "index")
        for _ in loops.while_(lambda: ~is_suppressed.get() & (first.get() < self.count.get())):
            at = loops.let(first.get())
            some = []
            for lane in range(LANES):
                *corners, area = (column[at + lane] for column in self.columns)
                some.append(_Box(corners, area).overlaps(box, most) & (at + lane < self.count.get()))
            is_suppressed.set(reduce(lambda a, b: a | b, some))
            first.set(at + LANES)
        return is_suppressed.get()
