"""Code for WebAssembly, whose engines have no scheduler of instructions and 16 registers of vectors on x86."""

from __future__ import annotations

import re

import onnx
from onnx_models import F32, make_model, node

from mirlo.driver.code import compile_code
from mirlo.driver.request import CompileRequest

TARGET = "llvm{cpu=generic triple=wasm32-unknown-unknown features=+simd128}"


def _loops(model: onnx.ModelProto) -> list[str]:
    """Return the innermost loops of a model's code, as text."""
    artifact, *_ = compile_code(CompileRequest(model, TARGET, form="asm", cache=False, jobs=1))
    return re.findall(r"\tloop\s((?:(?!\tloop\s).)*?)\tend_loop", artifact.code.decode(), re.DOTALL)


def test_rows_of_a_tile_are_multiplied_in_the_order_of_the_program() -> None:
    """The elements of all rows do not fit the registers together with the accumulators."""
    model = make_model([node("MatMul", "x w", "y")], {"x": (F32, (48, 64)), "w": (F32, (64, 64))}, ["y"])
    tile = max(_loops(model), key=lambda text: text.count("f32x4.mul"))
    *_, last_row = tile.split("v128.load32_splat")
    vectors = len(re.findall(r"v128\.load\s", tile))
    assert tile.count("f32x4.mul") >= 9 and vectors > 1
    assert last_row.count("f32x4.mul") <= vectors


def test_columns_along_k_are_transposed_in_registers() -> None:
    nodes = [node("Transpose", "k", "t", perm=[1, 0]), node("MatMul", "q t", "y")]
    loops = _loops(make_model(nodes, {"q": (F32, (48, 64)), "k": (F32, (64, 64))}, ["y"]))
    assert any("i8x16.shuffle" in text and "v128.load\t" in text for text in loops)
    assert not any("v128.load32_lane" in text for text in loops)
