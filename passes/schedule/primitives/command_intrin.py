"""Instructions of an accelerator that executes a stream of commands, and how loops are matched to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import BlockView, PrimView, is_tensor_form
from mirlo.passes.schedule.primitives.commands import CommandMemory, TileCommand
from mirlo.passes.schedule.primitives.tensorize import (
    Instruction,
    PrimScript,
    find_blocks,
    listed_parameters,
    register_intrinsic,
    require_same_reduction,
)
from mirlo.passes.schedule.primitives.tree import (
    ACCELERATOR_SCOPES,
    LOCAL,
    SHARED,
    BlockLeaf,
    BufferAccess,
    Loop,
    Root,
    ScheduleError,
    around,
    build,
    loops_of,
)
from mirlo.runtime.records import dataclass

FREE_SIZE = 10_007
"""Stands for a dim of an instruction that is a symbol: a prime, so that no other size is a multiple of it."""
NUMBER = 1_000_003
"""Stands for a number of an instruction that each block gives; the next ones follow it."""
NEUTRAL = {"arith.addi": 0, "arith.subi": 0, "arith.muli": 1}
"""The second operand with which an operation is its first one: such operations are folded in a block."""


Simulate = Callable[[TileCommand, CommandMemory], None]


@dataclass(frozen=True, eq=False)
class CommandIntrin(Instruction):
    """An instruction of a command stream: a block, of any size where its description has symbols."""

    name: str
    means: PrimScript = field(repr=False)
    scopes: Mapping[str, str] = field(default_factory=dict)
    """The memory that parameters of the description are in."""
    simulate: Simulate | None = None
    """Executes one command on memories of numbers; None without a simulator in Python."""

    @property
    def symbols(self) -> list[str]:
        """Return the names of the sizes that a command gives."""
        parts = [part for parameter in self.means.parameters for part in parameter.shape]
        return list(
            dict.fromkeys(str(part.name) for part in parts if not isinstance(part, int) and hasattr(part, "name"))
        )

    def match(self, loop: Loop) -> CommandMatch:
        """Match a loop to the description."""
        module = ir.Module.create(ir.Location.unknown())
        symbols = dict.fromkeys(self.symbols, FREE_SIZE)
        sentinels = {name: NUMBER + i for i, name in enumerate(self.means.numbers)}
        with ir.InsertionPoint(module.body), ir.Location.unknown():
            means = self.means.build({**symbols, **sentinels}, f"{self.name}_means")
            module.body.append(means.operation)
            if not is_tensor_form(means):
                raise ScheduleError(f"tensorize: '{self.means.name}', which describes '{self.name}', is not one block")
        return self._match(build(PrimView(means)), loop, {value: name for name, value in sentinels.items()})

    def _match(self, tree: Root, loop: Loop, sentinels: Mapping[object, str]) -> CommandMatch:
        pattern, leaf = find_blocks(self, tree, loop)
        inner, loops = (loop, *loops_of(loop)), around(pattern)
        shown, expected = [each.extent for each in inner], [_shown_extent(each) for each in loops]
        if len(inner) != len(loops) or not all(map(_fits, inner, loops)):
            raise ScheduleError(
                f"tensorize: the loops are {shown}, '{self.name}' takes at most [{', '.join(expected)}]"
            )
        if not leaf.is_whole or leaf.epilogue:
            raise ScheduleError(f"tensorize: '{leaf.name}' is not one block, which '{self.name}' computes as a whole")
        numbers = _match_bodies(pattern, leaf, sentinels)
        if numbers is None:
            raise ScheduleError(f"tensorize: '{leaf.name}' does not compute what '{self.name}' means")
        names = dict(zip((each.name for each in inner), (each.name for each in loops), strict=True))
        require_same_reduction(pattern, leaf, names)
        for meant, access in zip([*pattern.reads, *pattern.writes], [*leaf.reads, *leaf.writes], strict=True):
            self._require_alike(pattern, leaf, meant, access, names)
        return CommandMatch(self, leaf, inner, numbers)

    def _require_alike(
        self, pattern: BlockLeaf, leaf: BlockLeaf, meant: BufferAccess, access: BufferAccess, names: Mapping[str, str]
    ) -> None:
        """Require that an operand is in the memory of the description, and moves along the same loops."""
        name = access.buffer.name
        if access.inlined is not None or access.is_opaque:
            raise ScheduleError(f"tensorize: '{leaf.name}' does not read elements of '{name}' from memory")
        if access.buffer.element != meant.buffer.element:
            raise ScheduleError(
                f"tensorize: '{name}' is {access.buffer.element}, expected the {meant.buffer.element} of '{self.name}'"
            )
        if access.outside is not None and meant.outside is None:
            raise ScheduleError(
                f"tensorize: '{leaf.name}' reads '{name}' beyond its edges, and '{self.name}' does not; pad it in a "
                "block of its own"
            )
        scope = self.scopes.get(meant.buffer.name, access.buffer.scope)
        if scope != access.buffer.scope:
            raise ScheduleError(
                f"tensorize: '{name}' is in '{access.buffer.scope or 'main'}' memory, '{self.name}' has "
                f"'{meant.buffer.name}' in '{scope or 'main'}' (set_scope, cache_read, cache_write)"
            )
        moves = {names[loop] for index in leaf.place(access) for loop in index.variables() if loop in names}
        expected = {loop for index in pattern.place(meant) for loop in index.variables() if loop in set(names.values())}
        if moves != expected:
            listed = [", ".join(sorted(each)) or "none" for each in (moves, expected)]
            raise ScheduleError(
                f"tensorize: '{name}' moves along other loops of '{self.name}' than '{meant.buffer.name}': "
                f"{listed[0]}, expected {listed[1]}"
            )


@dataclass(frozen=True)
class CommandMatch:
    """A loop that an instruction replaces."""

    intrin: CommandIntrin
    leaf: BlockLeaf
    loops: tuple[Loop, ...]
    numbers: Mapping[str, int | float]


def command_intrin(
    name: str, means: PrimScript, scopes: Mapping[str, str] | None = None, simulate: Simulate | None = None
) -> CommandIntrin:
    """Register an instruction of a command stream under a name, for `Schedule.tensorize` and `Schedule.commands`.

    `means` is a `@mirlo.prim_func` of one block: what the instruction computes. A loop whose size is a symbol
    (`T.dims`) may have any number of iterations, another one at most as many as it says. A number that is a symbol
    (`T.attrs`) is read from the block and is one of the command's. Operands must move along the same loops; by how
    much is up to the schedule. `scopes` are the memories that parameters of `means` are in. `simulate(command,
    memories)` executes one command in Python, for any kind of numbers: `assert_intrinsic` and `check-target` compare it
    with `means`.
    """
    names = [parameter.name for parameter in getattr(means, "parameters", ())]
    unknown = [each for each in scopes or {} if each not in names]
    if not names or unknown:
        actual = f"no parameter '{unknown[0]}' in {listed_parameters(means)}" if unknown else f"{means!r}"
        raise ScheduleError(
            f"command intrinsic '{name}': expected a @mirlo.prim_func and its parameters, found {actual}"
        )
    intrin = CommandIntrin(name, means, dict(scopes or {}), simulate)
    register_intrinsic(name, intrin, means)
    ACCELERATOR_SCOPES.update(each for each in intrin.scopes.values() if each not in ("", LOCAL, SHARED))
    return intrin


def _is_free(loop: Loop) -> bool:
    """Return whether a loop of a description may have any number of iterations."""
    return isinstance(loop.extent, int) and loop.extent % FREE_SIZE == 0


def _fits(ours: Loop, most: Loop) -> bool:
    """Return whether a loop has a number of iterations that an instruction takes."""
    if not isinstance(ours.extent, int) or not isinstance(most.extent, int):
        return False
    return _is_free(most) or ours.extent <= most.extent


def _shown_extent(loop: Loop) -> str:
    return "any" if _is_free(loop) else str(loop.extent)


# Bodies


class _BodyMatch:
    """Compares the bodies of a description and of a block, operation by operation."""

    def __init__(self, pattern: BlockLeaf, leaf: BlockLeaf, sentinels: Mapping[object, str]) -> None:
        self.numbers: dict[str, int | float] = {}
        """The numbers of the description, as the block has them."""
        self._sentinels = sentinels
        self._arguments: dict[ir.Value, tuple[str, int]] = {}
        assert pattern.view is not None and leaf.view is not None
        for view, body in ((pattern.view, pattern.body), (leaf.view, leaf.body)):
            for kind, values in (("axis", view.index_arguments), ("read", body.inputs), ("total", body.accumulators)):
                self._arguments.update({value: (kind, i) for i, value in enumerate(values)})
        left, right = pattern.body, leaf.body
        self.is_same = (
            len(left.yielded) == len(right.yielded)
            and len(left.inputs) == len(right.inputs)
            and all(map(self._is_same, left.yielded, right.yielded))
        )
        self._arguments.clear()  # values must not outlive their operations

    def _is_same(self, left: ir.Value, right: ir.Value) -> bool:
        if left in self._arguments:
            return self._arguments[left] == self._arguments.get(right)
        ours, theirs = _definition_of(right), _definition_of(left)
        if theirs is None or left.type != right.type:
            return False
        if theirs.name in NEUTRAL:
            name = self._sentinels.get(_number_of(theirs.operands[1]))
            is_folded = ours is None or ours.name != theirs.name or _number_of(ours.operands[1]) is None
            if name is not None and is_folded:
                return self._is_same(theirs.operands[0], right) and self._is_number(name, NEUTRAL[theirs.name])
        if ours is None or ours.name != theirs.name:
            return False
        name = self._sentinels.get(_constant(theirs))
        if name is not None:
            number = _constant(ours)
            return number is not None and self._is_number(name, number)
        return (
            _attributes(theirs) == _attributes(ours)
            and len(theirs.operands) == len(ours.operands)
            and all(map(self._is_same, theirs.operands, ours.operands))
        )

    def _is_number(self, name: str, number: int | float) -> bool:
        """Return whether all uses of a symbol of a description are the same number."""
        return self.numbers.setdefault(name, number) == number


def _match_bodies(
    pattern: BlockLeaf, leaf: BlockLeaf, sentinels: Mapping[object, str]
) -> dict[str, int | float] | None:
    """Return the numbers of a block whose body is that of a description; None if it computes something else."""
    if pattern.view is None:
        return None
    if leaf.view is None:
        return {} if _is_identity(pattern.view) else None
    match = _BodyMatch(pattern, leaf, sentinels)
    return match.numbers if match.is_same else None


def _is_identity(view: BlockView) -> bool:
    """Return whether a block copies its operand."""
    return len(view.yielded) == 1 and list(view.yielded) == list(view.input_arguments)


def _definition_of(value: ir.Value) -> ir.Operation | None:
    """Return the operation that makes a value; None for an argument."""
    owner = value.owner
    return owner if isinstance(owner, ir.Operation) else getattr(owner, "operation", None)


def _number_of(value: ir.Value) -> int | float | None:
    op = _definition_of(value)
    return None if op is None else _constant(op)


def _constant(op: ir.Operation) -> int | float | None:
    if op.name != "arith.constant":
        return None
    value = op.attributes["value"]
    if isinstance(value, ir.IntegerAttr):
        return int(ir.IntegerAttr(value).value)
    return float(ir.FloatAttr(value).value) if isinstance(value, ir.FloatAttr) else None


def _attributes(op: ir.Operation) -> list[str]:
    return sorted(str(op.attributes[i]) for i in range(len(op.attributes)))
