"""Runs single operators: a table of cases becomes modules that are compiled and compared with numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import func, ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.dtypes import dtype_of_numpy
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS

PER_MODULE = 40


@dataclass
class Case:
    """One operator, its inputs, and the expected results."""

    name: str
    operands: Sequence[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    expected: Any = None
    rtol: float = 1e-5
    atol: float = 1e-5
    variadic: bool = False
    note: str = ""

    def __str__(self) -> str:
        shapes = "_".join("x".join(map(str, a.shape)) or "scalar" for a in self.operands if a is not None)
        kind = next((str(a.dtype) for a in self.operands if a is not None), "")
        attributes = "-".join(f"{k}={v}".replace(" ", "") for k, v in self.attributes.items())
        return "-".join(part for part in (self.name, kind, shapes, attributes, self.note) if part)

    @property
    def arrays(self) -> list[np.ndarray]:
        return [a for a in self.operands if a is not None]

    def check(self, results: Sequence[np.ndarray]) -> None:
        expected = self.expected() if callable(self.expected) else self.expected
        wanted = expected if isinstance(expected, (tuple, list)) else [expected]
        assert len(results) == len(wanted)
        for found, reference in zip(results, wanted, strict=True):
            reference = np.asarray(reference)
            assert found.shape == reference.shape
            if found.dtype.kind in "biu":
                np.testing.assert_array_equal(found, reference)
            else:
                np.testing.assert_allclose(
                    found.astype(np.float64), reference.astype(np.float64), rtol=self.rtol, atol=self.atol
                )


def run(cases: Sequence[Case]) -> list[tuple[np.ndarray, ...]]:
    """Return the results of all cases, computed by one compiled module."""
    with make_context(), ir.Location.unknown():
        module = ir.Module.create()
        types = [_type(a).to_mlir() for case in cases for a in case.arrays]
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get(types, []))
        entry = main.add_entry_block()
        counts: list[int] = []
        with ir.InsertionPoint(entry):
            made = _build(cases, list(entry.arguments), counts)
            func.ReturnOp(made)
        main.operation.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, [v.type for v in made]))
        executable = mirlo.compile(module)
    made = executable(*(a for case in cases for a in case.arrays))
    outputs = list(made) if isinstance(made, (tuple, list)) else [made]
    return [tuple(outputs[sum(counts[:i]) : sum(counts[: i + 1])]) for i in range(len(cases))]


def _type(array: np.ndarray) -> TensorType:
    found = dtype_of_numpy(array.dtype)
    assert found is not None, array.dtype
    return TensorType(array.shape, found)


def _build(cases: Sequence[Case], arguments: list[Any], counts: list[int]) -> list[Any]:
    given = iter(arguments)
    results: list[Any] = []
    for case in cases:
        values = [None if a is None else next(given) for a in case.operands]
        made = OPS[case.name].make(*([values] if case.variadic else values), **case.attributes)
        produced = list(made) if isinstance(made, tuple) else [made]
        counts.append(len(produced))
        results += produced
    return results


class Runner:
    """Compiles the selected cases of a table in batches, on demand."""

    def __init__(self, cases: Sequence[Case]):
        self.cases = list(cases)
        self._results: dict[int, Any] = {}

    @property
    def parametrize(self) -> pytest.MarkDecorator:
        """Return the mark of a test of each case; a sample of them has every operator, if it is large enough."""
        cases = [(case.name, index) for index, case in enumerate(self.cases)]
        return pytest.mark.parametrize(("operator", "index"), cases, ids=[str(case) for case in self.cases])

    def check(self, index: int, tested: Sequence[int]) -> None:
        """Check a case, which is one of those that are tested."""
        if index not in self._results:
            at = tested.index(index)
            self._run_batch(tested[at - at % PER_MODULE :][:PER_MODULE])
        results = self._results[index]
        if isinstance(results, Exception):
            raise results
        self.cases[index].check(results)

    def _run_batch(self, batch: Sequence[int]) -> None:
        cases = [self.cases[index] for index in batch]
        try:
            results: list[Any] = list(run(cases))
        except Exception:
            results = [_alone(case) for case in cases]  # one of them fails: find out which
        self._results.update(zip(batch, results, strict=True))


def _alone(case: Case) -> Any:
    try:
        return run([case])[0]
    except Exception as error:
        return error


Reference = Callable[..., Any]


def f32(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Return normally distributed numbers."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def ints(low: int, high: int, *shape: int, dtype: Any = np.int64, seed: int = 0) -> np.ndarray:
    """Integers of low to high - 1."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)
