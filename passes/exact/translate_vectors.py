"""Translations of `vector`."""

from __future__ import annotations

import math

from mirlo.dialects.bindings import ir
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.translate_arith import EXTREMES, vector_of
from mirlo.passes.exact.translator import KernelTranslator, translates
from mirlo.passes.exact.values import (
    FloatValue,
    IntValue,
    Number,
    PackedFloats,
    bits_of,
    element_of,
    is_float,
    lanes_of,
    llvm_type,
    row_lanes_of,
)

_KINDS = {"add": "add", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_FLOAT_KINDS = {
    "add": "add", "mul": "mul", "maximumf": "maximum", "minimumf": "minimum", "maxnumf": "maximum",
    "minnumf": "minimum",
}  # fmt: skip


def _ints(values: ir.Attribute) -> list[int]:
    return [int(i) for i in ir.DenseI64ArrayAttr(values)]


def _first_offset(op: ir.Operation) -> int:
    offsets = [ir.IntegerAttr(each).value for each in ir.ArrayAttr(op.attributes["offsets"])]
    if len(offsets) != 1:
        raise OutsideError(f"'{op.name}' of a vector of rank {len(offsets)}")
    return int(offsets[0])


# -------------------------------------------------------------------------------------------------------------- lanes


@translates("vector.broadcast", "vector.splat")
def broadcast(t: KernelTranslator, op: ir.Operation) -> None:
    v, lanes = t.value(op.operands[0]), lanes_of(op.results[0].type)
    assert lanes is not None
    if isinstance(v, PackedFloats):
        mask = list(range(v.floats.lanes or 1)) * (lanes // (v.lanes or 1))
        t.set(op, _packed(t, v, mask, lanes))
        return
    number = t.number(op.operands[0])
    if number.lanes is not None and number.lanes != lanes:
        raise OutsideError("a broadcast of a vector")
    t.set(op, t.splat(number, lanes))


@translates("vector.shuffle")
def shuffle(t: KernelTranslator, op: ir.Operation) -> None:
    mask = _ints(op.attributes["mask"])
    row_lanes_of(op.operands[0].type)
    a, b = (t.value(value) for value in op.operands)
    if isinstance(a, PackedFloats) and isinstance(b, PackedFloats):
        wide = [a.group * i + k for i in mask for k in range(a.group)]
        floats = t.shuffled(a.floats, b.floats, wide)
        assert isinstance(floats, FloatValue)
        t.set(op, PackedFloats(floats, a.group, len(mask)))
        return
    t.set(op, t.shuffled(t.number(op.operands[0]), t.number(op.operands[1]), mask))


def _packed(t: KernelTranslator, v: PackedFloats, mask: list[int], lanes: int | None) -> PackedFloats:
    return PackedFloats(t.float_lanes_at(v.floats, mask), v.group, lanes)


@translates("vector.extract")
def extract(t: KernelTranslator, op: ir.Operation) -> None:
    if len(op.operands) > 1:
        raise OutsideError("'vector.extract' at a position of run time")
    v, places = t.value(op.operands[0]), _places(op, op.operands[0].type)
    lanes = lanes_of(op.results[0].type)
    if isinstance(v, PackedFloats):
        t.set(op, _packed(t, v, [v.group * i + k for i in places for k in range(v.group)], lanes))
        return
    number = t.number(op.operands[0])
    if lanes is not None:
        t.set(op, t.shuffled(number, number, list(places)))
    else:
        t.set(op, number if number.lanes is None else t.lane(number, places[0]))


def _places(op: ir.Operation, vector: ir.Type) -> range:
    """Return the lanes of a vector at the position of an operation: one, or those of a row."""
    shape = list(vector.shape)
    position = _ints(op.attributes["static_position"])
    count = math.prod(shape[len(position) :])
    start = sum(i * math.prod(shape[dim + 1 :]) for dim, i in enumerate(position))
    return range(start, start + count)


@translates("vector.insert")
def insert(t: KernelTranslator, op: ir.Operation) -> None:
    if len(op.operands) > 2:
        raise OutsideError("'vector.insert' at a position of run time")
    one, v, places = t.number(op.operands[0]), t.number(op.operands[1]), _places(op, op.operands[1].type)
    assert v.lanes is not None
    own = t.splat(one, v.lanes)
    if one.lanes is not None:
        own = t.shuffled(one, one, [min(max(k - places.start, 0), one.lanes - 1) for k in range(v.lanes)])
    t.set(op, t.shuffled(v, own, [v.lanes + k if k in places else k for k in range(v.lanes)]))


@translates("vector.extract_strided_slice")
def extract_slice(t: KernelTranslator, op: ir.Operation) -> None:
    start, lanes = _first_offset(op), lanes_of(op.results[0].type)
    assert lanes is not None
    v = t.value(op.operands[0])
    if isinstance(v, PackedFloats):
        t.set(op, _packed(t, v, [v.group * start + k for k in range(v.group * lanes)], lanes))
        return
    number = t.number(op.operands[0])
    t.set(op, t.shuffled(number, number, list(range(start, start + lanes))))


@translates("vector.insert_strided_slice")
def insert_slice(t: KernelTranslator, op: ir.Operation) -> None:
    start = _first_offset(op)
    a, b = (t.number(value) for value in op.operands)
    assert a.lanes is not None and b.lanes is not None
    wide = t.shuffled(a, a, [i if i < a.lanes else 0 for i in range(b.lanes)])
    t.set(op, t.shuffled(b, wide, [b.lanes + i - start if start <= i < start + a.lanes else i for i in range(b.lanes)]))


@translates("vector.from_elements")
def from_elements(t: KernelTranslator, op: ir.Operation) -> None:
    t.set(op, vector_of(t, [t.number(value) for value in op.operands]))


@translates("vector.to_elements")
def to_elements(t: KernelTranslator, op: ir.Operation) -> None:
    v = t.number(op.operands[0])
    t.set(op, *(t.lane(v, i) for i in range(v.lanes or 1)))


@translates("vector.interleave")
def interleave(t: KernelTranslator, op: ir.Operation) -> None:
    a, b = (t.number(value) for value in op.operands)
    assert a.lanes is not None
    t.set(op, t.shuffled(a, b, [i // 2 + (i % 2) * a.lanes for i in range(2 * a.lanes)]))


@translates("vector.deinterleave")
def deinterleave(t: KernelTranslator, op: ir.Operation) -> None:
    v = t.number(op.operands[0])
    t.set(op, *(t.shuffled(v, v, list(range(k, v.lanes or 1, 2))) for k in (0, 1)))


@translates("vector.shape_cast")
def shape_cast(t: KernelTranslator, op: ir.Operation) -> None:
    lanes_of(op.results[0].type)
    t.set(op, t.value(op.operands[0]))


@translates("vector.bitcast")
def bitcast(t: KernelTranslator, op: ir.Operation) -> None:
    v, lanes, element = t.value(op.operands[0]), lanes_of(op.results[0].type), element_of(op.results[0].type)
    assert lanes is not None
    if isinstance(v, FloatValue) and not is_float(element) and v.lanes is not None and v.lanes % lanes == 0:
        t.set(op, PackedFloats(v, v.lanes // lanes, lanes))
    elif isinstance(v, PackedFloats) and is_float(element) and lanes == v.floats.lanes:
        t.set(op, v.floats)
    elif isinstance(v, IntValue) and not is_float(element):
        t.set(op, as_lanes(t, v, bits_of(element)))
    elif isinstance(v, IntValue) and is_float(element):
        t.set(op, t.arithmetic.from_bits(t.f, as_lanes(t, v, element.width), str(element)))
    else:
        raise OutsideError(f"a bitcast of {op.operands[0].type} to {op.results[0].type}")


def as_lanes(t: KernelTranslator, v: IntValue, bits: int) -> IntValue:
    """Return the bits of an integer, or a vector of them, as lanes of a width."""
    if v.bits == bits:
        return v
    lanes = (v.lanes or 1) * v.bits // bits
    kind, result = llvm_type(f"i{v.bits}", v.lanes), llvm_type(f"i{bits}", lanes)
    return IntValue(t.f.op(f"bitcast {kind} {v.name} to {result}"), bits, lanes)


# ---------------------------------------------------------------------------------------------------------- arithmetic


@translates("vector.step")
def step(t: KernelTranslator, op: ir.Operation) -> None:
    t.set(op, t.steps(lanes_of(op.results[0].type) or 1))


@translates("vector.constant_mask", "vector.create_mask")
def mask(t: KernelTranslator, op: ir.Operation) -> None:
    lanes = row_lanes_of(op.results[0].type) or 1
    is_constant = op.name == "vector.constant_mask"
    count = t.index(_ints(op.attributes["mask_dim_sizes"])[-1]) if is_constant else t.ints(list(op.operands)[-1])
    t.set(op, t.compare("slt", t.steps(lanes), count))


@translates("vector.fma")
def fma(t: KernelTranslator, op: ir.Operation) -> None:
    a, b, c = t.float_operands(op)
    t.set(op, t.arithmetic.fma(t.f, a, b, c))


@translates("vector.reduction")
def reduction(t: KernelTranslator, op: ir.Operation) -> None:
    kind = str(op.attributes["kind"]).split("<")[-1].rstrip(">")
    total = _reduced(t, kind, t.number(op.operands[0]))
    if len(op.operands) > 1:
        total = _combined(t, kind, total, t.number(op.operands[1]))
    t.set(op, total)


def _combined(t: KernelTranslator, kind: str, a: Number, b: Number) -> Number:
    if isinstance(a, FloatValue) and isinstance(b, FloatValue):
        result: FloatValue = getattr(t.arithmetic, _FLOAT_KINDS[kind])(t.f, a, b)
        return result
    assert isinstance(a, IntValue) and isinstance(b, IntValue)
    if kind in _KINDS:
        return t.arith(_KINDS[kind], a, b)
    return IntValue(t.f.extreme(EXTREMES[kind], a.name, b.name, a.bits, a.lanes), a.bits, a.lanes)


def total_of(t: KernelTranslator, v: Number) -> Number:
    """Return the sum of all lanes."""
    return _reduced(t, "add", v)


def _reduced(t: KernelTranslator, kind: str, v: Number) -> Number:
    assert v.lanes is not None
    count = v.lanes
    while count > 1 and count % 2 == 0:
        count //= 2
        low, high = t.shuffled(v, v, list(range(count))), t.shuffled(v, v, list(range(count, 2 * count)))
        v = _combined(t, kind, low, high)
    total = t.lane(v, 0)
    for i in range(1, count):
        total = _combined(t, kind, total, t.lane(v, i))
    return total


# -------------------------------------------------------------------------------------------------------------- memory


@translates("vector.load")
def load(t: KernelTranslator, op: ir.Operation) -> None:
    source, *indices = op.operands
    buffer = t.buffer(source)
    offset = t.offset(buffer, [t.ints(i) for i in indices])
    t.set(op, t.load(buffer, offset, row_lanes_of(op.results[0].type)))


@translates("vector.store")
def store(t: KernelTranslator, op: ir.Operation) -> None:
    value, target, *indices = op.operands
    row_lanes_of(value.type)
    buffer = t.buffer(target)
    t.store(t.number(value), buffer, t.offset(buffer, [t.ints(i) for i in indices]))


@translates("vector.maskedload")
def masked_load(t: KernelTranslator, op: ir.Operation) -> None:
    source, *indices, chosen, otherwise = op.operands
    row_lanes_of(op.results[0].type)
    buffer = t.buffer(source)
    offset = t.offset(buffer, [t.ints(i) for i in indices])
    t.set(op, t.masked_load(buffer, offset, t.ints(chosen), t.number(otherwise)))


@translates("vector.maskedstore")
def masked_store(t: KernelTranslator, op: ir.Operation) -> None:
    target, *indices, chosen, value = op.operands
    row_lanes_of(value.type)
    buffer = t.buffer(target)
    t.masked_store(t.number(value), buffer, t.offset(buffer, [t.ints(i) for i in indices]), t.ints(chosen))


@translates("vector.gather")
def gather(t: KernelTranslator, op: ir.Operation) -> None:
    source, *indices, lanes, chosen, otherwise = op.operands
    buffer = t.buffer(source)
    offset = t.arith("add", t.offset(buffer, [t.ints(i) for i in indices]), _positions(t, lanes))
    t.set(op, t.gather(buffer, offset, t.ints(chosen), t.number(otherwise)))


@translates("vector.scatter")
def scatter(t: KernelTranslator, op: ir.Operation) -> None:
    target, *indices, lanes, chosen, value = op.operands
    buffer = t.buffer(target)
    offset = t.arith("add", t.offset(buffer, [t.ints(i) for i in indices]), _positions(t, lanes))
    t.scatter(t.number(value), buffer, offset, t.ints(chosen))


def _positions(t: KernelTranslator, value: ir.Value) -> IntValue:
    """Return the positions of lanes, as wide as indices."""
    return t.resized(t.ints(value), 64, is_signed=True)
