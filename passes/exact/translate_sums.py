"""Translation of loops that only sum products: a table of their accesses, and a call of a function for all of them."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.sum_functions import ACCESS_WORDS, HEAD_WORDS, SumSignature, sum_function
from mirlo.passes.exact.sum_loops import IndexEmitter, LinearIndex, SumLoop, sum_loop
from mirlo.passes.exact.translator import GUARD_BYTES, KernelTranslator
from mirlo.passes.exact.values import BufferRef, FloatValue, IntValue, llvm_type, row_lanes_of
from mirlo.runtime.records import dataclass

MOST_BASES = 6
"""The most buffers and positions of run time that the function takes."""
MOST_BYTES = 1 << 31
"""The greatest distance of accesses: as many times it as there are iterations is a number of 64 bits."""


@dataclass(frozen=True)
class _Access:
    """An access of a loop: a buffer and a position of run time, and bytes."""

    base: tuple[str, str]
    moved: int
    step: int
    is_splat: bool


def emit_sums(
    t: KernelTranslator, op: ir.Operation, lower: IntValue, upper: IntValue, step: IntValue, start: Sequence[FloatValue]
) -> list[FloatValue] | None:
    """Emit a loop that only sums products; return the sums, or None, after no effect, if it is another one."""
    if t.shadows is not None or step.constant is None:
        return None
    loop = sum_loop(op)
    if loop is None or not (loop.has_one_each or _adds_in_any_order(t)):
        return None
    for each in loop.fixed:
        t.emit(each)
    accesses = _accesses(t, loop, lower, step.constant)
    if accesses is None:
        return None
    kinds = {tuple(accesses[each].is_splat for each in product.loads) for product in loop.products}
    pairs = {tuple(sorted(kind, reverse=True)) for kind in kinds}
    bases = list(dict.fromkeys(each.base for each in accesses.values()))
    if len(pairs) != 1 or len(bases) > MOST_BASES:
        return None
    are_splats = pairs.pop()
    signature = SumSignature(loop.lanes, (are_splats[0], are_splats[1]), len(bases), GUARD_BYTES)
    function = sum_function(t.f.module, t.arithmetic, signature)
    size = t.arithmetic.bytes * (loop.lanes or 1)
    kind = llvm_type(t.arithmetic.element, loop.lanes)
    planes = range(t.arithmetic.planes)
    sums = t.f.at_entry(f"alloca [{len(start) * len(planes) * size} x i8], align 64")
    places = [
        [t.f.op(f"getelementptr i8, ptr {sums}, i64 {(i * len(planes) + plane) * size}") for plane in planes]
        for i in range(len(start))
    ]
    zero = t.arithmetic.constant(t.f, 0.0, loop.lanes).planes
    are_zero = [value.planes == zero and not value.is_loose for value in start]
    for value, addresses, is_zero in zip(start, places, are_zero, strict=True):
        if not is_zero:
            for address, name in zip(addresses, t.arithmetic.canonical(t.f, value).planes, strict=True):
                t.f.effect(f"store {kind} {name}, ptr {address}, align 4")
    table = t.f.module.table(_table(loop, accesses, bases, are_zero, len(planes) * size))
    count = t.iterations(lower, upper, step)
    words = ", ".join(f"ptr {memory}, i64 {offset}" for memory, offset in bases)
    t.f.effect(f"call void @{function}(ptr {sums}, ptr @{table}, i64 {count.name}, {words}, ptr %round)")
    changed = {product.total for product in loop.products}
    return [
        FloatValue(tuple(t.f.op(f"load {kind}, ptr {address}, align 4") for address in addresses), loop.lanes)
        if i in changed else start[i]
        for i, addresses in enumerate(places)
    ]  # fmt: skip


def _adds_in_any_order(t: KernelTranslator) -> bool:
    """Return whether sums do not depend on the order of their terms, as those with infinities and of floats do."""
    return isinstance(t.arithmetic, FieldArithmetic) and not t.arithmetic.has_infinities


def _accesses(t: KernelTranslator, loop: SumLoop, lower: IntValue, step: int) -> dict[ir.Operation, _Access] | None:
    """Return the loads of a loop, None if some are no accesses at equal distances in memory that the caller has."""
    first = IndexEmitter.of(lower)
    indices = IndexEmitter(t.arith, t.values, loop.counter, LinearIndex(first.root, first.constant, step))
    accesses: dict[ir.Operation, _Access] = {}
    for load in dict.fromkeys(each for product in loop.products for each in product.loads):
        source, *places = load.operands
        buffer, lanes = t.buffer(source), row_lanes_of(load.results[0].type)
        is_splat = lanes in (None, 1) and lanes != loop.lanes
        if buffer.kind != "f" or buffer.roots not in t.slots or not (is_splat or lanes == loop.lanes):
            return None
        index: LinearIndex | None = LinearIndex(None, 0, 0)
        for place, stride in zip(places, buffer.strides, strict=True):
            if stride is None:
                return None
            known = LinearIndex(None, stride, 0) if isinstance(stride, int) else IndexEmitter.of(stride)
            index = indices.total(index, indices.product(indices.index(place), known))
        if index is None:
            return None
        access = _access(t, indices, buffer, index, is_splat)
        if max(abs(access.moved), abs(access.step)) > MOST_BYTES:
            return None
        accesses[load] = access
    return accesses


def _access(
    t: KernelTranslator, indices: IndexEmitter, buffer: BufferRef, index: LinearIndex, is_splat: bool
) -> _Access:
    _, size = t.element_text(buffer)
    moved, offset = index.constant * size, t.index(0)
    if index.root is not None:
        offset = indices.arith("mul", index.root, t.index(size))
    if buffer.shift is not None:
        if buffer.shift.constant is None:
            offset = indices.arith("add", offset, buffer.shift)
        else:
            moved += buffer.shift.constant
    return _Access((t.slots[buffer.roots], offset.name), moved, index.step * size, is_splat)


def _table(
    loop: SumLoop, accesses: dict[ir.Operation, _Access], bases: list[tuple[str, str]], are_zero: Sequence[bool],
    size: int,
) -> list[int]:  # fmt: skip
    """Return the words of the accesses and products of a loop; factors that are splats come first."""
    words = [len(accesses), len(loop.products)]
    rows = {load: HEAD_WORDS + ACCESS_WORDS * i for i, load in enumerate(accesses)}
    for each in accesses.values():
        words += [bases.index(each.base), each.moved, each.step]
    seen: set[int] = set()
    for product in loop.products:
        loads = sorted(product.loads, key=lambda load: not accesses[load].is_splat)
        starts = are_zero[product.total] and product.total not in seen
        seen.add(product.total)
        words += [product.total * size, int(starts), *(rows[load] for load in loads)]
    return words
