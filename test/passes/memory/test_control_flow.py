"""Branches and loops over buffers compute what they compute over tensors."""

from __future__ import annotations

import numpy as np
import pytest
from random_control_flow import random_program

import mirlo

SEEDS = 20


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_programs(seed: int, tmp_path) -> None:
    text, meaning = random_program(seed)
    path = tmp_path / "program.mlir"
    path.write_text(text)
    executable = mirlo.compile(path)
    rng = np.random.default_rng(seed)
    x, y = (rng.uniform(-1, 1, 4).astype(np.float32) for _ in range(2))
    for flag in (True, False):
        for rounds in (0, 1, 2, 5):
            given = (x, y, np.array(flag), np.array(rounds, np.int64))
            found = executable(*given)
            results = found if isinstance(found, (tuple, list)) else [found]
            for got, expected in zip(results, meaning(*given), strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5, err_msg=text)
