"""Products of bytes and bf16 with constant columns are schedules of primitives, whatever dot product computes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx_models import make_model, node

from mirlo.targets.llvm.tile_instructions import GROUPS
from mirlo.tools.explain.model import explain_model

NUMPY = {"u8": np.uint8, "i8": np.int8}
ONNX = {"u8": TensorProto.UINT8, "i8": TensorProto.INT8}
ROWS = [
    ("x86-64-v3", "u8", "i8", "vpmaddwd.u8.i8"),
    ("x86-64-v3", "i8", "i8", "vpmaddwd.i8.i8"),
    ("cascadelake", "u8", "i8", "vpdpbusd"),
    ("cascadelake", "i8", "u8", "vpdpbusd.i8.u8"),
    ("cascadelake", "i8", "i8", "vpdpbusd.i8.i8"),
    ("cascadelake", "u8", "u8", "vpdpbusd.u8.u8"),
    ("neoverse-n1", "i8", "i8", "sdot"),
    ("neoverse-n1", "u8", "i8", "sdot.u8.i8"),
    ("neoverse-n1", "i8", "u8", "udot.i8.u8"),
]
"""Processors, the types of rows and columns, and the row of the table of instructions."""


@pytest.mark.parametrize(("cpu", "left", "right", "row"), ROWS)
def test_bytes_of_all_signs(cpu: str, left: str, right: str, row: str, tmp_path: Path) -> None:
    info = np.iinfo(NUMPY[right])
    w = np.random.default_rng(0).integers(info.min, info.max + 1, (24, 37)).astype(NUMPY[right])
    model = make_model([node("MatMulInteger", "x w", "y")], {"x": (ONNX[left], [9, 24])}, ["y"], {"w": w})
    onnx.save(model, tmp_path / "product.onnx")
    explained = explain_model(str(tmp_path / "product.onnx"), f"llvm{{cpu={cpu}}}", tune=False)
    (kernel,) = (each for each in explained.kernels if each.schedule is not None and "matmul" in each.name)
    assert kernel.schedule is not None
    assert f"], '{row}'" in str(kernel.schedule.trace)


def test_each_row_of_bytes_has_its_signs() -> None:
    """Each instruction for bytes computes all pairs of signs that it is chosen for, each by one row."""
    for name, rows in GROUPS.items():
        kinds = [kind for row in rows for kind in row.operands]
        assert len(set(kinds)) == len(kinds), name
        for row in rows:
            bits = row.group * (16 if row.widened or "16" in row.operands[0][0] else 8)
            assert bits == (64 if row.has_pairs else 32), name
