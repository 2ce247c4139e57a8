"""Operators of SSA values: which operation each emits, and which none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirlo.dialects.bindings import arith, func, ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.value import FLOAT_PREDICATES, INT_PREDICATES, Value

N = D.parse("n")
CASES: dict[str, tuple[str, Callable[[Value], ir.Value], list[str]]] = {
    "no sum with zero": ("index", lambda x: x + 0, []),
    "no product with one": ("i32", lambda x: x * 1, []),
    "float zero, which changes -0.0": ("f32", lambda x: x + 0, ["arith.constant", "arith.addf"]),
    "float one": ("f32", lambda x: x * 1, ["arith.constant", "arith.mulf"]),
    "a number": ("index", lambda x: x * 4 + 1, ["arith.constant", "arith.muli", "arith.constant", "arith.addi"]),
    "a dim": ("index", lambda x: x * N, ["tir.size", "arith.muli"]),
    "a bound": ("index", lambda x: x.below(N), ["tir.size", "arith.cmpi"]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_operators_emit(name: str) -> None:
    kind, compute, wanted = CASES[name]
    with make_context(), ir.Location.unknown():
        function = func.FuncOp("f", ir.FunctionType.get([ir.Type.parse(kind)], []))
        block = function.add_entry_block()
        argument = Value(block.arguments[0])
        with ir.InsertionPoint(block):
            made = compute(argument)
        assert [op.operation.name for op in block.operations] == wanted
        assert wanted or made == argument


def test_numbers_of_predicates_are_those_of_mlir() -> None:
    """Comparisons are ordered, without `u` for integers, and those with `u` are true for NaN, as `ne` is."""
    integers = {str(each).removeprefix("s"): each.value for each in arith.CmpIPredicate}
    assert integers == INT_PREDICATES
    floats = {str(each): each.value for each in arith.CmpFPredicate}
    named = {"one": "one", "ne": "une", "unordered": "uno"}
    wanted = {name: floats[named.get(name, name if name.startswith("u") else f"o{name}")] for name in FLOAT_PREDICATES}
    assert wanted == FLOAT_PREDICATES
