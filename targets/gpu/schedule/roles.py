"""Roles of a contraction's axes: rows, columns, batches, reduction; and how a grid of tiles covers them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.value import Value
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.analysis import Contraction, TensorAccess, analyze
from mirlo.passes.schedule.blocks.contraction.body import ProductInput
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis, row_major
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel
from mirlo.passes.schedule.primitives.lanes import is_within
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.launch import split

Indices = Mapping[int, Value]
"""Values of axes, by id."""


@dataclass(frozen=True)
class ProductOperand:
    """One operand of the product: its access, and the axes that only it has."""

    access: TensorAccess
    factor: ProductInput
    axes: tuple[BlockAxis, ...]

    @property
    def extent(self) -> Dim:
        return D.product([axis.extent for axis in self.axes])

    @property
    def position(self) -> IndexExpr:
        return row_major(self.access.dims, self.access.shape)

    def stride(self, axes: Sequence[BlockAxis]) -> Dim:
        """Return the stride along the last of these axes; 0 if there is none."""
        return _size(self.position.stride(axes[-1])) if axes else 0


@dataclass(frozen=True)
class Roles:
    """A contraction as a batch of matrix products, with columns contiguous in the output.

    Extents are dims; plans that need static sizes never receive dynamic ones (`stages.decline_dynamic_dims`).
    """

    contraction: Contraction
    rows: ProductOperand
    columns: ProductOperand
    batch: tuple[BlockAxis, ...]
    sums: tuple[BlockAxis, ...]
    extents: dict[int, Dim] = field(default_factory=dict)

    @property
    def depth(self) -> Dim:
        return D.product([axis.extent for axis in self.sums])

    @property
    def outputs(self) -> Dim:
        """Return the number of output elements."""
        return self.batches * self.rows.extent * self.columns.extent

    @property
    def batches(self) -> Dim:
        return D.product([axis.extent for axis in self.batch])


def product_of(group: BlockGroup[LaneModel]) -> Roles | Decline:
    """Return the axis roles of a product, the first of these blocks, with its epilogue; or decline."""
    contraction = analyze(group.blocks, group.kept)
    return contraction if isinstance(contraction, Decline) else roles_of(contraction)


def roles_of(contraction: Contraction) -> Roles | Decline:
    """Return the roles of all axes."""
    if contraction.ragged is not None:
        return decline("an axis is divided into unequal parts")
    written = row_major(contraction.writes[0][1].dims, contraction.writes[0][1].shape)
    spatial = sorted(contraction.spatial, key=lambda axis: -_step(written, axis))
    left, right = (_moved(access) for access in (contraction.lhs, contraction.rhs))
    only_left = tuple(axis for axis in spatial if axis.id in left and axis.id not in right)
    only_right = tuple(axis for axis in spatial if axis.id in right and axis.id not in left)
    batch = tuple(axis for axis in spatial if (axis.id in left) == (axis.id in right))
    lhs = ProductOperand(contraction.lhs, contraction.product.lhs, only_left)
    rhs = ProductOperand(contraction.rhs, contraction.product.rhs, only_right)
    # Adjacent threads compute adjacent columns, which must be contiguous in the output.
    swapped = bool(only_left) and (not only_right or _step(written, only_left[-1]) < _step(written, only_right[-1]))
    rows, columns = (rhs, lhs) if swapped else (lhs, rhs)
    # Prefer a reduction axis that is contiguous in memory as the innermost one, such as an image's channels.
    read = [row_major(access.dims, access.shape) for access in (contraction.lhs, contraction.rhs)]
    sums = sorted(contraction.reduce, key=lambda axis: -sum(abs(position.stride(axis)) for position in read))
    return Roles(contraction, rows, columns, batch, tuple(sums), dict(contraction.extents))


def _step(written: IndexExpr, axis: BlockAxis) -> int:
    """Return the approximate stride of an axis."""
    return D.estimate_dim(_size(written.stride(axis)))


def _size(step: Dim) -> Dim:
    return abs(step) if isinstance(step, int) else step


def _moved(access: TensorAccess) -> set[int]:
    return {axis for dim in access.dims for axis in dim.terms}


def values_of(axes: Sequence[BlockAxis], number: Value) -> dict[int, Value]:
    """Return the value of each axis, from the linear index of a point."""
    return dict(zip((axis.id for axis in axes), split(number, [axis.extent for axis in axes]), strict=True))


def tested(roles: Roles, side: ProductOperand) -> list[IndexExpr]:
    """Return the indices of an operand that may be out of bounds."""
    access = side.access
    if access.outside is None:
        return []
    pairs = zip(access.dims, access.shape, strict=True)
    return [dim for dim, size in pairs if not is_within(dim, size, roles.extents)]
