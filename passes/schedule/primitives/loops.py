"""Schedule primitives on loops: split, fuse, reorder, and the kinds of loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace as replaced

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr, floor_divide, loop_index, modulo, number
from mirlo.passes.schedule.blocks.combine import reducer_of
from mirlo.passes.schedule.primitives.tree import (
    PARALLEL,
    SERIAL,
    UNROLLED,
    VECTORIZED,
    Accumulation,
    BlockLeaf,
    Guard,
    InitialValues,
    Loop,
    Node,
    PartRange,
    Root,
    ScheduleBuffer,
    ScheduleError,
    ShiftedTiles,
    TileStart,
    Update,
    around,
    intrinsic_of,
    leaves_of,
    loops_of,
    replace,
    root_of,
    set_children,
)
from mirlo.runtime.names import unused_name

MAX_UNROLL = 256
"""Most iterations of a loop that is unrolled: the code of more takes longer to compile than it saves."""
MAX_ITERATIONS = 2**40
"""Most iterations of a loop that a primitive makes: indices, their strides and sizes in bytes fit 64 bits."""
THREAD = "thread"
"""How the names of hardware axes begin whose iterations are threads of a block."""


def split(
    loop: Loop,
    factors: Sequence[int | None],
    peel: bool = False,
    align: ScheduleBuffer | None = None,
) -> list[Loop]:
    """Split a loop into a nest. One factor may be None: it is inferred; iterations past the end are skipped.

    With `peel`, the iterations of the outermost loop that are complete become a loop without tests. With `align`,
    tiles begin where the buffer has whole lines: the second of the loops is where each of them begins.
    """
    require_serial(loop)
    require_no_accumulators("split", loop)
    known = math.prod(factor for factor in factors if factor is not None)
    open_factors = [factor for factor in factors if factor is None]
    if len(open_factors) > 1 or any(f is not None and f < 1 for f in factors) or len(factors) < 2:
        raise ScheduleError(
            f"split of '{loop.name}': expected two factors or more, from 1 up, at most one of them None, found "
            f"{list(factors)}"
        )
    if known > MAX_ITERATIONS:
        raise ScheduleError(f"split of '{loop.name}': {known} iterations, expected at most {MAX_ITERATIONS}")
    if not open_factors and not D.is_certain(lambda: loop.extent <= known):
        listed = " * ".join(map(str, factors))
        hint = "" if isinstance(loop.extent, int) else ", which only the run time knows: expected a factor of None"
        raise ScheduleError(f"split of '{loop.name}': {listed} is less than its {loop.extent}{hint}")
    if align is not None:
        return _split_aligned(loop, list(factors), align)
    extents = [factor if factor is not None else D.ceildiv(loop.extent, known) for factor in factors]
    new_loops = [Loop(unique_loop_name(loop, f"{loop.name}_{i}"), extent) for i, extent in enumerate(extents)]
    new_loops[0].is_peeled = peel or loop.is_peeled
    value = IndexExpr()
    step: Dim = 1
    for part in reversed(new_loops):
        value, step = value + loop_index(part.name) * step, step * part.extent
    is_exact = D.is_certain(lambda: step <= loop.extent)
    if factors[0] is None:
        whole = loop.part or PartRange(0)
        new_loops[0].part = PartRange(whole.low, whole.step * known)
    substitute(loop, {loop.name: value}, None if is_exact else (value, loop.extent))
    return replace_by_nest(loop, new_loops)


def split_shifted(loop: Loop, factors: list[int | None], rests: list[int]) -> list[Loop]:
    """Split a loop into tiles, the last of which begin early enough to be whole, and the elements of a tile."""
    size = factors[-1]
    if len(factors) != 2 or factors[0] is not None or size is None:
        raise ScheduleError(f"split of '{loop.name}': shifted tiles have factors (None, size), found {factors}")
    sizes = [size, *rests]
    if any(each < 1 for each in rests) or sizes != sorted(set(sizes), reverse=True):
        raise ScheduleError(f"split of '{loop.name}': expected rests below {size}, from large to small, found {rests}")
    if sizes[-1] != 1 and not D.is_certain(lambda: loop.extent >= sizes[-1]):
        raise ScheduleError(
            f"split of '{loop.name}': a tile of {sizes[-1]} does not fit its {loop.extent} iterations: expected a last "
            "rest of 1"
        )
    for leaf in leaves_of(loop):
        _require_repeatable(loop, leaf)
    extent = loop.extent
    tiles, row = split(loop, factors)
    tiles.form = ShiftedTiles(size, tuple(rests), extent, row.name)
    return [tiles, row]


def _require_repeatable(loop: Loop, leaf: BlockLeaf) -> None:
    """Require that elements of a block may be computed twice."""
    if loop.name in leaf.reduce_loops() or _reads_its_results(leaf):
        raise ScheduleError(f"split of '{loop.name}': tiles overlap, and '{leaf.name}' cannot compute an element twice")


def _reads_its_results(leaf: BlockLeaf) -> bool:
    """Return whether a block, or what follows it in its loops, reads memory that it writes."""
    written = {id(access.buffer) for access in leaf.writes}
    reads = [access for each in (leaf, *leaf.epilogue) for access in each.reads]
    return any(not access.is_held and id(access.buffer) in written for access in reads)


def block_that_runs_once(loop: Loop) -> BlockLeaf | None:
    """Return a block in a loop whose elements depend on what was there before: its tiles must not overlap."""
    return next((leaf for leaf in leaves_of(loop) if leaf.is_reduction or _reads_its_results(leaf)), None)


def _split_aligned(loop: Loop, factors: list[int | None], buffer: ScheduleBuffer) -> list[Loop]:
    """Split a loop into tiles that begin where a buffer has whole lines."""
    size = factors[1]
    if len(factors) != 2 or factors[0] is not None or size is None:
        raise ScheduleError(f"split of '{loop.name}': aligned tiles have factors (None, size), found {factors}")
    if buffer.scope or buffer.tiles or not buffer.is_parameter:
        raise ScheduleError(f"split of '{loop.name}': '{buffer.name}' is no parameter, which callers may align anyhow")
    if not D.is_certain(lambda: loop.extent >= size):
        raise ScheduleError(f"split of '{loop.name}': a tile of {size} does not fit its {loop.extent} iterations")
    once = block_that_runs_once(loop)
    if once is not None:
        raise ScheduleError(
            f"split of '{loop.name}': aligned tiles overlap, and '{once.name}' cannot compute an element twice"
        )
    tiles, start, inner = (unique_loop_name(loop, f"{loop.name}_{part}") for part in ("0", "start", "1"))
    new_loops = [Loop(tiles, D.ceildiv(loop.extent, size) + 1), Loop(start, loop.extent - size + 1), Loop(inner, size)]
    new_loops[1].form = TileStart(loop_index(tiles), size, loop.extent, buffer)
    substitute(loop, {loop.name: loop_index(start) + loop_index(inner)}, None)
    return replace_by_nest(loop, new_loops)


def rotate(loop: Loop, by: Loop) -> None:
    """Start a loop at the index of another one, and wrap around after its last iteration."""
    require_serial(loop)
    for leaf in leaves_of(loop):
        if by not in around(leaf) or by is loop:
            raise ScheduleError(f"rotate: '{leaf.name}' in '{loop.name}' is in no loop '{by.name}'")
        for each in (loop, by):
            if each.name in leaf.reduce_loops():
                raise ScheduleError(
                    f"rotate: '{each.name}' is a loop of the reduction '{leaf.name}', which has an order"
                )
    require_no_accumulators("rotate", loop)
    for start in loops_of(loop):
        form = start.form
        if isinstance(form, TileStart) and loop.name in form.tile.variables() and by not in around(start):
            raise ScheduleError(
                f"rotate: '{start.name}' is where a tile of '{loop.name}' begins, which '{by.name}' in it cannot move: "
                f"rotate '{loop.name}' by a loop around '{start.name}'"
            )
    substitute(loop, {loop.name: modulo(loop_index(loop.name) + loop_index(by.name), loop.extent)}, None)


def add_unit_loop(leaf: BlockLeaf) -> Loop:
    """Put a block into a loop of one iteration, outside of all its loops."""
    nest: Loop | BlockLeaf = leaf
    while isinstance(nest.parent, Loop):
        nest = nest.parent
    unit = Loop(unique_loop_name(leaf, f"{leaf.name}_unit"), 1)
    replace(nest, [unit])
    set_children(unit, [nest])
    return unit


def fuse(loops: Sequence[Loop]) -> Loop:
    """Fuse perfectly nested loops."""
    if len(set(map(id, loops))) != len(loops):
        raise ScheduleError(f"fuse: expected each loop once, found {', '.join(loop.name for loop in loops)}")
    for outer, inner in zip(loops, loops[1:], strict=False):
        if outer.body != [inner]:
            raise ScheduleError(f"fuse: '{inner.name}' is not the only thing in '{outer.name}'")
    for loop in loops:
        require_serial(loop)
        require_no_accumulators("fuse", loop)
    for leaf in leaves_of(loops[-1]):
        reduced = [loop.name for loop in loops if loop.name in leaf.reduce_loops()]
        if reduced and any(loop.name not in reduced and loop.extent != 1 for loop in loops):
            raise ScheduleError(f"fuse: '{reduced[0]}' is a loop of the reduction '{leaf.name}', others are not")
    iterations = math.prod(loop.extent for loop in loops if isinstance(loop.extent, int))
    if iterations > MAX_ITERATIONS:
        raise ScheduleError(f"fuse: {iterations} iterations, expected at most {MAX_ITERATIONS}")
    fused = Loop(unique_loop_name(loops[0], "_".join((loops[0].name, loops[-1].name.rsplit("_", 1)[-1]))), 1)
    values: dict[str, IndexExpr] = {loop.name: number(0) for loop in loops}
    repeated = [loop for loop in loops if loop.extent != 1]
    rest = loop_index(fused.name)
    for loop in reversed(repeated):
        fused.extent = fused.extent * loop.extent
        values[loop.name] = rest if loop is repeated[0] else modulo(rest, loop.extent)
        rest = floor_divide(rest, loop.extent)
    substitute(loops[0], values, None)
    inside = loops[-1].body
    replace(loops[0], [fused])
    set_children(fused, inside)
    return fused


def reorder(loops: Sequence[Loop]) -> None:
    """Reorder these loops of one nest; the loops between them keep their positions."""
    if len(set(map(id, loops))) != len(loops) or not loops:
        listed = ", ".join(loop.name for loop in loops) or "none"
        raise ScheduleError(f"reorder: expected each loop once, found {listed}")
    deepest = max(loops, key=lambda loop: len(around(loop)))
    chain = [*around(deepest), deepest]
    missing = [loop.name for loop in loops if loop not in chain]
    if missing:
        raise ScheduleError(f"reorder: '{missing[0]}' is not in one nest with '{deepest.name}'")
    first = min(chain.index(loop) for loop in loops)
    span = chain[first:]
    for outer, inner in zip(span, span[1:], strict=False):
        if outer.body != [inner]:
            raise ScheduleError(f"reorder: '{inner.name}' is not the only thing in '{outer.name}'")
    _require_order_is_free(span, loops)
    for loop in span:
        require_no_accumulators("reorder", loop)
    wanted = iter(loops)
    new = [next(wanted) if loop in loops else loop for loop in span]
    _require_starts_inside(new)
    inside, parent = span[-1].body, span[0].parent
    assert parent is not None
    at = parent.body.index(span[0])
    set_children(parent, [*parent.body[:at], new[0], *parent.body[at + 1 :]])
    for outer, inner in zip(new, new[1:], strict=False):
        set_children(outer, [inner])
    set_children(new[-1], inside)


def _require_starts_inside(chain: Sequence[Loop]) -> None:
    """Require that the loop of where a tile begins is in the loops over tiles."""
    for position, loop in enumerate(chain):
        later = {other.name for other in chain[position:]}
        if isinstance(loop.form, TileStart) and loop.form.tile.variables() & later:
            name = min(loop.form.tile.variables() & later)
            raise ScheduleError(f"reorder: '{loop.name}' is where a tile of '{name}' begins, and must be inside of it")


def _require_order_is_free(span: Sequence[Loop], loops: Sequence[Loop]) -> None:
    """Require that no loop of a reduction moves in front of the block that initializes it."""
    for leaf in leaves_of(span[-1]):
        if leaf.is_whole or not leaf.is_reduction:
            continue
        # An update whose initialization is further in than a reduction loop would restart in each iteration.
        forms = [other.form for other in leaves_of(span[0])]
        if any(isinstance(form, InitialValues) and form.reduction in (leaf, leaf.begin) for form in forms):
            raise ScheduleError(f"reorder: '{leaf.name}' is decomposed inside of these loops; reorder them before that")


def set_kind(loop: Loop, kind: str, thread: str | None = None) -> None:
    """Set the kind of a loop."""
    if kind == PARALLEL or thread is not None:
        for leaf in leaves_of(loop):
            if loop.name not in leaf.reduce_loops() or leaf.is_start:
                continue
            if (thread or "").startswith(THREAD):
                _require_partial_results(leaf, loop)
            else:
                raise ScheduleError(
                    f"'{loop.name}' is a loop of the reduction '{leaf.name}', whose iterations depend on one another; "
                    "split the reduction with rfactor, or take another loop"
                )
    require_serial(loop)
    if kind in (UNROLLED, VECTORIZED) and not isinstance(loop.extent, int):
        word = "unroll" if kind == UNROLLED else "vectorize"
        raise ScheduleError(
            f"{word}: '{loop.name}' has {loop.extent} iterations, which only the run time knows; split it first, and "
            f"{word} the inner loop"
        )
    if kind == UNROLLED and isinstance(loop.extent, int) and loop.extent > MAX_UNROLL:
        raise ScheduleError(
            f"unroll: '{loop.name}' has {loop.extent} iterations, expected at most {MAX_UNROLL}; split it, and unroll "
            "the inner loop"
        )
    loop.kind, loop.thread = kind, thread


def _require_partial_results(leaf: BlockLeaf, loop: Loop) -> None:
    """Require that threads can combine what each of them reduces."""
    if isinstance(leaf.form, Update):
        raise ScheduleError(
            f"bind: '{leaf.name}' is decomposed; across threads, a reduction starts from its initial value once: bind "
            f"'{loop.name}' instead of decompose_reduction"
        )
    if leaf.begin is not None:
        raise ScheduleError(
            f"bind: '{loop.name}' is a loop of the reduction '{leaf.begin.name}', another loop of which is partitioned"
        )
    if leaf.view is None or reducer_of(leaf.view) is None:
        raise ScheduleError(
            f"bind: '{leaf.name}' does not end with one operation on its former result, such as a sum: threads cannot "
            f"combine partial results of '{loop.name}', a loop of the reduction"
        )


def unswitch(loop: Loop) -> None:
    """Hoist the tests of edges and ends that do not vary in a loop: where they pass, its iterations have none."""
    inside = {loop.name, *(other.name for other in loops_of(loop))}
    tested = [(leaf, access) for leaf in leaves_of(loop) for access in leaf.reads if access.outside is not None]
    ends = any(index.variables() - inside for leaf in leaves_of(loop) for index, _ in leaf.guards)
    if not ends and all(each.variables() <= inside for leaf, access in tested for each in leaf.place(access)):
        raise ScheduleError(
            f"unswitch: no read in '{loop.name}' may be beyond an edge that is the same for the loop, and no iteration "
            "past such an end"
        )
    loop.is_unswitched = True


def require_serial(loop: Loop) -> None:
    intrinsic = next((each for each in map(intrinsic_of, (*around(loop), loop)) if each is not None), None)
    if intrinsic is not None:
        raise ScheduleError(f"'{loop.name}' is computed by '{intrinsic.name}' and has no loops any more")
    if loop.kind != SERIAL:
        raise ScheduleError(f"'{loop.name}' is {loop.kind} already")
    if isinstance(loop.form, TileStart):
        raise ScheduleError(f"'{loop.name}' is where a tile begins, and has one iteration")


def require_no_accumulators(word: str, loop: Loop) -> None:
    """Require that a loop is not one over which results are in registers."""
    for leaf in leaves_of(loop):
        chain = around(leaf) if isinstance(leaf.form, Accumulation) else []
        first = next((i for i, other in enumerate(chain) if leaf.form in other.accumulated), None)
        if first is not None and loop in chain[first:]:
            raise ScheduleError(f"{word}: '{leaf.name}' is in registers over '{chain[first].name}': {word} before that")


def substitute(node: Loop, values: dict[str, IndexExpr], guard: Guard | None) -> None:
    """Substitute expressions for loops in all blocks of a loop."""
    for leaf in leaves_of(node):
        leaf.at = [index.replace(values) for index in leaf.at]
        leaf.guards = [(index.replace(values), bound) for index, bound in leaf.guards]
        if guard is not None:
            leaf.guards.append(guard)
        for access in (*leaf.reads, *(each for after in leaf.epilogue for each in after.reads)):
            if access.is_tile:
                access.at = [index.replace(values) for index in access.at]
    for loop in loops_of(node):
        if isinstance(loop.form, TileStart):
            loop.form = replaced(loop.form, tile=loop.form.tile.replace(values))


def replace_by_nest(loop: Loop, nest: list[Loop]) -> list[Loop]:
    inside = loop.body
    replace(loop, [nest[0]])
    for outer, inner in zip(nest, nest[1:], strict=False):
        set_children(outer, [inner])
    set_children(nest[-1], inside)
    return nest


def unique_loop_name(node: Node, base: str) -> str:
    """Return a loop name that is not in use in the tree of a node."""
    return unused_name(base, root_of(node).loop_names)


def remove_empty(node: Loop | BlockLeaf | Root | None) -> None:
    """Remove loops with an empty body."""
    while isinstance(node, Loop) and not node.body:
        parent = node.parent
        replace(node, [])
        node = parent
