"""The resources of a schedule's target: hardware axes, memory of threads, and vectors.

On a GPU each nest of a function is a kernel. Its loops over blocks and threads are bound, or parallel; a nest without
such loops is an error, as one thread would compute all of it.
"""

from __future__ import annotations

from math import prod

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import loop_index
from mirlo.passes.schedule.primitives.loops import THREAD, fuse, replace_by_nest, split, substitute, unique_loop_name
from mirlo.passes.schedule.primitives.threads import bound_loops, is_thread
from mirlo.passes.schedule.primitives.tree import (
    BOUND,
    LOCAL,
    PARALLEL,
    SERIAL,
    SHARED,
    UNROLLED,
    VECTORIZED,
    BlockLeaf,
    Loop,
    Root,
    ScheduleError,
    TreeTarget,
    around,
    leaves_of,
    loops_of,
    replace,
    set_children,
)
from mirlo.passes.targets import ThreadLimits, has_vectors, thread_limits
from mirlo.runtime.errors import nearest

AXES = tuple(f"{kind}Idx.{dim}" for kind in ("block", THREAD) for dim in "xyz")
"""The hardware axes of GPUs."""
WARP, USUAL_BLOCK = 32, 128
"""Fewest and most threads of a block that runs the iterations of a parallel loop."""


def tree_target(name: str) -> TreeTarget | None:
    """Return what the target of this name has; None without one."""
    return TreeTarget(name, thread_limits(name), has_vectors(name)) if name else None


def limits_of(root: Root) -> ThreadLimits | None:
    """Return the limits of the threads that run a function: of its target, or those that bound loops imply."""
    if root.target is not None:
        return root.target.threads
    return ThreadLimits() if bound_loops(root) else None


def require_axis(root: Root, loop: Loop, axis: str) -> None:
    """Require that the target has the hardware axis that a loop is bound to."""
    if root.target is not None and root.target.threads is None:
        raise ScheduleError(
            f"bind: '{loop.name}' is bound to '{axis}', which target '{root.target}' does not have: it runs no blocks "
            f"of threads; use parallel('{loop.name}') for threads of a CPU"
        )
    if axis not in AXES:
        raise ScheduleError(
            f"bind: there is no hardware axis '{axis}' for '{loop.name}'{nearest(axis, AXES)}; there are "
            f"{', '.join(AXES)}"
        )


def require_scope(root: Root, word: str, buffer: str, scope: str) -> None:
    """Require that the target has the memory that a buffer is given."""
    if root.target is None or not scope:
        return
    has_threads = root.target.threads is not None
    if not has_threads and scope == SHARED:
        raise ScheduleError(
            f"{word}: '{buffer}' is given '{SHARED}' memory, which target '{root.target}' does not have: it runs no "
            f"blocks of threads; '{LOCAL}' is the stack"
        )
    if has_threads and scope not in (LOCAL, SHARED):
        raise ScheduleError(
            f"{word}: '{buffer}' is given '{scope}' memory, which target '{root.target}' does not have: expected "
            f"'{LOCAL}', that of a thread, or '{SHARED}', that of a block of threads"
        )


def prepare_kernels(root: Root) -> None:
    """Make each scheduled nest a kernel if the target is a GPU; limit vectors to the lengths that the target has."""
    if root.target is not None and not root.target.has_vectors:
        _leave_vectors(root)
    limits = limits_of(root)
    if limits is None:
        return
    for node in list(root.body):
        if root.target is not None and not any(leaf.rule for leaf in leaves_of(node)):
            _run_in_threads(node, root.target)
    for nest in root.body:
        if isinstance(nest, Loop):
            _require_limits(root, nest, limits)
    for loop in root.loops():
        if loop.kind == VECTORIZED:
            _split_lanes(loop, limits.max_lanes)


def _run_in_threads(nest: Loop | BlockLeaf, target: TreeTarget) -> None:
    """Map the parallel loops of a nest to threads, or require bound ones."""
    loops = [nest, *loops_of(nest)] if isinstance(nest, Loop) else []
    parallel = [loop for loop in loops if loop.kind == PARALLEL]
    outermost = [loop for loop in parallel if not any(other.kind == PARALLEL for other in around(loop))]
    if bound_loops(nest):
        if parallel:
            raise ScheduleError(
                f"parallel: '{parallel[0].name}' is in the kernel of '{nest.name}', whose threads are those of bound "
                f"loops: bind it too, or leave it serial"
            )
        return
    if len(outermost) == 1 and list(leaves_of(outermost[0])) == list(leaves_of(nest)):
        _bind_parallel(outermost[0])
        return
    if parallel:
        outside = next(leaf for leaf in leaves_of(nest) if outermost[0] not in around(leaf))
        raise ScheduleError(
            f"parallel: '{outside.name}' is in '{nest.name}', but not in '{outermost[0].name}', whose iterations are "
            f"threads of target '{target}': move it there (compute_at), or bind the loops"
        )
    unbound = [loop for loop in loops if loop.extent != 1]
    if unbound:
        blocks = ", ".join(f"'{leaf.name}'" for leaf in leaves_of(nest))
        raise ScheduleError(
            f"bind: no loop of {blocks} is bound to an axis of target '{target}', and one thread would run all "
            f"iterations of '{unbound[0].name}': bind its loops to '{AXES[0]}' and '{AXES[3]}', make one parallel, or "
            "leave the block to the rules of the target"
        )
    single = Loop(unique_loop_name(nest, f"{leaves_of(nest)[0].name}_thread"), 1, BOUND, AXES[3])
    replace(nest, [single])
    set_children(single, [nest])


def _bind_parallel(loop: Loop) -> None:
    """Run the iterations of a parallel loop, and of those directly in it, in a thread each."""
    chain = [loop]
    while len(chain[-1].body) == 1 and isinstance(inner := chain[-1].body[0], Loop) and inner.kind == PARALLEL:
        chain.append(inner)
    # What is parallel further in runs in the thread, as on CPUs.
    for each in (loop, *loops_of(loop)):
        each.kind = SERIAL if each.kind == PARALLEL else each.kind
    is_unswitched = any(each.is_unswitched for each in chain)
    fused = fuse(chain) if len(chain) > 1 else loop
    threads = USUAL_BLOCK
    if isinstance(fused.extent, int):
        threads = min(threads, max(WARP, -(-fused.extent // WARP) * WARP))
    blocks, thread = split(fused, (None, threads))
    for each, axis in ((blocks, AXES[0]), (thread, AXES[3])):
        each.kind, each.thread = BOUND, axis
    thread.is_unswitched = is_unswitched


def _require_limits(root: Root, nest: Loop, limits: ThreadLimits) -> None:
    """Require that a block of the target has as many threads as loops are bound to; there are any number of blocks."""
    where = "of GPUs" if root.target is None else f"of target '{root.target}'"
    threads: dict[str, Dim] = {}
    for loop in bound_loops(nest):
        axis, extent = str(loop.thread), loop.extent
        if not is_thread(loop) or not isinstance(extent, int):
            continue
        most = limits.max_block["xyz".index(axis[-1])]
        if extent > most:
            raise ScheduleError(
                f"bind: '{loop.name}' has {extent} iterations, and '{axis}' {where} at most {most}: split it"
            )
        threads[axis] = max(extent, threads.get(axis, 1))
    count = prod(threads.values())
    if count > limits.max_threads:
        listed = ", ".join(f"{extent} on '{axis}'" for axis, extent in sorted(threads.items()))
        raise ScheduleError(
            f"bind: '{nest.name}' has blocks of {count} threads ({listed}), and those {where} have at most "
            f"{limits.max_threads}: split its loops, and bind fewer iterations"
        )


def _leave_vectors(root: Root) -> None:
    """Replace vectorized loops by loops that the compiler of the target's output may vectorize."""
    for loop in root.loops():
        if loop.kind == VECTORIZED:
            # Each lane that is kept in registers needs one of its own.
            loop.kind = UNROLLED if any(outer.accumulated for outer in around(loop)) else SERIAL


def _split_lanes(loop: Loop, most: int) -> None:
    """Split a vectorized loop into vectors that the threads of the target have; the loop over them is unrolled."""
    assert isinstance(loop.extent, int)
    width = min(loop.extent & -loop.extent, most)
    if width == loop.extent or len(leaves_of(loop)) > 1 or loops_of(loop):
        return
    vectors = Loop(unique_loop_name(loop, f"{loop.name}_vector"), loop.extent // width, UNROLLED)
    vectors.accumulated, vectors.is_unswitched = loop.accumulated, loop.is_unswitched
    lanes = Loop(unique_loop_name(loop, f"{loop.name}_lane"), width, VECTORIZED)
    value = loop_index(vectors.name) * width + loop_index(lanes.name)
    substitute(loop, {loop.name: value}, None)
    replace_by_nest(loop, [vectors, lanes])
