"""Checksums of the imported programs of tests, for all cases.

Tests compile a sample of their cases and compare numbers; here the cases are imported only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import numpy as np
from mirlo_stablehlo.importer import import_stablehlo

from mirlo.testing.snapshots import cases_of, checksum, load_tests, outcome_of, tests_of

TESTS = Path(__file__).parents[1]
EVERY = 2
"""The stride of the sample of programs."""
RARE = TESTS / "Inputs" / "rare_programs.mlir"
"""Programs of operations that tests without JAX do not have."""
NONE = ((0, 0), (0, 0))
WINDOWS = (
    ("add", (1, 9), (1, 1), ((0, 0), (8, 0)), 1), ("add", (1, 9), (1, 1), ((0, 0), (0, 8)), 1),
    ("multiply", (4, 1), (1, 1), ((3, 0), (0, 0)), 1), ("add", (1, 9), (1, 1), ((0, 0), (7, 1)), 1),
    ("add", (1, 9), (1, 1), ((1, 0), (8, 0)), 1), ("add", (1, 8), (1, 1), ((0, 0), (7, 0)), 1),
    ("multiply", (1, 3), (1, 2), NONE, 1), ("maximum", (2, 3), (2, 2), NONE, 1), ("add", (2, 3), (1, 1), NONE, 2),
    ("maximum", (1, 3), (1, 1), ((0, 0), (1, 1)), 2), ("minimum", (2, 2), (2, 2), NONE, 1),
    ("add", (1, 3), (1, 2), ((0, 0), (-1, 1)), 1), ("maximum", (1, 9), (1, 1), ((0, 0), (8, 0)), 1),
    ("maximum", (1, 1), (2, 1), NONE, 1), ("add", (4, 9), (1, 1), NONE, 1),
    ("add", (1, 9), (1, 2), ((0, 0), (8, 0)), 1),
)  # fmt: skip
"""Reductions, windows, strides, padding and dilation."""


def programs() -> Iterator[str]:
    """Yield the lines of the table: checksums of imported programs, then those of programs with windows."""
    for name in ("test_operations", "test_complex"):
        module = load_tests(TESTS / f"{name}.py")
        for test, function in tests_of(module):
            if "require_equal" in function.__code__.co_names:
                texts = list(dict.fromkeys(_programs(module, function)))[::EVERY]
                yield f"{name} {test}: {' '.join(checksum(outcome_of(import_stablehlo, text)) for text in texts)}"
    for number, text in enumerate(RARE.read_text(encoding="utf-8").split("// -----")):
        yield f"rare {number}: {checksum(outcome_of(import_stablehlo, text))}"
    for title, texts_of in (("convolution", _convolutions), ("reduce_window", _windows)):
        yield f"{title}: {' '.join(checksum(outcome_of(import_stablehlo, text)) for text in texts_of())}"


def _convolutions() -> Iterator[str]:
    """Yield convolutions with other strides, padding, spaces and groups, one after the other."""
    choices = itertools.product(((1, 1), (2, 3)), ((0, 0, 0, 0), (1, 2, 0, 1), (-1, 1, 0, -1)), (1, 2), (1, 2))
    for number, (stride, pad, base, dilation) in enumerate(choices):
        groups, batches = ((1, 1), (2, 1), (1, 2))[number % 3]
        sizes = [
            ((base if i == 0 else 1) * (size - 1) + 1 + pad[2 * i] + pad[2 * i + 1] - dilation * (kernel - 1) - 1)
            // stride[i]
            + 1
            for i, (size, kernel) in enumerate(((9, 3), (8, 2)))
        ]
        x, w = "tensor<4x9x8x6xf32>", f"tensor<3x2x{6 // groups}x8xf32>"
        y = f"tensor<{4 // batches}x{sizes[0]}x{sizes[1]}x8xf32>"
        yield f"""func.func @main(%x: {x}, %w: {w}) -> {y} {{
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {{stride = {list(stride)}, pad = [{list(pad[:2])}, {list(pad[2:])}], lhs_dilate = [{base}, 1],
    rhs_dilate = [{dilation}, {dilation}], reverse = [{"true" if number % 4 == 3 else "false"}, false]}}
    {{batch_group_count = {batches} : i64, feature_group_count = {groups} : i64}} : ({x}, {w}) -> {y}
  return %0 : {y}
}}"""


def _windows() -> Iterator[str]:
    """Yield reductions of windows: poolings, running sums, and neither."""
    for kind, window, stride, pad, dilation in WINDOWS:
        sizes = [
            (size + sum(pad[i]) - dilation * (window[i] - 1) - 1) // stride[i] + 1 for i, size in enumerate((4, 9))
        ]
        start = {"add": "0.0", "multiply": "1.0", "maximum": "0xFF800000", "minimum": "0x7F800000"}[kind]
        y = f"tensor<{sizes[0]}x{sizes[1]}xf32>"
        yield f"""func.func @main(%x: tensor<4x9xf32>) -> {y} {{
  %c = stablehlo.constant dense<{start}> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %c) ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.{kind} %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }}) {{window_dimensions = array<i64: {window[0]}, {window[1]}>, window_strides = array<i64: {stride[0]}, {stride[1]}>,
    window_dilations = array<i64: {dilation}, {dilation}>,
    padding = dense<{[list(each) for each in pad]}> : tensor<2x2xi64>
  }} : (tensor<4x9xf32>, tensor<f32>) -> {y}
  return %0 : {y}
}}"""


def _programs(module: ModuleType, function: FunctionType) -> Iterator[str]:
    """Yield the programs of all cases of a test."""
    recorded: list[str] = []
    scope = {
        **vars(module),
        "require_equal": lambda text, *arrays, **options: recorded.append(text),
        "RANDOM": np.random.default_rng(3),
    }
    test = FunctionType(function.__code__, scope, argdefs=function.__defaults__, closure=function.__closure__)
    for arguments in cases_of(function):
        test(**arguments)
    yield from recorded


SNAPSHOTS: dict[str, Callable[[], Iterable[str]]] = {"../plugins/stablehlo/tests/imported.txt": programs}
"""The table, relative to `test`."""
