"""Schedules as the commands of an accelerator: one for each tile of a loop that an instruction replaces.

An accelerator that executes a stream of commands has no loops: the ones outside of its instructions run here. What is
left of each iteration is a command, with its tiles as numbers: where they begin in which memory, by how many bytes
they move along each loop of the instruction, and what of them is beyond an edge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.index_expr import FloorDiv, IndexExpr, contiguous_strides, flatten, loop_index
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.schedule.words.command_intrin import CommandIntrin, CommandMatch
from mirlo.passes.schedule.words.memory import common_loops, memory_accesses, memory_dims, memory_indices
from mirlo.passes.schedule.words.regions import region_of, split_by
from mirlo.passes.schedule.words.tree import (
    BlockLeaf,
    BufferAccess,
    Loop,
    Node,
    Root,
    ScheduleBuffer,
    ScheduleError,
    around,
    without_single,
)
from mirlo.runtime.records import dataclass

ALIGNMENT = 64
"""Bytes at a multiple of which buffers begin, unless the caller says otherwise."""


@dataclass(frozen=True)
class TileOperand:
    """What a command reads or writes: elements of a buffer that are evenly spaced along each of its loops."""

    buffer: str
    scope: str
    """The memory that the buffer is in; empty for main memory."""
    address: int
    """Bytes from the beginning of the memory, or of the parameter, to the first element."""
    strides: tuple[int, ...]
    """Bytes between two iterations of each loop of the command."""
    indices: tuple[int, ...]
    """The first element, in the dims of the buffer. It may be beyond an edge if there is a value for that."""
    steps: tuple[tuple[int, ...], ...]
    """For each loop, by how much each index moves in an iteration."""
    shape: tuple[int, ...]
    """The dims of the buffer."""
    outside: int | float | None = None
    """What elements beyond the edges of the buffer are; None if there are none."""

    def inside(self, extents: Sequence[int]) -> tuple[range, ...]:
        """Return for each loop of a command with these extents the iterations that are within the edges."""
        result = [range(extent) for extent in extents]
        for dim, (first, size) in enumerate(zip(self.indices, self.shape, strict=True)):
            moving = [loop for loop, steps in enumerate(self.steps) if steps[dim]]
            if not moving:
                if not 0 <= first < size:
                    return tuple(range(0) for _ in extents)
                continue
            step = self.steps[moving[0]][dim]
            if len(moving) > 1 or step < 0:
                raise ScheduleError(
                    f"commands: dim {dim} of '{self.buffer}' moves along several loops, so that what is beyond its "
                    "edge is no range of them; pad it in a block of its own"
                )
            low, high = max(0, -(first // step)), max(0, -((first - size) // step))
            old = result[moving[0]]
            result[moving[0]] = range(max(old.start, low), max(low, min(old.stop, high)))
        return tuple(result)


@dataclass(frozen=True)
class TileCommand:
    """An instruction on tiles."""

    name: str
    """The instruction."""
    block: str
    extents: tuple[int, ...]
    """Iterations of each loop of the instruction; fewer than the schedule has where a tile is at an edge."""
    reads: tuple[TileOperand, ...]
    """In the order of the operands of the description."""
    writes: tuple[TileOperand, ...]
    is_first: bool = True
    """Whether a reduction begins with this command."""
    is_last: bool = True
    """Whether a reduction ends with this command."""
    numbers: Mapping[str, int | float] = field(default_factory=dict)
    """The numbers (`T.attrs`) of the description, as the block has them."""


@dataclass(frozen=True)
class TileCommands:
    """The commands of a schedule, in order, and how many bytes of each memory its buffers take."""

    commands: tuple[TileCommand, ...]
    bytes: Mapping[str, int]

    def __iter__(self) -> Iterator[TileCommand]:
        return iter(self.commands)

    def __len__(self) -> int:
        return len(self.commands)


@dataclass(frozen=True)
class _BufferPlace:
    """Where a buffer is: its memory, and by which loops it is another one of its copies."""

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


class _Line:
    """A sum over loops: numbers for those of a command, an expression for those outside."""

    def __init__(self, index: IndexExpr, loops: Sequence[Loop], buffer: ScheduleBuffer) -> None:
        parts = split_by(index, index.variables() - {loop.name for loop in loops})
        if parts is None or parts[1].divisions or not index.is_numeric:
            raise ScheduleError(
                f"commands: {index} of '{buffer.name}' is not evenly spaced along the loops of a command; split them "
                "by what they are divided by"
            )
        self.steps = tuple(int(parts[1].terms.get(loop.name, 0)) for loop in loops)
        outer = parts[0] + parts[1].constant
        self._constant = int(outer.constant)
        self._terms = [(atom, int(count)) for atom, count in outer.terms.items() if not isinstance(atom, FloorDiv)]
        self._divisions = [(_Line(atom.inner, (), buffer), int(str(atom.divisor)), int(outer.terms[atom]))
                           for atom in outer.divisions]  # fmt: skip

    def at(self, values: Mapping[str, int]) -> int:
        """Return where it begins for these values of the loops outside."""
        total = self._constant
        for name, count in self._terms:
            total += values[name] * count
        for inner, divisor, count in self._divisions:
            total += inner.at(values) // divisor * count
        return total


class _Operand:
    """An access of a command, for all of its iterations."""

    def __init__(
        self, buffer: ScheduleBuffer, place: _BufferPlace, indices: Sequence[IndexExpr], position: IndexExpr,
        loops: Sequence[Loop], outside: int | float | None,
    ) -> None:  # fmt: skip
        self._buffer, self._place = buffer, place
        self._indices = [_Line(index, loops, buffer) for index in indices]
        self._position, self._turn = _Line(position, loops, buffer), _Line(place.turn, (), buffer)
        self._width = element_bytes(buffer.element)
        steps = tuple(zip(*(line.steps for line in self._indices), strict=True)) if self._indices else ()
        strides = tuple(step * self._width for step in self._position.steps)
        self._same = strides, steps, tuple(int(str(dim)) for dim in buffer.shape), outside

    def tile(self, values: Mapping[str, int]) -> TileOperand:
        """Return the tile of one iteration of the loops outside."""
        buffer, place = self._buffer, self._place
        address = place.base + self._position.at(values) * self._width
        if buffer.copies > 1:
            address += self._turn.at(values) % buffer.copies * place.size
        strides, steps, shape, outside = self._same
        indices = tuple([line.at(values) for line in self._indices])
        return TileOperand(buffer.name, buffer.scope, address, strides, indices, steps, shape, outside)


@dataclass(frozen=True)
class _Prepared:
    """An instruction, with what is the same for all of its commands."""

    match: CommandMatch
    reads: list[_Operand]
    writes: list[_Operand]
    guards: list[tuple[_Line, int]]
    extents: list[int]
    reduced: list[tuple[str, int]]
    """The loops of a reduction around it, and their iterations."""
    ends: list[tuple[_Line, int]]
    """Guards that only such loops decide."""

    def is_last(self, values: Mapping[str, int]) -> bool:
        """Return whether no further iteration of the loops of a reduction passes its guards."""
        ahead = dict(values)
        for name, extent in reversed(self.reduced):
            if ahead[name] + 1 < extent:
                ahead[name] += 1
                break
            ahead[name] = 0
        else:
            return True
        return any(line.at(ahead) >= bound for line, bound in self.ends)


class _Walker:
    """Runs the loops outside of instructions."""

    def __init__(self, root: Root, places: Mapping[int, _BufferPlace]) -> None:
        self.root, self.places = root, places
        self.commands: list[TileCommand] = []
        self._prepared: dict[int, _Prepared] = {}

    def run(self, node: Node, values: dict[str, int]) -> None:
        """Emit the commands in a node."""
        if isinstance(node, BlockLeaf):
            raise ScheduleError(
                f"commands: '{node.name}' is in no instruction: replace one of its loops by one (tensorize)"
            )
        if isinstance(node, Loop):
            if node.tensorized is not None:
                self._command(node, values)
                return
            if node.start is not None or not isinstance(node.extent, int):
                what = "is where an aligned tile begins" if node.start is not None else f"has {node.extent} iterations"
                raise ScheduleError(f"commands: '{node.name}' {what}, which only the run time knows")
            for value in range(node.extent):
                values[node.name] = value
                for child in node.body:
                    self.run(child, values)
            values.pop(node.name, None)
            return
        for child in node.body:
            self.run(child, values)

    def _command(self, loop: Loop, values: Mapping[str, int]) -> None:
        prepared = self._prepared.get(id(loop))
        if prepared is None:
            prepared = self._prepared[id(loop)] = self._prepare(loop)
        match, extents = prepared.match, prepared.extents
        for line, bound in prepared.guards:
            first = line.at(values)
            if first >= bound:
                return
            moving = [i for i, step in enumerate(line.steps) if step]
            if first + sum(line.steps[i] * (extents[i] - 1) for i in moving if line.steps[i] > 0) < bound:
                continue
            if len(moving) != 1:
                raise ScheduleError(
                    f"commands: a tile of '{match.leaf.name}' ends at an edge within several loops of "
                    f"'{match.intrin.name}', so that what is left is no tile"
                )
            extents = list(extents)
            extents[moving[0]] = -((first - bound) // line.steps[moving[0]])
        self.commands.append(
            TileCommand(
                match.intrin.name, match.leaf.name, tuple(extents),
                tuple([each.tile(values) for each in prepared.reads]),
                tuple([each.tile(values) for each in prepared.writes]),
                all(values[name] == 0 for name, _ in prepared.reduced), prepared.is_last(values), match.numbers,
            )
        )  # fmt: skip

    def _prepare(self, loop: Loop) -> _Prepared:
        if not isinstance(loop.tensorized, CommandIntrin):
            raise ScheduleError(
                f"commands: '{loop.tensorized.name}' is a tensor intrinsic, which emitted loops call; a command is one "
                "of command_intrin"
            )
        with self.root.view.op.context:
            match = loop.tensorized.match(loop)
        leaf = match.leaf
        guards, ends = [], []
        reduced = leaf.reduce_loops()
        outer = [(each.name, int(str(each.extent))) for each in around(loop) if each.name in reduced]
        for index, bound in leaf.guards:
            if not isinstance(bound, int):
                raise ScheduleError(
                    f"commands: '{leaf.name}' has {bound} elements, a size that only the run time knows"
                )
            guards.append((_Line(index, match.loops, leaf.writes[0].buffer), bound))
            if index.variables() <= {name for name, _ in outer}:
                ends.append(guards[-1])
        return _Prepared(
            match, [self._operand(leaf, access, match.loops) for access in leaf.reads],
            [self._operand(leaf, access, match.loops) for access in leaf.writes], guards,
            [int(str(each.extent)) for each in match.loops], outer, ends,
        )  # fmt: skip

    def _operand(self, leaf: BlockLeaf, access: BufferAccess, loops: Sequence[Loop]) -> _Operand:
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
        return _Operand(buffer, place, indices, position, loops, outside)


def list_commands(root: Root, capacity: Mapping[str, int], alignment: int = ALIGNMENT) -> TileCommands:
    """Run the loops of a schedule and return the commands of its instructions."""
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
    walker = _Walker(root, places)
    walker.run(root, {})
    return TileCommands(tuple(walker.commands), used)


def _place_buffers(root: Root, alignment: int) -> tuple[dict[int, _BufferPlace], dict[str, int]]:
    """Return where buffers are, one behind the other in each memory, and the bytes that they take."""
    uses: dict[int, list[tuple[BlockLeaf, BufferAccess]]] = {}
    for leaf in root.leaves():
        for access in memory_accesses(leaf):
            uses.setdefault(id(access.buffer), []).append((leaf, access))
    places: dict[int, _BufferPlace] = {}
    used: dict[str, int] = {}
    for buffer in root.buffers:
        if id(buffer) not in uses:
            continue
        if any(not isinstance(dim, int) for dim in buffer.shape):
            raise ScheduleError(f"commands: '{buffer}' has a size that only the run time knows")
        if buffer.is_parameter:
            whole = tuple(int(str(dim)) for dim in buffer.shape)
            places[id(buffer)] = _BufferPlace([IndexExpr()] * len(whole), whole, 0, 0, IndexExpr())
            continue
        leaves = [leaf for leaf, _ in uses[id(buffer)]]
        common = common_loops(leaves)
        common = common[: next((i for i, loop in enumerate(common) if loop.tensorized is not None), len(common))]
        region = region_of([(leaf, leaf.place(access)) for leaf, access in uses[id(buffer)]], common, buffer.shape)
        shape = tuple(int(str(dim)) for dim in memory_dims(buffer, [size for _, size in region]))
        size = -(-math.prod(shape) * element_bytes(buffer.element) // alignment) * alignment
        base = used.get(buffer.scope, 0)
        used[buffer.scope] = base + size * buffer.copies
        turn = flatten(
            [loop_index(loop.name) for loop in common], contiguous_strides(tuple(loop.extent for loop in common))
        )
        places[id(buffer)] = _BufferPlace([start for start, _ in region], shape, base, size, turn)
    return places, used
