"""The definition of a kernel that is written as loops: the meaning in numpy of its operator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, SymbolicDim, product
from mirlo.dialects.core.op import apply_meaning, class_of
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import array_meanings, meanings
from mirlo.dialects.tir.view import OPERATOR, is_prim_func
from mirlo.passes.exact.arithmetic import Arithmetic
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.field_number import NumberField
from mirlo.passes.exact.kernel_definition import BlockDefinition, KernelDefinition
from mirlo.passes.exact.memory import Array, GuardedBuffer, RandomMemory, number_of
from mirlo.passes.exact.operator_inputs import PREPARED
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.primes import P
from mirlo.passes.targets import find_target

MEANINGS = [Path(str(module.__file__)) for module in (array_meanings, meanings)]
"""Code that says what operators compute."""
ROUNDS = 4
"""The least rounds: which elements are moved and where depends on the order of residues, and on indices."""

POINTS_OF_STEP = 64
"""The points of compiled blocks that take as long as Python takes for an element: limits of sizes count points."""


def graph_of_operator(function: ir.Operation) -> ir.Operation | None:
    """Return a function with the operator that a prim function computes, as it was legalized; None without one.

    Where the operator is a target's, not one of relax, it is an empty function of operands and results with the
    operator's description. It is created where the insertion point is.
    """
    if OPERATOR not in function.attributes:
        return None
    described = ir.DictAttr(function.attributes[OPERATOR])
    operands, results = (
        [ir.TypeAttr(each).value for each in ir.ArrayAttr(described[name])] for name in ("operands", "results")
    )
    if not ir.StringAttr(described["name"]).value.startswith("relax."):
        return _described_function(function, described, [*operands, *results])
    attributes = ir.DictAttr(described["attributes"])
    kind = ir.FunctionType.get(operands, results)
    graph = ir.Operation.create(
        "func.func",
        attributes={"sym_name": ir.StringAttr.get(symbol_name(function)), "function_type": ir.TypeAttr.get(kind)},
        regions=1,
    )
    block = graph.regions[0].blocks.append(*operands, arg_locs=[function.location] * len(operands))
    with ir.InsertionPoint(block):
        op = ir.Operation.create(
            ir.StringAttr(described["name"]).value,
            results=results,
            operands=list(block.arguments),
            attributes={attributes[i].name: attributes[i].attr for i in range(len(attributes))},
        )
        ir.Operation.create("func.return", operands=list(op.results))
    return graph


def _described_function(function: ir.Operation, described: ir.DictAttr, parameters: list[ir.Type]) -> ir.Operation:
    kind = ir.FunctionType.get(parameters, [])
    attributes = {
        "sym_name": ir.StringAttr.get(symbol_name(function)),
        "function_type": ir.TypeAttr.get(kind),
        OPERATOR: described,
    }
    graph = ir.Operation.create("func.func", attributes=attributes, regions=1)
    with ir.InsertionPoint(graph.regions[0].blocks.append(*parameters, arg_locs=[function.location] * len(parameters))):
        ir.Operation.create("func.return")
    return graph


def definition_of(function: ir.Operation, constants: Sequence[Mapping[int, Array]] = ()) -> KernelDefinition:
    """Return the definition of a function: a prim function over tensors, one operator, or a target's operator."""
    if is_prim_func(function):
        return BlockDefinition(function, constants)
    if OPERATOR not in function.attributes:
        return OperatorDefinition(function, constants)
    name = ir.StringAttr(ir.DictAttr(function.attributes[OPERATOR])["name"]).value
    definition: KernelDefinition = find_target(name.partition(".")[0]).definitions()[name](function, constants)
    return definition


class DescribedDefinition(KernelDefinition):
    """An operator of a target, which its class evaluates; the function has its operands, then its results."""

    @property
    def description(self) -> ir.DictAttr:
        return ir.DictAttr(self.operation.attributes[OPERATOR])

    @property
    def attributes(self) -> ir.DictAttr:
        """Return the attributes of the operator."""
        return ir.DictAttr(self.description["attributes"])

    def values(self) -> tuple[Sequence[ir.Value], Sequence[ir.Value]]:
        arguments = list(self.operation.regions[0].blocks[0].arguments)
        count = len(ir.ArrayAttr(self.description["operands"]))
        return arguments[:count], arguments[count:]


class OperatorDefinition(KernelDefinition):
    """A function with one operator, which is evaluated by its meaning in numpy."""

    def values(self) -> tuple[Sequence[ir.Value], Sequence[ir.Value]]:
        return list(self.operation.regions[0].blocks[0].arguments), list(self.operator.results)

    @property
    def sources(self) -> Sequence[Path]:
        return MEANINGS

    @property
    def operator(self) -> ir.Operation:
        operation: ir.Operation = self.operation.regions[0].blocks[0].operations[0].operation
        return operation

    def dims(self) -> list[Dim]:
        return [*(dim for _, shape in self.parameters for dim in shape), *self.operator.opview.every_dim()]

    def points_at(self, sizes: Mapping[str, int]) -> int:
        shapes = [[number_of(dim, sizes) for dim in each.shape] for each in self.inputs]
        steps: int = class_of(self.operator).meaning_steps(shapes)
        return POINTS_OF_STEP * steps

    def rounds(self, sizes: Mapping[str, int], least: int) -> tuple[int, float]:
        return max(least, ROUNDS), 1.0

    def proven_bits(self, rounds: int, sizes: Mapping[str, int]) -> float:
        """Return those of sums and products of all elements: operators that only move them have a lower degree."""
        degree = max(1, *(math.prod(number_of(dim, sizes) for dim in each.shape) for each in self.inputs))
        return rounds * max(0.0, math.log2(P) - math.log2(2 * degree))

    def conditions(self) -> list[Dim]:
        conditions = [each.high - each.low for each in self.operator.opview.size_conditions()]
        if self.operator.name == "relax.nonzero":
            conditions.append(product(list(self.inputs[0].shape)) - self.outputs[0].shape[1])
        return conditions

    def prepare(self, inputs: Sequence[GuardedBuffer], sizes: Mapping[str, int], memory: RandomMemory) -> None:
        """Make inputs that the operator may be called with."""
        prepare = PREPARED.get(self.operator.name)
        if prepare is not None:
            prepare(self.operator, inputs, sizes, memory, {i for each in self.constants for i in each})

    def evaluate(
        self, arithmetic: Arithmetic, memory: RandomMemory, inputs: Sequence[GuardedBuffer], sizes: Mapping[str, int],
        table: Array,
    ) -> list[GuardedBuffer]:  # fmt: skip
        cls = class_of(self.operator)
        if cls.meaning is None:
            raise OutsideError(f"'{self.operator.name}', which is written as loops and has no meaning in numpy")
        field = NumberField.of_round(arithmetic.moduli, table) if isinstance(arithmetic, FieldArithmetic) else None
        arrays = [_array(field, value, each, sizes) for value, each in zip(self.values()[0], inputs, strict=True)]
        operands = cls._operand_layout.pick_all(self.operator, arrays)
        attributes = {name: _static(value, sizes) for name, value in self.operator.opview.attribute_values().items()}
        results = apply_meaning(cls, operands, attributes) or ()
        outputs = [memory.buffer(argument, sizes) for argument in self.outputs]
        for output, argument, result in zip(outputs, self.outputs, results, strict=True):
            is_residue = field is not None and argument.kind == "f"
            planes = field.planes(result) if field is not None and is_residue else [np.asarray(result).reshape(-1)]
            for to, plane in zip(output.planes, planes, strict=True):
                to[:] = plane.astype(to.dtype)
        return outputs


def _array(field: NumberField | None, value: ir.Value, buffer: GuardedBuffer, sizes: Mapping[str, int]) -> Array:
    """Return an operand as an array of numbers of the field, of floats or of integers."""
    kind = TensorType.from_mlir(value.type)
    assert kind is not None
    shape = [number_of(dim, sizes) for dim in kind.shape]
    if kind.dtype.is_float and field is not None:
        return field.array(buffer.planes, shape)
    (plane,) = buffer.planes
    if kind.dtype.is_float:
        return plane.reshape(shape)
    if kind.dtype.is_bool:
        return plane.reshape(shape).astype(bool)
    return plane.view(kind.dtype.to_numpy()).reshape(shape)


def _static(value: Any, sizes: Mapping[str, int]) -> Any:
    """Return an attribute with numbers in place of symbolic dims."""
    if isinstance(value, tuple) and any(isinstance(each, SymbolicDim) for each in value):
        return tuple(number_of(each, sizes) for each in value)
    return value
