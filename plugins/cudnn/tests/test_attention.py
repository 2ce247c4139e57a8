"""Attention by cuDNN: which matches are taken, the reasons for others, and the graph, with a fake library."""

from __future__ import annotations

import gc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fake_cudnn import FakeCudnn
from mirlo_cudnn.codegen import CuDnn
from mirlo_cudnn.plan import AttentionStep, Convolution

import mirlo
from mirlo import R
from mirlo.extend.ops import ir, make_context
from mirlo.extend.runtime import ParameterStore
from mirlo.testing.nvidia import pool, read
from mirlo.testing.placement import Problem, Targets, choose, report, survey

TARGET = ["cudnn", "nvvm{chip=sm_80}"]
DTYPES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}


def module(q: str, k: str, v: str, out: str, mask: str = "", flags: str = "") -> str:
    """Return an attention of tensors of these types."""
    kinds = [q, k, v, *([mask] if mask else [])]
    arguments = ", ".join(f"%{i}: tensor<{kind}>" for i, kind in enumerate(kinds))
    names, types = ", ".join(f"%{i}" for i in range(len(kinds))), ", ".join(f"tensor<{kind}>" for kind in kinds)
    return f"""func.func @main({arguments}) -> tensor<{out}> {{
  %y = "relax.attention"({names}) {{{flags}}} : ({types}) -> tensor<{out}>
  return %y : tensor<{out}>
}}"""


def compiled(text: str, target: Any = TARGET) -> Any:
    with make_context():
        return mirlo.compile(ir.Module.parse(text), target=target, cache=False)


def steps_of(model: Any) -> list[AttentionStep]:
    return [
        step for external in model.artifact.externals
        for function in read(external.data, AttentionStep, Convolution) for step in function.steps
    ]  # fmt: skip


CASES = {
    "plain": ("2x4x9x16", "2x4x13x16", "2x4x13x24", "2x4x9x24", "", ""),
    "shared keys": ("2x6x9x16", "2x2x9x16", "2x2x9x16", "2x6x9x16", "", "causal = true"),
    "scale": ("1x2x8x8", "1x2x8x8", "1x2x8x8", "1x2x8x8", "", "scale = 0.5 : f64"),
    "after a cache": ("1x2x3x16", "1x2x11x16", "1x2x11x16", "1x2x3x16", "", "causal = true, at_end = true"),
    "one query after a cache": ("1x2x1x16", "1x2x11x16", "1x2x11x16", "1x2x1x16", "", "causal = true, at_end = true"),
    "mask": ("2x2x5x16", "2x2x7x16", "2x2x7x16", "2x2x5x16", "2x1x5x7", ""),
    "mask of keys": ("2x2x5x16", "2x2x7x16", "2x2x7x16", "2x2x5x16", "2x1x1x7", ""),
    "mask of two dims, causal": ("2x2x5x16", "2x2x7x16", "2x2x7x16", "2x2x5x16", "5x7", "causal = true"),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_against_the_cpu(dnn: FakeCudnn, name: str, dtype: str) -> None:
    *shapes, flags = CASES[name]
    kinds = [f"{shape}x{dtype}" if shape else "" for shape in shapes]
    model = compiled(module(*kinds, flags))
    here = compiled(module(*(f"{shape}xf32" if shape else "" for shape in shapes), flags), "llvm")
    inputs = list(model.random_inputs().values())
    found, wanted = model(*inputs), here(*(x.astype(np.float32) for x in inputs))
    tolerance = 2e-3 if dtype == "f16" else 2e-2
    np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=tolerance, atol=tolerance)
    (step,) = steps_of(model)
    assert (step.bound is None) == (name not in ("shared keys", "after a cache", "mask of two dims, causal"))
    assert not model.artifact.kernels or len(model.artifact.kernels) == 1, "nothing else is computed"
    assert len(dnn.graphs[0]) == 10 + 4 * (step.bound is not None) + 2 * bool(step.bound) + (step.mask is not None)


@pytest.mark.sample(0)
def test_turned_heads_stay_where_they_are(driver: Any, dnn: FakeCudnn) -> None:
    """Transposes of heads around attention are folded into its strides."""

    @mirlo.script
    def transposed(
        q: R.Tensor[(2, 9, 4, 16), R.f16], k: R.Tensor[(2, 7, 2, 16), R.f16], v: R.Tensor[(2, 2, 7, 16), R.f16]
    ):
        found = R.attention(R.permute(q, axes=(0, 2, 1, 3)), R.permute(k, axes=(0, 2, 1, 3)), v)
        return R.permute(found, axes=(0, 2, 1, 3))

    model, here = (mirlo.compile(transposed, target=target, cache=False) for target in (TARGET, "llvm"))
    (step,) = steps_of(model)
    assert step.q_strides == (576, 16, 64, 1) and step.k_strides == (224, 16, 32, 1) == (*step.k_strides[:3], 1)
    assert step.v_strides == (224, 112, 16, 1) and step.y_strides == (576, 16, 64, 1)
    for seed in range(3):
        inputs = model.random_inputs(seed).values()
        wanted = here(*inputs).astype(np.float32)
        np.testing.assert_allclose(model(*inputs).astype(np.float32), wanted, rtol=3e-3, atol=3e-3)
    # The plan is made once, before a graph is recorded; the graph has the work of the library.
    assert driver.calls.count("cuStreamBeginCapture") == 1 and len(dnn.graphs) == 2
    del model
    gc.collect()
    pool(0).trim()
    assert not driver.memory and not dnn.descriptors and not dnn.made, "all is given back"


def test_copies_that_others_read_are_made(dnn: FakeCudnn) -> None:
    @mirlo.script
    def shared(q: R.Tensor[(1, 9, 2, 16), R.f16], k: R.Tensor[(1, 2, 9, 16), R.f16]):
        transposed = R.permute(q, axes=(0, 2, 1, 3))
        return R.attention(transposed, k, k), R.exp(transposed)

    model, here = (mirlo.compile(shared, target=target, cache=False) for target in (TARGET, "llvm"))
    inputs = list(model.random_inputs().values())
    for found, wanted in zip(model(*inputs), here(*inputs), strict=True):
        np.testing.assert_allclose(found.astype(np.float32), wanted.astype(np.float32), rtol=4e-3, atol=3e-3)
    assert len(steps_of(model)) == 1


DECLINED = {
    "f32": ("1x2x8x16xf32", "1x2x8x16xf32", "", "", "attention in 16 bits only"),
    "heads of 12": ("1x2x8x12xf16", "1x2x8x12xf16", "", "", "multiple of 8"),
    "heads of 264": ("1x2x8x264xf16", "1x2x8x264xf16", "", "", "heads are larger"),
    "bool": ("1x2x8x16xf16", "1x2x8x16xf16", "8x8xi1", "", "does not choose by one"),
    "no key": ("1x2x8x16xf16", "1x2x4x16xf16", "", "causal = true, at_end = true", "zeros for queries that see no key"),
    "mask and cache": ("1x2x4x16xf16", "1x2x8x16xf16", "4x8xf16", "causal = true, at_end = true", "after a cache"),
    "capped scores": ("1x2x8x16xf16", "1x2x8x16xf16", "", "softcap = 2.0 : f64", "does not cap scores"),
    "mask of queries": ("1x2x4x16xf16", "1x2x8x16xf16", "4x1xf16", "", "as many columns as there are keys"),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", DECLINED)
def test_what_is_not_taken(driver: Any, name: str) -> None:
    query, key, mask, flags, why = DECLINED[name]
    text = module(query, key, key, query, mask, flags)
    model = compiled(text)
    assert not model.artifact.externals
    with make_context():
        told = "\n".join(report(survey(ir.Module.parse(text), TARGET), attempts=True))
    assert why in told, told


@pytest.mark.parametrize(
    ("number", "why"), [(8907, "needs cuDNN 9, found 8.9.7"), (91000, "wrong in cuDNN 9.10.0"), (91001, "9.10.1")]
)
def test_versions(dnn: FakeCudnn, monkeypatch: pytest.MonkeyPatch, number: int, why: str) -> None:
    monkeypatch.setattr(type(dnn), "cudnnGetVersion", lambda self: number)
    model = compiled(module(*["1x2x8x16xf16"] * 4))
    with pytest.raises(mirlo.MirloError, match=why):
        model(*model.random_inputs().values())


def test_placement_by_cost(dnn: FakeCudnn) -> None:
    """A long prompt is estimated to be faster in the library, which the report states."""
    text = module(*["1x16x4096x128xf16"] * 4, flags="causal = true")
    with make_context():
        targets = Targets.parse(["cudnn", "nvvm{chip=sm_90a}"])
        found = choose(Problem(ir.Module.parse(text), ParameterStore(), targets, 1, lambda *_: None), "estimated")
    costs = {candidate.name: candidate.microseconds for candidate in found.candidates}
    assert found.best == "cudnn, nvvm" and (costs["all on nvvm"] or 0) > (costs["cudnn, nvvm"] or 0) > 50
    assert CuDnn().fingerprint() == "92800", "what is measured holds for this version"


@pytest.mark.sample(0)
def test_no_engine(dnn: FakeCudnn) -> None:
    dnn.engines = [(3, 1 << 30)]
    model = compiled(module(*["1x2x8x16xf16"] * 4))
    with pytest.raises(mirlo.MirloError, match="has no engine for attention of .* wants 1024 MiB of scratch memory"):
        model(*model.random_inputs().values())
    dnn.engines.append((2, 0))
    assert model(*model.random_inputs().values()).shape == (1, 2, 8, 16)
    del model
    gc.collect()
    assert not dnn.descriptors
