"""Loads of the lanes of a vectorized loop: whole vectors, masked vectors, strided vectors, gathers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import FloorDiv, IndexExpr, loop_index
from mirlo.dialects.core.value import Value, compare, index
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.schedule.loops import attribute_constant, read_inside
from mirlo.passes.schedule.vectors import is_vector, lane_mask, mask_of, shuffle, splat


class LanePoint(Protocol):
    """The iteration of the loops around a vectorized one that an access belongs to."""

    @property
    def lanes(self) -> int: ...

    @property
    def active(self) -> int: ...

    @property
    def axis(self) -> str:
        """Return the loop whose iterations the lanes are."""

    @property
    def mask(self) -> ir.Value | None:
        """Return the mask of active lanes, if only the run time knows them."""

    def index(self, expression: IndexExpr) -> ir.Value:
        """Emit an index: a vector if it differs between lanes."""

    def first(self, expression: IndexExpr) -> ir.Value:
        """Emit the index of the first lane."""

    def number(self, expression: IndexExpr) -> Dim | None:
        """Return the index of the first lane if it is a constant, else None."""


EdgeTest = tuple[IndexExpr, Dim]
"""An index and the size of its dim: an element exists if 0 ≤ index < size."""

SHORTEST_GATHER = 16
"""Bytes of vectors up to which elements at a stride are loaded one by one, from one address and offsets: processors
whose vectors are that long have no gathers, and LLVM computes a vector of addresses for each."""
LONGEST_STRIDE = 4
"""Largest stride for which whole vectors are loaded and shuffled; larger strides are gathered."""
SHARED = 256
"""Elements of which vectors are loaded from one address and different offsets where that may be of no element."""


def lane_index(expression: IndexExpr, axis: str, first: Callable[[IndexExpr], ir.Value], lanes: int) -> ir.Value:
    """Emit an index, a vector if it differs between the lanes along an axis; `first` emits that of the first lane."""
    step = expression.coefficient(axis)
    if step is not None:
        return first(expression) if step == 0 else steps(first(expression), step, lanes)
    total = Value(splat(index(expression.constant), lanes))
    for term, coefficient in expression.terms.items():
        if isinstance(term, FloorDiv):
            inner = splat(lane_index(term.inner, axis, first, lanes), lanes)
            part: ir.Value = create("arith.floordivsi", inner.type, inner, splat(index(term.divisor), lanes))
        else:
            part = splat(lane_index(loop_index(term), axis, first, lanes), lanes)
        total = total + Value(part) * splat(index(coefficient), lanes)
    return total


def steps(first: ir.Value, step: Dim, lanes: int) -> ir.Value:
    """Emit the index vector first, first + step, ..."""
    return create(
        "arith.addi", ir.VectorType.get([lanes], ir.IndexType.get()), splat(first, lanes), _offsets(step, lanes)
    )


def _offsets(step: Dim, lanes: int) -> ir.Value:
    kind = ir.VectorType.get([lanes], ir.IndexType.get())
    if not isinstance(step, int):
        return create("arith.muli", kind, create("vector.step", kind), splat(index(step), lanes))
    values = [ir.IntegerAttr.get(ir.IndexType.get(), lane * step) for lane in range(lanes)]
    return create("arith.constant", kind, value=ir.DenseElementsAttr.get(values, kind))


def read(
    point: LanePoint, buffer: ir.Value, where: IndexExpr, tests: Sequence[EdgeTest], outside: ir.Attribute | None
) -> ir.Value:
    """Load the elements at `where`, or `outside` where a test fails; a scalar if all lanes load the same element."""
    lanes, tests = _decide(point, tests)
    if not any(lanes):
        return attribute_constant(outside)
    axis = point.axis
    varies = any(e.coefficient(axis) != 0 for e in (where, *(dim for dim, _ in tests)))
    if not varies and all(lanes[: point.active]):
        return _read_scalar(point, buffer, where, tests, outside)
    filler = None if outside is None else attribute_constant(outside)
    step = where.coefficient(axis)
    if isinstance(step, int) and 1 < step <= LONGEST_STRIDE and not tests and point.mask is None:
        kind = ir.VectorType.get([point.lanes], buffer.type.element_type)
        return _read_strided(kind, buffer, point.first(where), step, lanes, filler)
    conditions = [_inside(point, dim, size) for dim, size in tests]
    mask = _mask(point, lanes, conditions)
    if step is not None:
        first = _first_inside(point, buffer, where, conditions) if step == 1 else point.first(where)
        return _read_steps(point, buffer, first, step, mask, filler)
    return _gather(point, buffer, index(0), point.index(where), mask, filler)


def _first_inside(point: LanePoint, buffer: ir.Value, where: IndexExpr, conditions: Sequence[ir.Value]) -> ir.Value:
    """Emit the index of the first lane; one at the start of the buffer where a condition leaves out all lanes.

    No lane is loaded there, but x86 takes hundreds of cycles for a masked load of memory that is not mapped, such as
    the row above the first one of an image.
    """
    condition = _all_of(each for each in conditions if not is_vector(each))
    if condition is None:
        return point.first(where)
    # Loads with one address and several offsets share the choice, but in small buffers, which end before these.
    is_shared = buffer.type.shape[0] >= SHARED + point.lanes
    offset = dict(D.terms_of(where.constant)).get((), 0) % SHARED if is_shared else 0
    first = point.first(where - offset)
    chosen = create("arith.select", first.type, condition, first, index(0))
    return create("arith.addi", first.type, chosen, index(offset)) if offset else chosen


def read_computed(
    point: LanePoint, buffer: ir.Value, where: IndexExpr, computed: Sequence[tuple[ir.Value, Dim]]
) -> ir.Value:
    """Load the elements at `where` plus multiples of indices that the body computes."""
    lanes = point.lanes
    scalars = [(v, stride) for v, stride in computed if not is_vector(v)]
    vectors = [(v, stride) for v, stride in computed if is_vector(v)]
    step = where.coefficient(point.axis)
    base = index(0) if step is None else Value(point.first(where))
    for value, stride in scalars:
        base = base + (value if stride == 1 else Value(value) * index(stride))
    mask = lane_mask(lanes, point.active) if point.active < lanes else point.mask
    if not vectors and step is not None:
        return memref.LoadOp(buffer, [base]).result if step == 0 else _read_steps(point, buffer, base, step, mask, None)
    offsets = Value(point.index(where) if step is None else _offsets(step, lanes))
    for value, stride in vectors:
        offsets = offsets + (value if stride == 1 else Value(value) * splat(index(stride), lanes))
    return _gather(point, buffer, base, offsets, mask, None)


def _read_scalar(
    point: LanePoint, buffer: ir.Value, where: IndexExpr, tests: Sequence[EdgeTest], outside: ir.Attribute | None
) -> ir.Value:
    condition = _all_of(_inside(point, dim, size) for dim, size in tests)
    if condition is None:
        return memref.LoadOp(buffer, [point.first(where)]).result
    return read_inside(condition, lambda: memref.LoadOp(buffer, [point.first(where)]).result, outside)


def _read_steps(
    point: LanePoint, buffer: ir.Value, first: ir.Value, step: Dim, mask: ir.Value | None, filler: ir.Value | None
) -> ir.Value:
    kind = ir.VectorType.get([point.lanes], buffer.type.element_type)
    if step == 1 and mask is None:
        return create("vector.load", kind, buffer, first)
    if step == 1 and mask is not None:
        return create("vector.maskedload", kind, buffer, first, mask, _filler(kind, filler))
    size = element_bytes(buffer.type.element_type)
    if isinstance(step, int) and mask is None and point.lanes * size <= SHORTEST_GATHER:
        places = [first, *(Value(first) + index(lane * step) for lane in range(1, point.lanes))]
        return create("vector.from_elements", kind, *(memref.LoadOp(buffer, [place]).result for place in places))
    return _gather(point, buffer, first, _offsets(step, point.lanes), mask, filler)


def _read_strided(
    kind: ir.Type, buffer: ir.Value, first: ir.Value, step: int, on: Sequence[bool], filler: ir.Value | None
) -> ir.Value:
    """Load every `step`-th element with up to `step` vectors; the last vector ends at the last requested element."""
    lanes = len(on)
    wanted = {lane * step for lane in range(lanes) if on[lane]}
    result = None if all(on) else _filler(kind, filler)
    starts = sorted({min(i * lanes, step * (lanes - 1) + 1 - lanes) for i in range(step)})
    for start in starts:
        here = [start + position in wanted for position in range(lanes)]
        if not any(here):
            continue
        at = first if start == 0 else create("arith.addi", first.type, first, index(start))
        if all(on):
            part = create("vector.load", kind, buffer, at)
        else:
            part = create("vector.maskedload", kind, buffer, at, mask_of(here), _filler(kind, filler))
        taken = [on[lane] and 0 <= lane * step - start < lanes for lane in range(lanes)]
        before = part if result is None else result
        pick = [lanes + lane * step - start if taken[lane] else lane for lane in range(lanes)]
        result = shuffle(before, part, pick)
    assert result is not None, "some lane is on"
    return result


def _gather(
    point: LanePoint,
    buffer: ir.Value,
    base: ir.Value,
    offsets: ir.Value,
    mask: ir.Value | None,
    filler: ir.Value | None,
) -> ir.Value:
    kind = ir.VectorType.get([point.lanes], buffer.type.element_type)
    enabled = lane_mask(point.lanes, point.lanes) if mask is None else mask
    return create("vector.gather", kind, buffer, base, offsets, enabled, _filler(kind, filler))


def _filler(kind: ir.Type, value: ir.Value | None) -> ir.Value:
    return splat(emit_constant(0, kind.element_type) if value is None else value, kind.shape[0])


def _decide(point: LanePoint, tests: Sequence[EdgeTest]) -> tuple[list[bool], list[EdgeTest]]:
    """Return which lanes are active and pass the tests that are decidable now, and the remaining tests."""
    lanes = [lane < point.active for lane in range(point.lanes)]
    left = []
    for dim, size in tests:
        first = point.number(dim)
        step = dim.coefficient(point.axis)
        if isinstance(first, int) and isinstance(step, int) and isinstance(size, int):
            lanes = [on and 0 <= first + lane * step < size for lane, on in enumerate(lanes)]
        else:
            left.append((dim, size))
    return lanes, left


def _mask(point: LanePoint, lanes: list[bool], conditions: Sequence[ir.Value]) -> ir.Value | None:
    """Emit the mask of lanes that are active and meet all conditions; None for all lanes."""
    mask = point.mask if all(lanes) else mask_of(lanes)
    for each in conditions:
        condition = splat(each, point.lanes)
        mask = condition if mask is None else _both(mask, condition)
    return mask


def _inside(point: LanePoint, dim: IndexExpr, size: Dim) -> ir.Value:
    """Emit 0 ≤ dim < size: per lane, or once for all lanes."""
    value = point.index(dim)

    def test(predicate: str, bound: Dim) -> ir.Value:
        limit = splat(index(bound), point.lanes) if is_vector(value) else index(bound)
        return compare(predicate, value, limit)

    return _both(test("ge", 0), test("lt", size))


def _both(a: ir.Value, b: ir.Value) -> ir.Value:
    return create("arith.andi", a.type, a, b)


def _all_of(conditions: Iterable[ir.Value]) -> ir.Value | None:
    """Return the conjunction of conditions, each emitted when it is taken; None if there are none."""
    result: ir.Value | None = None
    for each in conditions:
        result = each if result is None else _both(result, each)
    return result
