"""Constants, and variables that are kept from call to call."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.frontend import Tensor, TensorType, UnsupportedOperation, ir, read_dense
from mirlo_tflite.operation import TosaOperation
from mirlo_tflite.registry import converter


@converter("const")
def const(op: TosaOperation) -> Tensor:
    """Convert `const`; a splat is kept as one element."""
    declared, values = op.declared(), op.op.attributes["values"]
    if getattr(values, "is_splat", False):
        one = TensorType((), declared.dtype)
        element = ir.DenseElementsAttr.get_splat(
            ir.RankedTensorType.get([], values.type.element_type), values.get_splat_value()
        )
        return op.constant(read_dense(element, one), declared, declared.shape)
    return op.constant(read_dense(values, declared), declared)


@converter("variable_read")
def variable_read(op: TosaOperation) -> Tensor:
    name = op.text("name")
    state = op.builder.held.get(name)
    if state is None:
        raise UnsupportedOperation(f"reads '{name}', which the program does not declare")
    if state.is_written:
        return op.builder.variables[name]
    if state.initial is None:
        raise UnsupportedOperation(f"reads '{name}', which has no value and is never written")
    return op.constant(state.initial, state.type)


@converter("variable_write")
def variable_write(op: TosaOperation) -> Sequence[Tensor]:
    """Convert `variable_write`: later operations, and the next call, see the value."""
    name, value = op.text("name"), op.operands[0]
    if op.builder.depth:
        raise UnsupportedOperation(f"writes '{name}' in a branch or a loop: return the value, and write it after that")
    expected = op.builder.held[name].type
    if value.type != expected:
        raise UnsupportedOperation(f"writes {value.type} to '{name}', which is {expected}")
    op.builder.variables[name] = value
    return []
