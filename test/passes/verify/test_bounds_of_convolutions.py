"""Kernels of generated convolutions, for several processors: `verify-bounds` proves each access."""

from __future__ import annotations

import random

import pytest

from mirlo.dialects.bindings import ir
from mirlo.extend import Pipeline, find_target, make_context
from mirlo.passes.session import Session
from mirlo.passes.targets import CompileOptions
from mirlo.runtime.params import ParameterStore

TARGETS = ("x86-64-v2", "x86-64-v3", "alderlake", "x86-64-v4", "icelake-server", "neoverse-n1", "neoverse-v1")


def convolution(rng: random.Random) -> str:
    """Return a convolution with static sizes: bytes or floats, each layout, windows of one to three axes."""
    count, groups = rng.choice((1, 2, 2, 3)), rng.choice((1, 1, 1, 2))
    kind, out = rng.choice((("i8", "i32"), ("f32", "f32")))
    window = [rng.choice((1, 1, 2, 3)) for _ in range(count)]
    strides, dilations = ([rng.choice((1, 1, 2)) for _ in range(count)] for _ in range(2))
    before, after = ([rng.randint(0, size) for size in window] for _ in range(2))
    channels, filters = groups * rng.choice((1, 3, 4, 4, 8, 17)), groups * rng.choice((1, 5, 16, 33))
    sizes = [(size - 1) * step + rng.randint(1, 9) for size, step in zip(window, dilations, strict=True)]
    results = [
        (size + first + last - (taps - 1) * step - 1) // stride + 1
        for size, first, last, taps, step, stride in zip(sizes, before, after, window, dilations, strides, strict=True)
    ]
    is_last = rng.random() < 0.6
    pairs = ((sizes, channels), (results, filters))
    shapes = [[1, *dims, depth] if is_last else [1, depth, *dims] for dims, depth in pairs]
    weight = [filters, *window, channels // groups] if is_last else [filters, channels // groups, *window]
    layouts = ("N*C", "O*I") if is_last else ("NC*", "OI*")
    x, w, y = (f"tensor<{'x'.join(map(str, dims))}x{each}>" for dims, each in (
        (shapes[0], kind), (weight, kind), (shapes[1], out),
    ))  # fmt: skip
    lists = {"strides": strides, "dilations": dilations, "padding": [*before, *after]}
    attributes = ", ".join(f"{name} = array<i64: {', '.join(map(str, values))}>" for name, values in lists.items())
    return f"""func.func @main(%x: {x}) -> {y} {{
      %w = "relax.constant"() {{value = dense<1{".0" * (kind == "f32")}> : {w}}} : () -> {w}
      %y = "relax.conv"(%x, %w) {{{attributes}, groups = {groups} : i64, out_dtype = {out},
        data_layout = "{layouts[0]}", kernel_layout = "{layouts[1]}"}} : ({x}, {w}) -> {y}
      return %y : {y}
    }}"""


@pytest.mark.sample(20)
@pytest.mark.parametrize("seed", range(1000))
def test_each_access_is_proven(seed: int) -> None:
    rng = random.Random(seed)
    text, cpu = convolution(rng), rng.choice(TARGETS)
    target = find_target("llvm")
    assert target.pipeline is not None
    passes, _, _ = target.pipeline(CompileOptions("llvm", target_options=f"cpu={cpu}")).partition("verify-bounds")
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        Pipeline(f"{passes}verify-bounds{{fail=all}})").run(module, Session(ParameterStore()))
