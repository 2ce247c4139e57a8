"""`mirlo fuzz programs`: what code and the run time in C do wrong is found, and a few of the seeds that run nightly."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from commands import mirlo
from onnx_models import F32, make_model, node

from mirlo.driver.code import SOURCE, compile_code
from mirlo.driver.request import CompileRequest
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.errors import MirloError
from mirlo.runtime.params import ParameterStore
from mirlo.tools.fuzz.programs import judge_calls, require_host

try:
    require_host()
    REASON = ""
except MirloError as error:
    REASON = str(error)
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON or "programs of 32 bits run here")

CALLS = [{"x": np.arange(5, dtype=np.float32)}]
ENTRY = """
void mirlo_entry(void **tensors, void **params, void *arena, uint64_t *profile) {
  float *x = tensors[0], *y = tensors[1];
  for (int i = 0; i < 5; ++i) y[i] = x[i];
  %s
}
"""
WRONG = {
    "y[5] = 1;": "64 bits: call 0: an access outside of memory",
    "y[0] = x[-1];": "64 bits: call 0: its results depend on what was in memory before it",
    "y[0] = x[-1] * 0;": "64 bits: call 0: its results depend on what was in memory before it",
    "x[0] = 1;": "64 bits: call 0: an access outside of memory",
    "y[4] /= 0 * (int)x[1] ? 0 : 5 / (int)x[0];": "64 bits: call 0: a division trapped",
    "if (sizeof(void *) == 4) y[-1] = 1;": "32 bits: call 0: bytes beside memory of the call were overwritten",
    "if (sizeof(void *) == 4) y[5] = 1;": "32 bits: call 0: an access outside of memory",
    "y[4] = sizeof(void *);": "call 0: 'y' has other elements with 32 bits",
}


@pytest.fixture(scope="module")
def compiled() -> tuple[Artifact, ParameterStore]:
    model = make_model([node("Identity", "x", "y")], {"x": (F32, (5,))}, ["y"], {})
    return compile_code(CompileRequest(model, "c", form=SOURCE, cache=False))


def _judge(compiled: tuple[Artifact, ParameterStore], statement: str) -> str | None:
    artifact, store = compiled
    return judge_calls(replace(artifact, code=(ENTRY % statement).encode()), store, CALLS, {"y"})


def test_a_copy_is_right(compiled: tuple[Artifact, ParameterStore]) -> None:
    assert _judge(compiled, "") is None


@pytest.mark.sample(3)
@pytest.mark.parametrize("statement", WRONG)
def test_what_is_wrong_is_found(statement: str, compiled: tuple[Artifact, ParameterStore]) -> None:
    assert _judge(compiled, statement) == WRONG[statement]


def test_dependence_on_memory_is_found(compiled: tuple[Artifact, ParameterStore]) -> None:
    artifact, store = compiled
    code = "void mirlo_entry(void **tensors, void **params, void *arena, uint64_t *profile) {}"
    problem = judge_calls(replace(artifact, code=code.encode()), store, CALLS, set())
    assert problem == "64 bits: call 0: its results depend on what was in memory before it"


@pytest.mark.sample(0)
def test_random_graphs_keep_to_their_memory() -> None:
    """Seed 201 wrote outside of memory of 32 bits when the run time had counted sizes with `size_t`."""
    report = json.loads(mirlo("fuzz", "programs", "--seed", 190, "--count", 40, "--json").stdout)
    assert report["found"] == [] and report["states"].get("safe", 0) >= 36
