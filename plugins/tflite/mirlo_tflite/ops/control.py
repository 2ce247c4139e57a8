"""Branches, loops and calls, and operations that other tools leave in programs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mirlo.extend.frontend import Tensor, UnsupportedOperation
from mirlo_tflite.operation import TosaOperation
from mirlo_tflite.registry import CONVERTERS, REFUSED, converter


@converter("call")
def call(op: TosaOperation) -> Sequence[Tensor]:
    """Convert a call by inlining the function."""
    return op.builder.call(op.text("callee"), op.operands)


@converter("cond_if")
def cond_if(op: TosaOperation) -> Sequence[Tensor]:
    flag, *values = op.operands
    then, otherwise = (region.blocks[0] for region in op.op.regions)
    fills = [lambda block=block: op.builder.block(block, values, op.scope) for block in (then, otherwise)]
    known = flag.known_sizes
    if known is not None:
        return fills[0]() if known[0] else fills[1]()
    return op.builder.choose(flag.reshape(()), op.declared_parts(), fills)


@converter("while_loop")
def while_loop(op: TosaOperation) -> Sequence[Tensor]:
    condition, body = (region.blocks[0] for region in op.op.regions)
    return op.builder.repeat(
        op.operands,
        lambda carried: op.builder.block(condition, carried, op.scope)[0].reshape(()),
        lambda carried: op.builder.block(body, carried, op.scope),
    )


@converter("tf.If")
def tf_if(op: TosaOperation) -> Sequence[Tensor]:
    """Convert a branch of TensorFlow Lite, whose functions the conversion to TOSA keeps."""
    flag, *values = op.operands
    fills = [partial(op.builder.call, op.text(name), values) for name in ("then_branch", "else_branch")]
    known = flag.known_sizes
    if known is not None:
        return fills[0]() if known[0] else fills[1]()
    return op.builder.choose(flag.reshape(()), op.declared_parts(), fills)


@converter("tf.While")
def tf_while(op: TosaOperation) -> Sequence[Tensor]:
    """Convert a loop of TensorFlow Lite, whose functions the conversion to TOSA keeps."""
    condition, body = op.text("cond"), op.text("body")
    return op.builder.repeat(
        op.operands,
        lambda carried: op.builder.call(condition, carried)[0].reshape(()),
        lambda carried: op.builder.call(body, carried),
    )


@converter("tfl.densify")
def densify(op: TosaOperation) -> Tensor:
    """Convert `densify` of weights that were made dense before the conversion to TOSA."""
    return op.operands[0]


@converter("custom")
def custom(op: TosaOperation) -> Tensor | Sequence[Tensor]:
    """Convert an operation that TOSA does not have, if there is a converter of its domain and name."""
    name = f"{op.text('domain_name')}.{op.text('operator_name')}"
    if name not in CONVERTERS:
        raise UnsupportedOperation(
            f"is the operator '{name}', which TOSA does not have: a plug-in converts it with "
            f"mirlo.extend.frontend.tosa_converter('{name}')"
        )
    return CONVERTERS[name](op)


REFUSED.update(
    dict.fromkeys(
        ("cast_from_block_scaled", "cast_to_block_scaled", "conv2d_block_scaled", "matmul_t_block_scaled",
         "reshape_block_scaled", "row_gather_block_scaled"), "has blocks with a scale each, which is not supported",
    )
)  # fmt: skip
REFUSED["tfl.pseudo_sparse_const"] = (
    "is a constant in TensorFlow Lite's sparse format: give the .tflite file itself, whose constants are made dense"
)
