"""Loops that are contiguous in memory, which schedules query before they fuse, reorder or vectorize loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import (
    Extents,
    IndexExpr,
    contiguous_strides,
    flatten,
    floor_divide,
    loop_index,
    modulo,
)
from mirlo.passes.schedule.primitives.tree import (
    SERIAL,
    BlockLeaf,
    BufferAccess,
    Loop,
    ScheduleBuffer,
    around,
    axis_name,
    extents_of,
    intrinsic_of,
    leaves_of,
    placed_at,
    reads_inside,
)


def contiguous_loops(leaf: BlockLeaf, last: Loop | None = None) -> list[Loop]:
    """Return the innermost loops of a block that are one loop over memory in all accesses, outermost first.

    Fused, they need no divisions: each access runs along its memory over all of them, or stays at one element. There
    are none if the innermost loop has a stride in the memory of a result. With `last`, they are that loop and those
    around it, for all blocks in it, whatever the strides are.
    """
    chain, leaves = around(leaf), [leaf]
    if last is not None:
        chain, leaves = [*around(last), last], [*leaves_of(last)]
    elif not chain or not _has_unit_steps(leaf, chain):
        return []
    expressions = [_simplified(each, inner) for inner in leaves for each in _expressions(inner, inner.at)]
    reduced = [inner.reduce_loops() for inner in leaves]
    result: list[Loop] = []
    steps: list[Dim] = []
    kinds: list[bool] = []
    extent: Dim = 1
    for loop in reversed(chain):
        own = [expression.coefficient(loop.name) for expression in expressions]
        if loop.kind != SERIAL or intrinsic_of(loop) is not None or _is_divided(loop, expressions):
            break
        if result:
            if loop.body != [result[0]]:
                break
            has_one_iteration = loop.extent == 1 or extent == 1
            is_one = _are_equal(own, [step * extent for step in steps]) and kinds == [loop.name in r for r in reduced]
            if not (has_one_iteration or is_one):
                break
        if extent == 1:
            steps, kinds = own, [loop.name in names for names in reduced]
        extent = extent * loop.extent
        result.insert(0, loop)
    return result


def memory_order(leaf: BlockLeaf) -> list[Loop]:
    """Return the loops of a block in the order of its result's memory, and then those of its reduction.

    Loops that move along the same dim, or along none, keep their order.
    """
    written = [(access, leaf.place(access)) for access in leaf.writes]
    for after in leaf.epilogue:
        axes = placed_at(after.at, leaf.at)
        written += [(access, placed_at(access.at, axes)) for access in after.writes]
    stored = [pair for pair in written if not pair[0].is_held]
    if not stored:
        return around(leaf)
    access, place = stored[0]
    in_memory = [_simplified(place[dim], leaf) for dim in access.buffer.order]

    def position(loop: Loop) -> int:
        moved = [i for i, index in enumerate(in_memory) if loop.name in index.variables()]
        return max(moved, default=len(in_memory))

    return sorted(around(leaf), key=position)


def strides(leaf: BlockLeaf, loop: str) -> tuple[list[Dim | None], list[Dim | None]]:
    """Return the strides of the reads of a block, and of its results that are stored, along a loop."""
    reads = [
        _simplified(position_of(access, placed_at(access.at, axes)), leaf).coefficient(loop)
        for access, axes in reads_inside(leaf, leaf.at)
        if not access.is_opaque
    ]
    stored = [(leaf, leaf.at), *((after, placed_at(after.at, leaf.at)) for after in leaf.epilogue)]
    writes = [
        _simplified(position_of(access, placed_at(access.at, axes)), leaf).coefficient(loop)
        for block, axes in stored
        for access in block.writes
        if not access.is_held
    ]
    return reads, writes


def divisors(leaf: BlockLeaf, uneven: bool = False) -> dict[str, int]:
    """Return loops that indices of a block divide evenly, and the divisors; with `uneven`, also with a remainder."""
    extents = extents_of(around(leaf))
    result: dict[str, int] = {}
    for expression in _expressions(leaf, leaf.at):
        for division in _simplified(expression, leaf).divisions if expression.divisions else ():
            terms, by = list(division.inner.terms.items()), division.divisor
            if len(terms) != 1 or division.inner.constant != 0 or not isinstance(by, int):
                continue
            ((loop, count),) = terms
            extent = extents.get(str(loop))
            if not isinstance(loop, str) or count != 1 or not isinstance(extent, int):
                continue
            if extent % by == 0 or uneven and extent > by:
                result.setdefault(loop, by)
    return result


def in_iterations(expression: IndexExpr, leaf: BlockLeaf) -> IndexExpr:
    """Return an expression of loops with as few divisions as possible in the iterations that guards execute."""
    if not expression.divisions:
        return expression
    extents = extents_of(around(leaf))
    expression = expression.substitute(loop_index, extents)
    if not expression.divisions:
        return expression
    indices: dict[str, IndexExpr] = {}
    for number, (index, bound) in enumerate(leaf.guards):
        # The index that the guard limits becomes a loop of that extent, in place of the innermost loop in it.
        inner = next((atom for atom, step in index.terms.items() if isinstance(atom, str) and step == 1), None)
        if inner is None or index.divisions:
            continue
        limited = f"#limited_{number}"
        indices[limited] = index
        extents[limited] = bound
        expression = expression.replace({inner: loop_index(limited) + loop_index(inner) - index})
    result: IndexExpr = expression.substitute(loop_index, extents).replace(indices)
    return result


def _simplified(expression: IndexExpr, leaf: BlockLeaf) -> IndexExpr:
    """Return an expression of loops with as few divisions as their extents allow."""
    if not expression.divisions:
        return expression
    result: IndexExpr = expression.substitute(loop_index, extents_of(around(leaf)))
    return result


def _has_unit_steps(leaf: BlockLeaf, chain: list[Loop]) -> bool:
    """Return whether the innermost loop that has iterations steps to the next element of results, or reduces them."""
    loop = next((loop for loop in reversed(chain) if loop.extent != 1), None)
    if loop is None:
        return True
    positions = [position_of(access, leaf.place(access)) for access in leaf.writes]
    for after in leaf.epilogue:
        axes = placed_at(after.at, leaf.at)
        positions += [position_of(each, placed_at(each.at, axes)) for each in after.writes]
    steps = [_simplified(each, leaf).coefficient(loop.name) for each in positions]
    return all(step == (0 if loop.name in leaf.reduce_loops() else 1) for step in steps)


def _expressions(leaf: BlockLeaf, axes: list[IndexExpr]) -> Iterator[IndexExpr]:
    """Yield the expressions that fused loops must step through evenly: positions in memory, indices with edges."""
    if leaf.view is not None:
        yield from (axes[axis] for axis, _ in leaf.body.indices)
    names = {axis_name(i): index for i, index in enumerate(axes)}
    for access in (*leaf.reads, *leaf.writes):
        if access.is_opaque:
            continue
        indices = [index.replace(names) for index in access.at]
        if access.inlined is not None:
            yield from _expressions(access.inlined, indices)
            continue
        if access.buffer.tiles or access.buffer.padding is not None:
            yield from indices
        elif access.outside is not None:
            yield from (index for dim, index in enumerate(indices) if is_beyond_edge(access, dim, leaf))
        yield position_of(access, indices)
    yield from (index.replace(names) for index, _ in leaf.guards) if axes is leaf.at else ()
    for after in leaf.epilogue:
        yield from _expressions(after, placed_at(after.at, axes))


def position_of(access: BufferAccess, indices: list[IndexExpr]) -> IndexExpr:
    """Return the position of an element in a buffer, without padding."""
    buffer = access.buffer
    dims = memory_dims(buffer, buffer.shape)
    return flatten(memory_indices(buffer, indices), contiguous_strides(dims))


def memory_indices(buffer: ScheduleBuffer, indices: Sequence[IndexExpr]) -> list[IndexExpr]:
    """Return the indices in the dims of the memory of an element of a region of a buffer."""
    tiles = buffer.tiles
    outer = [floor_divide(indices[d], tiles[d]) if d in tiles else indices[d] for d in buffer.order]
    return outer + [modulo(indices[d], tiles[d]) for d in buffer.order if d in tiles]


def memory_dims(buffer: ScheduleBuffer, shape: Sequence[Dim]) -> list[Dim]:
    """Return the dims in memory of a region of a buffer, slowest first, without padding."""
    tiles = buffer.tiles
    memory = [D.ceildiv(shape[d], tiles[d]) if d in tiles else shape[d] for d in buffer.order]
    return memory + [tiles[d] for d in buffer.order if d in tiles]


def is_beyond_edge(access: BufferAccess, dim: int, leaf: BlockLeaf) -> bool:
    """Return whether an index of an access may be beyond an edge, by the domain of the block.

    Loops go beyond the domain where a guard ends them.
    """
    sizes = {axis_name(i): extent for i, extent in enumerate(leaf.domain)}
    low, high = access.at[dim].range(sizes)
    return not D.is_certain(lambda: low >= 0 and high < access.buffer.shape[dim])


def is_within(index: IndexExpr, size: Dim, extents: Extents) -> bool:
    """Return whether an index is certainly within the edges, in all iterations of loops of these extents."""
    return D.is_certain(partial(_is_inside, index, size, extents))


def is_beyond(index: IndexExpr, size: Dim, extents: Extents) -> bool:
    """Return whether an index is certainly beyond the edges, in all iterations of loops of these extents."""
    return D.is_certain(partial(_is_outside, index, size, extents))


def _is_outside(index: IndexExpr, size: Dim, extents: Extents) -> bool:
    low, high = index.range(extents)
    return bool(high < 0 or low >= size)


def _is_inside(index: IndexExpr, size: Dim, extents: Extents) -> bool:
    low, high = index.range(extents)
    return bool(low >= 0 and high < size)


def _is_divided(loop: Loop, expressions: list[IndexExpr]) -> bool:
    """Return whether an index is a quotient that depends on a loop."""
    return any(loop.name in division.inner.variables() for each in expressions for division in each.divisions)


def _are_equal(left: list[Dim], right: list[Dim]) -> bool:
    return all(a == b for a, b in zip(left, right, strict=True))
