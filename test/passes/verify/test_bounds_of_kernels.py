"""Kernels of generated operators, for several processors: `verify-bounds` proves each access."""

from __future__ import annotations

import random

import pytest
from generated_kernels import GENERATORS, attention

from mirlo.dialects.bindings import ir
from mirlo.extend.ops import make_context
from mirlo.extend.target import Pipeline, find_target
from mirlo.passes.session import Session
from mirlo.passes.targets import CompileOptions
from mirlo.runtime.params import ParameterStore

TARGETS = ("x86-64-v2", "x86-64-v3", "alderlake", "x86-64-v4", "icelake-server", "neoverse-n1", "neoverse-v1")
CACHES = ("", " l2=4KiB", " l2=64KiB")
"""Small caches, for which loops are in blocks also where sizes are small."""


@pytest.mark.sample(20)
@pytest.mark.parametrize("seed", range(2000))
def test_each_access_is_proven(seed: int) -> None:
    rng = random.Random(seed)
    _prove(rng.choice(GENERATORS)(rng).text(rng.random() < 0.8), rng)


@pytest.mark.sample(20)
@pytest.mark.parametrize("seed", range(500))
def test_each_access_of_attention_is_proven(seed: int) -> None:
    """Heads of one element among them: a tile of the second product may have heads as its lanes then."""
    rng = random.Random(seed)
    _prove(attention(rng).text(), rng)


def _prove(text: str, rng: random.Random) -> None:
    cpu = rng.choice(TARGETS)
    target = find_target("llvm")
    assert target.pipeline is not None
    options = CompileOptions("llvm", target_options=f"cpu={cpu}{rng.choice(CACHES)}")
    passes, _, _ = target.pipeline(options).partition("verify-bounds")
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        Pipeline(f"{passes}verify-bounds{{fail=all}})").run(module, Session(ParameterStore()))
