"""Random memory of translated functions: residues below the modulus, repeated contents, guards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from mirlo.passes.exact.arithmetic import Arithmetic
from mirlo.passes.exact.double import DoubleArithmetic
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.memory import (
    CHUNK,
    DRAWN_INPUTS,
    FORM,
    GUARD_BYTES,
    POOL,
    GuardedBuffer,
    RandomMemory,
    _draw_residues,
    forget_inputs,
)
from mirlo.passes.exact.primes import EXPONENTS, RESIDUE, VALUES, Plane
from mirlo.passes.exact.reused_memory import repeating_array
from mirlo.passes.exact.translator import Argument

COUNTS = [0, 1, 2, 7, CHUNK - 1, CHUNK, CHUNK + 1]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("plane", [VALUES, EXPONENTS], ids=["P", "Q"])
def test_residues_are_spread_below_the_modulus(plane: Plane, count: int) -> None:
    residues = np.full(count, -1, RESIDUE)
    _draw_residues(np.random.default_rng(0), plane, residues)
    assert ((residues >= 0) & (residues < plane.modulus)).all()
    if count > 1000:
        assert len(np.unique(residues)) > 0.99 * count
        assert abs(residues.mean() / plane.modulus - 0.5) < 0.02


@pytest.mark.parametrize("plane", [VALUES, EXPONENTS], ids=["P", "Q"])
def test_numbers_from_the_modulus_on_are_reduced(plane: Plane) -> None:
    ones = SimpleNamespace(random_raw=lambda count: np.full(count, 2**64 - 1, np.uint64))
    residues = np.empty(5, RESIDUE)
    _draw_residues(cast(np.random.Generator, SimpleNamespace(bit_generator=ones)), plane, residues)
    assert residues.tolist() == [plane.c - 1] * 5


@pytest.mark.parametrize("count", [0, 1, POOL - 1, POOL, 2 * POOL + 3])
def test_unwritten_memory_repeats_and_differs_between_forms(count: int) -> None:
    argument = Argument("out", "f", 0, (count,))
    first, second = (RandomMemory(FieldArithmetic(True, False), seed).buffer(argument, {}) for seed in (0, FORM))
    for left, right in zip(first.wholes, second.wholes, strict=True):
        assert len(left) == count + 2 * GUARD_BYTES // RESIDUE.itemsize
        assert np.array_equal(left[POOL:], left[:-POOL])
        assert (left != right).all()


@pytest.mark.parametrize(
    "count", [0, 1, DRAWN_INPUTS - 1, DRAWN_INPUTS, DRAWN_INPUTS + 1, 2 * DRAWN_INPUTS, 3 * DRAWN_INPUTS + 5]
)
@pytest.mark.parametrize("arithmetic", [FieldArithmetic(True, False), DoubleArithmetic()], ids=["field", "double"])
def test_inputs_repeat_after_elements_that_no_stride_is_a_multiple_of(count: int, arithmetic: Arithmetic) -> None:
    """What is drawn fills an input, in each plane; the next input has other elements."""
    memory = RandomMemory(arithmetic, 1)
    first, second = (memory.buffer(Argument("in", "f", 0, (count,)), {}) for _ in range(2))
    for one, other in zip(first.planes, second.planes, strict=True):
        assert len(one) == count and (one[DRAWN_INPUTS:] == one[: max(count - DRAWN_INPUTS, 0)]).all()
        assert len(np.unique(one)) >= 0.99 * min(count, DRAWN_INPUTS)
        assert not (count and np.array_equal(one, other))
    factor = DRAWN_INPUTS & -DRAWN_INPUTS
    assert all(DRAWN_INPUTS // factor % divisor for divisor in range(2, int((DRAWN_INPUTS // factor) ** 0.5) + 1))


def test_memory_that_repeats_is_written_like_any_other() -> None:
    """What is written to one element changes no other one, nor the guards; memory ends with the last view of it."""
    memory = RandomMemory(FieldArithmetic(False, False), 1)
    count = 4 * DRAWN_INPUTS + 3
    buffer = memory.buffer(Argument("in", "f", 0, (count,)), {})
    (plane,), guards, before = buffer.planes, buffer.guards(), buffer.checksum()
    copy = plane.copy()
    places = [0, 5, DRAWN_INPUTS, 2 * DRAWN_INPUTS + 7, count - 1]
    plane[places] += 1
    assert np.flatnonzero(plane != copy).tolist() == places
    assert buffer.has_guards(guards) and buffer.checksum() != before
    del buffer
    assert (plane[places] == copy[places] + 1).all()


def test_contents_that_are_no_pages_are_copied() -> None:
    content = np.arange(1000, dtype=np.int32)
    whole = repeating_array(content, 3500, 10)
    assert (whole[10:3510] == np.arange(3500) % 1000).all() and len(whole) == 3520
    assert (repeating_array(content[:0], 0, 4)[4:-4]).size == 0


def test_kernels_share_the_memory_of_inputs_until_one_is_written() -> None:
    arithmetic = FieldArithmetic(False, False)
    sizes = 3 * DRAWN_INPUTS, DRAWN_INPUTS + 7

    def buffers() -> list[GuardedBuffer]:
        return [RandomMemory(arithmetic, 1).buffer(Argument("in", "f", 0, (size,)), {}, is_kept=True) for size in sizes]

    large, small = buffers()
    (long,), (short,) = large.planes, small.planes
    assert np.shares_memory(long, short) and (long[: len(short)] == short).all()
    assert [each.count for each in (large, small)] == list(sizes)
    before = long.copy()
    long[5] += 1
    forget_inputs()
    assert (buffers()[0].planes[0] == before).all()
