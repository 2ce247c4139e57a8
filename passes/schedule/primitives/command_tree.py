"""Loops of commands: the loops of a schedule outside of an accelerator's instructions, with the instructions in them.

A command stream without loops is the unrolled tree (`CommandTree.unrolled`). An accelerator with a control processor,
or with instructions that repeat others, takes the tree itself: the size of its program does not grow with the shapes.
Each address is an affine function of the loops outside of it, with quotients where a loop is fused of several.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.index_expr import FloorDiv, IndexExpr, contiguous_strides, flatten, loop_index
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.schedule.primitives.command_intrin import CommandIntrin
from mirlo.passes.schedule.primitives.commands import TileCommand, TileCommands, TileOperand
from mirlo.passes.schedule.primitives.contiguity import memory_indices
from mirlo.passes.schedule.primitives.memory import common_loops, memory_accesses, padded_dims
from mirlo.passes.schedule.primitives.regions import region_of, split_by
from mirlo.passes.schedule.primitives.tree import (
    BlockLeaf,
    BufferAccess,
    Loop,
    Node,
    Root,
    ScheduleBuffer,
    ScheduleError,
    TileStart,
    around,
    intrinsic_of,
    without_single,
)
from mirlo.runtime.records import dataclass

ALIGNMENT = 64
"""Bytes at a multiple of which buffers begin, unless the caller says otherwise."""


@dataclass(frozen=True)
class AffineAddress:
    """An affine function of loops outside of a command: a constant, multiples of loops, multiples of quotients."""

    constant: int
    terms: tuple[tuple[str, int], ...] = ()
    quotients: tuple[tuple[AffineAddress, int, int], ...] = ()
    """Of each quotient: what is divided, the divisor, and the factor."""

    def at(self, values: Mapping[str, int]) -> int:
        """Return the value in one iteration of the loops."""
        total = self.constant
        for name, count in self.terms:
            total += values[name] * count
        for inner, divisor, count in self.quotients:
            total += inner.at(values) // divisor * count
        return total

    def plus(self, number: int) -> AffineAddress:
        return AffineAddress(self.constant + number, self.terms, self.quotients)

    def times(self, factor: int) -> AffineAddress:
        return AffineAddress(
            self.constant * factor,
            tuple((name, count * factor) for name, count in self.terms),
            tuple((inner, divisor, count * factor) for inner, divisor, count in self.quotients),
        )

    @property
    def loops(self) -> frozenset[str]:
        """Return the loops that it depends on."""
        return frozenset(name for name, _ in self.terms).union(*(inner.loops for inner, _, _ in self.quotients))


@dataclass(frozen=True)
class LoopOperand:
    """The elements that a command reads or writes, for all iterations of the loops outside of it.

    The first element is at `address + turn mod copies * copy_bytes`; other fields are those of `TileOperand`.
    """

    buffer: str
    scope: str
    address: AffineAddress
    turn: AffineAddress
    """Which iteration it is of the loops that the copies of its buffer take turns in."""
    copies: int
    copy_bytes: int
    strides: tuple[int, ...]
    indices: tuple[AffineAddress, ...]
    steps: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]
    outside: int | float | None

    def tile(self, values: Mapping[str, int]) -> TileOperand:
        """Return the tile of one iteration."""
        address = self.address.at(values)
        if self.copies > 1:
            address += self.turn.at(values) % self.copies * self.copy_bytes
        indices = tuple([index.at(values) for index in self.indices])
        return TileOperand(
            self.buffer, self.scope, address, self.strides, indices, self.steps, self.shape, self.outside
        )


@dataclass(frozen=True)
class CommandGuard:
    """A bound of an index of a command, which ends the tile at an edge; without an iteration there is no command."""

    index: AffineAddress
    steps: tuple[int, ...]
    """By how much the index moves along each loop of the command."""
    bound: int


@dataclass(frozen=True)
class CommandSite:
    """An instruction in the loops outside of it."""

    name: str
    """The instruction."""
    block: str
    extents: tuple[int, ...]
    """Iterations of each loop of the instruction, where no guard ends it."""
    reads: tuple[LoopOperand, ...]
    writes: tuple[LoopOperand, ...]
    numbers: Mapping[str, int | float]
    guards: tuple[CommandGuard, ...]
    reduced: tuple[tuple[str, int], ...]
    """The loops of a reduction around it, and their iterations."""
    ends: tuple[CommandGuard, ...]
    """Guards that only such loops decide."""

    def command(self, values: Mapping[str, int]) -> TileCommand | None:
        """Return the command of one iteration; None where the whole tile is beyond an edge."""
        extents = self.extents
        for guard in self.guards:
            first = guard.index.at(values)
            if first >= guard.bound:
                return None
            moving = [i for i, step in enumerate(guard.steps) if step]
            reach = sum(guard.steps[i] * (extents[i] - 1) for i in moving if guard.steps[i] > 0)
            if first + reach < guard.bound:
                continue
            if len(moving) != 1:
                raise ScheduleError(
                    f"commands: a tile of '{self.block}' ends at an edge within several loops of '{self.name}', so "
                    "that what is left is no tile"
                )
            left = -((first - guard.bound) // guard.steps[moving[0]])
            extents = (*extents[: moving[0]], left, *extents[moving[0] + 1 :])
        return TileCommand(
            self.name, self.block, extents,
            tuple([each.tile(values) for each in self.reads]), tuple([each.tile(values) for each in self.writes]),
            all(values[name] == 0 for name, _ in self.reduced), self._is_last(values), self.numbers,
        )  # fmt: skip

    def _is_last(self, values: Mapping[str, int]) -> bool:
        """Return whether no further iteration of the loops of a reduction passes its guards."""
        ahead = dict(values)
        for name, extent in reversed(self.reduced):
            if ahead[name] + 1 < extent:
                ahead[name] += 1
                break
            ahead[name] = 0
        else:
            return True
        return any(guard.index.at(ahead) >= guard.bound for guard in self.ends)


@dataclass(frozen=True)
class CommandLoop:
    """A loop outside of instructions."""

    name: str
    extent: int
    body: tuple[CommandLoop | CommandSite, ...]


@dataclass(frozen=True)
class CommandTree:
    """The loops and instructions of a schedule, in order, and how many bytes of each memory its buffers take."""

    body: tuple[CommandLoop | CommandSite, ...]
    bytes: Mapping[str, int]

    def sites(self) -> Iterator[CommandSite]:
        """Yield the instructions, each once."""
        return _sites(self.body)

    def only(self, keeps: Callable[[CommandSite], bool]) -> CommandTree:
        """Return the tree of some instructions, such as those of one queue, without loops that are then empty."""
        return CommandTree(tuple(_kept(self.body, keeps)), self.bytes)

    def iterations(self) -> Iterator[tuple[CommandSite, Mapping[str, int]]]:
        """Yield each instruction for each iteration of the loops outside of it, in order; the mapping changes later."""
        yield from _iterations(self.body, {})

    def unrolled(self) -> TileCommands:
        """Return the commands of all iterations."""
        commands = (site.command(values) for site, values in self.iterations())
        return TileCommands(tuple(command for command in commands if command is not None), self.bytes)


def _sites(body: Sequence[CommandLoop | CommandSite]) -> Iterator[CommandSite]:
    for node in body:
        if isinstance(node, CommandSite):
            yield node
        else:
            yield from _sites(node.body)


def _kept(
    body: Sequence[CommandLoop | CommandSite], keeps: Callable[[CommandSite], bool]
) -> Iterator[CommandLoop | CommandSite]:
    for node in body:
        if isinstance(node, CommandSite):
            if keeps(node):
                yield node
        elif inner := tuple(_kept(node.body, keeps)):
            yield CommandLoop(node.name, node.extent, inner)


def _iterations(
    body: Sequence[CommandLoop | CommandSite], values: dict[str, int]
) -> Iterator[tuple[CommandSite, Mapping[str, int]]]:
    for node in body:
        if isinstance(node, CommandSite):
            yield node, values
            continue
        for value in range(node.extent):
            values[node.name] = value
            yield from _iterations(node.body, values)
        values.pop(node.name, None)


def command_tree(root: Root, capacity: Mapping[str, int], alignment: int = ALIGNMENT) -> CommandTree:
    """Return the loops of a schedule with its instructions; `capacity` are the bytes that memories have."""
    places, used = _place_buffers(root, alignment)
    for scope, most in capacity.items():
        if used.get(scope, 0) > most:
            taken = [
                f"'{buffer.name}' {f'{buffer.copies} x ' if buffer.copies > 1 else ''}{places[id(buffer)].size}"
                for buffer in root.buffers
                if buffer.scope == scope and id(buffer) in places
            ]
            raise ScheduleError(
                f"commands: buffers take {used[scope]} bytes of '{scope}', which has {most}: {', '.join(taken)}; "
                "split loops into smaller tiles, or keep fewer copies (double_buffer)"
            )
    return CommandTree(tuple(TreeBuilder(root, places).nodes(root.body)), used)


@dataclass(frozen=True)
class BufferPlace:
    """The place of a buffer: its memory, and the loops that select one of its copies."""

    start: Sequence[IndexExpr]
    """Offset to subtract from each index: the memory holds only what one iteration needs."""
    shape: tuple[int, ...]
    """The dims in memory."""
    base: int
    """Bytes from the beginning of the memory."""
    size: int
    """Bytes of one copy."""
    turn: IndexExpr
    """The number of the tile in it, by the loops outside: copies take turns."""


class TreeBuilder:
    """Makes the loops and instructions of a schedule."""

    def __init__(self, root: Root, places: Mapping[int, BufferPlace]) -> None:
        self.root, self.places = root, places

    def nodes(self, body: Sequence[Node]) -> Iterator[CommandLoop | CommandSite]:
        """Yield the loops and instructions for nodes of a schedule."""
        for node in body:
            if isinstance(node, BlockLeaf):
                raise ScheduleError(
                    f"commands: '{node.name}' is in no instruction: replace one of its loops by one (tensorize)"
                )
            if not isinstance(node, Loop):
                yield from self.nodes(node.body)
            elif intrinsic_of(node) is not None:
                yield self._site(node)
            elif isinstance(node.form, TileStart) or not isinstance(node.extent, int):
                is_start = isinstance(node.form, TileStart)
                what = "is where an aligned tile begins" if is_start else f"has {node.extent} iterations"
                raise ScheduleError(f"commands: '{node.name}' {what}, which only the run time knows")
            else:
                yield CommandLoop(node.name, node.extent, tuple(self.nodes(node.body)))

    def _site(self, loop: Loop) -> CommandSite:
        intrinsic = intrinsic_of(loop)
        if not isinstance(intrinsic, CommandIntrin):
            assert intrinsic is not None
            raise ScheduleError(
                f"commands: '{intrinsic.name}' is a tensor intrinsic, which emitted loops call; a command is one "
                "of command_intrin"
            )
        with self.root.view.op.context:
            match = intrinsic.match(loop)
        leaf = match.leaf
        guards, ends = [], []
        reduced = leaf.reduce_loops()
        outer = tuple((each.name, int(str(each.extent))) for each in around(loop) if each.name in reduced)
        for index, bound in leaf.guards:
            if not isinstance(bound, int):
                raise ScheduleError(
                    f"commands: '{leaf.name}' has {bound} elements, a size that only the run time knows"
                )
            function, steps = _along(index, match.loops, leaf.writes[0].buffer)
            guards.append(CommandGuard(function, steps, bound))
            if index.variables() <= {name for name, _ in outer}:
                ends.append(guards[-1])
        return CommandSite(
            match.intrin.name, leaf.name, tuple(int(str(each.extent)) for each in match.loops),
            tuple(self.operand(leaf, access, match.loops) for access in leaf.reads),
            tuple(self.operand(leaf, access, match.loops) for access in leaf.writes), match.numbers, tuple(guards),
            outer, tuple(ends),
        )  # fmt: skip

    def operand(self, leaf: BlockLeaf, access: BufferAccess, loops: Sequence[Loop]) -> LoopOperand:
        """Return the elements that an instruction in some loops reads or writes."""
        buffer, indices = access.buffer, without_single(leaf.place(access), leaf)
        place = self.places[id(buffer)]
        extents = {loop.name: loop.extent for loop in (*around(loops[0]), *loops)}
        inside = [index - start for index, start in zip(indices, place.start, strict=True)]
        position = flatten(memory_indices(buffer, inside), contiguous_strides(place.shape))
        if position.divisions:
            position = position.substitute(loop_index, extents)
            indices = [index.substitute(loop_index, extents) for index in indices]
        outside: int | float | None = None
        if access.outside is not None:
            is_integer = isinstance(access.outside, ir.IntegerAttr)
            kind = ir.IntegerAttr if is_integer else ir.FloatAttr
            outside = kind(access.outside).value
        width = element_bytes(buffer.element)
        first, moves = _along(position, loops, buffer)
        lines = [_along(index, loops, buffer) for index in indices]
        steps = tuple(zip(*(each for _, each in lines), strict=True)) if lines else ()
        return LoopOperand(
            buffer.name, buffer.scope, first.times(width).plus(place.base), _along(place.turn, (), buffer)[0],
            buffer.copies, place.size, tuple(step * width for step in moves), tuple(line for line, _ in lines), steps,
            tuple(int(str(dim)) for dim in buffer.shape), outside,
        )  # fmt: skip


def _along(index: IndexExpr, loops: Sequence[Loop], buffer: ScheduleBuffer) -> tuple[AffineAddress, tuple[int, ...]]:
    """Return an index as a function of the loops outside, and its steps along those of a command."""
    parts = split_by(index, index.variables() - {loop.name for loop in loops})
    if parts is None or parts[1].divisions or not index.is_numeric:
        raise ScheduleError(
            f"commands: {index} of '{buffer.name}' is not evenly spaced along the loops of a command; split them "
            "by what they are divided by"
        )
    steps = tuple(int(parts[1].terms.get(loop.name, 0)) for loop in loops)
    outer = parts[0] + parts[1].constant
    function = AffineAddress(
        int(outer.constant),
        tuple((atom, int(count)) for atom, count in outer.terms.items() if not isinstance(atom, FloorDiv)),
        tuple(
            (_along(atom.inner, (), buffer)[0], int(str(atom.divisor)), int(outer.terms[atom]))
            for atom in outer.divisions
        ),
    )
    return function, steps


def _place_buffers(root: Root, alignment: int) -> tuple[dict[int, BufferPlace], dict[str, int]]:
    """Return the places of buffers, one after the other in each memory, and the bytes that they take."""
    uses: dict[int, list[tuple[BlockLeaf, BufferAccess]]] = {}
    for leaf in root.leaves():
        for access in memory_accesses(leaf):
            uses.setdefault(id(access.buffer), []).append((leaf, access))
    places: dict[int, BufferPlace] = {}
    used: dict[str, int] = {}
    for buffer in root.buffers:
        if id(buffer) not in uses:
            continue
        if any(not isinstance(dim, int) for dim in buffer.shape):
            raise ScheduleError(f"commands: '{buffer}' has a size that only the run time knows")
        if buffer.is_parameter:
            whole = tuple(int(str(dim)) for dim in buffer.shape)
            places[id(buffer)] = BufferPlace([IndexExpr()] * len(whole), whole, 0, 0, IndexExpr())
            continue
        leaves = [leaf for leaf, _ in uses[id(buffer)]]
        common = common_loops(leaves)
        common = common[: next((i for i, loop in enumerate(common) if intrinsic_of(loop) is not None), len(common))]
        region = region_of([(leaf, leaf.place(access)) for leaf, access in uses[id(buffer)]], common, buffer.shape)
        shape = tuple(int(str(dim)) for dim in padded_dims(buffer, [size for _, size in region]))
        size = -(-math.prod(shape) * element_bytes(buffer.element) // alignment) * alignment
        base = used.get(buffer.scope, 0)
        used[buffer.scope] = base + size * buffer.copies
        turn = flatten(
            [loop_index(loop.name) for loop in common], contiguous_strides(tuple(loop.extent for loop in common))
        )
        places[id(buffer)] = BufferPlace([start for start, _ in region], shape, base, size, turn)
    return places, used
