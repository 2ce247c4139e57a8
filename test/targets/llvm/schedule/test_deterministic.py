"""Schedules do not depend on how values happen to hash: equal functions get equal code."""

from __future__ import annotations

import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.pipeline import Pipeline

# A row holds two intermediate results here, of which one may live where the result goes.
GRAPH = """
func.func @main(%x: tensor<8x96xf32>) -> tensor<8x96xf32> {
  %0 = "relax.tanh"(%x) : (tensor<8x96xf32>) -> tensor<8x96xf32>
  %1 = "relax.softmax"(%0) : (tensor<8x96xf32>) -> tensor<8x96xf32>
  return %1 : tensor<8x96xf32>
}
"""


@pytest.mark.sample(0)
def test_same_text_every_time() -> None:
    texts = set()
    keep = []
    for _ in range(8):
        with make_context(), ir.Location.unknown():
            module = ir.Module.parse(GRAPH)
            keep.append(module)  # other addresses, other hashes
            Pipeline.named("llvm").run(module)
            texts.add(str(module))
    assert len(texts) == 1
