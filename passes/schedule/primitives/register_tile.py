"""`Schedule.register_tile`: a block as a tile of accumulators in registers, a leaf of the loop tree.

The loops of a tile stay in the tree, for the analysis of accesses, but have no code of their own: `tile_code` emits a
tile once for all its points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr, number
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.blocks.contraction.body import is_zero, match_multiply_add
from mirlo.passes.schedule.primitives.contiguity import in_iterations, is_beyond_edge, is_within, position_of
from mirlo.passes.schedule.primitives.tile_instruction import kind_of, tile_instructions
from mirlo.passes.schedule.primitives.tree import (
    UNROLLED,
    BlockLeaf,
    BufferAccess,
    Loop,
    Prefetch,
    Root,
    ScheduleBuffer,
    ScheduleError,
    ShiftedTiles,
    TileLeaf,
    TileSide,
    around,
    extents_of,
    placed_at,
)
from mirlo.runtime.errors import nearest


class AccessPositions:
    """Positions in memory of the accesses of a block and its epilogue, each computed once for all checks of a tile."""

    def __init__(self, leaf: BlockLeaf) -> None:
        self.leaf = leaf
        self._known: dict[int, IndexExpr] = {}

    def of(self, access: BufferAccess, axes: Sequence[IndexExpr] | None = None) -> IndexExpr:
        """Return the position of an access, with as few divisions as the points of the block leave.

        `axes` are those of the access in iterations; by default, those of the block.
        """
        result = self._known.get(id(access))
        if result is None:
            indices = placed_at(access.at, self.leaf.at if axes is None else axes)
            result = self._known[id(access)] = in_iterations(position_of(access, indices), self.leaf)
        return result


def sides_of(tile: TileLeaf) -> tuple[TileSide, TileSide]:
    """Return the factor and the access of the rows, and those of the columns.

    Where both move along the columns, the rows are those that edges limit, or that move along the loop over rows.
    """
    leaf = tile.leaf
    # Primitives replace the list of expressions.
    if tile.known_sides is None or tile.known_sides[0] is not leaf.at:
        tile.known_sides = leaf.at, _find_sides(tile, AccessPositions(leaf))
    return tile.known_sides[1]


def _find_sides(tile: TileLeaf, positions: AccessPositions) -> tuple[TileSide, TileSide]:
    leaf = tile.leaf
    assert leaf.view is not None
    left, right = ((factor, leaf.reads[factor.position]) for factor in (tile.product.lhs, tile.product.rhs))
    forms = [positions.of(access) for _, access in (left, right)]

    def are_rows(form: IndexExpr, access: BufferAccess) -> tuple[bool, bool, bool]:
        moves = tile.rows is not None and form.coefficient(tile.rows.name) != 0
        return form.coefficient(tile.lanes.name) == 0, access.outside is not None, moves

    is_right = are_rows(forms[1], right[1]) > are_rows(forms[0], left[1])
    return (right, left) if is_right else (left, right)


def prefetch(root: Root, leaf: BlockLeaf, buffer: ScheduleBuffer, loop: Loop | None, distance: int) -> None:
    """Prefetch the columns of a tile: those of the next iteration of a loop around it, or this many elements ahead.

    A buffer that the epilogue reads is prefetched before the reduction of the tile.
    """
    tile = leaf.form
    if not isinstance(tile, TileLeaf):
        raise ScheduleError(f"prefetch: '{leaf.name}' is no register tile")
    if sides_of(tile)[1][1].buffer is not buffer:
        _prefetch_in_epilogue(tile, buffer, loop is not None or distance != 0)
        return
    if loop is not None and (loop not in around(leaf) or loop in tile.inner):
        raise ScheduleError(f"prefetch: '{loop.name}' is no loop around the tile of '{leaf.name}'")
    if loop is None and distance < 1:
        raise ScheduleError("prefetch: expected a loop, or a distance of 1 element or more")
    tile.prefetches.append(Prefetch(buffer, loop.name if loop is not None else "", distance))


def _prefetch_in_epilogue(tile: TileLeaf, buffer: ScheduleBuffer, has_place: bool) -> None:
    """Prefetch the elements of a buffer that the epilogue of a tile reads."""
    leaf = tile.leaf
    reads = [(access, after) for after in leaf.epilogue for access in after.reads if access.buffer is buffer]
    if not reads or any(access.is_opaque or access.is_held for access, _ in reads):
        raise ScheduleError(
            f"prefetch: '{buffer.name}' has not the columns of '{leaf.name}', and its epilogue does not read it"
        )
    if has_place:
        raise ScheduleError(f"prefetch: the epilogue reads '{buffer.name}' at each tile: leave out loop and distance")
    positions = AccessPositions(leaf)
    forms = [positions.of(access, placed_at(after.at, leaf.at)) for access, after in reads]
    if any(form.coefficient(tile.lanes.name) != 1 for form in forms):
        raise ScheduleError(f"prefetch: '{buffer.name}' is not contiguous along '{tile.lanes.name}'")
    tile.awaited.append(buffer)


def register_tile(
    root: Root,
    leaf: BlockLeaf,
    loops: Sequence[Loop],
    over: Sequence[Loop],
    instruction: str,
    is_masked: bool = True,
    steps: int = 1,
    epilogue: tuple[int, int] | None = None,
    has_partial_sums: bool = False,
) -> TileLeaf:
    """Make a reduction a tile: `loops` are its rows, vectors, lanes and the loops in an instruction, innermost."""
    if not leaf.is_reduction or not leaf.is_whole or leaf.view is None:
        raise ScheduleError(f"register_tile: '{leaf.name}' is not a reduction, or is decomposed already")
    product = match_multiply_add(leaf.view)
    if isinstance(product, Decline):
        raise ScheduleError(f"register_tile: '{leaf.name}' is no sum of products: {product}")
    table = tile_instructions()
    if instruction not in table:
        hint = nearest(instruction, table) or f"; the table has {', '.join(table)}"
        raise ScheduleError(f"register_tile: unknown instruction '{instruction}'{hint}")
    chain, inner = around(leaf), [*over, *loops]
    outer = chain[: len(chain) - len(inner)]
    if not over or any(a is not b for a, b in zip(chain[len(outer) :], inner, strict=False)):
        expected, present = (", ".join(each.name for each in nest) for nest in (inner, chain))
        raise ScheduleError(
            f"register_tile: expected one loop of the reduction or more in 'over', and that the innermost loops of "
            f"'{leaf.name}' are {expected}; found {present}"
        )
    reduced = leaf.reduce_loops()
    depth = [each for each in loops if each.name in reduced]
    spatial = [each for each in loops if each.name not in reduced]
    is_sorted = [*spatial, *depth] == list(loops) and all(each.name in reduced for each in over)
    if not is_sorted or not 1 <= len(spatial) <= (3 if table[instruction].shape is None else 4):
        raise ScheduleError(
            "register_tile: expected loops over rows, vectors and lanes, then those of the reduction in an "
            f"instruction, and in 'over' loops of the reduction, found {', '.join(each.name for each in loops)} and "
            f"{', '.join(each.name for each in over)}"
        )
    lines = spatial[0] if len(spatial) == 4 else None
    is_along_sum = bool(depth) and table[instruction].is_per_lane
    if is_along_sum and (len(spatial) != 2 or len(depth) != 1):
        raise ScheduleError(
            f"register_tile: lanes along '{depth[0].name}', a loop of the reduction: expected loops over rows, columns "
            f"and lanes, found {', '.join(each.name for each in loops)}"
        )
    positions = AccessPositions(leaf)
    rows, vectors, lanes = (spatial[0], None, spatial[1]) if is_along_sum else _by_role(positions, spatial[-3:])
    blocks = [each for each in outer if each.name in reduced and each.extent != 1]
    if blocks and any(isinstance(each.form, ShiftedTiles) for each in chain):
        raise ScheduleError(
            f"register_tile: '{leaf.name}' has blocks of K, '{blocks[0].name}', between which shifted tiles would add "
            "to elements twice"
        )
    tile = TileLeaf(
        leaf, list(over), lines, rows, vectors, lanes, depth, blocks, table[instruction], product, is_masked, steps,
        epilogue, has_partial_sums,
    )  # fmt: skip
    _require_static(tile)
    _require_partial_sums(tile)
    _require_unrolled(tile)
    _require_linear(tile, positions)
    sides = _find_sides(tile, positions)
    tile.known_sides = leaf.at, sides
    _require_operands(tile, sides, positions)
    _require_edges(tile, sides)
    _require_epilogue(tile)
    _require_instruction(tile, sides)
    _require_groups(tile, sides, positions)
    if blocks and leaf.writes[0].buffer.element != product.accumulate_type:
        raise ScheduleError(
            f"register_tile: accumulators of {product.accumulate_type} are in '{leaf.writes[0].buffer.name}' between "
            f"blocks of K, whose elements are {leaf.writes[0].buffer.element}"
        )
    leaf.form = tile
    if blocks:
        tile.is_stored, leaf.writes[0].is_held = not leaf.writes[0].is_held, False
    over[0].form = tile
    return tile


def _by_role(positions: AccessPositions, spatial: Sequence[Loop]) -> tuple[Loop | None, Loop | None, Loop]:
    """Return the loops over rows, vectors and lanes; with two loops, the first one is over what it moves along."""
    *others, lanes = spatial
    if len(others) == 2:
        return others[0], others[1], lanes
    if not others:
        return None, None, lanes
    leaf = positions.leaf
    result = positions.of(leaf.writes[0])
    is_next = result.coefficient(others[0].name) == result.coefficient(lanes.name) * lanes.extent
    along = [positions.of(access) for access in leaf.reads]
    moves = [form for form in along if form.coefficient(others[0].name) != 0]
    is_vectors = is_next and all(form.coefficient(lanes.name) != 0 for form in moves)
    return (None, others[0], lanes) if is_vectors else (others[0], None, lanes)


def _require_static(tile: TileLeaf) -> None:
    sized = [loop for loop in (tile.lines, tile.rows, tile.vectors, tile.lanes, *tile.depth) if loop is not None]
    dynamic = next((loop for loop in sized if not isinstance(loop.extent, int)), None)
    if dynamic is not None:
        raise ScheduleError(f"register_tile: '{dynamic.name}' has {dynamic.extent} iterations: split it first")
    if tile.epilogue is not None and len(tile.epilogue) != 2:
        raise ScheduleError("register_tile: expected two numbers in 'epilogue', for whole and for smaller tiles")


def _require_partial_sums(tile: TileLeaf) -> None:
    """Require one loop of partial sums, around that of their products, or along the lanes."""
    if not tile.has_partial_sums:
        return
    expected = 1 if tile.is_along_sum else 2
    if len(tile.over) != expected or not tile.instruction.is_per_lane or tile.blocks:
        raise ScheduleError(
            f"register_tile: partial sums take {expected} loop{'s' * (expected - 1)} in 'over', an instruction without "
            f"groups, and no blocks of K; found {', '.join(loop.name for loop in tile.over)} and "
            f"'{tile.instruction.name}'"
        )


def _require_unrolled(tile: TileLeaf) -> None:
    """Require that loops of the reduction that are unrolled are the innermost ones."""
    kinds, instruction = [loop.kind == UNROLLED for loop in tile.over], tile.instruction
    is_plain = instruction.unit is None and not (instruction.flips or instruction.has_pairs or tile.steps > 1)
    if kinds != sorted(kinds) or any(kinds) and not is_plain:
        name = tile.over[kinds.index(True)].name
        raise ScheduleError(f"register_tile: '{name}' is unrolled: expected the innermost loop of 'over', and steps=1")


def _require_instruction(tile: TileLeaf, sides: tuple[TileSide, TileSide]) -> None:
    """Require that the instruction multiplies the operands, in as many registers as it has."""
    instruction, name = tile.instruction, tile.instruction.name
    (rows, _), (factor, _) = sides
    if not instruction.takes(rows, factor, tile.product):
        taken = " or ".join(" x ".join(each[:2]) for each in instruction.operands)
        kinds = " x ".join(kind_of(each) or "an expression" for each in (rows, factor))
        raise ScheduleError(f"register_tile: '{name}' multiplies {taken}, found {kinds}")
    if instruction.has_pairs and tile.blocks:
        raise ScheduleError(f"register_tile: '{name}' adds to sums of 2 x 2, which blocks of K do not keep in memory")
    if instruction.shape is None or instruction.unit is None:
        return
    height, width = matrix_registers(tile)
    needed, most = height * width + height + width, instruction.unit.registers
    columns = {loop.name for loop in (tile.vectors, tile.lanes) if loop is not None}
    rests = [bound for form, bound in tile.leaf.guards if form.variables() & columns]
    if tile.blocks and any(not isinstance(bound, int) or bound % instruction.shape[1] for bound in rests):
        raise ScheduleError(
            f"register_tile: between blocks of K whole registers of '{name}' are stored, of {instruction.shape[1]} "
            f"columns, found {rests[0]} columns"
        )
    is_equal = tile.height % height == 0 and tile.height // height <= instruction.shape[0]
    if needed > most or not is_equal or tile.width % instruction.shape[1]:
        raise ScheduleError(
            f"register_tile: '{name}' takes up to {instruction.shape[0]} rows and {instruction.shape[1]} columns, and "
            f"has {most} registers; a tile of {tile.height} rows and {tile.width} columns needs {needed} of equal rows"
        )


def _require_groups(tile: TileLeaf, sides: tuple[TileSide, TileSide], positions: AccessPositions) -> None:
    """Require that the elements of a row, and of each column, that one instruction multiplies are contiguous."""
    if tile.is_along_sum:
        _require_lanes_of_sum(tile, sides, positions)
        return
    group, is_matrix = tile.instruction.group, tile.instruction.shape is not None
    extents = [loop.extent for loop in tile.depth]
    expected = [tile.instruction.depth // group, group] if is_matrix else [group] if group > 1 else []
    if extents != expected:
        raise ScheduleError(
            f"register_tile: expected loops of {' and '.join(map(str, expected)) or 'no'} iterations inside of "
            f"'{tile.lanes.name}' for '{tile.instruction.name}', found {' and '.join(map(str, extents)) or 'none'}"
        )
    (_, rows), (_, columns) = sides
    for access, loops in ((rows, tile.depth), (columns, tile.depth[-1:])):
        form, step = positions.of(access), 1
        for loop in reversed(loops):
            if form.coefficient(loop.name) != step:
                raise ScheduleError(f"register_tile: '{access.buffer.name}' is not contiguous along '{loop.name}'")
            step *= D.static_dim(loop.extent)


def _require_lanes_of_sum(tile: TileLeaf, sides: tuple[TileSide, TileSide], positions: AccessPositions) -> None:
    """Require that both operands are contiguous along the lanes, and that no products are left out."""
    lanes = tile.depth[0]
    for _, access in sides:
        if positions.of(access).coefficient(lanes.name) != 1:
            raise ScheduleError(f"register_tile: '{access.buffer.name}' is not contiguous along '{lanes.name}'")
        if any(is_beyond_edge(access, dim, tile.leaf) for dim in range(len(access.at)) if access.outside is not None):
            raise ScheduleError(f"register_tile: '{access.buffer.name}' is read beyond its edges: pad it")
    unrolled = [loop for loop in tile.over if loop.kind == UNROLLED]
    if unrolled and len(tile.over) > 1 or tile.steps > 1 or tile.blocks:
        raise ScheduleError(
            f"register_tile: lanes are along '{lanes.name}': expected one loop in 'over' if it is unrolled, steps=1, "
            "and no blocks of K"
        )


def matrix_registers(tile: TileLeaf) -> tuple[int, int]:
    """Return the registers along the rows and the columns of a tile of a matrix unit."""
    assert tile.instruction.shape is not None
    rows, columns, _ = tile.instruction.shape
    return tile.line_count if tile.lines is not None else -(-tile.height // rows), -(-tile.width // columns)


def _accesses(leaf: BlockLeaf) -> Iterator[tuple[BufferAccess, list[IndexExpr], bool]]:
    """Yield the accesses of a block and its epilogue in memory, their axes, and whether they are stores."""
    for access in leaf.reads:
        yield access, leaf.at, False
    for access in leaf.writes:
        if not access.is_held:
            yield access, leaf.at, True
    for after in leaf.epilogue:
        at = placed_at(after.at, leaf.at)
        for access in (*after.reads, *after.writes):
            if not access.is_opaque and not access.is_held:
                yield access, at, access in after.writes


def _require_linear(tile: TileLeaf, positions: AccessPositions) -> None:
    """Require that accesses are linear in the loops of the tile, and contiguous along its columns."""
    leaf, lanes, vectors = tile.leaf, tile.lanes.name, tile.vectors
    inner = {loop.name for loop in tile.inner}
    if any(access.inlined is not None for access, _, _ in _accesses(leaf)):
        raise ScheduleError(f"register_tile: a block is inlined in '{leaf.name}'")
    results = {id(access.buffer) for each in (leaf, *leaf.epilogue) for access in each.writes}
    for access, at, is_store in _accesses(leaf):
        if not is_store and id(access.buffer) in results:
            continue
        form, name = positions.of(access, at), access.buffer.name
        if any(inner & division.inner.variables() for division in form.divisions):
            raise ScheduleError(f"register_tile: '{name}' is at {form}, not linear in the loops of the tile")
        if vectors is not None and vectors.extent != 1:
            step = form.coefficient(lanes) * tile.lane_count
            if form.coefficient(vectors.name) != step:
                raise ScheduleError(
                    f"register_tile: '{name}' moves along '{vectors.name}' by {form.coefficient(vectors.name)} "
                    f"elements, expected {step}, the {tile.lane_count} columns of '{lanes}'"
                )
        if is_store and tile.lanes.extent != 1 and form.coefficient(lanes) != 1:
            raise ScheduleError(f"register_tile: '{name}' is not contiguous along '{lanes}'")


def _require_operands(tile: TileLeaf, sides: tuple[TileSide, TileSide], positions: AccessPositions) -> None:
    """Require an operand of rows and one of columns, and rests that loops of the reduction decide."""
    leaf, lanes = tile.leaf, tile.lanes.name
    inner = {loop.name for loop in tile.inner}
    group = tile.instruction.group
    steps = [positions.of(access).coefficient(lanes) for _, access in sides]
    is_single = group == 1 and tile.width == 1
    is_per_lane = tile.instruction.is_per_lane
    if not (tile.is_along_sum or is_single) and (
        (steps[1] == 0 if is_per_lane else steps[1] != group) or steps[0] != 0 and not is_per_lane
    ):
        raise ScheduleError(
            f"register_tile: expected columns along '{lanes}' in steps of {group} elements"
            f"{', and rows that stay' if group > 1 else ''}, found steps of {' and '.join(map(str, steps))}"
        )
    columns = sides[1][1]
    for loop in () if tile.instruction.is_per_lane else (tile.lines, tile.rows):
        if loop is not None and positions.of(columns).coefficient(loop.name) != 0:
            raise ScheduleError(f"register_tile: rows of '{loop.name}' have columns of their own")
    if tile.lines is not None and tile.rows is not None:
        has_rest = any(tile.rows.name in form.variables() for form, _ in leaf.guards)
        if has_rest or any(isinstance(loop.form, ShiftedTiles) for loop in around(leaf)):
            raise ScheduleError(f"register_tile: '{tile.rows.name}' has a rest, inside of the registers of a loop")
    shifted = {loop.form.row for loop in around(leaf) if isinstance(loop.form, ShiftedTiles)}
    for form, bound in leaf.guards:
        inside = form.variables() & {loop.name for loop in tile.depth}
        if inside and not _is_last_group(tile, form, bound, inside, sides):
            raise ScheduleError(f"register_tile: '{min(inside)}' has a rest, inside of an instruction")
        if inside:
            continue
        limited = form.variables() & inner - shifted
        if limited and not isinstance(bound, int) and not _is_rest_of_columns(tile, form):
            raise ScheduleError(
                f"register_tile: '{min(limited)}' has a rest that only the run time knows: split it with tail='shift'"
            )


def _is_last_group(
    tile: TileLeaf, form: IndexExpr, bound: Dim, inside: set[str], sides: tuple[TileSide, TileSide]
) -> bool:
    """Return whether a guard limits the last vector, or the last group, along K; or each group, of which one is K."""
    if form.variables() - {tile.over[-1].name} != inside:
        return False
    if tile.is_along_sum:
        return True
    # Columns of the last group are read whole: as a copy has them, with memory for all groups.
    columns = sides[1][1].buffer
    is_copy = columns.value is None and bool(columns.tiles)
    is_plain = tile.instruction.unit is None and tile.over[-1].kind != UNROLLED
    return is_copy and is_plain and isinstance(bound, int) and form.constant == 0


def _is_rest_of_columns(tile: TileLeaf, form: IndexExpr) -> bool:
    """Return whether a guard limits the columns of tiles that begin at multiples of their width."""
    if not tile.instruction.is_per_lane or tile.blocks:
        return False
    columns = {loop.name for loop in (tile.vectors, tile.lanes) if loop is not None}
    origin = form.replace({name: number(0) for name in columns})
    steps = [*origin.terms.values(), origin.constant]
    return bool(columns >= form.variables() & {loop.name for loop in tile.inner}) and all(
        isinstance(step, int) and step % tile.width == 0 for step in steps
    )


def _require_edges(tile: TileLeaf, sides: tuple[TileSide, TileSide]) -> None:
    """Require that it is known which products are beyond an edge, or one loop of the reduction decides that."""
    leaf, over, inner = tile.leaf, {loop.name for loop in tile.over}, {loop.name for loop in tile.inner}
    unrolled = unrolled_loops(tile)
    extents = extents_of(around(leaf))
    (_, rows), (_, columns) = sides
    for access in (rows, columns):
        for dim, form in enumerate(leaf.place(access) if access.outside is not None else ()):
            if access.outside is None or not is_beyond_edge(access, dim, leaf):
                continue
            moved, size = form.variables() & inner, access.buffer.shape[dim]
            if access is rows and moved <= unrolled:
                first = form.replace({name: number(0) for name in moved}).range(extents)
                if not is_within(form, size, extents) and first[0] != first[1]:
                    raise ScheduleError(
                        f"register_tile: tiles differ in which elements of '{access.buffer.name}' at {form} are beyond "
                        "its edges: partition the loop over tiles, or pad it"
                    )
            elif access is columns or len(moved) > 1 or moved - over or moved & unrolled:
                raise ScheduleError(
                    f"register_tile: '{access.buffer.name}' is read beyond its edges at {form}, which one loop in "
                    "'over' does not decide: pad it"
                )
            if not is_zero(access.outside):
                raise ScheduleError(
                    f"register_tile: '{access.buffer.name}' is {access.outside} beyond its edges, where a tile leaves "
                    "products out: pad it"
                )


def unrolled_loops(tile: TileLeaf) -> set[str]:
    """Return the loops of a tile whose iterations are emitted one by one: over rows, and those of taps."""
    rows = [] if tile.rows is None or tile.instruction.unit is not None else [tile.rows]
    return {loop.name for loop in (*rows, *(each for each in tile.over if each.kind == UNROLLED))}


def _require_epilogue(tile: TileLeaf) -> None:
    """Require that indices that are values are linear in the loops of the tile."""
    leaf, lanes = tile.leaf, tile.lanes.name
    inner = {loop.name for loop in tile.inner}
    for after in (leaf, *leaf.epilogue):
        axes = leaf.at if after is leaf else placed_at(after.at, leaf.at)
        for axis, _ in after.body.indices:
            form = in_iterations(axes[axis], leaf)
            if any(inner & each.inner.variables() for each in form.divisions) or form.coefficient(lanes) not in (0, 1):
                raise ScheduleError(
                    f"register_tile: '{after.name}' computes with {form}, not linear in the loops of the tile"
                )
        if any(access.outside is not None for access in after.reads) and after is not leaf:
            raise ScheduleError(f"register_tile: '{after.name}' reads beyond the edges of an operand")
