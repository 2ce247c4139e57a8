"""Implicit-GEMM operands: images under a convolution, gathered by threads into tiles for warpgroups.

The tile has the layout of the copy engine's: 128 bytes per line, in 16-byte vectors swizzled by the line number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.evaluate import TensorBuffers
from mirlo.passes.schedule.loops import index
from mirlo.targets.gpu.schedule.epilogue import Reader
from mirlo.targets.gpu.schedule.launch import add, less, multiply, split
from mirlo.targets.gpu.schedule.roles import Indices, ProductOperand, Roles, evaluate, values_of
from mirlo.targets.nvvm.schedule.copies import async_copy
from mirlo.targets.nvvm.schedule.staging import with_whole_vectors
from mirlo.targets.nvvm.schedule.tilemaps import ROW_BYTES
from mirlo.targets.nvvm.schedule.units import ACCESS, TF32, Format

VECTORS_PER_ROW = ROW_BYTES // ACCESS
"""Vectors per line; as many threads copy it."""


@dataclass(frozen=True)
class GatheredOperand:
    """An operand whose lines are gathered in 16-byte vectors, each from its own address or from the padding."""

    roles: Roles
    side: ProductOperand
    form: Format

    along_k = True
    """The tile is contiguous along K, as memory is."""


def gathered(roles: Roles, side: ProductOperand, form: Format) -> GatheredOperand | Decline:
    """Return an operand as threads gather it, or decline."""
    if form is TF32:
        return decline("threads do not round what they copy, as the copying engine does", type=form.name)
    if not with_whole_vectors(roles, side, roles.sums, form.vector):
        return decline("the operand is not contiguous along K in 16-byte vectors")
    outside = side.access.outside
    if outside is not None and outside.value != 0:
        return decline("padding is not zero", outside=str(outside))
    return GatheredOperand(roles, side, form)


class Gathering:
    """A thread's part of the tiles of some lines: a vector of every 16th line."""

    def __init__(
        self,
        side: GatheredOperand,
        memory: TensorBuffers,
        batch: Indices,
        first: ir.Value,
        lines: int,
        thread: ir.Value,
        threads: int,
    ):
        self.side = side
        self.memory = memory
        self.reader = Reader(side.roles, side.side, memory)
        own, piece = split(thread, [threads // VECTORS_PER_ROW, VECTORS_PER_ROW])
        self.step = multiply(piece, side.form.vector)
        self.apart = threads // VECTORS_PER_ROW
        bases = []
        for line in range(0, lines, self.apart):
            at = add(first, add(own, line))
            held = create("arith.minui", at.type, at, index(side.side.extent - 1))
            bases.append(self.reader.base({**batch, **values_of(side.side.axes, held)}))
        self.bases = bases
        # The swizzle repeats every 8 lines, so it is constant for a thread.
        number = create("arith.remui", own.type, own, index(VECTORS_PER_ROW))
        place = create("arith.xori", piece.type, piece, number)
        self.place = add(multiply(own, side.form.vector * VECTORS_PER_ROW), multiply(place, side.form.vector))

    def copy(self, begin: ir.Value, target: ir.Value, start: Any) -> None:
        """Start copies for the K elements from `begin`, to the shared-memory elements from `start` on."""
        side, width = self.side, self.side.form.vector
        position = add(begin, self.step)
        held = create("arith.minui", position.type, position, index(side.roles.depth - width))
        values = values_of(side.roles.sums, held)
        exists = less(position, side.roles.depth)
        for number, base in enumerate(self.bases):
            source = evaluate(side.side.position, values, base[0])
            there = self.reader.is_inside(base, values)
            inside = exists
            if there is not None:
                source = create("arith.select", source.type, there, source, index(0))
                inside = create("arith.andi", exists.type, exists, there)
            # Elements beyond the last k-step or in the padding are zero.
            count = create("arith.select", source.type, inside, index(width), index(0))
            to = add(start, add(self.place, number * self.apart * VECTORS_PER_ROW * width))
            async_copy(self.memory.slot(side.side.access.value).buffer, source, target, to, count, width)
