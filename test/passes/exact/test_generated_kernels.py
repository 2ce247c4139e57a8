"""Kernels of generated operators, for several processors: each is equal to its definition."""

from __future__ import annotations

import random

import numpy as np
import pytest
from generated_kernels import GENERATORS, attention
from random_primitives import apply_random_primitives
from random_program import Program
from scheduled_pairs import kernel_pairs

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.tir.compute import PrimBuilder
from mirlo.dialects.tir.view import prim_functions
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.kernel_definition import BlockDefinition
from mirlo.passes.exact.verdict import EQUAL
from mirlo.passes.instrumentation import PassFailed
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session

PROCESSORS = (
    "x86-64-v2", "x86-64-v3", "alderlake", "x86-64-v4", "icelake-server", "sapphirerapids", "neoverse-n1",
    "neoverse-v1",
)  # fmt: skip


@pytest.mark.sample(125)
@pytest.mark.parametrize("seed", range(1000))
def test_each_kernel_is_equal(seed: int) -> None:
    rng = random.Random(seed)
    _compare(rng.choice(GENERATORS)(rng).text(rng.random() < 0.8), rng)


@pytest.mark.sample(62)
@pytest.mark.parametrize("seed", range(250))
def test_each_attention_is_equal(seed: int) -> None:
    rng = random.Random(seed)
    _compare(attention(rng).text(), rng)


def _compare(text: str, rng: random.Random) -> None:
    cpu, caches = rng.choice(PROCESSORS), rng.choice(("", " l2=4KiB"))
    with make_context(), ir.Location.unknown():
        for _, pair in kernel_pairs(text, options=f"cpu={cpu}{caches}"):
            verdict = pair.verify()
            assert verdict.status == EQUAL, f"{cpu}{caches}: {verdict}\n{text}"


@pytest.mark.sample(100)
@pytest.mark.parametrize("seed", range(400))
def test_each_random_schedule_is_equal(seed: int) -> None:
    """Random primitives on random programs, as users could apply them."""
    program = Program(1000 + seed)
    with make_context(), ir.Location.unknown() as location:
        module = ir.Module.create()
        prim = PrimBuilder("kernel", program.inputs, location)
        results = program.build(prim, *prim.inputs)
        results = results if isinstance(results, tuple) else (results,)
        module.body.append(prim.finish(*results).operation)
        definition = BlockDefinition(module.body.operations[0].operation.clone())
        schedules = {"kernel": lambda s: apply_random_primitives(s, np.random.default_rng(seed), 14)}
        try:
            Pipeline("schedule{target=llvm},lower-loops").run(module, Session(options={"schedules": schedules}))
        except PassFailed as error:
            # Which loops an accumulator is in is known when all primitives are applied.
            assert "accumulate: " in str(error), error
            return
        (scheduled,) = prim_functions(module.operation)
        verdict = KernelPair(definition, scheduled.operation).verify()
        assert verdict.status == EQUAL, f"{verdict}\n{scheduled}"
