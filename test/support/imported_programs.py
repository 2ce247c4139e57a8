"""What the import makes of the models of tests, also in cases that no sample has.

Tests compile a sample of their cases and compare numbers; here the cases are imported only, up to the first
compilation of each, without what tests compare them with.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from types import FunctionType

import pytest
from snapshots import TESTS

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.frontends.onnx import import_model
from mirlo.runtime.params import ParameterStore
from mirlo.testing.snapshots import cases_of, checksum, load_tests, outcome_of, tests_of

Importer = Callable[..., tuple[ir.Module, ParameterStore]]
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
    for name, compiled in recorded_models():
        yield f"{name}: {' '.join(checksum(outcome_of(importer, model)) for importer, model in compiled)}"


@cache
def recorded_models() -> list[tuple[str, list[tuple[Importer, object]]]]:
    """Return tests of ONNX by name, each with the models that its first cases compile, and how they are imported."""
    tests: list[tuple[str, list[tuple[Importer, object]]]] = []
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
                own: list[tuple[Importer, object]] = []
                if not any(name in function.__code__.co_names for name in ("fork", "Process")):
                    own = list(_models(function, recorded))
                if own:
                    tests.append((f"{path.stem} {test}", own))
    return tests


class Recorded(Exception):
    """A test has come to its first compilation."""


def _models(
    function: FunctionType, recorded: list[tuple[object, dict[str, object]]]
) -> Iterator[tuple[Importer, object]]:
    """Yield the models that some cases of a test compile first, and how they are imported."""
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
            yield partial(import_model, **options), model


def _called(function: FunctionType) -> tuple[str, ...]:
    """Return the names that functions of a test's module use which it calls."""
    used = [function.__globals__.get(name) for name in function.__code__.co_names]
    return tuple(name for each in used if isinstance(each, FunctionType) for name in each.__code__.co_names)


SNAPSHOTS: dict[str, Callable[[], Iterable[str]]] = {
    "frontends/onnx/imported_models.txt": models,
}
"""The tables, below `test`."""
