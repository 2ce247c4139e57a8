"""Primitives on loops of dynamic size, and on tails: masks, peeled loops, accumulators in registers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dynamic_programs import CASES, arrays_of, schedule_of
from random_primitives import apply_random_primitives

import mirlo
from mirlo import Schedule
from mirlo.extend.schedules import ScheduleError

PLAIN = "builtin.module(schedule,lower-loops,lower-intrinsics,plan-memory)"
SHAPES = ((0, 1, 0), (1, 0, 1), (1, 1, 1), (3, 2, 5), (8, 16, 4), (7, 17, 9), (20, 33, 6))


def check(
    name: str, primitives: Schedule | Callable[[Schedule], None], pipeline: str = PLAIN, **options: object
) -> None:
    model, _, wanted = CASES[name]
    f = mirlo.compile(model, pipeline=pipeline, schedules={name: primitives}, cache=False, **options)
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        arrays = arrays_of(name, shape, rng)
        found = f(*arrays)
        for one, other in zip(found if isinstance(found, (list, tuple)) else [found], wanted(*arrays), strict=True):
            np.testing.assert_array_equal(one, other, err_msg=f"{shape}")


@pytest.mark.sample(0)
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", CASES)
def test_random_primitives_do_not_change_results(name: str, seed: int, whole: bool) -> None:
    rng = np.random.default_rng([seed, len(name)])
    for _ in range(5 if whole else 1):
        s = schedule_of(name)
        apply_random_primitives(s, rng, 16)
        try:
            check(name, s)
        except mirlo.MirloError as error:
            # Which loops an accumulator is in, and the size of a copy, are known when all primitives are applied.
            assert any(text in str(error) for text in ("accumulate: ", "of a size that only the run time knows")), error


def test_a_buffer_that_is_read_at_indices_from_data_stays_in_row_major_order() -> None:
    s = schedule_of("product")
    s.cache_read("pick", "summed", "")
    with pytest.raises(ScheduleError, match="storage_align: 'pick' reads 'summed_copy' at indices from data"):
        s.storage_align("summed_copy", 0, 3, 1)
    with pytest.raises(ScheduleError, match="pack: 'pick' reads 'summed_copy' at indices from data"):
        s.pack("summed_copy", [1, 0])


@pytest.mark.parametrize("block", ["scale", "pick"])
def test_parts_of_a_block_are_not_computed_with_each_other(block: str) -> None:
    s = schedule_of("product")
    s.partition(f"{block}_i", multiples=[6, 3])
    with pytest.raises(ScheduleError, match="make parts of '.*': compute_with before partition"):
        s.compute_with(f"{block}_1", block)


@pytest.mark.sample(0)
def test_random_primitives_use_all_kinds_of_tails() -> None:
    """What the tests above compile."""
    found: Counter[str] = Counter()
    for name in CASES:
        for seed in range(20):
            s = schedule_of(name)
            apply_random_primitives(s, np.random.default_rng([seed, len(name)]), 16)
            found.update(said.primitive for said in s.trace)
            found.update(said.named["tail"] for said in s.trace if "tail" in said.named)
    assert all(
        found[primitive] >= 8 for primitive in ("accumulate", "vectorize", "peel", "compute_at", "fuse", "unroll")
    ), found


def in_registers(s: Schedule) -> None:
    """Sum four rows by two vectors; scale and pick in vectors."""
    i, j, k = s.loops("matmul")
    outer, row = s.split(i, (None, 4), tail="peel")
    columns, vectors, lanes = s.split(j, (None, 2, 8), tail="peel")
    s.reorder(outer, columns, k, row, vectors, lanes)
    s.unroll(row)
    s.unroll(vectors)
    s.vectorize(lanes)
    s.accumulate("matmul", k)
    s.compute_at("scale", outer)
    s.vectorize(s.split(s.loops("pick")[1], (None, 8))[1])
    s.parallel(outer)


def test_primitives_for_tails_are_printed_saved_and_replayed(tmp_path: Path) -> None:
    s = schedule_of("product")
    in_registers(s)
    text = str(s)
    assert " parallel peeled:" in text and "for matmul_k in k with matmul in registers:" in text
    s.save(tmp_path / "product.json")
    again = schedule_of("product").replay(tmp_path / "product.json")
    scope: dict[str, Callable[[Schedule], None]] = {}
    exec(str(s.trace), scope)
    assert str(again) == str(schedule_of("product").replay(scope["schedule"])) == text
    check("product", again)


@pytest.mark.sample(0)
def test_threads_have_dynamic_buffers_of_their_own() -> None:
    """What a thread needs of `scaled` has as many columns as only the run time knows."""
    pipeline = PLAIN.replace("plan-memory", "plan-memory,outline-parallel{threads=2 work=1}")
    for _ in range(5):
        check("product", in_registers, pipeline, threads=2)


ERRORS: dict[str, Callable[[Schedule], object]] = {
    "vectorize: 'pick_j' has m iterations, which only the run time knows; split it first": lambda s: (
        s.vectorize("pick_j")
    ),
    "unroll: 'pick_j' has m iterations": lambda s: s.unroll("pick_j"),
    "split of 'pick_j': 4 * 8 is less than its m, which only the run time knows: expected a factor of None": lambda s: (
        s.split("pick_j", (4, 8))
    ),
    "expected a tail of 'mask', 'peel' or 'shift', found 'skip'": lambda s: s.split("pick_j", (2, 8), tail="skip"),
    "accumulate: 'pick' is not a reduction": lambda s: s.accumulate("pick", "pick_j"),
    "accumulate: expected the outermost loop of the reduction 'matmul', 'matmul_k', found 'matmul_j'": lambda s: (
        s.accumulate("matmul", "matmul_j")
    ),
    "reorder: 'matmul' is in registers over 'matmul_k': reorder before that": lambda s: (
        s.accumulate("matmul", "matmul_k"), s.reorder("matmul_k", "matmul_j"),
    ),
    "split: 'matmul' is in registers over 'matmul_k': split before that": lambda s: (
        s.accumulate("matmul", "matmul_k"), s.split("matmul_k", (None, 2)),
    ),
    "rfactor: 'matmul' or 'matmul_k' has a size that only the run time knows; accumulate": lambda s: (
        s.rfactor("matmul", "matmul_k")
    ),
    "'matmul' is decomposed: move it before that": lambda s: (
        s.accumulate("matmul", "matmul_k"), s.compute_at("matmul", "pick_i"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", ERRORS)
def test_a_primitive_that_cannot_be_applied_says_why(message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        ERRORS[message](schedule_of("product"))
    assert message in str(caught.value)


LATE_ERRORS: dict[str, Callable[[Schedule], object]] = {
    "accumulate: 'matmul_j' is inside of 'matmul_k' and serial: unroll or vectorize it": lambda s: (
        s.reorder("matmul_k", "matmul_j"), s.accumulate("matmul", "matmul_k"),
    ),
    "accumulate: 'matmul' has 80 accumulators in 'matmul_k': at most 64": lambda s: (
        s.split("matmul_j", (None, 80)), s.reorder("matmul_k", "matmul_j_1"), s.unroll("matmul_j_1"),
        s.accumulate("matmul", "matmul_k"),
    ),
    "'summed_local' is n x m elements, of a size that only the run time knows": lambda s: (
        s.cache_write("matmul", "local")
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", LATE_ERRORS)
def test_a_schedule_that_cannot_be_emitted_says_why(message: str) -> None:
    with pytest.raises(mirlo.MirloError) as caught:
        check("product", lambda s: LATE_ERRORS[message](s) and None)
    assert f"the schedule given for '@product': {message}" in str(caught.value)
