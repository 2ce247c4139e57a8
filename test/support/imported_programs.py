"""What the import makes of the models and programs of tests, also in cases that no sample has.

Tests compile a sample of their cases and compare numbers; here the cases are imported only, up to the first
compilation of each, without what tests compare them with.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType

import numpy as np
import pytest
from snapshots import TESTS, checksum

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.frontends.onnx import import_model
from mirlo.frontends.stablehlo.importer import import_stablehlo
from mirlo.runtime.params import ParameterStore

EVERY = 2
"""One program of a test in so many is imported."""
RARE = TESTS / "support" / "Inputs" / "rare_programs.mlir"
"""Programs of operations that tests without JAX do not have."""
CASES = 2
"""Cases of a test of ONNX whose models are imported."""
IMPORT_OPTIONS = ("shapes", "opset")
"""Options of a compilation that the import has, too."""
OTHER_OPERATORS = (
    "beams", "cache_forms", "gated_delta", "gradient", "losses", "max_roi_pool", "microsoft", "ml", "moe", "nbits",
    "objects", "sparse_attention", "tokenizer",
)  # fmt: skip
"""Files of tests of operators of which ONNX has no cases."""
STABLEHLO, ONNX = (TESTS / "frontends" / name for name in ("stablehlo", "onnx"))
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
    """Yield lines for tests of StableHLO: checksums of what programs become; then for programs of windows."""
    for name in ("test_operations", "test_complex"):
        module = _load(STABLEHLO / f"{name}.py")
        for test, function in _tests(module):
            if "require_equal" in function.__code__.co_names:
                texts = list(dict.fromkeys(_programs(module, function)))[::EVERY]
                yield f"{name} {test}: {' '.join(checksum(_outcome(import_stablehlo, text)) for text in texts)}"
    for number, text in enumerate(RARE.read_text(encoding="utf-8").split("// -----")):
        yield f"rare {number}: {checksum(_outcome(import_stablehlo, text))}"
    for title, texts_of in (("convolution", _convolutions), ("reduce_window", _windows)):
        yield f"{title}: {' '.join(checksum(_outcome(import_stablehlo, text)) for text in texts_of())}"


def models() -> Iterator[str]:
    """Yield lines for tests of ONNX that need no fixture: what the models become that their first cases compile."""
    with pytest.MonkeyPatch.context() as patch:
        recorded: list[tuple[object, dict[str, object]]] = []

        def compile_none(model: object, *_: object, **options: object) -> None:
            recorded.append((model, {name: options[name] for name in IMPORT_OPTIONS if name in options}))
            raise Recorded

        patch.setattr(mirlo, "compile", compile_none)
        for name in OTHER_OPERATORS:
            path = ONNX / f"test_onnx_{name}.py"
            module = _load(path)
            for test, function in _tests(module):
                sums = []
                if not any(name in function.__code__.co_names for name in ("fork", "Process")):
                    sums = [checksum(each) for each in _models(function, recorded)]
                if sums:
                    yield f"{path.stem} {test}: {' '.join(sums)}"


class Recorded(Exception):
    """A test has come to its first compilation."""


def _models(function: FunctionType, recorded: list[tuple[object, dict[str, object]]]) -> Iterator[str]:
    """Yield what the models become that some cases of a test compile first."""
    parameters = set(inspect.signature(function).parameters)
    cases = list(_cases(function))
    if parameters - set(cases[0]) or "compile" not in function.__code__.co_names + _called(function):
        return
    for arguments in cases[:: -(-len(cases) // CASES)]:
        recorded.clear()
        with contextlib.suppress(Exception, pytest.skip.Exception, pytest.fail.Exception):
            function(**arguments)
        if recorded:
            model, options = recorded[0]
            yield _outcome(partial(import_model, **options), model)


def _called(function: FunctionType) -> tuple[str, ...]:
    """Return the names that functions of a test's module use which it calls."""
    used = [function.__globals__.get(name) for name in function.__code__.co_names]
    return tuple(name for each in used if isinstance(each, FunctionType) for name in each.__code__.co_names)


def _tests(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    for name, function in sorted(vars(module).items()):
        if name.startswith("test_") and isinstance(function, FunctionType):
            yield name, function


def _load(path: Path) -> ModuleType:
    """Return a module of tests; other folders have some of its name."""
    specification = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


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
    """Yield reductions of windows: those that are poolings, running sums, or neither."""
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
    """Yield the programs that a test compares, of all its cases."""
    recorded: list[str] = []
    scope = {
        **vars(module),
        "require_equal": lambda text, *arrays, **options: recorded.append(text),
        "RANDOM": np.random.default_rng(3),
    }
    test = FunctionType(function.__code__, scope, argdefs=function.__defaults__, closure=function.__closure__)
    for arguments in _cases(function):
        test(**arguments)
    yield from recorded


def _cases(function: FunctionType) -> Iterator[dict[str, object]]:
    """Yield the arguments of the cases of a test."""
    marks = [mark for mark in getattr(function, "pytestmark", ()) if mark.name == "parametrize"]
    choices: list[list[dict[str, object]]] = []
    for mark in marks:
        names = [name.strip() for name in mark.args[0].split(",")] if isinstance(mark.args[0], str) else mark.args[0]
        choices.append([_named(names, values) for values in mark.args[1]])
    for chosen in itertools.product(*choices):
        yield {name: value for part in chosen for name, value in part.items()}


def _named(names: Sequence[str], values: object) -> dict[str, object]:
    values = getattr(values, "values", values) if hasattr(values, "marks") else values
    listed = values if len(names) > 1 and isinstance(values, (tuple, list)) else [values]
    return dict(zip(names, listed, strict=True))


def _outcome(imported: Callable[..., tuple[ir.Module, ParameterStore]], model: object) -> str:
    """Return the imported module with its constants, or the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module, store = imported(model)
        except Exception as error:  # of what tests compile some is refused elsewhere
            return f"{type(error).__name__}: {error}"
    return f"{module}{[(name, store.get(name).dtype, store.get(name).shape) for name in store]}"


SNAPSHOTS: dict[str, Callable[[], Iterable[str]]] = {
    "frontends/stablehlo/imported.txt": programs,
    "frontends/onnx/imported_models.txt": models,
}
"""The tables, below `test`."""
