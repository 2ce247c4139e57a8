"""Kernels as WGSL: their text, and what the target rejects."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest
from mirlo_webgpu.expressions import _float
from models import model
from onnx.helper import make_node as node

import mirlo
from mirlo import MirloError
from mirlo.extend.command import main as command


def test_command_writes_wgsl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    proto = model([node("Softmax", ["x"], ["y"])], {"x": ("f32", (4, 60))}, {"y": "f32"})
    (tmp_path / "softmax.onnx").write_bytes(proto.SerializeToString())
    command(["compile", "softmax.onnx", "--target", "webgpu", "--emit", "wgsl", "-o", "kernels"])
    texts = [path.read_text() for path in sorted((tmp_path / "kernels").glob("*.wgsl"))]
    assert texts and all("@compute @workgroup_size(" in text for text in texts)
    # Drivers may compute (x + c) - c as x, where elementary functions round by it.
    assert any("^ opaque_zero" in text for text in texts)
    for text in texts:
        bindings = [int(number) for number in re.findall(r"@binding\((\d+)\)", text)]
        assert bindings == list(range(len(bindings)))


def test_f64_is_refused() -> None:
    proto = model([node("Neg", ["x"], ["y"])], {"x": ("f64", (4,))}, {"y": "f64"})
    with pytest.raises(MirloError, match="WebGPU has no f64: convert the model to f32"):
        mirlo.compile(proto, target="webgpu", cache=False)


def test_literals_have_the_bits_of_constants() -> None:
    words = np.random.default_rng(0).integers(0, 1 << 32, 2000, dtype=np.uint32)
    special = np.array([0, 1, 0x80000000, 0x7F7FFFFF, 0x00800000, 0x3F800000, 0x4B400000], np.uint32)
    for number in np.concatenate([words, special]).view(np.float32):
        if np.isfinite(number):
            text = _float(float(number), lambda bits: "").strip("()").removesuffix("f")
            assert struct.pack("<f", float(text)) == struct.pack("<f", number), text


def test_infinite_constants_are_no_literals() -> None:
    assert _float(float("-inf"), lambda bits: f"word_{bits:x}") == "bitcast<f32>(word_ff800000)"
