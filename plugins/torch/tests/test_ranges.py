"""Ranges of numbers, `arange` and `linspace`, of all element types, against PyTorch."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")

from mirlo_torch.ops.create import MAX_TABLE  # noqa: E402
from module_cases import Calls  # noqa: E402

import mirlo  # noqa: E402

KINDS = (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8)
X = torch.zeros(1)


def _require_same(calls: list[tuple[Any, ...]], function: Any) -> None:
    """Compare all calls of a function with numbers with PyTorch, in one program."""
    module = Calls(lambda x: [function(*numbers) + x.to(numbers[-1]) for numbers in calls]).eval()
    found = mirlo.compile(module, args=(X,), cache=False).torch(X)
    for call, one, other in zip(calls, found, module(X), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-5, msg=lambda text, call=call: f"{call}: {text}")


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_arange_with_fractions(kind: Any) -> None:
    """Operands of integers are truncated, the number of elements is computed before that."""
    rows = [(0.5, 7.9, 1.5), (2.1, 9.9, 2.7), (1, 5, 1.0), (3.0, 3.0, 1.0)]
    if kind is not torch.uint8:
        rows += [(2.1, -2.9, -1.0), (-4.5, 4.5, 1.9), (7.9, -7.9, -3.3)]
    _require_same([(*row, kind) for row in rows], lambda *row: torch.arange(*row[:-1], dtype=row[-1]))


def test_long_ranges() -> None:
    """Ranges beyond the size of a table are computed in the call."""
    most = MAX_TABLE + 7
    calls = [(start, most, 1.0, kind) for start, kind in product((0.5, 3), (torch.int64, torch.float64))]
    _require_same(calls, lambda *row: torch.arange(*row[:-1], dtype=row[-1]))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_linspace(kind: Any) -> None:
    """Integers are those of PyTorch's kernel, which computes each half from its end: its decomposition differs.

    Quotients that are whole depend on whether the processor fuses products and sums; there are none here.
    """
    ends = (0, 4.3, 50) if kind is torch.uint8 else (-3, 4.3, 50)
    calls = [(*pair, count, kind) for pair in product(ends, repeat=2) for count in (1, 50)]
    _require_same(calls, lambda *row: torch.linspace(*row[:-1], dtype=row[-1]))


def test_linspace_between_tensors() -> None:
    function = Calls(lambda x, y: (torch.linspace(x, y, 9), torch.linspace(x, 4, 9), torch.linspace(1.5, y, 9)))
    given = torch.tensor(-2.5), torch.tensor(7.25)
    found = mirlo.compile(function.eval(), args=given, cache=False).torch(*given)
    torch.testing.assert_close(found, function(*given))


def test_a_python_float_is_an_input() -> None:
    """Dynamo makes f64 tensors of Python's floats, which a primitive converts."""
    torch._dynamo.reset()
    run = torch.compile(lambda x, s: x * s + s, backend="mirlo", dynamic=True, options={"strict": True, "cache": False})
    for number in (0.5, 2.5, 3.25):
        torch.testing.assert_close(run(torch.ones(3, 2), number), torch.ones(3, 2) * number + number)
