"""`Schedule`: the loops of a prim function, rearranged word by word."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mirlo.dialects.tir.view import is_tensor_form
from mirlo.passes.rules import nearest
from mirlo.passes.schedule.words import blocks, loops
from mirlo.passes.schedule.words.show import show
from mirlo.passes.schedule.words.tensorize import TensorIntrin
from mirlo.passes.schedule.words.trace import Said, Trace
from mirlo.passes.schedule.words.tree import (
    BOUND,
    PARALLEL,
    SERIAL,
    UNROLLED,
    VECTORIZED,
    Buffer,
    Leaf,
    Loop,
    Root,
    ScheduleError,
    around,
    build,
)

INTRINSICS: dict[str, TensorIntrin] = {}
"""Tensor intrinsics by name."""


def tensor_intrin(name: str, means: Any, does: Any) -> TensorIntrin:
    """Register an instruction of the hardware under a name, for `Schedule.tensorize`.

    `means` and `does` are `@mirlo.prim_func`s with the same parameters, of shapes in numbers. `means` is regular: one
    block, whose loops and body the scheduled loops must have. `does` computes the same in its own way, with
    `buffers=True`; where `means` is a reduction, it adds to its output.
    """
    if name in INTRINSICS:
        raise ScheduleError(f"there is a tensor intrinsic '{name}' already")
    INTRINSICS[name] = TensorIntrin(name, means, does)
    return INTRINSICS[name]


def _require_blocks(function: Any, made: Any, types: Sequence[Any]) -> None:
    if not is_tensor_form(made):
        reason = function.why_loops(*types) or "it is loops over buffers"
        raise ScheduleError(f"'{function.name}' is not made of blocks, which words are about: {reason}")


class Schedule:
    """The loops of a prim function. Each word changes them and keeps what is computed, or raises `ScheduleError`.

    Blocks and loops go by their names: `blocks()`, `loops(block)` and `print(schedule)` tell them. Words give the names
    of what they make. What was said can be printed (`trace`), saved, and said to another function with such blocks.
    """

    def __init__(self, function: Any) -> None:
        self._root: Root = build(function)
        self.trace = Trace()
        self._module: Any = None
        """Keeps the function that only this looks at."""

    def __str__(self) -> str:
        return show(self._root)

    @staticmethod
    def of(function: Any, *types: Any, **attributes: Any) -> Schedule:
        """The schedule of a `@mirlo.prim_func` for inputs of these types, to be looked at and written down."""
        from mirlo.dialects.bindings import ir
        from mirlo.dialects.context import make_context

        with make_context(), ir.Location.unknown():
            module = ir.Module.create()
            made, _ = function.specialize(list(types), None, function.name, attributes)
            _require_blocks(function, made, types)
            module.body.append(made.operation)
            found = Schedule(made)
        found._module = module
        return found

    # What there is

    def blocks(self) -> list[str]:
        """Names of the blocks, in order."""
        return [leaf.name for leaf in self._root.leaves()]

    def loops(self, block: str) -> list[str]:
        """Names of the loops around a block, outermost first."""
        return [loop.name for loop in around(self._leaf(block))]

    def extent(self, loop: str) -> int:
        """How many rounds a loop has."""
        return self._loop(loop).extent

    def kinds(self, block: str) -> dict[str, str]:
        """For each loop around a block, whether it is `spatial` or a `reduce` loop of it."""
        leaf = self._leaf(block)
        reduced = leaf.reduce_loops()
        return {loop.name: "reduce" if loop.name in reduced else "spatial" for loop in around(leaf)}

    def reads(self, block: str) -> list[str]:
        """Names of the buffers that a block reads, in the order of its operands."""
        return [access.buffer.name for access in self._leaf(block).reads]

    def buffers(self) -> list[str]:
        """Names of all buffers."""
        return [buffer.name for buffer in self._root.buffers]

    # Loops

    def split(self, loop: str, factors: Sequence[int | None]) -> list[str]:
        """Loops in the place of one, outermost first; a factor of None is what is left. Rounds too many do nothing."""
        return self._said("split", (loop, tuple(factors)), [
            made.name for made in loops.split(self._root, self._loop(loop), list(factors))
        ])  # fmt: skip

    def fuse(self, *names: str) -> str:
        """One loop in the place of loops that stand directly in one another."""
        if len(names) < 2:
            raise ScheduleError("fuse: expected two loops or more")
        return self._said("fuse", names, loops.fuse(self._root, [self._loop(name) for name in names]).name)

    def reorder(self, *names: str) -> None:
        """The loops of a nest in this order."""
        loops.reorder([self._loop(name) for name in names])
        self._said("reorder", names, None)

    def tile(self, names: Sequence[str], sizes: Sequence[int]) -> list[str]:
        """Split each loop by its size and put the tile's loops inside: outer loops, then inner ones."""
        if len(names) != len(sizes):
            raise ScheduleError(f"tile: {len(names)} loops and {len(sizes)} sizes")
        pairs = [self.split(name, (None, size)) for name, size in zip(names, sizes, strict=True)]
        order = [outer for outer, _ in pairs] + [inner for _, inner in pairs]
        self.reorder(*order)
        return order

    def parallel(self, loop: str) -> None:
        """Let the rounds of a loop run on several threads."""
        self._kind("parallel", loop, PARALLEL)

    def vectorize(self, loop: str) -> None:
        """Let the rounds of a loop be the lanes of vectors."""
        self._kind("vectorize", loop, VECTORIZED)

    def unroll(self, loop: str) -> None:
        """Write a loop out, round by round."""
        self._kind("unroll", loop, UNROLLED)

    def bind(self, loop: str, thread: str) -> None:
        """Bind a loop to an axis of the hardware, such as `threadIdx.x`, on targets that have it."""
        loops.set_kind(self._loop(loop), BOUND, thread)
        self._said("bind", (loop, thread), None)

    # Blocks

    def compute_at(self, block: str, loop: str) -> None:
        """Compute of a block what one round of a loop reads, at the start of the round."""
        blocks.compute_at(self._root, self._leaf(block), self._loop(loop))
        self._said("compute_at", (block, loop), None)

    def reverse_compute_at(self, block: str, loop: str) -> None:
        """Compute of a block what is ready at the end of a round of a loop."""
        blocks.reverse_compute_at(self._root, self._leaf(block), self._loop(loop))
        self._said("reverse_compute_at", (block, loop), None)

    def compute_inline(self, block: str) -> None:
        """Compute a block where its elements are read."""
        blocks.inline(self._root, self._leaf(block))
        self._said("compute_inline", (block,), None)

    def cache_read(self, block: str, buffer: str | int, scope: str = "") -> str:
        """Let a block read a copy of a buffer (its name, or which of the block's operands); the name of the block that
        copies, which `compute_at` moves inwards. In scope `local` the copy lies on the stack."""
        leaf = self._leaf(block)
        source = leaf.reads[buffer].buffer if isinstance(buffer, int) and buffer < len(leaf.reads) else None
        source = source or self._buffer(str(buffer))
        return self._said("cache_read", (block, buffer, scope), blocks.cache_read(self._root, leaf, source, scope).name)

    def cache_write(self, block: str, scope: str = "") -> str:
        """Let a block write a copy of its result; the name of the block that puts the result in place, which
        `reverse_compute_at` moves inwards."""
        made = blocks.cache_write(self._root, self._leaf(block), scope)
        return self._said("cache_write", (block, scope), made.name)

    def pack(self, buffer: str, order: Sequence[int] = (), tiles: Sequence[Sequence[int]] = ()) -> None:
        """Let a buffer that is no parameter lie in memory in another order of its dims, slowest first, with dims in
        tiles: `tiles=((1, 16),)` puts 16 columns side by side."""
        found = self._buffer(buffer)
        rank = len(found.shape)
        if found.is_parameter:
            raise ScheduleError(f"pack: '{buffer}' is a parameter; pack a copy of it (cache_read)")
        if order and sorted(order) != list(range(rank)):
            raise ScheduleError(f"pack: expected an order of the {rank} dims of '{buffer}', found {list(order)}")
        if any(len(tile) != 2 or not 0 <= tile[0] < rank or tile[1] < 1 for tile in tiles):
            raise ScheduleError(f"pack: expected tiles as (dim, size), found {list(tiles)}")
        found.order = tuple(order) or found.order
        found.tiles = {dim: size for dim, size in tiles}
        self._said("pack", (buffer, tuple(order), tuple(map(tuple, tiles))), None)

    def decompose_reduction(self, block: str, loop: str) -> str:
        """Store what a reduction starts from before a loop; the name of the block that does."""
        made = blocks.decompose(self._root, self._leaf(block), self._loop(loop))
        return self._said("decompose_reduction", (block, loop), made.name)

    def tensorize(self, loop: str, intrinsic: str) -> None:
        """Let a tensor intrinsic compute all of a loop, which must compute what the intrinsic means."""
        found = INTRINSICS.get(intrinsic)
        if found is None:
            raise ScheduleError(f"tensorize: there is no intrinsic '{intrinsic}'{nearest(intrinsic, INTRINSICS)}")
        node = self._loop(loop)
        loops.require_plain(node)
        with self._root.view.op.context:
            node.tensorized = found.bind(node)
        self._said("tensorize", (loop, intrinsic), None)

    # The whole of it

    def save(self, path: str | Path) -> None:
        """Write what was said to a file."""
        self.trace.save(path)

    def replay(self, given: Trace | Schedule | str | Path | Callable[[Schedule], Any]) -> Schedule:
        """Say all words of a trace, of a file, of another schedule, or of a function that takes a schedule."""
        if isinstance(given, Schedule):
            given = given.trace
        if callable(given):
            given(self)
            return self
        trace = given if isinstance(given, Trace) else Trace.load(given)
        for said in trace:
            if said.word not in WORDS:
                raise ScheduleError(f"there is no word '{said.word}'{nearest(said.word, WORDS)}")
            try:
                inspect.signature(getattr(self, said.word)).bind(*said.arguments)
            except TypeError as error:
                raise ScheduleError(f"'{said.word}': {error}") from None
            getattr(self, said.word)(*said.arguments)
        return self

    def emit(self, facts: dict[str, Any] | None = None) -> Any:
        """Put the loops in the place of the function; the new one, in buffer form. The schedule is used up."""
        from mirlo.passes.schedule.words.emit import emit

        words = [str(said) for said in self.trace]
        return emit(self._root, {"rule": "schedule", "words": "; ".join(words), **(facts or {})})

    # Inside

    def _said(self, word: str, arguments: tuple[Any, ...], made: Any) -> Any:
        # `tile` says split and reorder itself.
        self.trace.words.append(Said(word, arguments))
        return made

    def _kind(self, word: str, loop: str, kind: str) -> None:
        assert kind != SERIAL
        loops.set_kind(self._loop(loop), kind)
        self._said(word, (loop,), None)

    def _loop(self, name: str) -> Loop:
        found = {loop.name: loop for loop in self._root.loops()}
        if name not in found:
            raise ScheduleError(f"there is no loop '{name}'{nearest(str(name), found)}")
        return found[name]

    def _leaf(self, name: str) -> Leaf:
        found = {leaf.name: leaf for leaf in self._root.leaves()}
        if name not in found:
            raise ScheduleError(f"there is no block '{name}'{nearest(str(name), found)}")
        return found[name]

    def _buffer(self, name: str) -> Buffer:
        found = {buffer.name: buffer for buffer in self._root.buffers}
        if name not in found:
            raise ScheduleError(f"there is no buffer '{name}'{nearest(name, found)}")
        return found[name]


WORDS = (
    "split", "fuse", "reorder", "parallel", "vectorize", "unroll", "bind", "compute_at", "reverse_compute_at",
    "compute_inline", "cache_read", "cache_write", "pack", "decompose_reduction", "tensorize",
)  # fmt: skip
"""The words of a trace."""
