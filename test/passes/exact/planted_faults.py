"""Faults planted in scheduled kernels: one random change each, of a kind that schedules could make."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.passes.exact.operations import operations_in
from mirlo.passes.exact.values import element_of, is_float

Plant = Callable[[ir.Operation, random.Random], None]
LOADS, STORES = ("memref.load", "vector.load"), ("memref.store", "vector.store")


def plant_fault(
    function: ir.Operation, rng: random.Random, among: Collection[Plant] = ()
) -> tuple[ir.Operation, str] | None:
    """Return a copy of a kernel with one fault, and the kind of the fault; None where no kind applies.

    With `among`, it is one of these kinds.
    """
    clone = function.clone()
    applicable = [
        (plant, op)
        for plant, applies in FAULTS.items()
        if not among or plant in among
        for op in operations_in(clone)
        if applies(op) and _has_effect(op, set())
    ]
    kinds = list(dict.fromkeys(plant for plant, _ in applicable))
    if not kinds:
        return None
    kind = rng.choice(kinds)
    kind(rng.choice([op for plant, op in applicable if plant is kind]), rng)
    return clone, kind.__name__


def _constant(value: ir.Value) -> Any:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    attribute = owner.attributes["value"]
    return attribute.value if isinstance(attribute, (ir.IntegerAttr, ir.FloatAttr)) else None


def _index(number: int, before: ir.Operation) -> ir.Value:
    kind = ir.IndexType.get()
    with ir.InsertionPoint(before):
        attribute = ir.IntegerAttr.get(kind, number)
        return ir.Operation.create("arith.constant", results=[kind], attributes={"value": attribute}).results[0]


def _float(number: float, kind: ir.Type, before: ir.Operation) -> ir.Value:
    attribute: ir.Attribute = ir.FloatAttr.get(element_of(kind), number)
    if isinstance(kind, ir.VectorType):
        attribute = ir.DenseElementsAttr.get_splat(kind, attribute)
    with ir.InsertionPoint(before):
        return ir.Operation.create("arith.constant", results=[kind], attributes={"value": attribute}).results[0]


def _create(name: str, like: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
    with ir.InsertionPoint(like):
        return ir.Operation.create(name, results=[operands[0].type], operands=list(operands)).results[0]


def dropped_term(op: ir.Operation, rng: random.Random) -> None:
    op.results[0].replace_all_uses_with(op.operands[2 if op.name == "vector.fma" else rng.randrange(2)])


def dropped_factor(op: ir.Operation, rng: random.Random) -> None:
    op.results[0].replace_all_uses_with(op.operands[0])


def wrong_bounds(op: ir.Operation, rng: random.Random) -> None:
    step = _constant(op.operands[2]) or 1
    position, by = rng.choice(((1, -step), (1, -1), (0, step)))
    op.operands[position] = _create("arith.addi", op, [op.operands[position], _index(by, op)])


def wrong_stride(op: ir.Operation, rng: random.Random) -> None:
    position = next(i for i in (0, 1) if _constant(op.operands[i]) is not None)
    number = _constant(op.operands[position])
    op.operands[position] = _index(rng.choice((number + 1, number - 1)), op)


def wrong_offset(op: ir.Operation, rng: random.Random) -> None:
    position = next(i for i in (0, 1) if _constant(op.operands[i]) is not None)
    number = _constant(op.operands[position])
    op.operands[position] = _index(number + rng.choice((1, -1, 16)), op)


def swapped_operands(op: ir.Operation, rng: random.Random) -> None:
    i, j = (1, 2) if op.name == "arith.select" else (0, 1)
    op.operands[i], op.operands[j] = op.operands[j], op.operands[i]


def wrong_start(op: ir.Operation, rng: random.Random) -> None:
    position = rng.choice([i for i in range(3, len(op.operands)) if is_float(element_of(op.operands[i].type))])
    old = _constant(op.operands[position])
    number = 0.0 if old is not None and math.isinf(old) else 1.0
    op.operands[position] = _float(number, op.operands[position].type, op)


def deleted_store(op: ir.Operation, rng: random.Random) -> None:
    op.erase()


def wrong_constant(op: ir.Operation, rng: random.Random) -> None:
    attribute = op.attributes["value"]
    old = (attribute.get_splat_value() if isinstance(attribute, ir.DenseElementsAttr) else attribute).value
    nearby = float(np.float32(old * (1 + 2**-20)))
    new = 0.0 if math.isinf(old) else 1.0 if old == 0 else rng.choice((old * 2, -old, nearby))
    op.results[0].replace_all_uses_with(_float(new, op.results[0].type, op))


def swapped_lanes(op: ir.Operation, rng: random.Random) -> None:
    mask = [int(i) for i in ir.DenseI64ArrayAttr(op.attributes["mask"])]
    i, j = rng.sample(range(len(mask)), 2)
    mask[i], mask[j] = mask[j], mask[i]
    op.attributes["mask"] = ir.DenseI64ArrayAttr.get(mask)


def wrong_mask(op: ir.Operation, rng: random.Random) -> None:
    (count,) = (int(i) for i in ir.DenseI64ArrayAttr(op.attributes["mask_dim_sizes"]))
    op.attributes["mask_dim_sizes"] = ir.DenseI64ArrayAttr.get([count - 1])


def wrong_place(op: ir.Operation, rng: random.Random) -> None:
    position = len(op.operands) - 1
    op.operands[position] = _create("arith.addi", op, [op.operands[position], _index(rng.choice((1, -1)), op)])


def least_for_greatest(op: ir.Operation, rng: random.Random) -> None:
    name = {"arith.maximumf": "arith.minimumf", "arith.minimumf": "arith.maximumf"}[op.name]
    op.results[0].replace_all_uses_with(_create(name, op, list(op.operands)))


def dropped_bound(op: ir.Operation, rng: random.Random) -> None:
    position = next(i for i in (0, 1) if _is_constant(op.operands[i]))
    op.results[0].replace_all_uses_with(op.operands[1 - position])


def _is_constant(value: ir.Value) -> bool:
    owner = value.owner
    return not isinstance(owner, ir.Block) and owner.name == "arith.constant"


def _has_constant_index(op: ir.Operation) -> bool:
    return isinstance(op.results[0].type, ir.IndexType) and any(_constant(v) is not None for v in op.operands)


def _is_float_constant(op: ir.Operation) -> bool:
    if op.name != "arith.constant" or not is_float(element_of(op.results[0].type)):
        return False
    attribute = op.attributes["value"]
    return isinstance(attribute, ir.FloatAttr) or (isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat)


FAULTS: dict[Plant, Callable[[ir.Operation], bool]] = {
    dropped_term: lambda op: op.name in ("vector.fma", "arith.addf"),
    dropped_factor: lambda op: op.name in ("arith.mulf", "arith.divf"),
    wrong_bounds: lambda op: op.name == "scf.for",
    wrong_stride: lambda op: op.name == "arith.muli" and _has_constant_index(op),
    wrong_offset: lambda op: op.name == "arith.addi" and _has_constant_index(op),
    swapped_operands: lambda op: op.name in ("arith.subf", "arith.divf", "arith.select"),
    wrong_start: lambda op: (
        op.name == "scf.for" and any(is_float(element_of(value.type)) for value in list(op.operands)[3:])
    ),
    deleted_store: lambda op: op.name in (*STORES, "vector.maskedstore"),
    wrong_constant: _is_float_constant,
    swapped_lanes: lambda op: op.name == "vector.shuffle",
    wrong_mask: lambda op: op.name == "vector.constant_mask",
    wrong_place: lambda op: op.name in (*LOADS, *STORES) and len(op.operands) > 1,
    least_for_greatest: lambda op: op.name in ("arith.maximumf", "arith.minimumf"),
    dropped_bound: lambda op: op.name in ("arith.maximumf", "arith.minimumf") and any(map(_is_constant, op.operands)),
}
"""The kinds of faults, with the operations that they apply to."""


def _has_effect(op: ir.Operation, seen: set[ir.Operation]) -> bool:
    """Return whether anything but prefetches depends on an operation."""
    if op.name == "memref.prefetch":
        return False
    if not len(op.results):
        return True
    for result in op.results:
        for use in result.uses:
            user = use.owner.operation
            if user.name in ("scf.yield", "scf.for", "scf.if") or (user not in seen and _has_effect(user, seen)):
                return True
            seen.add(user)
    return False
