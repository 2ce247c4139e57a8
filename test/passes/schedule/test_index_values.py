"""Index expressions in loops inside of others: where they begin is emitted once, outside."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.value import Value, integer_of
from mirlo.passes.schedule.loops import for_loop
from mirlo.passes.schedule.primitives.index import LoopValues

ROW, STEP, TAP = 0, 1, 2
POSITION = IndexExpr({ROW: 64, STEP: 8, TAP: 1}, 5)


@pytest.fixture
def arguments() -> Iterator[list[Value]]:
    """Insert operations in a function of three indices."""
    with make_context(), ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("f", ([ir.IndexType.get()] * 3, []))
        block = function.add_entry_block()
        with ir.InsertionPoint(block):
            yield [Value(argument) for argument in block.arguments]


def products(block: ir.Block) -> list[str]:
    return [op.name for op in block.operations if op.name == "arith.muli"]


def test_a_loop_adds_to_the_start_of_an_expression(arguments: list[Value]) -> None:
    row, _, _ = arguments
    outer = LoopValues({ROW: row})
    start = outer.start(POSITION)

    def body(step: Value) -> None:
        position = outer.inside({STEP: step, TAP: step}).emit(POSITION)
        chain = position.owner.operands[0].owner
        assert chain.operands[0] == start and products(ir.InsertionPoint.current.block) == ["arith.muli"]

    for_loop(0, 8, 1, body)


def test_iterations_in_one_block_have_indices_of_their_own(arguments: list[Value]) -> None:
    row, *steps = arguments
    outer = LoopValues({ROW: row})
    positions = [outer.inside({STEP: step}).emit(IndexExpr({ROW: 64, STEP: 8})) for step in steps]
    scaled = [position.owner.operands[1].owner.operands[0] for position in positions]
    assert scaled == steps


def test_iterations_that_are_numbers_add_to_the_constant(arguments: list[Value]) -> None:
    row, step, _ = arguments
    outer = LoopValues({ROW: row})
    assert integer_of(outer.inside({STEP: 3, TAP: 2}).emit(IndexExpr({STEP: 8, TAP: 1}, 5))) == 31
    moved = outer.inside({STEP: step, TAP: 2}).emit(POSITION)
    start = moved.owner.operands[0]
    assert integer_of(start.owner.operands[1]) == 7
