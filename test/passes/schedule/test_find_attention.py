"""Attention is found in blocks that compute it, and in no others."""

from __future__ import annotations

from typing import Any

import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.tir.view import PrimView, is_tensor_form, prim_functions
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.schedule.blocks.attention import AttentionBlocks
from mirlo.passes.schedule.blocks.find_attention import find_attention
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.session import Session

Q, K, V, M = "1x4x8x16xf32", "1x2x12x16xf32", "1x2x12x6xf32", "1x1x8x12xf32"
Y = "1x4x8x6xf32"
MODULE = f"""func.func @main(%q: tensor<{Q}>, %k: tensor<{K}>, %v: tensor<{V}>, %m: tensor<{M}>) -> tensor<{Y}> {{
  %y = "relax.attention"(%q, %k, %v, %m) {{causal = true}}
    : (tensor<{Q}>, tensor<{K}>, tensor<{V}>, tensor<{M}>) -> tensor<{Y}>
  return %y : tensor<{Y}>
}}"""


def blocks() -> str:
    """Return the prim function of an attention, as text."""
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(MODULE)
        Pipeline("builtin.module(legalize{target=gpu})").run(module, Session(), [])
        (function,) = [f for f in prim_functions(module.operation) if is_tensor_form(f)]
        return str(function)


def find(text: str, look: Any) -> Any:
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        view = PrimView(prim_functions(module.operation)[0])
        return look(find_attention(BlockGroup(tuple(view.blocks), frozenset(view.returned), None)))


def test_parts() -> None:
    def look(found: Any) -> None:
        assert isinstance(found, AttentionBlocks)
        assert (found.keys, found.size, found.value_size) == (12, 16, 6)
        # Batch and heads of keys; heads that share them, and queries.
        assert [found.extents[loop] for loop in found.batch] == [2]
        assert [found.extents[loop] for loop in found.rows] == [1, 2, 8]
        assert found.scaling is None, "a mask is added after the factor"
        (bound,) = found.bounds
        assert bound.limit.coefficient(3) == 1 and bound.limit.constant == 0

    find(blocks(), look)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("init = [0xFF800000 : f32]", "init = [0.000000e+00 : f32]", "a reduction does not start from -inf"),
        ("init = [0.000000e+00 : f32]", "init = [1.000000e+00 : f32]", "a reduction does not start from 0.0"),
        ("arith.cmpf ogt", "arith.cmpf olt", "something is done to the maximum of a row"),
        ("arith.maximumf", "arith.minimumf", "the first reduction of scores is not their maximum"),
        ("arith.subf", "arith.addf", "the weights are not e^(score - maximum)"),
        ('"tir.exp"', '"tir.exp2"', "the weights are not e^(score - maximum)"),
    ],
)
def test_what_is_none(old: str, new: str, reason: str) -> None:
    text = blocks()
    assert old in text
    assert reason in find(text.replace(old, new), str)


def test_a_bound_that_keys_must_reach_is_none() -> None:
    """A window's lower end says nothing of the keys after it."""

    def look(found: Any) -> None:
        assert isinstance(found, AttentionBlocks) and not found.bounds

    find(blocks().replace("arith.cmpi sle", "arith.cmpi sge"), look)
