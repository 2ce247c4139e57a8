"""Constants that prim functions read in another memory order: rewrites of the calls and of the functions."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.op import class_of
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.walk import walk
from mirlo.dialects.relax.calls import ViewRow
from mirlo.dialects.relax.create import Constant
from mirlo.dialects.tir.view import PrimView
from mirlo.passes.graph.constants import (
    column_reader,
    constant_name,
    constant_reader,
    derived,
    emit_deferred_constant,
    filled,
    row_source,
    slice_reader,
    stacked,
    whole_constant,
)
from mirlo.passes.session import Session
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.runtime.params import ColumnReader

STORED = "tir.stored"
"""Attribute of a prim function until it is scheduled: its parameters that are stored in another order of their dims."""


@dataclass(frozen=True)
class PackedOrder:
    """The order in which a parameter is stored."""

    argument: int
    """Position among the parameters of the function."""
    order: tuple[int, ...]
    """Dims from the slowest to the fastest."""
    tiles: tuple[tuple[int, int], ...]
    """Tiled dims, and the sizes of their tiles; the positions in tiles come last, in the order of the dims."""


def set_packed_orders(function: ir.Operation | ir.OpView, orders: Sequence[PackedOrder]) -> None:
    """Record the orders in which parameters of a prim function are stored."""
    encoded = [[each.argument, each.order, each.tiles] for each in orders]
    function.operation.attributes[STORED] = ir.StringAttr.get(json.dumps(encoded))


def packed_orders(function: ir.Operation | ir.OpView) -> list[PackedOrder]:
    """Return the orders in which parameters of a prim function are stored."""
    attributes = function.operation.attributes
    if STORED not in attributes:
        return []
    stored = json.loads(ir.StringAttr(attributes[STORED]).value)
    return [PackedOrder(at, tuple(order), tuple((dim, size) for dim, size in tiles)) for at, order, tiles in stored]


@dataclass(frozen=True)
class Stored:
    """A new memory order of a constant."""

    argument: int
    """Position of the operand among the function's parameters."""
    position: int
    """Position of the operand in the reduction block."""
    shape: tuple[int, ...]
    map: ir.AffineMap
    """The affine map by which that block reads the new order."""
    order: Hashable
    """Identifies equal orders of one constant. It and `change` refer to no IR, because they outlive it."""
    change: Callable[[np.ndarray], np.ndarray]
    suffix: str
    """Suffix of the new constant's name."""
    fill: Callable[[np.ndarray, np.ndarray], None] | None = None
    """Does what `change` does in an array that is given, without another one of that size."""
    fill_in_turn: Callable[[ColumnReader, np.ndarray], None] | None = None
    """Does the same with the ranges of columns that a reader yields."""


def calls_of(module: ir.Operation | ir.OpView) -> dict[str, list[ir.Operation]]:
    """Return the calls of each prim function."""
    calls: dict[str, list[ir.Operation]] = defaultdict(list)

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.operation.name == "relax.call_tir":
            calls[op.operation.opview.callee].append(op.operation)
        return ir.WalkResult.ADVANCE

    walk(module, visit)
    return calls


def _store(site: ir.Operation, stored: Stored, session: Session, known: dict[object, str]) -> ir.Operation:
    """Pass a constant, or a slice of one, in its new order at a call; return the constant that was passed before."""
    passed = site.operands[stored.argument]
    row, old = row_source(passed), whole_constant(passed)
    kind = TensorType.from_mlir(old.type)
    assert kind is not None
    kind = kind.with_shape(stored.shape if row is None else (kind.shape[0], *stored.shape))
    name = constant_name(old)
    key = name, stored.order, row is not None
    with ir.InsertionPoint(site), site.location:
        if name == "constant" or key not in known:
            make, fill = (
                _changed(old, kind, stored, session) if row is None else _changed_slices(old, kind, stored, session)
            )
            new = emit_deferred_constant(make, kind, session, f"{name}.{stored.suffix}", fill=fill)
            known[key] = new.owner.opview.param
        else:
            new = Constant.make(param=known[key], result_types=[kind])
        site.operands[stored.argument] = new if row is None else ViewRow.make(new, row.position)
    if row is not None and not any(True for _ in passed.uses):
        passed.owner.operation.erase()
    count_runs(site)
    result: ir.Operation = old.owner
    return result


def _changed(
    old: ir.Value, kind: TensorType, stored: Stored, session: Session
) -> tuple[Callable[[], np.ndarray], Callable[[np.ndarray], None] | None]:
    """Return what makes a constant in its new order, and what writes it."""
    read, columns = constant_reader(old, session), column_reader(old, session)
    make = derived(read, stored.change)
    if columns is not None and stored.fill_in_turn is not None:
        return make, partial(stored.fill_in_turn, columns)
    return make, None if stored.fill is None else filled(read, stored.fill)


def _changed_slices(
    old: ir.Value, kind: TensorType, stored: Stored, session: Session
) -> tuple[Callable[[], np.ndarray], Callable[[np.ndarray], None]]:
    """Return the same for a constant each of whose slices has the new order."""

    def change(source: np.ndarray, to: np.ndarray) -> None:
        to[...] = stored.change(source)

    return stacked(slice_reader(old, session), stored.fill or change, kind)


def store_for_calls(
    view: PrimView,
    sites: Sequence[ir.Operation],
    stored: Stored,
    session: Session,
    known: dict[object, str],
    release: Callable[[ir.Operation], None],
) -> None:
    """Pass a constant in its new order at all calls of a function, which reads that order then."""
    for site in sites:
        release(_store(site, stored, session, known))
    _retype(view, stored)


def _retype(view: PrimView, stored: Stored) -> None:
    """Change the parameter's type and the map by which the block reads it."""
    argument = view.arguments[stored.argument]
    block = next(b for b in view.blocks if b.is_reduction)
    argument.set_type(ir.RankedTensorType.get(stored.shape, argument.type.element_type))
    maps = _replaced(ir.ArrayAttr(block.op.attributes["maps"]), stored.position, ir.AffineMapAttr.get(stored.map))
    block.op.attributes["maps"] = ir.ArrayAttr.get(maps)
    count_runs(block.op)
    entry = [a.type for a in view.entry.arguments]
    results = [v.type for v in view.returned]
    view.op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(entry, results))


def count_runs(op: ir.Operation) -> None:
    """Recompute the segment sizes of the operands after a type has changed: the lengths of groups of equal types."""
    layout = class_of(op)._operand_layout
    operands = [layout.pick(field, op, list(op.operands)) for field in layout.fields]
    _, sizes = layout.flatten(operands, lambda value: value.type, op.name)
    if sizes is not None:
        op.attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(sizes)


def _replaced(values: Iterable[ir.Attribute], position: int, value: ir.Attribute) -> list[ir.Attribute]:
    return [value if i == position else old for i, old in enumerate(values)]
