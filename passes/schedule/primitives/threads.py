"""Loops bound to blocks and threads of a GPU: the memory that these share, and the thread that stores a result.

Each nest of the function is a kernel of its own. In a kernel a thread may read what it wrote itself; what other threads
of its block wrote it reads from shared memory, after a barrier, which follows each loop over threads, or the last of
those that an unrolled loop makes of one block. Threads of different blocks do not wait for one another.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import FloorDiv, IndexExpr, loop_index
from mirlo.passes.schedule.primitives.loops import THREAD
from mirlo.passes.schedule.primitives.regions import Region, region_within, split_by
from mirlo.passes.schedule.primitives.tree import (
    BOUND,
    LOCAL,
    SHARED,
    Accumulation,
    BlockLeaf,
    BufferAccess,
    Guard,
    InitialValues,
    JoinedThreads,
    Loop,
    Node,
    Root,
    ScheduleBuffer,
    ScheduleError,
    ThreadBarrier,
    Update,
    around,
    extents_of,
    leaves_of,
    loops_of,
    placed_at,
    set_children,
)
from mirlo.runtime.records import dataclass

Use = tuple[BlockLeaf, BufferAccess]


def is_thread(loop: Loop) -> bool:
    """Return whether the iterations of a loop are threads of a block."""
    return loop.kind == BOUND and (loop.thread or "").startswith(THREAD)


def bound_loops(node: Node) -> list[Loop]:
    """Return the loops of a node that are bound to hardware axes, itself included."""
    own = [node] if isinstance(node, Loop) else []
    return [loop for loop in (*own, *loops_of(node)) if loop.kind == BOUND]


def reduced_threads(leaf: BlockLeaf) -> list[Loop]:
    """Return the loops of a reduction whose iterations are threads."""
    chain = [loop for loop in around(leaf) if loop.kind == BOUND]
    reduced = leaf.reduce_loops() if chain else ()
    return [loop for loop in chain if loop.name in reduced]


def is_around_exchange(loop: Loop) -> bool:
    """Return whether threads wait for one another in a loop: all of them run all of its iterations."""
    held = (leaf for leaf in leaves_of(loop) if isinstance(leaf.form, Accumulation) and reduced_threads(leaf))
    return any(loop.name not in leaf.reduce_loops() for leaf in held) or any(
        isinstance(inner.form, ThreadBarrier) for inner in loops_of(loop)
    )


def prepare_threads(root: Root) -> None:
    """Check what threads share; store from one thread what all of them compute."""
    nests = [node for node in root.body if isinstance(node, Loop) and bound_loops(node)]
    for nest in nests:
        _require_axes(nest)
        _require_one_kernel(root, nest)
        for leaf in leaves_of(nest):
            if reduced_threads(leaf):
                _require_all_threads(nest, leaf)
            if isinstance(leaf.form, Update) and leaf.is_moved:
                _require_own_elements(leaf)
        extents = _thread_extents(nest)
        for loop in loops_of(nest):
            if isinstance(loop.form, ThreadBarrier):
                _require_waiting(nest, loop, extents)
        for leaf in leaves_of(nest):
            stored = [access for each in computed_in(leaf) for access in each.writes if not access.is_held]
            if any(access.buffer.scope != LOCAL for access in stored):
                leaf.stored_by = _stored_by(leaf)
                _bind_to_first(leaf, [axis for axis in extents if axis not in _axes(leaf)])
        for pair in _shared_uses(nest):
            _require_visible(*pair)


def _stored_by(leaf: BlockLeaf) -> list[Guard]:
    """Return which threads store results that several threads have: the first of those that reduce them, or join."""
    chain, reduced = around(leaf), leaf.reduce_loops()
    of_elements = {name for index in leaf.at for name in index.variables()} - reduced
    same = [loop for loop in chain if is_thread(loop) and loop.name not in of_elements and loop.extent != 1]
    return [(loop_index(loop.name), 1) for loop in same if loop.name in reduced or isinstance(loop.form, JoinedThreads)]


def _thread_extents(nest: Loop) -> dict[str, Dim]:
    extents: dict[str, Dim] = {}
    for loop in bound_loops(nest):
        if is_thread(loop):
            axis = str(loop.thread)
            extents[axis] = D.maximum(extents.get(axis, 1), loop.extent)
    return extents


def _axes(leaf: BlockLeaf) -> dict[str, Loop]:
    """Return the loops around a block that are bound to threads, by their axes."""
    return {str(loop.thread): loop for loop in around(leaf) if is_thread(loop)}


def _bind_to_first(leaf: BlockLeaf, axes: Sequence[str]) -> None:
    """Compute a block in the first thread of these axes only."""
    for axis in axes:
        parent = leaf.parent
        assert parent is not None and not isinstance(parent, Root)
        first = Loop(f"{leaf.name}_{axis}", 1, BOUND, axis)
        set_children(parent, [first if child is leaf else child for child in parent.body])
        first.parent = parent
        set_children(first, [leaf])


def _require_axes(nest: Loop) -> None:
    """Require that each axis has one loop around a block, and that blocks of threads compute all of the nest."""
    loops = bound_loops(nest)
    for loop in loops:
        same = [other for other in around(loop) if other.kind == BOUND and other.thread == loop.thread]
        if same:
            raise ScheduleError(f"bind: '{loop.name}' and '{same[0].name}' around it are both bound to '{loop.thread}'")
        if not is_thread(loop):
            outside = [leaf for leaf in leaves_of(nest) if loop not in around(leaf)]
            if outside:
                raise ScheduleError(
                    f"bind: '{_name(outside[0])}' is in '{nest.name}', but not in '{loop.name}', which is bound to "
                    f"'{loop.thread}': move it there (compute_at), or out of the nest"
                )


def _require_one_kernel(root: Root, nest: Loop) -> None:
    """Require that memory of threads and of their blocks is used in one nest only, which is a kernel."""
    for leaf in leaves_of(nest):
        for access in [access for each in computed_in(leaf) for access in accesses_of(each)]:
            buffer = access.buffer
            if not buffer.scope:
                continue
            others = [other for node in root.body if node is not nest for other in leaves_of(node)]
            other = next((each for each in others if any(use.buffer is buffer for use in accesses_of(each))), None)
            if other is not None:
                raise ScheduleError(
                    f"'{buffer.name}' is '{buffer.scope}' memory of the kernel of '{_name(leaf)}', and "
                    f"'{_name(other)}' uses it in another one: move the blocks together (compute_at), or give "
                    "it no scope"
                )


def _require_all_threads(nest: Loop, leaf: BlockLeaf) -> None:
    """Require that all threads of a block reach a reduction over threads."""
    extents = _thread_extents(nest)
    for axis, loop in _axes(leaf).items():
        if loop.extent != extents[axis]:
            raise ScheduleError(
                f"bind: '{leaf.name}' is reduced across threads, all of which must take part: '{loop.name}' has "
                f"{loop.extent} iterations on '{axis}', another loop of '{nest.name}' has {extents[axis]}"
            )
    missing = [axis for axis, extent in extents.items() if extent != 1 and axis not in _axes(leaf)]
    if missing and any(access.buffer.scope != LOCAL for access in leaf.writes):
        loop = next(loop for loop in bound_loops(nest) if loop.thread == missing[0])
        raise ScheduleError(
            f"bind: '{leaf.name}' is reduced across threads, all of which must take part, and no loop around it is "
            f"bound to '{missing[0]}', as '{loop.name}' is: bind a loop around both, bind '{loop.name}' to an axis of "
            "the reduction, or let each thread keep the result (set_scope 'local')"
        )
    chain = around(leaf)
    outer = chain[: 1 + next(i for i, loop in enumerate(chain) if leaf.form in loop.accumulated)]
    switched = [loop for loop in outer if loop.is_unswitched]
    if switched:
        raise ScheduleError(
            f"unswitch: '{leaf.name}' in '{switched[0].name}' is reduced across threads, which wait for one another: "
            "they would be in different copies of the loop"
        )


def _require_waiting(nest: Loop, waiting: Loop, extents: Mapping[str, Dim]) -> None:
    """Require that all threads of a block reach the point where they wait for one another."""
    axes = {str(loop.thread): loop for loop in around(waiting) if is_thread(loop)}
    for axis, extent in extents.items():
        if extent != 1 and (axis not in axes or axes[axis].extent != extent):
            raise ScheduleError(
                f"bind: '{_name(leaves_of(waiting)[0])}' uses elements that other threads write before it, for which "
                f"all threads of '{nest.name}' have to wait: bind loops around both to the {extent} threads of "
                f"'{axis}', or let them share the elements (set_scope 'shared')"
            )


def _require_own_elements(leaf: BlockLeaf) -> None:
    """Require that a reduction in memory, moved to where it is read, adds up each element in one thread."""
    for access in leaf.writes:
        scope = access.buffer.scope
        sharing = [loop for loop in around(leaf) if loop.kind == BOUND and loop.extent != 1 and scope != LOCAL]
        if scope == SHARED:
            sharing = [loop for loop in sharing if is_thread(loop)]
        terms = [terms_of(index, leaf, {loop.name for loop in sharing}) for index in leaf.place(access)]
        known = {term[0] for dim in terms if is_mixed_radix(dim) for term in dim or ()}
        other = next((loop for loop in sharing if loop.name not in known), None)
        if other is not None:
            raise ScheduleError(
                f"'{leaf.name}' adds up elements of '{access.buffer.name}' that several iterations of "
                f"'{other.name}', which is bound to '{other.thread}', need: add them up in registers (accumulate), or "
                "in memory of each thread (set_scope 'local')"
            )


def _shared_uses(nest: Loop) -> Iterator[tuple[Use, Use]]:
    """Yield each access that writes in a nest with the others of its buffer."""
    blocks = [(leaf, each) for leaf in leaves_of(nest) for each in computed_in(leaf)]
    uses = [(leaf, each, access) for leaf, each in blocks for access in accesses_of(each)]
    for own, leaf in blocks:
        for access in leaf.writes:
            for around_it, other, use in uses:
                if around_it is not own and memory_of(use.buffer) is memory_of(access.buffer):
                    yield (leaf, access), (other, use)


def memory_of(buffer: ScheduleBuffer) -> ScheduleBuffer:
    """Return the buffer in whose memory one is (`share_memory`)."""
    return buffer if buffer.shared is None else buffer.shared


def computed_in(leaf: BlockLeaf) -> list[BlockLeaf]:
    """Return a block, and those of its epilogue, at their places in the loops."""
    if not leaf.epilogue:
        return [leaf]
    after = [
        replace(each, at=placed_at(each.at, leaf.at), guards=leaf.guards, parent=leaf.parent) for each in leaf.epilogue
    ]
    return [leaf, *after]


def accesses_of(leaf: BlockLeaf) -> Iterator[BufferAccess]:
    """Yield the accesses of a block, for inlined ones those of the blocks in their place."""
    for access in (*leaf.reads, *leaf.writes):
        if access.inlined is not None:
            yield from accesses_of(access.inlined)
        else:
            yield access


def _require_visible(written: Use, used: Use) -> None:
    """Require that threads which use elements that a block writes see them."""
    (maker, access), (user, use) = written, used
    if use.register is access or is_own(written, used):
        return
    buffer = access.buffer
    if _do_wait_between(maker, user) and is_in_block(written, used):
        return
    if buffer.scope == SHARED:
        first, second = (_outermost_thread(leaf) for leaf in (maker, user))
        if first is None or second is None or first is not second:
            return
        raise ScheduleError(
            f"'{_name(user)}' uses what other threads write to '{buffer.name}' in '{_name(maker)}', in the same "
            f"iteration of '{first.name}', after which threads wait for one another: move the loops over threads "
            "further in"
        )
    raise ScheduleError(
        f"'{_name(user)}' uses elements of '{buffer.name}' that other threads write in '{_name(maker)}': let them "
        "share it (set_scope 'shared'), let each thread compute what it uses (set_scope 'local'), or leave the blocks "
        "in nests of their own"
    )


def _name(leaf: BlockLeaf) -> str:
    """Return the name of a block, of the whole reduction for its initialization."""
    return leaf.form.reduction.name if isinstance(leaf.form, InitialValues) else leaf.name


def _outermost_thread(leaf: BlockLeaf) -> Loop | None:
    return next((loop for loop in around(leaf) if is_thread(loop)), None)


def _do_wait_between(maker: BlockLeaf, user: BlockLeaf) -> bool:
    """Return whether threads wait for one another between two blocks, in a loop that was several."""
    chains = [around(maker), around(user)]
    common = [loop for loop in itertools.takewhile(chains[1].__contains__, chains[0])]
    if not common or not isinstance(common[-1].form, JoinedThreads):
        return False
    first, second = sorted(_child_of(common[-1], leaf) for leaf in (maker, user))
    between = common[-1].body[first + 1 : second + 1]
    return any(isinstance(each, Loop) and isinstance(each.form, ThreadBarrier) for each in between)


def _child_of(loop: Loop, leaf: BlockLeaf) -> int:
    """Return the position in a loop of the node that contains a block."""
    return next(i for i, child in enumerate(loop.body) if leaf in leaves_of(child))


def is_in_block(written: Use, used: Use) -> bool:
    """Return whether blocks of threads use only those elements of a buffer that they write themselves."""
    (maker, access), (user, use) = written, used
    if use.is_opaque or use.inlined is not None or use.outside is not None:
        return False
    chains = [around(maker), around(user)]
    outer = [
        loop for loop in itertools.takewhile(chains[1].__contains__, chains[0])
        if loop.kind == BOUND and not isinstance(loop.form, JoinedThreads) and loop.extent != 1
    ]  # fmt: skip
    names = {loop.name for loop in outer}
    pairs = list(zip(maker.place(access), user.place(use), strict=True))
    moved = [(own, other) for own, other in pairs if (own.variables() | other.variables()) & names]
    known = {name for own, _ in moved for name in own.variables()}
    return names <= known and all(own == other and own.variables() <= names for own, other in moved)


def is_own(written: Use, used: Use) -> bool:
    """Return whether a thread uses only those elements of a buffer that it writes itself."""
    (maker, access), (user, use) = written, used
    chain = itertools.takewhile(around(user).__contains__, around(maker))
    common = {loop.name for loop in chain if not isinstance(loop.form, JoinedThreads)}
    makers, users = _axes(maker), _axes(user)
    reduced = {str(loop.thread) for loop in reduced_threads(maker)}
    if access.buffer.scope != LOCAL and (reduced or maker.stored_by):
        return False  # the first thread stores the result
    private = {axis: loop for axis, loop in makers.items() if loop.name not in common and axis not in reduced}
    if not private:
        return True
    if use.is_opaque or any(axis not in users or users[axis].extent != loop.extent for axis, loop in private.items()):
        return False
    names = {loop.name for loop in private.values()}
    for written_index, wanted in zip(maker.place(access), user.place(use), strict=True):
        terms = terms_of(written_index, maker, common)
        if written_index.variables() & names and (
            terms != terms_of(wanted, user, common) or not is_mixed_radix(terms, common)
        ):
            return False
    return True


Term = tuple[str, Dim, Dim]
"""A hardware axis, a loop that contains both uses, or nothing for another loop; its coefficient and its extent."""


def terms_of(index: IndexExpr, leaf: BlockLeaf, common: set[str]) -> list[Term] | None:
    """Return the terms of an index, in order of their coefficients; loops are distinguished by their steps."""
    loops = {loop.name: loop for loop in around(leaf)}
    terms: list[Term] = [("", index.constant, 0)] if index.constant != 0 else []
    for atom, count in index.terms.items():
        if isinstance(atom, FloorDiv):
            return None
        loop = loops[str(atom)]
        name = loop.name if loop.name in common else str(loop.thread) if is_thread(loop) else ""
        terms.append((name, count, loop.extent))
    return sorted(terms, key=str)


def is_mixed_radix(terms: list[Term] | None, fixed: Collection[str] = ()) -> bool:
    """Return whether different values of the loops, except those that are `fixed`, are different indices."""
    if terms is None:
        return False
    span: Dim = 0
    varying = [term for term in terms if term[2] != 0 and term[0] not in fixed]
    for _, count, extent in sorted(varying, key=lambda term: D.estimate_dim(term[1])):
        if not D.is_certain(partial(_is_above, count, span)):
            return False
        span = span + count * (extent - 1)
    return True


def _is_above(count: Dim, span: Dim) -> bool:
    return bool(count > span)


@dataclass(frozen=True)
class ThreadRegion:
    """The elements of a buffer that a thread keeps: those of its own, without gaps."""

    region: list[Region]
    axes: Mapping[str, IndexExpr]
    """The hardware axis of each loop that is bound to a thread."""
    fixed: Set[str]
    """The loops and axes that are the same for all uses."""
    steps: list[Mapping[Dim, Dim]]
    """For each dim, the step in memory of other loops by their step in the tensor."""
    shape: tuple[int, ...] = ()
    """The dims of what is kept, which is one array."""

    def own(self, indices: Sequence[IndexExpr], starts: Sequence[IndexExpr]) -> list[IndexExpr]:
        """Return indices in the thread's memory, which begins at these."""
        loops = {str(self.axes[name]): loop_index(name) for i in indices for name in i.variables() & self.axes.keys()}
        result = []
        for index, start, steps in zip(indices, starts, self.steps, strict=True):
            terms = index.replace(self.axes).terms
            own = {atom: count if atom in self.fixed else steps.get(count, count) for atom, count in terms.items()}
            result.append((IndexExpr(own, index.constant) - start).replace(loops))
        return result


def thread_region(
    places: Sequence[tuple[BlockLeaf, list[IndexExpr] | None]], common: Sequence[Loop], buffer: ScheduleBuffer
) -> ThreadRegion:
    """Return the elements that a thread keeps of a buffer that is used in these loops and in threads."""
    bound = {loop.name: loop for leaf, _ in places for loop in around(leaf) if is_thread(loop)}
    axes = {name: loop_index(str(loop.thread)) for name, loop in bound.items()}
    extents = {str(loop.thread): loop.extent for loop in bound.values()}
    fixed = {loop.name for loop in common} - set(axes) | set(extents)
    regions, steps = [], []
    for dim, size in enumerate(buffer.shape):
        indices = [(leaf, None if at is None else at[dim].replace(axes)) for leaf, at in places]
        region, own = _kept([(leaf, index) for leaf, index in indices], fixed, extents, size)
        regions.append(region)
        steps.append(own)
    return ThreadRegion(regions, axes, fixed, steps)


def _kept(
    places: Sequence[tuple[BlockLeaf, IndexExpr | None]], fixed: set[str], axes: Mapping[str, Dim], size: Dim
) -> tuple[Region, Mapping[Dim, Dim]]:
    """Return the elements that a thread keeps of a dim, and the steps of loops in it by their steps in the tensor."""
    split = [None if index is None else split_by(index, fixed) for _, index in places]
    selected = [parts for parts in split if parts is not None]
    if len(selected) == len(places) and len({start for start, _ in selected}) == 1:
        terms = [
            sorted(((n, extents_of(around(leaf)).get(str(atom), 0)) for atom, n in rest.terms.items()), key=_by_step)
            for (leaf, _), (_, rest) in zip(places, selected, strict=True)
        ]
        starts = {rest.constant for _, rest in selected}
        if all(each == terms[0] for each in terms) and len(starts) == 1 and _are_steps(terms[0]):
            steps: dict[Dim, Dim] = {}
            count: Dim = 1
            for step, extent in terms[0]:
                steps[step], count = count, count * extent
            return (selected[0][0] + starts.pop(), count), steps
    plain = [(leaf, None if index is None else [index]) for leaf, index in places]
    return region_within(plain, fixed, [size], axes)[0], {}


def _by_step(term: tuple[Dim, Dim]) -> tuple[int, str]:
    return D.estimate_dim(term[0]), str(term)


def _are_steps(terms: Sequence[tuple[Dim, Dim]]) -> bool:
    """Return whether loops of these steps and extents, in order, are at different places."""
    if not all(isinstance(part, int) and part > 0 for term in terms for part in term):
        return False
    return is_mixed_radix([("", count, extent) for count, extent in terms])
