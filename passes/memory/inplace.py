"""Which inputs of a prim function its output may overwrite."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.tir.buffers import tensor_bytes
from mirlo.dialects.tir.view import BlockView, OperandView, PrimView

INPLACE = "tir.inplace"
"""Attribute of a prim function: positions of the inputs that may share their memory with its output.

Each element of such an input is read only for the same element of the output. A schedule that computes an element of
the output twice must take the attribute away.
"""


def annotate_inplace(view: PrimView) -> None:
    """Write `tir.inplace` on a prim function in tensor form, where there are such inputs."""
    positions = inplace_inputs(view)
    if positions:
        view.op.attributes[INPLACE] = ir.DenseI64ArrayAttr.get(positions)


def inplace_inputs(view: PrimView) -> list[int]:
    """Positions of the inputs that the output may overwrite: functions of one elementwise block have some."""
    if len(view.blocks) != 1 or view.others or len(view.returned) != 1:
        return []
    block = view.blocks[0]
    if block.is_reduction or len(block.outputs) != 1 or view.returned[0] != block.outputs[0].value:
        return []
    output = block.outputs[0]
    size = _bytes(output.value)
    return [
        i
        for i, argument in enumerate(view.arguments)
        if _bytes(argument) == size and _reads_in_step(block, argument, output)
    ]


def _bytes(value: Any) -> Dim:
    return tensor_bytes(dims_of(value.type), value.type.element_type)


def _reads_in_step(block: BlockView, argument: Any, output: OperandView) -> bool:
    """Whether each element of the argument is read only where the same element of the output is computed."""
    reads = [operand for operand in block.inputs if operand.value == argument]
    return bool(reads) and all(
        not operand.is_opaque
        and operand.outside is None
        and operand.shape == output.shape
        and operand.map == output.map
        for operand in reads
    )


def inplace_of(function: Any) -> list[int]:
    """The inputs that a scheduled prim function allows to be overwritten."""
    attributes = function.operation.attributes
    return list(ir.DenseI64ArrayAttr(attributes[INPLACE])) if INPLACE in attributes else []
