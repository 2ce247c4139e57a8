"""Import of TOSA: the parts that programs of other dialects do not need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirlo.extend.frontend import (
    DTYPES,
    ParameterStore,
    ProgramImport,
    Scope,
    Tensor,
    TensorType,
    UnsupportedOperation,
    convert_by,
    dims_of,
    ir,
)
from mirlo_tflite.errors import TosaImportError
from mirlo_tflite.operation import TosaImporter, TosaOperation
from mirlo_tflite.registry import find_converter
from mirlo_tflite.states import States

SHAPE = "!tosa.shape<"
WIDE = "i48"
"""Accumulators of products of 16-bit integers, which relax has in i64."""


class TosaImport(ProgramImport, TosaImporter):
    """The import of one program, in which shapes are vectors of sizes."""

    NAMESPACE = "tosa"
    RETURNS = ("func.return", "tosa.yield")
    ERROR = TosaImportError
    INPUT_NAMES = ("tosa.tensor_name", "ml_program.identifier", "tf_saved_model.index_path")
    OUTPUT_NAMES = INPUT_NAMES

    def __init__(self, name: str, store: ParameterStore, functions: Mapping[str, ir.Operation], held: States) -> None:
        super().__init__(name, store, functions)
        self.held = held

    @property
    def states(self) -> Mapping[str, TensorType]:
        """Return the variables that the program writes."""
        return {name: state.type for name, state in self.held.items() if state.is_written}

    def convert(self, op: ir.Operation, name: str, scope: Scope) -> Tensor | Sequence[Tensor]:
        """Convert an operation."""
        view = TosaOperation(op, name, [scope[value] for value in op.operands], self)
        view.scope = scope
        return convert_by(find_converter(name), view)

    def part_types(self, type_: ir.Type) -> tuple[TensorType, ...]:
        """Return the type of a value: a shape is a vector of i64."""
        text = str(type_)
        if text.startswith(SHAPE):
            return (TensorType.of((int(text[len(SHAPE) : -1]),), "i64"),)
        tensor_type = self.input_type(type_)
        if tensor_type is None:
            raise UnsupportedOperation(f"has the type {type_}, which is not supported")
        return (tensor_type,)

    def input_type(self, type_: ir.Type) -> TensorType | None:
        """Return the type of an input, with accumulators of 48 bits as i64."""
        if isinstance(type_, ir.RankedTensorType) and str(type_.element_type) == WIDE:
            return TensorType(dims_of(type_), DTYPES["i64"])
        return TensorType.from_mlir(type_)
