"""Placement of buffers in the arena, on random lifetimes."""

from __future__ import annotations

import numpy as np
import pytest

from mirlo.passes.memory.layout import ALIGNMENT, Interval, assign_offsets, lower_bound


def random_buffers(seed: int) -> list[Interval]:
    random = np.random.default_rng(seed)
    made = []
    for _ in range(int(random.integers(1, 60))):
        first = int(random.integers(0, 40))
        size = int(random.choice([0, 1, 63, 64, 65, 4096, int(random.integers(1, 10000))]))
        made.append(Interval(size, first, first + int(random.integers(0, 12))))
    return made


@pytest.mark.sample(0)
@pytest.mark.parametrize("seed", range(100))
def test_buffers_alive_at_one_time_do_not_overlap(seed: int) -> None:
    buffers = random_buffers(seed)
    total = assign_offsets(buffers)
    assert total >= lower_bound(buffers)
    for i, a in enumerate(buffers):
        assert a.offset % ALIGNMENT == 0
        assert 0 <= a.offset <= a.offset + a.size <= total
        for b in buffers[:i]:
            if a.first <= b.last and b.first <= a.last and a.size and b.size:
                assert a.offset + a.size <= b.offset or b.offset + b.size <= a.offset


def test_offsets_are_multiples_of_another_alignment() -> None:
    buffers = random_buffers(0)
    total = assign_offsets(buffers, 256)
    assert all(buffer.offset % 256 == 0 for buffer in buffers) and total % 256 == 0


def test_plans_are_close_to_the_bound() -> None:
    total = sum(assign_offsets(buffers) for buffers in map(random_buffers, range(100)))
    bound = sum(lower_bound(buffers) for buffers in map(random_buffers, range(100)))
    assert total <= 1.1 * bound


def test_a_chain_needs_two_buffers() -> None:
    chain = [Interval(640, step, step + 1) for step in range(20)]
    assert assign_offsets(chain) == lower_bound(chain) == 1280


def test_nothing_needs_nothing() -> None:
    assert assign_offsets([]) == lower_bound([]) == 0
