"""Tables of checksums: what the compiler and its tools make of many small cases, or of all cases of a file of tests.

A checksum notices every change: an operation, an operand, a word of an error. What a line is about says which change
it was; the difference of a table belongs to the review of what caused it.
"""

from __future__ import annotations

import importlib.util
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from zlib import crc32

from mirlo.dialects.bindings import ir
from mirlo.runtime.params import ParameterStore


def checksum(value: object) -> str:
    """Return a checksum of bytes, or of a value's printed text."""
    return f"{crc32(value if isinstance(value, bytes) else str(value).encode()):08x}"


def assert_snapshot(path: Path, lines: Iterable[str], write: str) -> None:
    """Compare lines with those of a table, which the command `write` writes again."""
    recorded = path.read_text(encoding="utf-8").splitlines()
    current = list(lines)
    if current != recorded:
        changed = [line for line in recorded if line not in set(current)]
        added = [line for line in current if line not in set(recorded)]
        shown = "\n".join([*(f"- {line}" for line in changed[:20]), *(f"+ {line}" for line in added[:20])])
        raise AssertionError(f"{write} writes this table again; it differs:\n{shown}")


def load_tests(path: Path) -> ModuleType:
    """Return a module of tests; other folders have some of its name."""
    specification = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def tests_of(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """Yield the test functions of a module, by name."""
    for name, function in sorted(vars(module).items()):
        if name.startswith("test_") and isinstance(function, FunctionType):
            yield name, function


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
