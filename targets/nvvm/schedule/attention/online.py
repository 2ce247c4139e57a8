"""A tile of scores in the registers of a thread: masks, and the online softmax.

All matrix units place scores alike: each thread has pairs of adjacent keys, eight keys apart, of rows that four
threads share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.value import Value, compare, index, select
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.schedule.blocks.combine import in_pairs
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.attention.work import Work, above, hidden, larger
from mirlo.targets.gpu.schedule.shuffles import over_team
from mirlo.targets.gpu.schedule.vectors import element_at
from mirlo.targets.nvvm.schedule.attention.softmax import LOG2_E, exp2, fma
from mirlo.targets.nvvm.schedule.bulk import i32
from mirlo.targets.nvvm.schedule.fragments import PAIR
from mirlo.targets.nvvm.schedule.units import COLUMNS

TEAM = 4
"""Threads that share a row."""


def masked(
    work: Work,
    scores: Sequence[Sequence[ir.Value]],
    rows: Sequence[Mapping[int, Value]],
    first: Value,
    keys: int,
    inside: bool,
) -> list[list[ir.Value]]:
    """Return a thread's masked scores of each of its rows, without the common scale.

    `first` is the thread's first key in a tile of `keys`; `inside` says that all of them are within all bounds.
    """
    attention = work.found
    is_ragged = not inside and not D.is_multiple(attention.keys, keys)
    if is_ragged:
        left, last = _in_tile(index(attention.keys), first, keys), index(attention.keys - 1)
        lowest = hidden(attention.sum_type)
    lines = []
    for line, loops in zip(scores, rows, strict=True):
        bounds = () if inside else attention.bounds
        seen = [(bound.condition, _in_tile(work.limit(bound, loops) + 1, first, keys)) for bound in bounds]
        row = []
        for i, total in enumerate(line):
            apart = i // PAIR * COLUMNS + i % PAIR
            key = first + apart
            at = create("arith.minui", key.type, key, last) if is_ragged else key
            known = {condition: _above(end, apart) for condition, end in seen}
            score = work.score(total, {**loops, attention.key_loop: at}, inside, in_units=True, known=known)
            if is_ragged:
                score = select(_above(left, apart), score, lowest)
            row.append(score)
        lines.append(row)
    return lines


def _in_tile(end: Value, first: Value, keys: int) -> Value:
    """Return the keys from the thread's first one to an end, clamped to the tile, in 32 bits for cheap comparisons."""
    apart = create("arith.subi", end.type, end, first)
    apart = create("arith.maxsi", apart.type, apart, index(0))
    return i32(create("arith.minsi", apart.type, apart, index(keys)))


def _above(count: Value, number: int) -> Value:
    """Return whether a count is above a number."""
    return compare("gt", count, number)


@dataclass(frozen=True)
class Weighed:
    """The effect of a tile of scores on rows."""

    peaks: Sequence[ir.Value]
    totals: Sequence[ir.Value]
    """This thread's part of the sum of each row's weights."""
    fades: Sequence[ir.Value]
    """Factors for the accumulators of previous tiles."""
    weights: Sequence[Sequence[ir.Value]]


def weigh(
    scores: Sequence[Sequence[ir.Value]],
    peaks: Sequence[ir.Value],
    totals: Sequence[ir.Value],
    factor: float,
    team: int = TEAM,
) -> Weighed:
    """Return the weights of a tile's keys, which a team of threads shares; update the running maximum and sum."""
    f32 = peaks[0].type
    own = [in_pairs(larger, line) for line in scores]
    met = over_team(own, lambda a, b: [larger(x, y) for x, y in zip(a, b, strict=True)], team)
    new = [larger(a, b) for a, b in zip(peaks, met, strict=True)]
    scale = emit_constant(factor * LOG2_E, f32)
    away = [above(peak) * (-factor * LOG2_E) for peak in new]
    fades = [exp2(fma(peak, scale, by)) for peak, by in zip(peaks, away, strict=True)]
    weights = [[exp2(fma(score, scale, by)) for score in line] for line, by in zip(scores, away, strict=True)]
    after = [fma(total, fade, in_pairs(add, line)) for total, fade, line in zip(totals, fades, weights, strict=True)]
    return Weighed(new, after, fades, weights)


def in_all(totals: Sequence[ir.Value]) -> list[ir.Value]:
    """Reduce the sum of each row's weights over the threads that share it."""
    return over_team(totals, lambda a, b: [Value(x) + y for x, y in zip(a, b, strict=True)], TEAM)


def pairs_of(upper: Sequence[ir.Value], lower: Sequence[ir.Value], step: int) -> list[tuple[ir.Value, ir.Value]]:
    """Return the weights of 16 keys of two rows as lhs registers: two adjacent elements each."""
    first = step // COLUMNS * PAIR
    return [(line[at], line[at + 1]) for at in (first, first + PAIR) for line in (upper, lower)]


def packed(element: ir.Type, a: ir.Value, b: ir.Value) -> Value:
    """Round two values to 16 bits and return them as a vector."""
    wide = create("vector.from_elements", ir.VectorType.get([2], a.type), a, b)
    return create("arith.truncf", ir.VectorType.get([2], element), wide)


def as_word(pair: Value) -> Value:
    """Return two 16-bit values as one register."""
    i32 = ir.IntegerType.get_signless(32)
    words = create("vector.bitcast", ir.VectorType.get([1], i32), pair)
    return element_at(words, 0)
