"""Variables of a program, which keep their values between calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mirlo.extend.frontend import TensorType, blocks, ir, read_dense
from mirlo_tflite.errors import TosaImportError


@dataclass(frozen=True)
class StateVariable:
    """A variable of a program."""

    type: TensorType
    initial: np.ndarray | None
    """The initial value; None if the program does not define it."""
    is_written: bool
    """Whether a call writes it; it is a constant otherwise."""

    def first_value(self) -> np.ndarray:
        """Return the initial value; zeros if the program does not define it."""
        return np.zeros(self.type.static_shape, self.type.dtype.to_numpy()) if self.initial is None else self.initial


States = Mapping[str, StateVariable]


def find_states(module: ir.Module, name: str) -> States:
    """Return the variables of a module by name; `name` is that of the program, for errors."""
    inner = (op.operation for block in blocks(module.operation) for op in block.operations)
    written = {_symbol(op, "name") for op in inner if op.name == "tosa.variable_write"}
    states: dict[str, StateVariable] = {}
    for op in module.body.operations:
        if op.operation.name != "tosa.variable":
            continue
        symbol = _symbol(op.operation, "sym_name")
        initial = op.operation.attributes.get("initial_value", None)
        type_ = _type_of(op.operation, initial)
        if type_ is None or not type_.is_static:
            raise TosaImportError(f"{name}: variable '{symbol}' must be a tensor of numbers whose sizes are known")
        array = None if initial is None else read_dense(initial, type_)
        states[symbol] = StateVariable(type_, array, symbol in written)
    return states


def _type_of(op: ir.Operation, initial: ir.Attribute | None) -> TensorType | None:
    if initial is not None:
        return TensorType.from_mlir(initial.type)
    shape, element = op.attributes["var_shape"], ir.TypeAttr(op.attributes["type"]).value
    return TensorType.from_mlir(ir.RankedTensorType.get([int(dim) for dim in np.array(shape)], element))


def _symbol(op: ir.Operation, attribute: str) -> str:
    return str(op.attributes[attribute].value)
