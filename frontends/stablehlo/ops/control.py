"""Calls, branches and loops; operations that other systems define."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir, scf, tensor
from mirlo.dialects.core.dims import UNKNOWN
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.frontends.stablehlo.errors import UnsupportedOperation
from mirlo.frontends.stablehlo.operation import StablehloOperation
from mirlo.frontends.stablehlo.registry import CONVERTERS, converter
from mirlo.frontends.stablehlo.tensor import Tensor

IDENTITIES = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement")
"""Custom calls that say where a tensor is, not what it is."""


@converter("call")
def call(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert a call: the function's operations take its place."""
    return op.body.call(op.text("callee"), op.operands)


@converter("composite")
def composite(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert an operation that says how it is computed, if there is none of its name."""
    known = CONVERTERS.get(op.text("name"))
    if known is not None:
        made = known(op)
        return [made] if isinstance(made, Tensor) else list(made)
    return op.body.call(op.text("decomposition"), op.operands)


@converter("custom_call")
def custom_call(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert a call of a function that the program does not have; those that check sizes become checks."""
    name = op.text("call_target_name")
    if name in IDENTITIES and len(op.operands) == 1:
        return list(op.operands)
    if name == "shape_assertion":
        _require(op)
        return []
    raise UnsupportedOperation(
        f"calls '{name}', a function of another run time: "
        f"{_ADVICE.get(name.partition('_')[0], 'it has to be written in operations that the program has')}"
    )


_ADVICE = {
    "lapack": "decompositions and solvers of matrices are LAPACK's on CPUs, and not supported",
    "cu": "export for CPUs: jax.export.export(f, platforms=['cpu'])",
    "xla": "Python callbacks cannot be part of a compiled model",
}


def _require(op: StablehloOperation) -> None:
    """Check in the call what JAX requires of sizes, where it is not known already."""
    known = op.operands[0].known_sizes
    message = op.text("error_message", "a size does not fit")
    if known is not None:
        if not known[0]:
            raise UnsupportedOperation(f"the shapes do not fit: {message}")
        return
    yes, no = (op.constant(number, TensorType.of((), "i64").dtype) for number in (1, -1))
    flag = op.emit("reshape", op.emit("where", op.operands[0], yes, no), shape=(1,))
    OPS["bind_dims"].build(
        flag, symbols=[op.body.new_symbol("checked")], bounds=[UNKNOWN], what=message.partition(" Using ")[0],
        result_types=[],
    )  # fmt: skip


@converter("if")
def if_(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `if`, whose condition is a bool."""
    blocks = [region.blocks[0] for region in op.op.regions]
    return _chosen(op, op[0], blocks[0], lambda: op.body.block(blocks[1], [], op.scope))


@converter("case")
def case(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `case`: an index outside of the branches takes the last one."""
    blocks = [region.blocks[0] for region in op.op.regions]
    return _branches(op, blocks, 0)


def _branches(op: StablehloOperation, blocks: list[ir.Block], number: int) -> list[Tensor]:
    known = op.operands[0].known_sizes
    if known is not None and isinstance(known[0], int):
        at = known[0] if 0 <= known[0] < len(blocks) else len(blocks) - 1
        return op.body.block(blocks[at], [], op.scope)
    if number == len(blocks) - 1:
        return op.body.block(blocks[number], [], op.scope)
    here = op.constant(number, op.type(0).dtype)
    flag = op.emit("equal", op.operands[0], here)
    return _chosen(op, flag, blocks[number], lambda: _branches(op, blocks, number + 1))


def _chosen(op: StablehloOperation, flag: ir.Value, then: ir.Block, otherwise: object) -> list[Tensor]:
    """Make an scf.if of a branch, and of what makes the other one."""
    types = [op.declared(i) for i in range(len(op.op.results))]
    if any(not found.is_static for found in types):
        raise UnsupportedOperation("has results with dynamic dims")
    condition = tensor.ExtractOp(flag, []).result
    mlir = [found.to_mlir() for found in types]
    made = ir.Operation.create("scf.if", operands=[condition], results=mlir, regions=2)
    for region, fill in zip(made.regions, (lambda: op.body.block(then, [], op.scope), otherwise), strict=True):
        block = region.blocks.append()
        with op.body.inside(block):
            values = [op.body.full(value) for value in fill()]  # type: ignore[operator]
            scf.YieldOp(values)
    return [op.tensor(value) for value in made.results]


@converter("while")
def while_(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `while`; what it carries keeps its shape."""
    inits = [op.body.full(operand) for operand in op.operands]
    types = [value.type for value in inits]
    made = ir.Operation.create("scf.while", operands=inits, results=types, regions=2)
    before, after = (region.blocks.append(*types) for region in made.regions)
    condition, body = (region.blocks[0] for region in op.op.regions)
    with op.body.inside(before):
        (goes_on,) = op.body.block(condition, [op.tensor(value) for value in before.arguments], op.scope)
        flag = tensor.ExtractOp(op.body.full(goes_on), []).result
        scf.ConditionOp(flag, list(before.arguments))
    with op.body.inside(after):
        values = op.body.block(body, [op.tensor(value) for value in after.arguments], op.scope)
        given = [op.body.full(value) for value in values]
        for index, (value, wanted) in enumerate(zip(given, types, strict=True)):
            if value.type != wanted:
                raise OpError(f"carries value {index} as {wanted}, but its body makes it {value.type}")
        scf.YieldOp(given)
    return [op.tensor(value) for value in made.results]
