"""Schedule primitives on blocks: `compute_at`, inlining, cached copies, decomposed reductions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as changed
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr, loop_index, number
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.blocks.contraction.body import match_multiply_add
from mirlo.passes.schedule.primitives.loops import remove_empty, unique_loop_name
from mirlo.passes.schedule.primitives.regions import Region, needed_region, written_region
from mirlo.passes.schedule.primitives.tree import (
    BOUND,
    LETTERS,
    SERIAL,
    BlockLeaf,
    BufferAccess,
    InitialValues,
    Loop,
    Root,
    ScheduleBuffer,
    ScheduleError,
    TreeBlock,
    Update,
    around,
    axis_name,
    extents_of,
    leaves_of,
    nested,
    parts_of_reduction,
    replace,
    set_children,
)
from mirlo.runtime.names import unused_name

INTEGER_DIVISIONS = tuple(
    f"arith.{name}" for name in ("divsi", "divui", "remsi", "remui", "ceildivsi", "ceildivui", "floordivsi")
)


def compute_at(root: Root, leaf: BlockLeaf, loop: Loop) -> None:
    """Move a block into a loop, so that each iteration computes what it reads."""
    buffer = _single_output(leaf)
    _require_movable(root, leaf)
    readers = [(other, access) for other in root.leaves() for access in other.reads if access.buffer is buffer]
    if buffer.is_parameter:
        raise ScheduleError(f"compute_at: '{leaf.name}' makes a result of the function, all of which is needed")
    if not readers:
        raise ScheduleError(f"compute_at: nothing reads what '{leaf.name}' makes")
    _require_only_writer(root, buffer, "compute_at")
    for other, _ in readers:
        if loop not in around(other):
            raise ScheduleError(f"compute_at: '{other.name}' reads '{leaf.name}' outside of '{loop.name}'")
    region = needed_region(readers, loop, buffer)
    _move(root, leaf, loop, _axes_of(leaf, leaf.writes[0]), region, at_end=False)


def reverse_compute_at(root: Root, leaf: BlockLeaf, loop: Loop) -> None:
    """Move a block into a loop, so that each iteration computes the elements that are ready after it."""
    makers = [
        (other, access, read)
        for read in leaf.reads
        for other in leaves_of(loop)
        for access in other.writes
        if access.buffer is read.buffer
    ]
    if not makers:
        raise ScheduleError(f"reverse_compute_at: nothing in '{loop.name}' makes what '{leaf.name}' reads")
    _require_movable(root, leaf)
    outer = {loop.name, *(other.name for other in around(loop))}
    for maker, _, _ in makers:
        if maker.reduce_loops() & outer:
            raise ScheduleError(
                f"reverse_compute_at: '{maker.name}' is not complete after an iteration of '{loop.name}'"
            )
    if leaf.is_reduction:
        raise ScheduleError(
            f"reverse_compute_at: '{leaf.name}' is a reduction, which needs more than one iteration computes"
        )
    order = root.leaves()
    last = max(order.index(other) for other in leaves_of(loop))
    for read in leaf.reads:
        late = [other for other in order[last + 1 :] if any(access.buffer is read.buffer for access in other.writes)]
        if late:
            raise ScheduleError(f"reverse_compute_at: '{leaf.name}' reads '{late[0].name}', made after '{loop.name}'")
    maker, written, read = makers[0]
    for _, access, _ in makers:
        _require_only_writer(root, access.buffer, "reverse_compute_at")
    for _, _, other_read in makers:
        if other_read.is_opaque or other_read.at != read.at:
            name = other_read.buffer.name
            raise ScheduleError(
                f"reverse_compute_at: '{leaf.name}' reads elements of '{name}' that are not ready there"
            )
    region = written_region(maker, written, loop)
    _move(root, leaf, loop, _axes_of(leaf, read), region, at_end=True)


def inline(root: Root, leaf: BlockLeaf) -> None:
    """Inline a block, which is not a reduction, into its readers."""
    buffer = _single_output(leaf)
    _require_movable(root, leaf)
    if leaf.is_reduction or buffer.is_parameter:
        what = "a reduction" if leaf.is_reduction else "a result of the function"
        raise ScheduleError(f"compute_inline: '{leaf.name}' is {what}")
    _require_only_writer(root, buffer, "compute_inline")
    if None in _axes_of(leaf, leaf.writes[0]):
        raise ScheduleError(f"compute_inline: '{leaf.name}' writes a dim of '{buffer.name}' that is no axis")
    for other in root.leaves():
        for i, access in enumerate(other.reads):
            if access.buffer is not buffer:
                continue
            if access.outside is not None or access.is_opaque:
                raise ScheduleError(f"compute_inline: '{other.name}' reads '{leaf.name}' beyond its edges")
            other.reads[i] = changed(access, inlined=leaf)
    parent = leaf.parent
    replace(leaf, [])
    remove_empty(parent)
    leaf.parent = None
    root.buffers.remove(buffer)


def reverse_inline(root: Root, leaf: BlockLeaf) -> None:
    """Compute a block on the results of the block that makes its last operand, before these are stored."""
    what = f"reverse_compute_inline: '{leaf.name}'"
    _require_movable(root, leaf)
    if leaf.is_reduction:
        raise ScheduleError(f"{what} is a reduction")
    order = root.leaves()
    read = {id(access.buffer) for access in leaf.reads}
    makers = [other for other in order if any(id(access.buffer) in read for access in _results_of(other))]
    if not makers:
        raise ScheduleError(f"{what} reads no result of another block")
    maker = makers[-1]
    if maker.form is not None or maker.has_partial_results:
        raise ScheduleError(f"{what} reads '{maker.name}', which is decomposed, or scheduled by a rule")
    at: dict[int, IndexExpr] = {}
    for access in leaf.reads:
        if not any(access.buffer is written.buffer for written in _results_of(maker)):
            continue
        _require_only_writer(root, access.buffer, "reverse_compute_inline")
        if access.outside is not None or access.is_opaque or access.inlined is not None:
            raise ScheduleError(f"{what} reads other elements of '{maker.name}' than one")
        for axis, index in zip(_axes_of(leaf, access), _elements_of(maker, access.buffer), strict=True):
            if axis is not None and at.setdefault(axis, index) != index:
                raise ScheduleError(f"{what} reads several elements of '{maker.name}'")
    axes = [at.get(axis) for axis in range(len(leaf.domain))]
    left = [axis for axis, index in enumerate(axes) if index is None and leaf.domain[axis] != 1]
    sizes = {axis_name(i): extent for i, extent in enumerate(maker.domain)}
    covered = {name for index in at.values() for name in index.variables()}
    missing = [i for i, kind in enumerate(maker.kinds) if kind == "spatial" and axis_name(i) not in covered]
    is_same = all(index is None or index.range(sizes) == (0, leaf.domain[axis] - 1) for axis, index in enumerate(axes))
    if left or not is_same or any(maker.domain[i] != 1 for i in missing):
        raise ScheduleError(f"{what} has other elements than '{maker.name}' makes")
    _compute_after(root, leaf, maker, [number(0) if index is None else index for index in axes])


def compute_with(root: Root, leaf: BlockLeaf, other: BlockLeaf) -> None:
    """Compute a block in the iterations of another one that has the same axes."""
    what = f"compute_with: '{leaf.name}'"
    _require_movable(root, leaf)
    if other.rule:
        raise ScheduleError(f"{what} is to be computed with '{other.name}', which rule '{other.rule}' schedules")
    if leaf is other or leaf.is_reduction or other.is_reduction or not leaf.is_whole or not other.is_whole:
        raise ScheduleError(f"{what} and '{other.name}' are not two blocks without reductions")
    if leaf.domain != other.domain:
        raise ScheduleError(
            f"{what} has {' x '.join(map(str, leaf.domain))} elements, '{other.name}' has "
            f"{' x '.join(map(str, other.domain))}"
        )
    axes = [loop_index(axis_name(i)) for i in range(len(leaf.domain))]
    order = root.leaves()
    if order.index(other) > order.index(leaf):
        raise ScheduleError(f"{what} comes before '{other.name}': name them in their order")
    between = order[order.index(other) + 1 : order.index(leaf)]
    for written in (*leaf.writes, *other.writes):  # parts of a block have the axes of the whole, not its iterations
        _require_only_writer(root, written.buffer, "compute_with")
    for access in leaf.reads:
        late = [each for each in between if any(access.buffer is written.buffer for written in _results_of(each))]
        if late:
            raise ScheduleError(f"{what} reads '{late[0].name}', which is computed after '{other.name}'")
        if not any(access.buffer is written.buffer for written in _results_of(other)):
            continue
        _require_only_writer(root, access.buffer, "compute_with")
        is_plain = access.outside is None and not access.is_opaque and access.inlined is None
        if not is_plain or not _are_same(access.at, _elements_of(other, access.buffer), leaf.domain):
            raise ScheduleError(f"{what} reads another element of '{other.name}' than the one computed with it")
    _compute_after(root, leaf, other, axes)


def _are_same(left: Sequence[IndexExpr], right: Sequence[IndexExpr], domain: Sequence[Dim]) -> bool:
    """Return whether two elements of blocks with these axes are the same one."""
    single = {axis_name(i): number(0) for i, extent in enumerate(domain) if extent == 1}
    return [index.replace(single) for index in left] == [index.replace(single) for index in right]


def _compute_after(root: Root, leaf: BlockLeaf, maker: BlockLeaf, axes: list[IndexExpr]) -> None:
    """Compute a block at these axes after another one, in the same iteration."""
    parent = leaf.parent
    replace(leaf, [])
    remove_empty(parent)
    leaf.parent, leaf.at = None, axes
    maker.epilogue = [*maker.epilogue, leaf]
    inside = {id(access) for after in maker.epilogue for access in after.reads}
    others = [access for other in root.leaves() for access in other.reads]
    for written in _results_of(maker):
        readers = [access for access in others if access.buffer is written.buffer]
        readers += [
            access
            for other in root.leaves()
            for after in other.epilogue
            for access in after.reads
            if access.buffer is written.buffer and id(access) not in inside
        ]
        written.is_held = not written.buffer.is_parameter and not readers


def _results_of(leaf: BlockLeaf) -> list[BufferAccess]:
    """Return the outputs of a block, and those of its epilogue."""
    return [*leaf.writes, *(access for after in leaf.epilogue for access in after.writes)]


def _elements_of(maker: BlockLeaf, buffer: ScheduleBuffer) -> list[IndexExpr]:
    """Return the element of a buffer that a block makes, as expressions of its axes."""
    for access in maker.writes:
        if access.buffer is buffer:
            return access.at
    after, access = next((a, access) for a in maker.epilogue for access in a.writes if access.buffer is buffer)
    return after.place(access)


def _require_only_writer(root: Root, buffer: ScheduleBuffer, word: str) -> None:
    """Require that one block makes all elements of a buffer."""
    makers = [
        other
        for other in root.leaves()
        if not other.is_start and any(access.buffer is buffer for access in _results_of(other))
    ]
    if len(makers) > 1:
        names = ", ".join(f"'{other.name}'" for other in makers)
        raise ScheduleError(f"{word}: {names} make parts of '{buffer.name}': {word} before partition")


def cache_read(
    root: Root, leaves: Sequence[BlockLeaf], buffer: ScheduleBuffer, scope: str, operand: BufferAccess | None = None
) -> BlockLeaf:
    """Insert a block that copies a buffer before its readers, and replace what these read by the copy.

    With `operand`, a read of the first block, others of this block stay as they are.
    """
    accesses: list[BufferAccess] = []
    for leaf in leaves:
        is_first = leaf is leaves[0] and operand is not None
        own = [access for access in leaf.reads if (access is operand if is_first else access.buffer is buffer)]
        if not own:
            raise ScheduleError(f"cache_read: '{leaf.name}' does not read '{buffer.name}'")
        if any(access.outside is not None for access in own):
            raise ScheduleError(f"cache_read: '{leaf.name}' reads '{buffer.name}' beyond its edges")
        _require_separate_loops("cache_read", leaf, buffer, "writes")
        accesses += own
    order = list(map(root.leaves().index, leaves))
    if order != sorted(order):
        raise ScheduleError(f"cache_read: expected blocks in their order, found '{leaves[0].name}' first")
    copy = _copy_of(root, buffer, scope)
    for access in accesses:
        access.buffer = copy
    result = _copy_leaf(root, f"{copy.name}", buffer, copy)
    insert_nest(nest_of(root, result), leaves[0], before=True)
    return result


def pad(root: Root, leaf: BlockLeaf, buffer: ScheduleBuffer, dims: Sequence[int]) -> BlockLeaf:
    """Replace an operand of a block by a copy with a border along some dims, of the elements beyond its edges."""
    accesses = [access for access in leaf.reads if access.buffer is buffer]
    if len(accesses) != 1 or accesses[0].outside is None:
        raise ScheduleError(f"pad: '{leaf.name}' does not read '{buffer.name}' beyond its edges, by one access")
    if any(not 0 <= dim < len(buffer.shape) for dim in dims):
        raise ScheduleError(f"pad: expected dims from 0 to {len(buffer.shape) - 1} of '{buffer.name}', found {dims}")
    access = accesses[0]
    sizes = {axis_name(i): extent for i, extent in enumerate(leaf.domain)}
    ranges = [index.range(sizes) for index in access.at]
    if any(not isinstance(ranges[d][0], int) for d in dims):
        raise ScheduleError(f"pad: only the run time knows how far before its start '{buffer.name}' is read")
    before = [max(0, -ranges[d][0]) if d in dims else 0 for d in range(len(buffer.shape))]
    copy = _copy_of(root, buffer, "")
    copy.shape = tuple(ranges[d][1] + before[d] + 1 if d in dims else size for d, size in enumerate(buffer.shape))
    result = _copy_leaf(root, copy.name, copy, copy)
    axes = [loop_index(axis_name(i)) for i in range(len(copy.shape))]
    result.reads = [BufferAccess(buffer, [a - b for a, b in zip(axes, before, strict=True)], access.outside)]
    access.buffer, access.at = copy, [index + b for index, b in zip(access.at, before, strict=True)]
    is_inside = [
        D.is_certain(partial(_is_within, low, high, size))
        for (low, high), size in zip(ranges, buffer.shape, strict=True)
    ]
    access.outside = None if all(is_inside[d] or d in dims for d in range(len(ranges))) else access.outside
    insert_nest(nest_of(root, result), leaf, before=True)
    return result


def pad_einsum(root: Root, leaf: BlockLeaf, multiples: Sequence[int]) -> list[BlockLeaf]:
    """Extend the axes of a block to multiples: it reads copies with zeros beyond the edges, and writes a larger copy.

    Return the blocks that copy: those of its operands, then that of its result. There are copies where axes are
    multiples already, too.
    """
    what = f"pad_einsum: '{leaf.name}'"
    if len(multiples) != len(leaf.domain) or any(multiple < 1 for multiple in multiples):
        raise ScheduleError(
            f"{what} has {len(leaf.domain)} axes: expected a number from 1 up for each, found {list(multiples)}"
        )
    _require_movable(root, leaf)
    loops = around(leaf)
    if leaf.at != [loop_index(loop.name) for loop in loops] or leaf.view is None:
        raise ScheduleError(f"{what} is a copy, or its loops are not one for each axis, in their order: pad it first")
    domain = [D.ceildiv(dim, multiple) * multiple for dim, multiple in zip(leaf.domain, multiples, strict=True)]
    padded = {i for i, dim in enumerate(domain) if dim != leaf.domain[i]}
    _require_padded_body(what, leaf, padded)
    buffer = _single_output(leaf)
    _require_only_writer(root, buffer, "pad_einsum")
    accesses = [(access, _axes_of(leaf, access)) for access in (*leaf.reads, *leaf.writes)]
    for access, axes in accesses:
        if access.outside is not None or access.is_opaque or access.inlined is not None:
            raise ScheduleError(f"{what} reads '{access.buffer.name}' beyond its edges, by itself, or inlined")
        for dim, axis in enumerate(axes):
            if axis in padded and access.buffer.shape[dim] != leaf.domain[axis]:
                raise ScheduleError(f"{what} accesses a part of dim {dim} of '{access.buffer}': {leaf.domain[axis]}")
    copies: list[BlockLeaf] = []
    known: dict[tuple[int, tuple[Dim, ...]], ScheduleBuffer] = {}
    for access, axes in accesses:
        shape = tuple(
            dim if axis is None else domain[axis] for dim, axis in zip(access.buffer.shape, axes, strict=True)
        )
        source, is_result = access.buffer, access in leaf.writes
        if (id(source), shape) not in known:
            copy = known[id(source), shape] = _copy_of(root, source, "")
            copy.shape = shape
            name = f"{source.name}_out" if is_result else copy.name
            copies.append(_copy_leaf(root, name, source, copy))
            if is_result:
                copies[-1].reads[0].buffer, copies[-1].writes[0].buffer = copy, source
            else:
                copies[-1].block = TreeBlock.copy(shape)
                copies[-1].reads[0].outside = _zero(source)
            insert_nest(nest_of(root, copies[-1]), leaf, before=not is_result)
        access.buffer = known[id(source), shape]
    leaf.block = TreeBlock(leaf.kinds, tuple(domain), leaf.view)
    for loop, extent in zip(loops, domain, strict=True):
        loop.extent = extent
    return copies


def _require_padded_body(what: str, leaf: BlockLeaf, padded: set[int]) -> None:
    """Require that zeros beyond the edges do not change the elements that are copied back."""
    assert leaf.view is not None
    if any(leaf.kinds[axis] == "reduce" for axis in padded):
        product = match_multiply_add(leaf.view)
        if isinstance(product, Decline):
            raise ScheduleError(f"{what} adds more than products, of zeros too, along the padded reduction: {product}")
    divided = [op.name for op in leaf.body.body_ops if op.name in INTEGER_DIVISIONS]
    if divided and padded:
        raise ScheduleError(f"{what} divides integers ('{divided[0]}'), and there are zeros beyond the edges")


def _zero(buffer: ScheduleBuffer) -> ir.Attribute:
    is_integer = isinstance(buffer.element, ir.IntegerType | ir.IndexType)
    with buffer.element.context, ir.Location.unknown():
        return ir.IntegerAttr.get(buffer.element, 0) if is_integer else ir.FloatAttr.get(buffer.element, 0.0)


def _is_within(low: Dim, high: Dim, size: Dim) -> bool:
    return low >= 0 and high < size


def cache_write(root: Root, leaf: BlockLeaf, scope: str) -> BlockLeaf:
    """Replace the result of a block by a copy, and insert a block after it that copies it to the result."""
    buffer = _single_output(leaf)
    if not leaf.is_whole:
        raise ScheduleError(f"cache_write: '{leaf.name}' is decomposed already")
    _require_only_writer(root, buffer, "cache_write")
    _require_separate_loops("cache_write", leaf, buffer, "reads")
    copy = _copy_of(root, buffer, scope)
    for access in leaf.writes:
        access.buffer = copy
    result = _copy_leaf(root, f"{buffer.name}_out", copy, buffer)
    insert_nest(nest_of(root, result), leaf)
    return result


def _require_decomposable(leaf: BlockLeaf, loop: Loop) -> None:
    """Require that initial values can be stored before a loop."""
    if not leaf.is_reduction or not leaf.is_whole:
        raise ScheduleError(f"decompose_reduction: '{leaf.name}' is not a reduction, or is decomposed already")
    if loop not in around(leaf):
        raise ScheduleError(f"decompose_reduction: '{leaf.name}' is not in '{loop.name}'")
    if leaf.begin not in (None, leaf):
        assert leaf.begin is not None
        raise ScheduleError(f"decompose_reduction: '{leaf.name}' continues '{leaf.begin.name}': decompose that one")
    if leaf.epilogue:
        raise ScheduleError(
            f"decompose_reduction: '{leaf.epilogue[0].name}' is computed on the results of '{leaf.name}', which are in "
            "registers then (accumulate)"
        )
    reduced = leaf.reduce_loops()
    before = [other for other in around(loop) if other.name in reduced]
    if before:
        raise ScheduleError(f"decompose_reduction: '{before[0].name}', of the reduction, is around '{loop.name}'")
    chain = around(leaf)
    inside = [other for other in chain[chain.index(loop) :] if other.name not in reduced]
    shared = [other for other in inside if len(leaves_of(other)) > 1]
    if leaf.is_moved and shared:
        raise ScheduleError(
            f"decompose_reduction: '{shared[0].name}' may compute an element of '{leaf.name}' in several iterations, "
            "each of which starts from the initial value; name a loop of the block itself"
        )
    across = [other for other in chain if other.kind == BOUND and other.name in reduced]
    if across:
        raise ScheduleError(
            f"decompose_reduction: '{leaf.name}' is reduced across the threads of '{across[0].name}', whose partial "
            "results are combined with the initial value once"
        )


def decompose(root: Root, leaf: BlockLeaf, loop: Loop) -> BlockLeaf:
    """Store the initial values of a reduction before a loop, and drop them from the reduction."""
    _require_decomposable(leaf, loop)
    reduced, chain = leaf.reduce_loops(), around(leaf)
    inside = [other for other in chain[chain.index(loop) :] if other.name not in reduced]
    names = {other.name: unique_loop_name(root, f"{other.name}_start") for other in inside}
    values = {old: loop_index(new) for old, new in names.items()}
    zero = {name: number(0) for name in reduced}
    start = BlockLeaf(
        f"{leaf.name}_start", leaf.block, [], [changed(access) for access in leaf.writes],
        [index.replace({**values, **zero}) for index in leaf.at], form=InitialValues(leaf),
    )  # fmt: skip
    # All elements get their initial value, also partial results for which no iteration is left.
    starts = [_start_loop(other, names[other.name]) for other in inside]
    loops = [*chain[: chain.index(loop)], *starts]
    for kind, index, extent in zip(start.kinds, start.at, start.domain, strict=True):
        if kind == "spatial":
            _guard(start, index, extent, loops)
    # Iterations that do nothing leave alone what others compute.
    kept = [
        (index.replace(values), bound) for index, bound in leaf.guards if not index.variables() & leaf.used_to_reduce
    ]
    start.guards += [guard for guard in kept if guard not in start.guards]
    replace(loop, [nested(starts, start), loop])
    for part in parts_of_reduction(root, leaf):
        part.form = Update()
    return start


def _start_loop(loop: Loop, name: str) -> Loop:
    """Return a loop over initial values, in which a thread stores those of its own elements."""
    is_bound = loop.kind == BOUND
    return Loop(name, loop.extent, BOUND if is_bound else SERIAL, loop.thread if is_bound else None)


def _require_separate_loops(word: str, leaf: BlockLeaf, buffer: ScheduleBuffer, field: str) -> None:
    """Require that no loop contains both writers and readers of a buffer that is copied whole."""
    nest = around(leaf)[0] if around(leaf) else leaf
    for other in leaves_of(nest):
        if other is not leaf and any(access.buffer is buffer for access in getattr(other, field)):
            raise ScheduleError(
                f"{word}: '{other.name}' {field} '{buffer.name}' in the same loops as '{leaf.name}'; apply "
                f"{word} before moving blocks together"
            )


def _single_output(leaf: BlockLeaf) -> ScheduleBuffer:
    if leaf.epilogue:
        raise ScheduleError(f"'{leaf.epilogue[0].name}' is computed on results of '{leaf.name}' before they are stored")
    if len(leaf.writes) != 1:
        raise ScheduleError(f"'{leaf.name}' has {len(leaf.writes)} results; this is for blocks with one")
    return leaf.writes[0].buffer


def _require_movable(root: Root, leaf: BlockLeaf) -> None:
    if leaf.epilogue:
        raise ScheduleError(
            f"'{leaf.epilogue[0].name}' is computed on results of '{leaf.name}': move '{leaf.name}' before that"
        )
    if not leaf.is_whole:
        raise ScheduleError(f"'{leaf.name}' is decomposed: move it before that")
    if leaf.begin is not None:
        raise ScheduleError(f"'{leaf.name}' is a part of a reduction whose loop is partitioned: move it before that")
    if leaf.has_partial_results:
        raise ScheduleError(f"'{leaf.name}' makes partial results: move it before rfactor")
    for loop in around(leaf):
        if len(leaves_of(loop)) != 1:
            raise ScheduleError(f"'{leaf.name}' shares '{loop.name}' with other blocks")


def _axes_of(leaf: BlockLeaf, access: BufferAccess) -> list[int | None]:
    """Return the axis of the block for each dim of an access; None for a dim of one element."""
    result: list[int | None] = []
    for index, size in zip(access.at, access.buffer.shape, strict=True):
        if size == 1 and index == IndexExpr():
            result.append(None)
            continue
        axes = [i for i in range(len(leaf.kinds)) if index == loop_index(axis_name(i))]
        if not axes or axes[0] in result:
            raise ScheduleError(f"'{leaf.name}': {index} of '{access.buffer.name}' is not one axis of the block")
        result += axes
    return result


def _move(root: Root, leaf: BlockLeaf, loop: Loop, axes: list[int | None], region: list[Region], at_end: bool) -> None:
    """Move a block from its loops into a loop, over a region of some of its axes and all of the others."""
    parent = leaf.parent
    replace(leaf, [])
    remove_empty(parent)
    new_loops: list[Loop] = []
    leaf.guards, leaf.is_moved = [], True
    for axis, extent in enumerate(leaf.domain):
        letter = LETTERS[axis] if axis < len(LETTERS) else str(axis)
        start, size = region[axes.index(axis)] if axis in axes else (IndexExpr(), extent)
        name = unique_loop_name(root, f"{leaf.name}_{letter}")
        while name in {other.name for other in new_loops}:
            name += "_"
        new_loops.append(Loop(name, size))
        leaf.at = [*leaf.at[:axis], start + loop_index(name), *leaf.at[axis + 1 :]]
        _guard(leaf, leaf.at[axis], extent, [*around(loop), loop, *new_loops])
    node = nested(new_loops, leaf)
    set_children(loop, [*loop.body, node] if at_end else [node, *loop.body])


def _guard(leaf: BlockLeaf, index: IndexExpr, extent: Dim, loops: list[Loop]) -> None:
    """Guard against the part of a region that is out of bounds."""
    extents = extents_of(loops)
    if not D.is_certain(lambda: index.range(extents)[1] < extent):
        leaf.guards.append((index, extent))
    if not D.is_certain(lambda: index.range(extents)[0] >= 0):
        leaf.guards.append((index * -1, 1))


def _copy_of(root: Root, buffer: ScheduleBuffer, scope: str) -> ScheduleBuffer:
    name = unused_name(f"{buffer.name}_{scope or 'copy'}", {other.name for other in root.buffers})
    alias = f"{buffer.alias or buffer.name}_{scope or 'copy'}"
    copy = ScheduleBuffer(name, buffer.shape, buffer.element, scope=scope, order=buffer.order, alias=alias)
    root.buffers.append(copy)
    return copy


def _copy_leaf(root: Root, name: str, source: ScheduleBuffer, target: ScheduleBuffer) -> BlockLeaf:
    name = unused_name(name, {leaf.name for leaf in root.leaves()})
    axes = [loop_index(axis_name(i)) for i in range(len(source.shape))]
    reads, writes = [BufferAccess(source, axes)], [BufferAccess(target, list(axes))]
    return BlockLeaf(name, TreeBlock.copy(source.shape), reads, writes, [])


def nest_of(root: Root, leaf: BlockLeaf) -> Loop | BlockLeaf:
    """Return a block in new loops, one for each axis."""
    names = [unique_loop_name(root, f"{leaf.name}_{LETTERS[i]}") for i in range(len(leaf.domain))]
    leaf.at = [loop_index(name) for name in names]
    return nested([Loop(name, extent) for name, extent in zip(names, leaf.domain, strict=True)], leaf)


def insert_nest(node: Loop | BlockLeaf, leaf: BlockLeaf, before: bool = False) -> None:
    """Insert a node at the root, before or after the nest of a block."""
    anchor: Loop | BlockLeaf = around(leaf)[0] if around(leaf) else leaf
    replace(anchor, [node, anchor] if before else [anchor, node])
