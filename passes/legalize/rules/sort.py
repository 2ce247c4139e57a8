"""Default rules of sorting: a stable merge sort of each row, and a heap for the k best.

NaN is larger than every other value, so that the order is total.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.tir.compute import Expr, ExprLike, LoopBuilder, all_of, constant, minimum, select
from mirlo.dialects.tir.compute.loops import Buffer
from mirlo.passes.legalize.helpers import shape_of, short_name
from mirlo.passes.rules import legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder

SCANNED = 16
"""Elements that are compared with the worst of the k best at once, by vectors; most do not come before it."""

Comparator = Callable[[Expr, Expr], Expr]
"""Returns whether an element comes strictly before another."""


def order(descending: bool) -> Comparator:
    def larger(a: Expr, b: Expr) -> Expr:
        return (a > b) | (a.differs(a) & b.equals(b)) if a.dtype.is_float else a > b

    return larger if descending else lambda a, b: larger(b, a)


class KeyedRow:
    """Scratch memory for the elements of a row, each with its position in the row."""

    def __init__(self, loops: LoopBuilder, size: Dim, element: str | DType):
        self.keys = loops.scratch((size,), element)
        self.places = loops.scratch((size,), "i64")

    def put(self, at: ExprLike, key: Expr, place: Expr) -> None:
        self.keys[at] = key
        self.places[at] = place

    def move(self, at: ExprLike, source: KeyedRow, index: Expr) -> None:
        self.put(at, source.keys[index], source.places[index])


@legalize("relax.sort", "relax.argsort")
def sort(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape = shape_of(op.x)
    axis = op.axis % len(shape)
    wants_places = short_name(op) == "argsort"

    def body(loops: LoopBuilder, x: Buffer, output: Buffer) -> None:
        size = shape[axis]
        rows, spare = KeyedRow(loops, size, x.dtype), KeyedRow(loops, size, x.dtype)
        for at in loops.nest([*shape[:axis], *shape[axis + 1 :]], parallel=True):
            for i in loops.range(size):
                rows.put(i, x[[*at[:axis], i, *at[axis:]]], i.cast("i64"))
            merge_sort(loops, rows, spare, size, order(op.descending))
            for i in loops.range(size):
                output[[*at[:axis], i, *at[axis:]]] = rows.places[i] if wants_places else rows.keys[i]

    return b.call_loops(body, op.x)


def merge_sort(loops: LoopBuilder, rows: KeyedRow, spare: KeyedRow, size: Dim, before: Comparator) -> None:
    """Sort the first `size` of `rows` bottom up, with `spare` as scratch memory of the same size."""
    width = loops.variable(1, "index")
    for _ in loops.while_(lambda: width.get() < size):
        step = loops.let(width.get())
        for low in loops.range(0, size, step + step):
            middle = loops.let(minimum(low + step, size))
            high = loops.let(minimum(middle + step, size))
            _merge(loops, rows, spare, low, middle, high, before)
        for i in loops.range(size):
            rows.move(i, spare, i)
        width.set(step + step)


def _merge(
    loops: LoopBuilder, source: KeyedRow, target: KeyedRow, low: Expr, middle: Expr, high: Expr, before: Comparator
) -> None:
    left, right = loops.variable(low, "index"), loops.variable(middle, "index")
    for i in loops.range(low, high):
        # The index into an exhausted run is clamped to stay readable, and its element not taken.
        has_left, has_right = left.get() < middle, right.get() < high
        first = loops.let(minimum(left.get(), middle - 1))
        second = loops.let(minimum(right.get(), high - 1))
        take_right = loops.let(has_right & (~has_left | before(source.keys[second], source.keys[first])))
        target.move(i, source, loops.let(select(take_right, second, first)))
        # Branch-free, as the branches are unpredictable.
        step = loops.let(select(take_right, constant(1, "index"), constant(0, "index")))
        right.set(right.get() + step)
        left.set(left.get() + (1 - step))


def _offer_rest(
    loops: LoopBuilder,
    heap: Heap,
    size: Dim,
    element: Callable[[Expr], Expr],
    offer: Callable[[Expr], None],
    is_surely_worse: Callable[[Expr, Expr], Expr],
) -> None:
    """Offer the elements after the first ones to a full heap; chunks without a candidate are skipped at once."""
    full = heap.size
    chunks = (size - full) // SCANNED
    for chunk in loops.range(chunks):
        first = loops.let(chunk * SCANNED + full)
        root = loops.let(heap.kept.keys[0])
        with loops.if_(~all_of([is_surely_worse(element(first + lane), root) for lane in range(SCANNED)])):
            for lane in loops.range(SCANNED):
                offer(loops.let(first + lane))
    for i in loops.range(chunks * SCANNED + full, size):
        offer(i)


@legalize("relax.topk")
def topk(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape = shape_of(op.x)
    axis = op.axis % len(shape)
    before = order(op.largest)

    def body(loops: LoopBuilder, x: Buffer, values: Buffer, places: Buffer) -> None:
        if op.k == 0:
            return
        heap = Heap(loops, op.k, x.dtype, before)
        for at in loops.nest([*shape[:axis], *shape[axis + 1 :]], parallel=True):
            for i in loops.range(op.k):
                heap.kept.put(i, x[[*at[:axis], i, *at[axis:]]], i.cast("i64"))
            for i in loops.range(op.k // 2):
                heap.sink((op.k // 2 - 1) - i, op.k)

            def element(i: Expr, at: Sequence[Expr] = at) -> Expr:
                return x[[*at[:axis], i, *at[axis:]]]

            def offer(i: Expr, element: Callable[[Expr], Expr] = element) -> None:
                key = element(i)
                # The root is the worst element in the heap; of equal ones the earlier stays.
                with loops.if_(before(key, heap.kept.keys[0])):
                    heap.kept.put(0, key, i.cast("i64"))
                    heap.sink(0, op.k)

            def is_surely_worse(key: Expr, root: Expr) -> Expr:
                return key <= root if op.largest else key >= root  # False for NaN: the exact test follows

            _offer_rest(loops, heap, shape[axis], element, offer, is_surely_worse)
            for i in loops.range(op.k):
                last = loops.let((op.k - 1) - i)
                target = [*at[:axis], last, *at[axis:]]
                values[target], places[target] = heap.kept.keys[0], heap.kept.places[0]
                heap.kept.move(0, heap.kept, last)
                heap.sink(0, last)

    return b.call_loops(body, op.x)


class Heap:
    """A binary heap with its worst element at the root; of equal elements the later is worse."""

    def __init__(self, loops: LoopBuilder, size: int, element: DType, before: Comparator):
        self.loops = loops
        self.size = size
        self.kept = KeyedRow(loops, size, element)
        self.before = before

    def worse(self, i: Expr, j: Expr) -> Expr:
        left, right = self.kept.keys[i], self.kept.keys[j]
        tie = ~self.before(left, right) & (self.kept.places[i] > self.kept.places[j])
        return self.before(right, left) | tie

    def sink(self, start: ExprLike, size: ExprLike) -> None:
        """Sift down the element at `start` in a heap of `size` elements."""
        loops = self.loops
        if self.size == 1:
            return  # the only element has no child
        at = loops.variable(start, "index")
        moving = loops.variable(True, "bool")
        for _ in loops.while_(lambda: moving.get() & (at.get() * 2 + 1 < size)):
            parent = loops.let(at.get())
            left = loops.let(parent * 2 + 1)
            right = loops.let(minimum(left + 1, size - 1))
            child = loops.let(select(self.worse(right, left), right, left))
            with loops.if_(self.worse(child, parent)):
                key, position = self.kept.keys[parent], self.kept.places[parent]
                self.kept.move(parent, self.kept, child)
                self.kept.put(child, key, position)
                at.set(child)
            with loops.else_():
                moving.set(False)
