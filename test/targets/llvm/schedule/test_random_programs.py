"""Random prim functions of several blocks agree with scalar loops, whatever schedules them."""

from __future__ import annotations

import numpy as np
import pytest
from random_primitives import apply_random_primitives
from random_program import Program
from scheduled import Kernel, random_array

import mirlo
from mirlo import Schedule


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(48))
def test_agrees_with_scalar_loops(seed: int) -> None:
    program = Program(seed)
    machine = (None, None, "avx2", "sse")[seed % 4]
    check(program, seed, Kernel(program.build, program.inputs, options={"machine": machine} if machine else {}))


@pytest.mark.sample(80)
@pytest.mark.parametrize("seed", range(400))
def test_random_primitives_agree_with_scalar_loops(seed: int) -> None:
    program = Program(1000 + seed)

    def primitives(s: Schedule) -> None:
        apply_random_primitives(s, np.random.default_rng(seed), 14)

    try:
        kernel = Kernel(program.build, program.inputs, options={"schedules": {"kernel": primitives}})
    except mirlo.MirloError as error:
        # Which loops an accumulator is in is known when all primitives are said.
        assert "accumulate: " in str(error), error
        return
    check(program, seed, kernel)


def check(program: Program, seed: int, fast: Kernel) -> None:
    """Compare the results with those of scalar loops."""
    plain = Kernel(program.build, program.inputs, target="default")
    generator = np.random.default_rng(seed)
    arrays = [random_array(kind, generator) for kind in program.inputs]
    for found, wanted in zip(fast(*arrays), plain(*arrays), strict=True):
        if wanted.dtype.kind != "f":
            np.testing.assert_array_equal(found, wanted)
            continue
        # Sums in another order differ by what rounding their largest parts costs.
        size = np.abs(wanted).max(initial=1.0)
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=(1e-4 if program.dtype == "f32" else 1e-9) * size)
