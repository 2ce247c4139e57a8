"""Random chains of operators, each for several sizes and scalars: merging their kernels changes no bit of a result."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest

import mirlo
from mirlo.driver import compiler
from mirlo.targets.llvm import units
from mirlo.tools.fuzz.differential import RIGHT, judge

UNARY = ("Relu", "Sigmoid", "Tanh", "Exp", "Abs", "HardSwish", "Softplus", "Erf", "Floor")
BINARY = ("Add", "Mul", "Sub", "Div", "Max", "Min")
REDUCTIONS = ("ReduceSum", "ReduceMax", "ReduceMean", "ReduceMin")
KINDS = ("unary", "scalar", "reduce", "softmax", "pad", "concat", "cast", "transpose", "quantize")


def _chain(steps: list[tuple[str, int]], copy: int, shape: list[int], r: random.Random) -> tuple[list[str], list[int]]:
    """Return the nodes of a chain in ONNX's text from `x` to `y`, and the shape of its result."""
    lines, x, shape = list[str](), f"x{copy}", list(shape)
    for number, (kind, choice) in enumerate(steps):
        y, c, d, axis = (*(f"{name}{copy}_{number}" for name in "vcd"), choice % len(shape))
        scalar = f"{c} = Constant <value = float {{{r.choice([0.5, 2.0, 0.3, 1.7, -0.9])}}}> ()"
        if kind == "unary":
            lines.append(f"{y} = {UNARY[choice % len(UNARY)]} ({x})")
        elif kind == "scalar":
            lines += [scalar, f"{y} = {BINARY[choice % len(BINARY)]} ({x}, {c})"]
        elif kind == "reduce":
            lines.append(f"{c} = Constant <value = int64[1] {{{axis}}}> ()")
            lines.append(f"{y} = {REDUCTIONS[choice % len(REDUCTIONS)]} <keepdims = 1> ({x}, {c})")
            shape[axis] = 1
        elif kind == "softmax":
            lines.append(f"{y} = Softmax <axis = {axis}> ({x})")
        elif kind == "pad":
            pads = [0] * (2 * len(shape))
            pads[axis] = r.randint(0, 3)
            lines.append(f"{c} = Constant <value = int64[{len(pads)}] {{{', '.join(map(str, pads))}}}> ()")
            lines.append(f"{y} = Pad ({x}, {c})")
            shape[axis] += pads[axis]
        elif kind == "concat":
            lines += [f"{c} = Relu ({x})", f"{y} = Concat <axis = {axis}> ({x}, {c})"]
            shape[axis] *= 2
        elif kind == "cast":
            lines += [f"{c} = Cast <to = 6> ({x})", f"{y} = Cast <to = 1> ({c})"]
        elif kind == "transpose":
            lines.append(f"{y} = Transpose <perm = {[*range(1, len(shape)), 0]}> ({x})")
            shape = [*shape[1:], shape[0]]
        else:
            lines += [scalar.replace("-", ""), f"{d} = QuantizeLinear ({x}, {c})", f"{y} = DequantizeLinear ({d}, {c})"]
        x = y
    return [*lines, f"y{copy} = Identity ({x})"], shape


def _model(seed: int) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    r, arrays = random.Random(seed), np.random.default_rng(seed)
    steps = [(r.choice(KINDS), r.randrange(100)) for _ in range(r.randint(2, 6))]
    base = [r.choice([1, 2, 3, 5, 8, 16, 17, 31, 32, 48]) for _ in range(r.randint(1, 4))]
    nodes, inputs, outputs, values = list[str](), list[str](), list[str](), list[np.ndarray]()
    for copy in range(r.randint(2, 4)):
        shape = [dim * r.choice([1, 1, 2, 3]) + r.choice([0, 0, 1]) for dim in base[-2:]]
        shape = [*base[:-2], *shape]
        lines, result = _chain(steps, copy, shape, r)
        nodes += lines
        inputs.append(f"float[{', '.join(map(str, shape))}] x{copy}")
        outputs.append(f"float[{', '.join(map(str, result))}] y{copy}")
        values.append(arrays.normal(size=shape).astype(np.float32))
    head = '<ir_version: 10, opset_import: ["": 20]>'
    lines = [head, f"chains ({', '.join(inputs)}) => ({', '.join(outputs)}) {{", *nodes, "}"]
    return onnx.parser.parse_model("\n".join(lines)), values


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(12))
def test_merged_kernels_compute_the_same_bits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, arrays = _model(seed)
    results = []
    for limit in (1, 10**9):
        monkeypatch.setattr(compiler, "MIN_OPERATORS_FOR_WORKERS", limit)
        outputs = mirlo.compile(model, cache=False, jobs=1)(*arrays)
        results.append([np.asarray(each).tobytes() for each in outputs])
    assert results[0] == results[1]


def test_random_chains_merge_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the test above would compare equal code."""
    merged = list[int]()
    merge = units.merge_kernels
    monkeypatch.setattr(units, "merge_kernels", lambda kernels: merged.append(1) or merge(kernels))
    monkeypatch.setattr(compiler, "MIN_OPERATORS_FOR_WORKERS", 1)
    for seed in range(4):
        mirlo.compile(_model(seed)[0], cache=False, jobs=1)
    assert len(merged) >= 2


@pytest.mark.sample(0)
def test_fuzzed_graphs_merge_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """`mirlo fuzz graphs` repeats the nodes of every other graph with other numbers."""
    arguments = list[int]()
    merge = units.merge_kernels

    def record(kernels):
        numbers = merge(kernels)
        arguments.append(sum(map(len, numbers.values())))
        return numbers

    monkeypatch.setattr(units, "merge_kernels", record)
    for seed in (1, 37):
        assert judge(seed, opt_level=2).state == RIGHT
    assert len(arguments) == 2 and all(arguments)
