"""Pass `pack-weights`: store constant operands of contractions in the order in which register tiles read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import OperandView, PrimView, is_tensor_form, prim_functions
from mirlo.passes.graph.constants import constant_reader, is_available, row_source, whole_constant
from mirlo.passes.memory.weights import ConstantReleaser
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.rule_choices import ChoiceError
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.schedule import adopt_choices, packed_parameters
from mirlo.passes.schedule.stored import PackedOrder, Stored, calls_of, set_packed_orders, store_for_calls
from mirlo.passes.session import PassDecision
from mirlo.runtime.container import empty_aligned
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.choices import PACKED, SMALL_PAIRS, ContractionChoices, contraction_choices
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.options import find_machine
from mirlo.targets.llvm.schedule.contraction.groups import are_small_pairs
from mirlo.targets.llvm.schedule.contraction.matrix_unit import instruction_for, panel_columns
from mirlo.targets.llvm.schedule.contraction.plan import plan_of
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import TiledContraction, lanes_of_panel

if TYPE_CHECKING:
    from mirlo.passes.session import Session
    from mirlo.runtime.params import ColumnReader


@register_pass
@dataclass(frozen=True)
class PackWeights(Pass):
    """Store the weights of contractions as packed panels of columns.

    A panel holds, for each k-step, as many contiguous columns as a register tile has. For dot-product instructions
    the elements of one column that an instruction reads are contiguous too. Without this pass kernels pack their
    weights in each call. Only prim functions whose calls all pass a constant are changed; the last panel is padded
    with zeros. Subnormal weights become zeros where the largest weight makes them negligible: they would slow down
    each product.
    """

    name = "pack-weights"
    contained = True
    trusted = True
    machine: str = option("", "machine whose register tiles the panels fit; default: the one that is scheduled for")

    def run(self, op: ir.OpView, session: Session) -> None:
        machine = find_machine(self.machine or session.options.get("machine"))
        calls = calls_of(op)
        packed: dict[object, str] = {}
        release = ConstantReleaser(op, session)
        for function in prim_functions(op):
            if not is_tensor_form(function):
                continue
            view = PrimView(function)
            sites = calls.get(view.name, [])
            if not adopt_choices(function, "llvm", session):
                # Primitives that arrange loops say how operands are stored.
                orders = packed_parameters(function, session)
                for each in orders:
                    stored = _stored_as(each, view, sites, session)
                    store_for_calls(view, sites, stored, session, packed, release.unused)
                _mark(function, orders)
                continue
            if not sites or not view.blocks or view.others:
                continue
            constants = _constants(view, sites, session)
            try:
                choices = contraction_choices(function)
            except ChoiceError as error:
                raise PassError(f"the choices for '@{view.name}': {error}", function.operation.location) from error
            plan = plan_of(view.blocks, view.returned, machine, constants, choices)
            if isinstance(plan, Decline):
                continue
            panels = _panels(plan, view)
            if isinstance(panels, Decline):
                session.notes.append(PassDecision(self.name, panels, function=view.name))
                continue
            # A constant whose array is not loaded (IR without its parameter files) cannot be packed.
            if not all(is_available(whole_constant(site.operands[panels.argument]), session) for site in sites):
                continue
            if plan.tile.group is not None and plan.tile.group.instruction == "vpmaddwd" and _is_int8(panels.operand):
                small = _small_pairs(view, machine, constants, choices, sites, session)
                if small is not None:
                    panels = small
                    function.operation.attributes[SMALL_PAIRS] = ir.UnitAttr.get()
            stored = panels.stored
            width = panels.order.width
            session.notes.append(PassDecision(self.name, f"panels of {width} columns", function=view.name))
            store_for_calls(view, sites, stored, session, packed, release.unused)
            _mark(function, [panels.packed])


def _constants(view: PrimView, sites: Sequence[ir.Operation], session: Session) -> list[ir.Value]:
    """Return the parameters that are constants in all calls of a function."""
    pairs = enumerate(view.arguments)
    return [
        value for i, value in pairs if all(is_available(whole_constant(site.operands[i]), session) for site in sites)
    ]


def _mark(function: ir.OpView, orders: Sequence[PackedOrder]) -> None:
    """Record that parameters of a function are packed."""
    if orders:
        set_packed_orders(function, orders)
        function.operation.attributes[PACKED] = ir.UnitAttr.get()


def _stored_as(order: PackedOrder, view: PrimView, sites: Sequence[ir.Operation], session: Session) -> Stored:
    """Return the order of a constant that a primitive requests."""
    where = f"the schedule given for '@{view.name}': pack"
    if not sites or not all(is_available(whole_constant(site.operands[order.argument]), session) for site in sites):
        raise PassError(f"{where}: 'x{order.argument}' is no constant in all calls; pack a copy of it (cache_read)")
    value = view.arguments[order.argument]
    uses = [(block, at) for block in view.blocks for at, each in enumerate(block.inputs) if each.value == value]
    if len(uses) != 1 or not uses[0][0].is_reduction:
        raise PassError(f"{where}: expected that one reduction reads 'x{order.argument}', found {len(uses)} reads")
    block, position = uses[0]
    group = dict(order.tiles[1:]).get(order.order[-1], 1) if len(order.tiles) > 1 else 1
    if len(order.tiles) != (2 if group > 1 else 1) or order.tiles[0][0] == order.order[-1]:
        raise PassError(
            f"{where}: expected tiles of one dim, and of the last one too for groups, found {list(order.tiles)}"
        )
    columns, width = order.tiles[0]
    at = order.order.index(columns)
    stored = Order(order.order[:at], columns, order.order[at + 1 :], width, group)
    return Panels(order.argument, block.inputs[position], position, stored).stored


def _small_pairs(
    view: PrimView,
    machine: Machine,
    constants: Sequence[ir.Value],
    choices: ContractionChoices,
    sites: Sequence[ir.Operation],
    session: Session,
) -> Panels | None:
    """Return panels for products of int8 that are added in pairs of 16 bits; None if a call's may not fit."""
    plan = plan_of(view.blocks, view.returned, machine, constants, replace(choices, has_small_pairs=True))
    panels = plan if isinstance(plan, Decline) else _panels(plan, view)
    if isinstance(panels, Decline):
        return None
    group = plan.tile.group if isinstance(plan, TiledContraction) else None
    axis, is_unsigned = panels.order.inner[-1], group is not None and group.unsigned_columns
    for site in sites:
        passed = site.operands[panels.argument]
        array = constant_reader(whole_constant(passed), session)()
        slices = [array] if row_source(passed) is None else array
        if not all(are_small_pairs(each.view(np.uint8 if is_unsigned else np.int8), axis) for each in slices):
            return None
    return panels


def _is_int8(operand: OperandView) -> bool:
    return bool(operand.value.type.element_type == ir.IntegerType.get_signless(8))


@dataclass(frozen=True)
class Order:
    """The memory order of a packed operand, without references to IR, which it outlives."""

    outer: tuple[int, ...]
    """Dims that come first, unchanged."""
    columns: int
    """The dim that is split into panels, which come next."""
    inner: tuple[int, ...]
    """Dims of the reduction, between the panels and the columns of a panel."""
    width: int
    group: int = 1
    """Adjacent elements along K that are contiguous for each column."""

    def shape(self, old: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of an array in the new order."""
        count = -(-old[self.columns] // self.width)
        shape = (*(old[d] for d in self.outer), count, *(old[d] for d in self.inner), self.width)
        return shape if self.group == 1 else (*shape[:-2], shape[-2] // self.group, self.width, self.group)

    def pack(self, array: np.ndarray) -> np.ndarray:
        """Return the array in the new order."""
        # Aligned to cache lines: a vector across two lines takes two loads.
        packed = empty_aligned(array.dtype, self.shape(array.shape))
        self.fill(array, packed)
        return packed

    def fill(self, array: np.ndarray, to: np.ndarray) -> None:
        """Write the array in the new order to another one."""
        self._arrange(array, to)
        flush_subnormals(to)

    def fill_in_turn(self, columns: ColumnReader, to: np.ndarray) -> None:
        """Write the array whose last dim is that of the columns, panel by panel.

        An array that is computed is in memory once then: a first touch of memory takes the system longer than the
        computation.
        """
        lead = (slice(None),) * len(self.outer)
        for panel, part in enumerate(columns(self.width)):
            self._arrange(part, to[lead + (slice(panel, panel + 1),)])
        flush_subnormals(to)

    def _arrange(self, array: np.ndarray, to: np.ndarray) -> None:
        moved = array.transpose(*self.outer, self.columns, *self.inner)
        at, total = len(self.outer), array.shape[self.columns]
        panels = replace(self, group=1).shape(array.shape)
        result = to if self.group == 1 else empty_aligned(array.dtype, panels)
        whole = total // self.width
        lead = (slice(None),) * at
        full = moved[lead + (slice(0, whole * self.width),)]
        split = full.reshape(*full.shape[:at], whole, self.width, *full.shape[at + 1 :])
        result[lead + (slice(0, whole),)] = np.moveaxis(split, at + 1, -1)
        if whole * self.width < total:
            rest = moved[lead + (slice(whole * self.width, total),)]
            result[lead + (whole,)] = 0
            result[lead + (whole, ..., slice(0, total - whole * self.width))] = np.moveaxis(rest, at, -1)
        if self.group > 1:
            groups = result.reshape(*result.shape[:-2], result.shape[-2] // self.group, self.group, self.width)
            to[...] = np.swapaxes(groups, -1, -2)


@dataclass(frozen=True)
class Panels:
    """The new order of an operand: permuted dims, one of them split into panels."""

    argument: int
    """Position of the operand among the function's parameters."""
    operand: OperandView
    position: int
    """Position of the operand among those of the block."""
    order: Order

    @property
    def shape(self) -> tuple[int, ...]:
        return self.order.shape(self.operand.shape)

    @property
    def map(self) -> ir.AffineMap:
        exprs, order = list(self.operand.map.results), self.order
        cut, width = exprs[order.columns], ir.AffineExpr.get_constant(order.width)
        panel, column = ir.AffineExpr.get_floor_div(cut, width), ir.AffineExpr.get_mod(cut, width)
        inner = [exprs[d] for d in order.inner]
        reordered = [*(exprs[d] for d in order.outer), panel, *inner, column]
        if order.group > 1:
            size = ir.AffineExpr.get_constant(order.group)
            reordered[-2:] = [
                ir.AffineExpr.get_floor_div(inner[-1], size), column, ir.AffineExpr.get_mod(inner[-1], size)
            ]  # fmt: skip
        return ir.AffineMap.get(self.operand.map.n_dims, 0, reordered)

    @property
    def packed(self) -> PackedOrder:
        """Return the order in the form that the primitive `pack` takes."""
        order = self.order
        tiles = [(order.columns, order.width), *([(order.inner[-1], order.group)] if order.group > 1 else [])]
        return PackedOrder(self.argument, (*order.outer, order.columns, *order.inner), tuple(tiles))

    @property
    def stored(self) -> Stored:
        order = self.order
        in_turn = order.fill_in_turn if order.columns == len(self.operand.shape) - 1 else None
        return Stored(
            self.argument, self.position, self.shape, self.map, order, order.pack, "panels", order.fill, in_turn
        )


def _dims_by_axis(map_: ir.AffineMap) -> dict[int, int] | None:
    """Return the dim that each axis indexes; None if a dim has another index than an axis of its own or a constant."""
    axes = {d: expr for d, expr in enumerate(map_.results) if not isinstance(expr, ir.AffineConstantExpr)}
    positions = {d: expr.position for d, expr in axes.items() if isinstance(expr, ir.AffineDimExpr)}
    if len(positions) != len(axes) or len(set(positions.values())) != len(positions):
        return None
    return {axis: d for d, axis in positions.items()}


def _declined_operand(plan: TiledContraction, view: PrimView) -> Decline | None:
    """Decline a column operand that cannot have another layout, or is not to have one."""
    operand = plan.roles.columns.access
    if plan.choices.pack is False:
        return decline("a caller or a measurement chose not to pack")
    if plan.tile.dot:
        return decline("lanes run along K")
    if plan.roles.columns.padded_shape is not None:
        return decline("the columns are padded in a copy")
    if operand.value not in view.arguments:
        return decline("the columns are no argument")
    if len([u for u in operand.value.uses]) != 1:
        return decline("the columns are read more than once")
    if not isinstance(plan.roles.lane_axis.extent, int):
        return decline("the number of columns is known at run time only", columns=plan.roles.lane_axis.extent)
    return None


def _panels(plan: TiledContraction, view: PrimView) -> Panels | Decline:
    """Choose the panels of the column operand, or decline if it stays as it is."""
    reason = _declined_operand(plan, view)
    if reason is not None:
        return reason
    operand, contraction = plan.roles.columns.access, plan.roles.contraction
    is_one_panel = plan.roles.lane_axis.extent <= plan.tile.columns
    # A single panel gains if whole aligned vectors replace masked ones across cache lines.
    lanes = lanes_of_panel(plan.roles.lane_axis, plan.tile, plan.machine)
    is_whole = plan.roles.lane_axis.extent == lanes or not plan.tile.problem.shared_columns
    on_unit = instruction_for(plan)
    if isinstance(on_unit, Decline) and not plan.packing.packs_panels and is_one_panel and is_whole:
        return decline("one panel holds all columns, which are contiguous", columns=plan.roles.lane_axis.extent)
    if plan.roles.rows.form.stride(plan.roles.lane_axis) != 0 and plan.roles.lane_axis.extent % plan.tile.columns:
        return decline("columns with rows of their own do not fill the last panel", columns=plan.roles.lane_axis.extent)
    position = plan.roles.columns.factor.position
    source = contraction.block.inputs[position]
    dims = _dims_by_axis(source.map)
    if dims is None:
        return decline("a dim of the columns is indexed by more than one axis")
    lane = contraction.sources.get(plan.roles.lane_axis.id)
    if lane is None or contraction.block.domain[lane] != plan.roles.lane_axis.extent:
        return decline("the lanes run along several axes of the block")
    order = [contraction.sources.get(axis.id) for axis in plan.roles.order]
    if None in order:
        return decline("a reduction runs along several axes of the block")
    summed = [dims[axis] for axis in order if axis is not None]
    # Axes of extent 1, such as those of a 1x1 window, are none of the plan's: groups are of the last axis that is.
    inner = [d for axis, d in dims.items() if axis in contraction.block.reduce and d not in summed] + summed
    columns = dims[lane]
    outer = tuple(d for d in range(len(dims)) if d != columns and d not in inner)
    argument = view.arguments.index(operand.value)
    width = lanes if is_one_panel else plan.tile.columns
    width = width if isinstance(on_unit, Decline) else panel_columns(plan.roles.lane_axis, on_unit)
    order_stored = Order(outer, columns, tuple(inner), width)
    panels = Panels(argument, source, position, order_stored)
    group = plan.tile.group.size if plan.tile.group is not None else 1
    group = group if isinstance(on_unit, Decline) else on_unit.group
    if group == 1:
        return panels
    # Groups must be whole, in one dim: otherwise the kernel packs the panels.
    last = plan.roles.order[-1]
    is_whole = isinstance(last.extent, int) and last.extent % group == 0
    if not is_whole or inner[-1] != dims.get(contraction.sources.get(last.id, -1)):
        return decline("groups of products are not whole", group=group)
    return replace(panels, order=replace(panels.order, group=group))


_MASKS = {4: (np.uint32, 0x7FFFFFFF, 0x007FFFFF), 8: (np.uint64, (1 << 63) - 1, (1 << 52) - 1)}
"""By the bytes of a float: the integers of its bits, those but the sign, and the largest of a subnormal number."""
CHUNK = 1 << 16
"""Elements that are looked at together: they, and twice their bits, stay in the second-level cache."""
NEGLIGIBLE = 2.0**-26
"""A subnormal weight is taken as zero where the largest weight is larger by this factor at least: products with that
round away what the other one adds."""


def flush_subnormals(array: np.ndarray) -> None:
    """Set subnormal elements of a contiguous array of f32 or f64 to zero, if they are negligible beside the largest."""
    if array.dtype.kind != "f" or array.dtype.itemsize not in _MASKS or not array.size:
        return
    kind, magnitude, largest_subnormal = _MASKS[array.dtype.itemsize]
    bits = array.reshape(-1).view(kind)
    chunks = _chunks_with_subnormals(bits, 2 * largest_subnormal)
    if not chunks:
        return
    largest = max(int((bits[start : start + CHUNK] & kind(magnitude)).max()) for start in range(0, bits.size, CHUNK))
    if kind(largest).view(array.dtype.type) * NEGLIGIBLE >= np.finfo(array.dtype).tiny:
        for chunk in chunks:
            magnitudes = chunk & kind(magnitude)
            chunk[(magnitudes - kind(1)) < kind(largest_subnormal)] = 0  # zero wraps around


def _chunks_with_subnormals(bits: np.ndarray, largest: int) -> list[np.ndarray]:
    """Return the chunks with a number of which twice the bits, without the sign, are `largest` or less, but not 0."""
    doubled = np.empty(min(CHUNK, bits.size), bits.dtype)
    chunks = []
    for start in range(0, bits.size, CHUNK):
        chunk = bits[start : start + CHUNK]
        twice = np.add(chunk, chunk, out=doubled[: chunk.size])  # the sign falls out
        if np.subtract(twice, 1, out=twice).min() < largest:  # zero wraps around
            chunks.append(chunk)
    return chunks
