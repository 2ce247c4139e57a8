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
PANEL_OF_A_GROUP = """
func.func @main(%x: tensor<1x34x11x4xi8>) -> tensor<1x66x5x2xi32> {
  %w = "relax.constant"() {value = dense<1> : tensor<66x17x3x2xi8>} : () -> tensor<66x17x3x2xi8>
  %y = "relax.conv"(%x, %w) {strides = array<i64: 3, 3>, dilations = array<i64: 1, 1>,
    padding = array<i64: 3, 1, 2, 1>, groups = 2 : i64, out_dtype = i32, data_layout = "NC*", kernel_layout = "OI*"}
    : (tensor<1x34x11x4xi8>, tensor<66x17x3x2xi8>) -> tensor<1x66x5x2xi32>
  return %y : tensor<1x66x5x2xi32>
}
"""
COPY_OF_SEVENTEEN_COLUMNS = """
func.func @main(%x: tensor<100x5xi8>) -> tensor<100x17xi32> {
  %w = "relax.constant"() {value = dense<1> : tensor<17x5xi8>} : () -> tensor<17x5xi8>
  %y = "relax.matmul"(%x, %w) {out_dtype = i32, transpose_rhs = true}
    : (tensor<100x5xi8>, tensor<17x5xi8>) -> tensor<100x17xi32>
  return %y : tensor<100x17xi32>
}
"""
COPY_OF_A_TRANSPOSED_KERNEL = """
func.func @main(%x: tensor<1x4x1x7x4xf32>, %w: tensor<33x2x1x3x4xf32>) -> tensor<1x2x1x7x33xf32> {
  %y = "relax.conv"(%x, %w) {strides = array<i64: 3, 1, 1>, dilations = array<i64: 2, 1, 1>,
    padding = array<i64: 2, 0, 0, 1, 0, 2>, groups = 1 : i64, out_dtype = f32, data_layout = "N*C",
    kernel_layout = "O*I"} : (tensor<1x4x1x7x4xf32>, tensor<33x2x1x3x4xf32>) -> tensor<1x2x1x7x33xf32>
  return %y : tensor<1x2x1x7x33xf32>
}
"""


KEYS_OF_A_HUNDRED = """
func.func @main(%q: tensor<1x8x100x33xf32>, %k: tensor<1x8x100x33xf32>, %v: tensor<1x8x100x33xf32>)
    -> tensor<1x8x100x33xf32> {
  %y = "relax.attention"(%q, %k, %v) {causal = false, at_end = false}
    : (tensor<1x8x100x33xf32>, tensor<1x8x100x33xf32>, tensor<1x8x100x33xf32>) -> tensor<1x8x100x33xf32>
  return %y : tensor<1x8x100x33xf32>
}
"""


@pytest.mark.sample(10)
@pytest.mark.parametrize("seed", range(1000))
def test_each_access_is_proven(seed: int) -> None:
    rng = random.Random(seed)
    _prove(rng.choice(GENERATORS)(rng).text(rng.random() < 0.8), _processor(rng))


@pytest.mark.sample(10)
@pytest.mark.parametrize("seed", range(250))
def test_each_access_of_attention_is_proven(seed: int) -> None:
    """Heads of one element among them: a tile of the second product may have heads as its lanes then."""
    rng = random.Random(seed)
    _prove(attention(rng).text(), _processor(rng))


def _processor(rng: random.Random) -> str:
    return f"{rng.choice(TARGETS)}{rng.choice(CACHES)}"


def _prove(text: str, processor: str) -> None:
    target = find_target("llvm")
    options = CompileOptions("llvm", target_options=f"cpu={processor}")
    passes, _, _ = target.pipeline(options).partition("verify-bounds")
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        Pipeline(f"{passes}verify-bounds{{fail=all}})").run(module, Session(ParameterStore()))


def test_masks_of_a_copied_panel_are_proven() -> None:
    """The last panel of 33 columns of a group reaches into the vectors beyond the end of the weights."""
    _prove(PANEL_OF_A_GROUP, "x86-64-v2 l2=64KiB")


@pytest.mark.parametrize("processor", TARGETS)
def test_last_columns_of_a_copy_are_proven(processor: str) -> None:
    """The last vector of columns is read whole, also in the last group of the copy, after which there is memory."""
    _prove(COPY_OF_SEVENTEEN_COLUMNS, processor)


@pytest.mark.parametrize("processor", [f"{name} l2=64KiB" for name in TARGETS])
def test_gathers_of_a_copy_are_proven(processor: str) -> None:
    """The kernel is transposed by gathers with a stride: the last of its 33 rows are under a mask."""
    _prove(COPY_OF_A_TRANSPOSED_KERNEL, processor)


def test_gathers_of_keys_are_proven() -> None:
    """Keys are gathered, eight at a time, by code that is unrolled, with a mask for each of eight elements."""
    _prove(KEYS_OF_A_HUNDRED, "x86-64-v3")
