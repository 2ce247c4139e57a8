"""Indices of loops around register tiles, and starts of tiles, which are hidden from LLVM's analyses.

LoopStrengthReduction looks for induction variables that all addresses in a loop have in common, and tries the sums of
all subsets of the terms of an address. In the loop of a register tile an address has terms for each loop around it:
that takes longer than the rest of code generation, and keeps more addresses in registers than there are. Only the loops
of the tiles themselves are worth it, and for them the start of the tile is one term.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import create, inline_asm
from mirlo.dialects.core.walk import find_named
from mirlo.dialects.tir.view import PRIM_FUNC
from mirlo.passes.schedule.loops import LOOP_ANNOTATION

MANY_ACCESSES = 48
"""The accesses to memory in an iteration above which the addresses are sums of the index, not induction variables.

LoopStrengthReduction looks at all pairs of them: in the transforms of Winograd's algorithm it takes half of the time of
code generation, for addresses that are constants apart.
"""
_ACCESSES = frozenset(
    ("vector.load", "vector.store", "vector.maskedload", "vector.maskedstore", "memref.load", "memref.store")
)


def hide_outer_indices(module: ir.Module) -> None:
    """Pass indices through assembly without instructions.

    These are the starts of loops over accumulators, the indices of loops with many accesses and no accumulators, and in
    kernels with dynamic dims the indices of the loops around register tiles. In other kernels the addresses between
    loops are numbers apart.
    """
    for op in module.body.operations:
        kernel = op.operation
        if kernel.name == "func.func" and PRIM_FUNC in kernel.attributes:
            loops = _Loops(kernel)
            for loop in loops.over_accumulators:
                _hide_beginnings(loop, loops)
            for loop in loops.of_many_accesses:
                _hide_index(loop)
            if _has_sizes(kernel):
                for loop in loops.around_tiles:
                    _hide_index(loop)


def _has_sizes(kernel: ir.Operation) -> bool:
    """Return whether a kernel takes the values of dims."""
    kind = ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value)
    return any(isinstance(type_, ir.IndexType) for type_ in kind.inputs)


class _Loops:
    """The loops of a kernel."""

    def __init__(self, kernel: ir.Operation) -> None:
        self.around_tiles: list[ir.Operation] = []
        """The loops that have a loop over accumulators below them."""
        self.over_accumulators: list[ir.Operation] = []
        """The scheduled loops over accumulators that have no loop below them."""
        self.of_many_accesses: list[ir.Operation] = []
        """The loops without results and without a loop below them that access memory at `MANY_ACCESSES` places."""
        self._varying: dict[ir.Value, bool] = {}
        self._collect(kernel)

    def _collect(self, kernel: ir.Operation) -> None:
        """Collect the loops of a kernel, inner ones first."""
        with_loops: set[ir.Operation] = set()
        around_tiles: set[ir.Operation] = set()
        for loop in find_named(kernel, ("scf.for",)):
            if loop in around_tiles:
                self.around_tiles.append(loop)
            is_over, is_innermost = _is_over_accumulators(loop), loop not in with_loops
            if is_over and is_innermost:
                self.over_accumulators.append(loop)
            elif is_innermost and not len(loop.results) and _has_many_accesses(loop):
                self.of_many_accesses.append(loop)
            is_tile = is_over and len(loop.results) > 1
            outer = loop.parent
            while outer is not None and outer != kernel:
                if outer.name == "scf.for":
                    with_loops.add(outer)
                    if is_tile:
                        around_tiles.add(outer)
                outer = outer.parent

    def varies(self, value: ir.Value) -> bool:
        """Return whether a value depends on the index of a loop, or on a result of a loop."""
        if value not in self._varying:
            op = value.owner
            if isinstance(op, ir.Block):
                self._varying[value] = op.owner.operation.name != "func.func"
            else:
                self._varying[value] = len(op.regions) > 0 or any(self.varies(operand) for operand in op.operands)
        return self._varying[value]


def _is_over_accumulators(loop: ir.Operation) -> bool:
    return LOOP_ANNOTATION in loop.attributes and len(loop.results) > 0


def _has_many_accesses(loop: ir.Operation) -> bool:
    body = loop.regions[0].blocks[0].operations
    return len(body) >= MANY_ACCESSES and sum(op.operation.name in _ACCESSES for op in body) >= MANY_ACCESSES


def _hide_beginnings(loop: ir.Operation, loops: _Loops) -> None:
    """Hide the indices that a loop uses, and that operations around it compute from those of other loops."""
    body = loop.regions[0].blocks[0]
    uses: dict[ir.Value, list[tuple[ir.Operation, int]] | None] = {}
    """The uses of such an index; None for other values, as most are: each is looked at once."""
    for each in body.operations:
        op = each.operation
        for number, operand in enumerate(op.operands):
            if operand not in uses:
                uses[operand] = [] if _is_computed_around(operand, body) and loops.varies(operand) else None
            users = uses[operand]
            if users is not None:
                users.append((op, number))
    for index, users in uses.items():
        if users is not None:
            with ir.InsertionPoint(loop), loop.location:
                beginning = _hidden(_as_number(index))
            for user, number in users:
                user.operands[number] = beginning


def _is_computed_around(value: ir.Value, body: ir.Block) -> bool:
    """Return whether a value is an index that an operation outside of a block computes."""
    if not isinstance(value.type, ir.IndexType):
        return False
    owner = value.owner
    return not isinstance(owner, ir.Block) and owner.operation.block != body


def _hide_index(loop: ir.Operation) -> None:
    block = loop.regions[0].blocks[0]
    index = block.arguments[0]
    with ir.InsertionPoint.at_block_begin(block), loop.location:
        cast = _as_number(index)
        hidden = _hidden(cast)
    index.replace_all_uses_except(hidden, cast.owner.operation)


def _as_number(index: ir.Value) -> ir.Value:
    return create("arith.index_cast", ir.IntegerType.get_signless(64), index)


def _hidden(number: ir.Value) -> ir.Value:
    """Return an opaque copy of an index, which LLVM cannot analyze."""
    return create("arith.index_cast", ir.IndexType.get(), inline_asm("", "=r,0", number.type, number))
