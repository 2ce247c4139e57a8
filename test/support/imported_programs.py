"""What the import makes of the models of tests, also in cases that no sample has.

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

import pytest
from snapshots import TESTS, checksum

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.frontends.onnx import import_model
from mirlo.runtime.params import ParameterStore

CASES = 2
"""Cases of a test of ONNX whose models are imported."""
IMPORT_OPTIONS = ("shapes", "opset")
"""Options of a compilation that the import has, too."""
OTHER_OPERATORS = (
    "beams", "cache_forms", "gated_delta", "gradient", "losses", "max_roi_pool", "microsoft", "ml", "moe", "nbits",
    "objects", "sparse_attention", "tokenizer",
)  # fmt: skip
"""Files of tests of operators of which ONNX has no cases."""
ONNX = TESTS / "frontends" / "onnx"


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
            module = load_tests(path)
            for test, function in tests_of(module):
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
    cases = list(cases_of(function))
    if parameters - set(cases[0]) or "compile" not in function.__code__.co_names + _called(function):
        return
    for arguments in cases[:: -(-len(cases) // CASES)]:
        recorded.clear()
        with contextlib.suppress(Exception, pytest.skip.Exception, pytest.fail.Exception):
            function(**arguments)
        if recorded:
            model, options = recorded[0]
            yield outcome_of(partial(import_model, **options), model)


def _called(function: FunctionType) -> tuple[str, ...]:
    """Return the names that functions of a test's module use which it calls."""
    used = [function.__globals__.get(name) for name in function.__code__.co_names]
    return tuple(name for each in used if isinstance(each, FunctionType) for name in each.__code__.co_names)


def tests_of(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    for name, function in sorted(vars(module).items()):
        if name.startswith("test_") and isinstance(function, FunctionType):
            yield name, function


def load_tests(path: Path) -> ModuleType:
    """Return a module of tests; other folders have some of its name."""
    specification = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def cases_of(function: FunctionType) -> Iterator[dict[str, object]]:
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


def outcome_of(imported: Callable[..., tuple[ir.Module, ParameterStore]], model: object) -> str:
    """Return the imported module with its constants, or the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module, store = imported(model)
        except Exception as error:  # of what tests compile some is refused elsewhere
            return f"{type(error).__name__}: {error}"
    return f"{module}{[(name, store.get(name).dtype, store.get(name).shape) for name in store]}"


SNAPSHOTS: dict[str, Callable[[], Iterable[str]]] = {
    "frontends/onnx/imported_models.txt": models,
}
"""The tables, below `test`."""
