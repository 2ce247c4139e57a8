"""Kernels of generated operators, for several processors: each is equal to its definition."""

from __future__ import annotations

import random

import pytest
from generated_kernels import GENERATORS, attention
from scheduled_pairs import kernel_pairs

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.exact.verdict import EQUAL

PROCESSORS = ("x86-64-v2", "x86-64-v3", "alderlake", "x86-64-v4", "icelake-server", "neoverse-n1", "neoverse-v1")


@pytest.mark.sample(250)
@pytest.mark.parametrize("seed", range(2000))
def test_each_kernel_is_equal(seed: int) -> None:
    rng = random.Random(seed)
    _compare(rng.choice(GENERATORS)(rng).text(rng.random() < 0.8), rng)


@pytest.mark.sample(125)
@pytest.mark.parametrize("seed", range(500))
def test_each_attention_is_equal(seed: int) -> None:
    rng = random.Random(seed)
    _compare(attention(rng).text(), rng)


def _compare(text: str, rng: random.Random) -> None:
    cpu, caches = rng.choice(PROCESSORS), rng.choice(("", " l2=4KiB"))
    with make_context(), ir.Location.unknown():
        for _, pair in kernel_pairs(text, options=f"cpu={cpu}{caches}"):
            verdict = pair.verify()
            assert verdict.status == EQUAL, f"{cpu}{caches}: {verdict}\n{text}"
