"""Memory that the threads of a block share: rules use what every device has, schedules at most what the device has."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from devices import needs_vulkan

import mirlo
from mirlo import R, Schedule, T
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.targets import ThreadLimits

ATTENTION = """
func.func @main(%q: tensor<1x2x{rows}x{size}x{kind}>, %k: tensor<1x2x{keys}x{size}x{kind}>,
    %v: tensor<1x2x{keys}x{size}x{kind}>) -> tensor<1x2x{rows}x{size}x{kind}> {{
  %0 = "relax.attention"(%q, %k, %v)
    {{operandSegmentSizes = array<i32: 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}} :
    (tensor<1x2x{rows}x{size}x{kind}>, tensor<1x2x{keys}x{size}x{kind}>, tensor<1x2x{keys}x{size}x{kind}>)
    -> tensor<1x2x{rows}x{size}x{kind}>
  return %0 : tensor<1x2x{rows}x{size}x{kind}>
}}
"""
PRODUCT = """
func.func @main(%x: tensor<{rows}x{size}x{kind}>, %y: tensor<{size}x{keys}x{kind}>) -> tensor<{rows}x{keys}x{kind}> {{
  %0 = "relax.matmul"(%x, %y) : (tensor<{rows}x{size}x{kind}>, tensor<{size}x{keys}x{kind}>)
    -> tensor<{rows}x{keys}x{kind}>
  return %0 : tensor<{rows}x{keys}x{kind}>
}}
"""


@pytest.mark.sample(24)
@pytest.mark.parametrize("kind", ["f32", "f16", "f64"])
@pytest.mark.parametrize("rows", [1, 3, 8, 20, 100])
@pytest.mark.parametrize(("size", "keys"), [(16, 1000), (40, 32), (64, 300), (128, 2000), (300, 40)])
@pytest.mark.parametrize("program", [ATTENTION, PRODUCT], ids=["attention", "product"])
def test_rules_use_what_every_device_has(program: str, size: int, keys: int, rows: int, kind: str) -> None:
    with make_context():
        module = ir.Module.parse(program.format(rows=rows, size=size, keys=keys, kind=kind))
        kernels = mirlo.compile(module, "spirv", cache=False).artifact.metadata["kernels"]
    assert all(kernel.get("shared", 0) <= ThreadLimits().max_shared for kernel in kernels.values())


@mirlo.prim_func
def transpose(a: T.Buffer[(256, 256), T.f32], c: T.Out[(256, 256), T.f32]):
    for i, j in T.grid(256, 256):
        with T.block("transposed"):
            vi, vj = T.axes("SS", i, j)
            c[vi, vj] = a[vj, vi]


@mirlo.script
def model(a: R.Tensor[(256, 256), R.f32]):
    return R.call_tir(transpose, a)


def in_tiles(s: Schedule, edge: int) -> None:
    rows, columns, _, column = s.tile(s.loops("transposed"), (edge, edge))
    copy = s.cache_read("transposed", "a", "shared")
    s.compute_at(copy, columns)
    for lane in (column, s.loops(copy)[-1]):
        s.bind(lane, "threadIdx.x")
    s.bind(rows, "blockIdx.y")
    s.bind(columns, "blockIdx.x")


def test_more_than_a_chip_has() -> None:
    mirlo.compile(model, "nvvm{chip=sm_86}", schedules={"transpose": partial(in_tiles, edge=128)}, cache=False)
    text = "kernel 'transpose_kernel' uses 262144 bytes of shared memory, and a block of .* chip 'sm_86' has 101376"
    with pytest.raises(mirlo.MirloError, match=text):
        mirlo.compile(model, "nvvm{chip=sm_86}", schedules={"transpose": partial(in_tiles, edge=256)}, cache=False)


@needs_vulkan()
def test_more_than_a_device_has() -> None:
    compiled = mirlo.compile(model, "spirv", schedules={"transpose": partial(in_tiles, edge=256)}, cache=False)
    with pytest.raises(mirlo.MirloError, match="threads of 'transpose_kernel' share 262144 bytes; .* has at most"):
        compiled(np.zeros((256, 256), np.float32))
