"""Calls, branches and loops; composites and custom calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.extend.frontend import Tensor, TensorType, UnsupportedOperation, ir, where
from mirlo_stablehlo.operation import StablehloOperation
from mirlo_stablehlo.ops.linear_algebra import convert_lapack, lapack_function
from mirlo_stablehlo.registry import COMPLEX, CONVERTERS, converter, of_parts

IDENTITIES = ("annotate_device_placement",)
"""Custom calls that only constrain the sharding or placement of a tensor."""


@of_parts
@converter("call")
def call(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert a call by inlining the function."""
    return op.builder.call(op.text("callee"), op.operands)


@of_parts
@converter("composite")
def composite(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert a composite by its name, or else by its decomposition."""
    known = (COMPLEX if op.is_complex else CONVERTERS).get(op.text("name"))
    if known is not None:
        result = known(op)
        return [result] if isinstance(result, Tensor) else list(result)
    return op.builder.call(op.text("decomposition"), op.operands)


@of_parts
@converter("custom_call")
def custom_call(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert a custom call; those that check sizes become checks."""
    name = op.text("call_target_name")
    if name in IDENTITIES and len(op.parts) == 1:
        return list(op.operands)
    of_call = CONVERTERS.get(f"custom_call.{name}")
    if of_call is not None:
        result = of_call(op)
        return [result] if isinstance(result, Tensor) else list(result)
    if name == "shape_assertion":
        _require(op)
        return []
    if "." in name and name in CONVERTERS and not op.is_complex:
        result = CONVERTERS[name](op)
        return [result] if isinstance(result, Tensor) else list(result)
    convert = None if op.is_complex else lapack_function(name)
    if convert is not None:
        return convert_lapack(op, convert)
    raise UnsupportedOperation(
        f"calls '{name}', a function of another run time: "
        f"{_ADVICE.get(name.partition('_')[0], 'it has to be written in operations that the program has')}"
    )


_ADVICE = {
    "lapack": "of LAPACK, real LU and Cholesky factors and triangular systems are supported",
    "cu": "export for CPUs: jax.export.export(f, platforms=['cpu'])",
    "xla": "Python callbacks cannot be part of a compiled model",
}


def _require(op: StablehloOperation) -> None:
    """Check at run time a condition of JAX on sizes that is not known to hold."""
    known = op.operands[0].known_sizes
    message = op.text("error_message", "a size does not fit")
    if known is not None:
        if not known[0]:
            raise UnsupportedOperation(f"the shapes do not fit: {message}")
        return
    yes, no = (op.constant(number, TensorType.of((), "i64").dtype) for number in (1, -1))
    flag = where(op.operands[0], yes, no).reshape((1,))
    op.builder.require_values(flag, 1, message.partition(" Using ")[0])


@of_parts
@converter("if")
def if_(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `if`, whose condition is a bool."""
    blocks = [region.blocks[0] for region in op.op.regions]
    return _chosen(op, op.operands[0], blocks[0], lambda: op.builder.block(blocks[1], [], op.scope))


@of_parts
@converter("case")
def case(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `case`: an index out of range selects the last branch."""
    blocks = [region.blocks[0] for region in op.op.regions]
    return _branches(op, blocks, 0)


def _branches(op: StablehloOperation, blocks: list[ir.Block], number: int) -> list[Tensor]:
    known = op.operands[0].known_sizes
    if known is not None and isinstance(known[0], int):
        at = known[0] if 0 <= known[0] < len(blocks) else len(blocks) - 1
        return op.builder.block(blocks[at], [], op.scope)
    if number == len(blocks) - 1:
        return op.builder.block(blocks[number], [], op.scope)
    here = op.constant(number, op.type(0).dtype)
    flag = op.operands[0].equals(here)
    return _chosen(op, flag, blocks[number], lambda: _branches(op, blocks, number + 1))


def _chosen(
    op: StablehloOperation, flag: Tensor, then: ir.Block, otherwise: Callable[[], Sequence[Tensor]]
) -> list[Tensor]:
    """Emit an scf.if of a branch and the function that emits the other one."""
    return op.builder.choose(flag, op.declared_parts(), (lambda: op.builder.block(then, [], op.scope), otherwise))


@of_parts
@converter("tuple", "optimization_barrier", "after_all", "create_token")
def same_parts(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert operations without computation: the parts of the result are those of the operands."""
    return op.operands


@of_parts
@converter("get_tuple_element")
def get_tuple_element(op: StablehloOperation) -> Sequence[Tensor]:
    (tuple_type,) = (value.type for value in op.op.operands)
    types = [tuple_type.get_type(i) for i in range(tuple_type.num_types)]
    return op.builder.grouped(types, op.operands, "a tuple has")[op.integer("index")]


@of_parts
@converter("while")
def while_(op: StablehloOperation) -> Sequence[Tensor]:
    condition, body = (region.blocks[0] for region in op.op.regions)
    return op.builder.repeat(
        op.operands,
        lambda carried: op.builder.block(condition, carried, op.scope)[0],
        lambda carried: op.builder.block(body, carried, op.scope),
    )
