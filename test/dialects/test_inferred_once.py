"""Equal operators are inferred and verified once in a context; others, and wrong ones, each time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core import op as operations
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS


@pytest.fixture
def block() -> Iterator[ir.Block]:
    """Yield a block with arguments f32[n, 8], f32[n, 8], f32[8, 4] and i64[n]."""
    kinds = [TensorType.of(*each) for each in ((("n", 8), "f32"), (("n", 8), "f32"), ((8, 4), "f32"), (("n",), "i64"))]
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(
            f"func.func @main({', '.join(f'%a{i}: {kind.to_mlir()}' for i, kind in enumerate(kinds))}) {{ return }}"
        )
        block = module.body.operations[0].regions[0].blocks[0]
        with ir.InsertionPoint.at_block_terminator(block):
            yield block


@pytest.fixture
def inferred(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the operators that are inferred, in order."""
    names: list[str] = []
    infer = operations._infer

    def counted(cls: type[operations.DialectOp], *rest: object) -> object:
        names.append(cls.OPERATION_NAME)
        return infer(cls, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(operations, "_infer", counted)
    return names


def test_equal_operators_are_inferred_once(block: ir.Block, inferred: list[str]) -> None:
    x, y, w, _ = block.arguments
    for left, right in ((x, y), (y, x), (x, x)):
        OPS["add"].make(left, right)
        OPS["matmul"].make(left, w)
    assert inferred == ["relax.add", "relax.matmul"]
    OPS["matmul"].make(x, y, transpose_rhs=True)  # another attribute, other types
    OPS["matmul"].make(y, x, transpose_rhs=True)
    assert inferred == ["relax.add", "relax.matmul", "relax.matmul"]


def test_verification_infers_no_equal_operator_again(block: ir.Block, inferred: list[str]) -> None:
    x, y, w, _ = block.arguments
    for _ in range(3):
        OPS["matmul"].make(OPS["add"].make(x, y), w)
    module = block.owner.operation.parent
    assert module.verify() and module.verify()
    assert len(inferred) == 2


def test_wrong_operators_are_refused_each_time(block: ir.Block, inferred: list[str]) -> None:
    x, _, w, _ = block.arguments
    for _ in range(2):
        with pytest.raises(OpError):
            OPS["matmul"].make(w, x)
    assert inferred == ["relax.matmul", "relax.matmul"]


def test_a_changed_attribute_is_verified(block: ir.Block) -> None:
    x, y, _, _ = block.arguments
    module = block.owner.operation.parent
    good = OPS["softmax"].make(x, axis=1)
    other = OPS["softmax"].make(y, axis=1)
    assert module.verify()
    other.owner.attributes["axis"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 7)
    with pytest.raises(ir.MLIRError, match="axis"):
        module.verify()
    assert good.owner.verify()


def test_conditions_are_stated_for_each_operator(block: ir.Block) -> None:
    x, y, _, index = block.arguments
    squeezed = [OPS["squeeze"].build(each, axes=[0]) for each in (x, y)]
    first, second = (each.size_conditions() for each in squeezed)
    assert first and first == second == squeezed[0].size_conditions()
    assert not OPS["cast"].build(index, dtype="f32").size_conditions()


def test_an_operator_without_operands_is_verified_outside_of_a_context() -> None:
    """The front end of PyTorch prints a module that way: its text is verified, and it may begin with zeros."""
    context = make_context()
    with context, ir.Location.unknown():
        module = ir.Module.parse(
            'func.func @main() -> tensor<2xf32> { %0 = "relax.full"() {shape = [2], value = 1.0 : f64, dtype = f32}'
            " : () -> tensor<2xf32> return %0 : tensor<2xf32> }"
        )
        operations._VERIFIED.pop(context, None)
    assert ir.Context.current is None and "relax.full" in module.operation.get_asm() and module.operation.verify()
