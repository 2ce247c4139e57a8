"""Bytes that kernels move, for profiles, rooflines and the decision to use threads."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx_models import F32, I64, make_model, node

import mirlo

TABLE = np.zeros((5000, 64), np.float32)
READS: dict[str, tuple[onnx.NodeProto, dict[str, tuple[int, tuple[object, ...]]], int]] = {
    "rows of a table": (node("Gather", "t i", "y"), {"i": (I64, (3,))}, 3 * 8 + 2 * 3 * 64 * 4),
    "single elements": (node("GatherElements", "t i", "y"), {"i": (I64, (2, 64))}, 2 * 64 * (8 + 2 * 4)),
    "a slice": (node("Slice", "x begin end", "y"), {"x": (F32, (5000, 64))}, 2 * 10 * 64 * 4),
    "all": (node("Relu", "x", "y"), {"x": (F32, (5000, 64))}, 2 * 5000 * 64 * 4),
    "each element several times": (node("Expand", "x sizes", "y"), {"x": (F32, (1, 64))}, (1 + 5) * 64 * 4),
    "all, in as many rows as a call has": (node("MatMul", "v t", "y"), {"v": (F32, ("n", 5000))}, 5000 * 64 * 4),
    "as many rows as a call has": (node("Gather", "t i", "y"), {"i": (I64, ("n",))}, 0),
}  # fmt: skip


@pytest.mark.parametrize("reads", READS)
def test_a_part_that_is_read(reads: str) -> None:
    operator, inputs, expected = READS[reads]
    tensors = {"t": TABLE, "begin": np.array([7]), "end": np.array([17]), "sizes": np.array([5, 64])}
    used = {name: tensor for name, tensor in tensors.items() if name in operator.input}
    exe = mirlo.compile(make_model([operator], inputs, ["y"], used), cache=False)
    assert [kernel.bytes for kernel in exe.artifact.kernels] == [expected]
