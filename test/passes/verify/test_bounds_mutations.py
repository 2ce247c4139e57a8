"""Kernels that are in bounds, changed at one place so that they are not: `verify-bounds` finds each change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mirlo.dialects.bindings import arith, ir
from mirlo.dialects.core.surgery import replace_op
from mirlo.dialects.core.symbols import symbol_name
from mirlo.extend.ops import make_context
from mirlo.passes.bounds.accesses import ACCESSES
from mirlo.passes.bounds.calls import find_calls
from mirlo.passes.bounds.verify_bounds import verify_kernel
from mirlo.passes.lower.calls import find_all

KERNELS = Path(__file__).with_name("verify-bounds.mlir")
LEAST_SHARE = 0.95
"""Of the changes, how many must be found."""

HARMLESS = {
    ("tiles", "a longer loop"),  # the start is clamped, and the other access is guarded
    ("mask", "a longer loop"),  # all lanes are masked
    ("column", "a longer loop"),  # all lanes of one more block of rows are masked
    ("position", "no guard"),  # what is stored is an index either way
    ("ring", "no guard"),  # the position is always 0
}
"""Changes after which all accesses are still in bounds."""
Change = Callable[[], None]


def _changes(function: ir.Operation) -> Iterator[tuple[str, Change]]:
    """Yield what can be changed in a kernel, each once, and how."""
    found = find_all(function, *ACCESSES, "arith.minsi", "arith.maxsi", "scf.for", "scf.if", "arith.muli")
    for name in ACCESSES:
        for op in found[name]:
            indices = ACCESSES[name](op).indices
            first = next((i for i, value in enumerate(op.operands) if isinstance(value.type, ir.MemRefType)), 0) + 1
            for position in range(first, first + len(indices)):
                yield "one too far", _add(op, position, 1)
                yield "one too early", _add(op, position, -1)
    for name in ("arith.minsi", "arith.maxsi"):
        for op in found[name]:
            yield "no clamp", lambda op=op: replace_op(op, [op.operands[0]])
    for op in found["scf.for"]:
        yield "a longer loop", _lengthen(op)
    for op in found["scf.if"]:
        yield "no guard", lambda op=op: _set(op, 0, lambda: arith.ConstantOp(ir.IntegerType.get_signless(1), 1).result)
    for op in found["arith.muli"]:
        yield "a larger stride", _add(op, 1, 1)


def _set(op: ir.Operation, position: int, value: Callable[[], ir.Value]) -> None:
    with ir.InsertionPoint(op), op.location:
        op.operands[position] = value()


def _add(op: ir.Operation, position: int, number: int) -> Change:
    def value() -> ir.Value:
        return arith.AddIOp(op.operands[position], arith.ConstantOp(ir.IndexType.get(), number)).result

    return lambda: _set(op, position, value)


def _lengthen(op: ir.Operation) -> Change:
    return lambda: _set(op, 1, lambda: arith.AddIOp(op.operands[1], op.operands[2]).result)


def _kernels(module: ir.Module) -> dict[str, ir.Operation]:
    functions = (member.operation for member in module.body.operations)
    return {symbol_name(op): op for op in functions if "tir.prim_func" in op.attributes}


@pytest.fixture(name="context", scope="module")
def _context() -> Iterator[None]:
    with make_context(), ir.Location.unknown():
        yield


def test_each_change_is_found(context: None) -> None:
    text = KERNELS.read_text(encoding="utf-8")
    missed, total = [], 0
    original = ir.Module.parse(text)
    for name, kernel in _kernels(original).items():
        for number, (what, _) in enumerate(_changes(kernel)):
            if (name, what) in HARMLESS:
                continue
            module = ir.Module.parse(text)
            function = _kernels(module)[name]
            _, change = list(_changes(function))[number]
            change()
            total += 1
            if not verify_kernel(function, find_calls(module.operation).get(name))[0].unproven:
                missed.append(f"@{name}: {what} (change {number})")
    assert total > 40
    assert len(missed) <= (1 - LEAST_SHARE) * total, missed


def test_nothing_is_found_without_changes(context: None) -> None:
    module = ir.Module.parse(KERNELS.read_text(encoding="utf-8"))
    calls = find_calls(module.operation)
    for name, function in _kernels(module).items():
        assert not verify_kernel(function, calls.get(name))[0].unproven
