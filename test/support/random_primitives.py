"""Random primitives on the loops of a prim function."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mirlo import Schedule
from mirlo.extend.schedules import ScheduleError


def apply_random_primitives(s: Schedule, rng: np.random.Generator, count: int, threads: bool = False) -> None:
    """Apply random primitives, without those that are refused. With `threads`, bind loops to the threads of a GPU."""
    binding = [_bind_row] if rng.random() < 0.7 else [_bind] * 4
    for apply in [*[_apply] * count, *(binding if threads else [])]:
        try:
            apply(s, rng)
        except ScheduleError:
            continue


def _bind(s: Schedule, rng: np.random.Generator) -> None:
    """Bind loops of the blocks of a nest to hardware axes; keep intermediate buffers in threads or share them."""
    nests: dict[str, list[str]] = {}
    for block in s.blocks():
        if s.loops(block):
            nests.setdefault(s.loops(block)[0], []).append(block)
    top = str(rng.choice(list(nests)))
    axis, size = str(rng.choice(["threadIdx.x", "threadIdx.x", "threadIdx.y"])), int(rng.choice([4, 5, 8, 32]))
    if rng.random() < 0.4:
        s.bind(top, str(rng.choice(["blockIdx.x", "blockIdx.y"])))
    elif rng.random() < 0.3:
        s.set_scope(str(rng.choice(s.buffers())), str(rng.choice(["local", "local", "shared"])))
    else:
        for block in nests[top]:
            loop = str(rng.choice(s.loops(block)[-3:]))
            made = s.split(loop, (None, size) if rng.random() < 0.7 else (size, None))
            s.bind(made[1] if isinstance(s.extent(made[1]), int) else made[0], axis)


def _bind_row(s: Schedule, rng: np.random.Generator) -> None:
    """Compute what a block reads in the same threads, a row at a time, and bind the elements of rows to threads."""
    last = str(rng.choice(s.blocks()))
    row, blocks = s.loops(last)[0], [last]
    for block in reversed(s.blocks()[: s.blocks().index(last)]):
        try:
            s.compute_at(block, row)
        except ScheduleError:
            continue
        blocks.append(block)
        if rng.random() < 0.9:
            s.set_scope(block, "local")
    threads, lanes = int(rng.choice([4, 12, 32])), int(rng.choice([1, 2]))
    for block in blocks:
        inner = s.loops(block)[-1]
        steps = int(rng.choice([1, 2]))
        _, unrolled, thread, lane = s.split(inner, (None, steps, threads, lanes))
        s.unroll(unrolled)
        s.bind(thread, "threadIdx.x")
        s.vectorize(lane)
    if rng.random() < 0.5:
        row, own = s.split(row, (None, int(rng.choice([2, 3, 4]))))
        s.bind(own, "threadIdx.y")
    s.bind(row, "blockIdx.x")


def _apply(s: Schedule, rng: np.random.Generator) -> None:  # noqa: C901, a list of primitives
    block = str(rng.choice(s.blocks()))
    loops = s.loops(block)
    if not loops:
        return
    kinds = s.kinds(block)
    reduced = [name for name in loops if kinds[name] == "reduce"]
    loop, other, last = str(rng.choice(loops)), str(rng.choice(loops)), loops[-1]
    anywhere = str(rng.choice([name for each in s.blocks() for name in s.loops(each)]))
    tail = str(rng.choice(["mask", "peel"]))
    width = int(rng.choice([2, 3, 4, 8]))

    def in_vectors() -> None:
        """Split the innermost loop into vectors, perhaps several per iteration."""
        if rng.random() < 0.5:
            _, vectors, lanes = s.split(last, (None, 2, width), tail=tail)
            s.unroll(vectors)
        else:
            _, lanes = s.split(last, (None, width), tail=tail)
        s.vectorize(lanes)

    def in_registers() -> None:
        """Move a reduction innermost, its rows in a group, and keep its results in registers."""
        if not reduced:
            return
        spatial = [name for name in loops if name not in reduced]
        group = []
        if spatial and rng.random() < 0.7:
            outer, inner = s.split(spatial[-1], (None, width), tail=tail)
            spatial[-1:] = [outer]
            group = [inner]
        if rng.random() < 0.6:
            parts = s.split(reduced[-1], (None, 2, 4)[rng.integers(2) :], tail=tail)
            if parts[1:] and rng.random() < 0.5:
                s.vectorize(parts[-1])
                for each in parts[1:-1]:
                    s.unroll(each)
            reduced[-1:] = parts
        s.reorder(*spatial, reduced[0], *group, *reduced[1:])
        for each in group:
            if len(reduced) == 1 and rng.random() < 0.5:
                s.vectorize(each)
            else:
                s.unroll(each)
        s.accumulate(block, reduced[0])

    def copied() -> None:
        """Copy a buffer for one block, or for all blocks that read it."""
        if not s.reads(block):
            return
        buffer = str(rng.choice(s.reads(block)))
        readers = [each for each in s.blocks() if buffer in s.reads(each)]
        made = s.cache_read(readers if rng.random() < 0.5 else block, buffer, str(rng.choice(["", "local"])))
        if rng.random() < 0.3:
            s.storage_align(made, 0, width, int(rng.integers(width)))

    def into_reader() -> None:
        """Compute a block where the next one needs it, before its own loops change."""
        following = s.blocks()[s.blocks().index(block) + 1 :]
        if following and s.loops(following[0]):
            s.compute_at(block, s.loops(following[0])[0])

    def in_parts() -> None:
        """Cut a loop at numbers, or at multiples of numbers."""
        size = s.extent(loop)
        if isinstance(size, int) and size > 2 and rng.random() < 0.7:
            s.partition(loop, sorted({int(point) for point in rng.integers(1, size, 2)}))
        else:
            s.partition(loop, multiples=[2 * width, width])

    def in_tiles() -> None:
        """Transpose tiles in registers, perhaps aligned ones, and visit them along diagonals."""
        rows = str(rng.choice(loops[:-1])) if loops[1:] else loop
        align = str(rng.choice(["", *s.reads(block)]))
        tiles, *inner = s.split(rows, (None, 4), tail=tail, align=align)
        columns, lanes = s.split(last, (None, 8), tail=tail)
        s.reorder(tiles, columns, *inner, lanes)
        if rng.random() < 0.3:
            s.rotate(tiles, columns)
        s.vectorize(lanes)
        if rng.random() < 0.3:
            s.stream(block)
        s.transpose(inner[-1])

    primitives: tuple[Callable[[], object], ...] = (
        lambda: s.split(loop, (None, int(rng.integers(2, 7))), tail=tail),
        lambda: s.split(loop, (int(rng.integers(2, 5)), None), tail=tail),
        lambda: s.fuse(loop, other), lambda: s.fuse(*loops[:2]), lambda: s.fuse(*loops[-2:]),
        lambda: s.reorder(loop, other),
        lambda: s.vectorize(last),
        lambda: s.unroll(loop) if isinstance(size := s.extent(loop), int) and size <= 8 else None,
        lambda: s.parallel(loop), lambda: s.unswitch(loop),
        lambda: s.compute_at(block, anywhere), lambda: s.compute_at(block, anywhere), into_reader, into_reader,
        lambda: s.reverse_compute_at(block, anywhere),
        lambda: s.compute_inline(block) if rng.random() < 0.5 else None,
        copied,
        lambda: s.cache_write(block, str(rng.choice(["", "local"]))),
        lambda: s.decompose_reduction(block, loop),
        lambda: s.rfactor(block, loop),
        lambda: s.accumulate(block, loop, in_order=rng.random() < 0.3),
        lambda: s.reverse_compute_inline(block), in_parts, in_tiles, in_tiles,
        lambda: s.rotate(loop, other), lambda: s.transpose(loop), lambda: s.stream(block),
        lambda: s.compute_with(block, str(rng.choice(s.blocks()))),
        in_vectors, in_vectors, in_registers, in_registers, in_registers,
    )  # fmt: skip
    primitives[int(rng.integers(len(primitives)))]()
