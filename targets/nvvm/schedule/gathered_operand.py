"""Implicit-GEMM operands: images under a convolution, gathered by threads into tiles for warpgroups.

The tile has the layout of the copy engine's: 128 bytes per line, in 16-byte vectors swizzled by the line number.
"""

from __future__ import annotations

from dataclasses import replace

from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.rules import Decline, decline
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.contraction.staging import SharedMatrix, with_whole_vectors
from mirlo.targets.gpu.schedule.roles import ProductOperand, Roles
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


@dataclass(frozen=True)
class SwizzledMatrix(SharedMatrix):
    """A tile as the copy engine lays it out: 128 bytes per line, in vectors swizzled by the line number."""

    apart: int = 0
    """Elements from one pipeline stage to the next."""

    def place(self, line: Value, step: Value) -> Value:
        """Return the position of the first element of a vector."""
        width = self.form.vector
        number = create("arith.remui", line.type, line, index(VECTORS_PER_ROW))
        piece = create("arith.xori", line.type, create("arith.divui", step.type, step, index(width)), number)
        assert self.start is not None
        return self.start + (line * (width * VECTORS_PER_ROW) + piece * width)

    def stage(self, number: Value | None) -> SharedMatrix:
        """Return the matrix of a pipeline stage."""
        assert number is not None
        return replace(self, start=number * self.apart)
