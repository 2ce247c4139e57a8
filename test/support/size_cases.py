"""Cases of relax's operators with dynamic sizes, of which calls refuse some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, DimsDiffer
from mirlo.dialects.core.errors import OpError
from mirlo.dialects.core.op import class_of
from mirlo.dialects.core.types import TensorType
from mirlo.runtime.errors import MirloError
from mirlo.tools.conformance.case import NUMERIC_TYPES, TABLE, OperatorCase
from mirlo.tools.conformance.check import names
from mirlo.tools.conformance.programs import TestProgram, module_of, operator_program, tensor_type

Shapes = list[list[Dim]]


@dataclass(frozen=True)
class DynamicCase:
    """A case of an operator with a symbol for each dim that may differ."""

    program: TestProgram
    shapes: Shapes

    def module(self, shapes: Sequence[Sequence[Dim]]) -> ir.Module:
        """Return the module for operands of these shapes."""
        module: ir.Module = module_of([self.typed(shapes)])[0]
        return module

    def typed(self, shapes: Sequence[Sequence[Dim]]) -> TestProgram:
        """Return the program for operands of these shapes."""
        kinds = [tensor_type(array).dtype for array in self.program.arrays]
        types = [TensorType.of(list(shape), kind) for shape, kind in zip(shapes, kinds, strict=True)]
        return replace(self.program, types=types)

    @property
    def sizes(self) -> dict[str, int]:
        """Return the size of each symbol in the case."""
        return {
            str(dim): size
            for shape, array in zip(self.shapes, self.program.arrays, strict=True)
            for dim, size in zip(shape, array.shape, strict=True)
            if not isinstance(dim, int)
        }

    def static(self, sizes: dict[str, int]) -> list[list[Dim]]:
        """Return the shapes for sizes of the symbols."""
        return [[sizes.get(str(dim), dim) for dim in shape] for shape in self.shapes]


def dynamic_case(operator: str, case: OperatorCase, prefix: str) -> DynamicCase | None:
    """Return a case with as many dynamic dims as inference accepts; None where it accepts none."""
    program = operator_program(operator, case)
    given = [array.shape for array in program.arrays]
    shapes: Shapes = [[D.symbol(f"{prefix}{i}_{k}") for k in range(len(shape))] for i, shape in enumerate(given)]
    for _ in range(60):
        found = DynamicCase(program, shapes)
        if not found.sizes:
            return None
        try:
            found.module(shapes)
        except DimsDiffer as error:
            shapes = _with_equal(shapes, given, error.left, error.right)
        except (OpError, MirloError):  # a dim decides the rank, or what attributes mean: the last operand's is a number
            shapes = with_one_less(shapes, given)
        else:
            return found
    return None


def _with_equal(shapes: Shapes, given: Sequence[tuple[int, ...]], left: Dim, right: Dim) -> Shapes:
    """Return shapes with one symbol for two dims, or with sizes for the symbols of other expressions."""
    one, other = (left, right) if not isinstance(left, int) else (right, left)
    if any(dim == one for shape in shapes for dim in shape) and one not in D.symbols_of(other):
        return [[other if dim == one else dim for dim in shape] for shape in shapes]
    symbols = {*map(str, D.symbols_of(left)), *map(str, D.symbols_of(right))}
    return [
        [size if str(dim) in symbols else dim for dim, size in zip(shape, sizes, strict=True)]
        for shape, sizes in zip(shapes, given, strict=True)
    ]


def with_one_less(shapes: Shapes, given: Sequence[tuple[int, ...]]) -> Shapes:
    last = [str(dim) for shape in shapes for dim in shape if not isinstance(dim, int)][-1]
    return [
        [size if str(dim) == last else dim for dim, size in zip(shape, sizes, strict=True)]
        for shape, sizes in zip(shapes, given, strict=True)
    ]


def size_cases(prefix: str = "d") -> Iterator[tuple[str, DynamicCase]]:
    """Yield a case of each operator that states conditions on sizes."""
    number = 0
    for operator in (name.removeprefix("relax.") for name in names() if name.startswith("relax.")):
        kind = next((kind for kind in NUMERIC_TYPES if TABLE.cases(operator, kind)), None)
        for case in TABLE.cases(operator, kind) if kind is not None else ():
            number += 1
            found = dynamic_case(operator, case, f"{prefix}{number}_")
            if found is None:
                continue
            module = found.module(found.shapes)
            operations = [op.operation for op in module.body.operations[0].regions[0].blocks[0].operations]
            if any(class_of(op).size_conditions(op.opview) for op in operations if op.name.startswith("relax.")):
                yield operator, found


def other_sizes(sizes: dict[str, int]) -> Iterator[dict[str, int]]:
    yield sizes
    for symbol, size in sizes.items():
        for other in sorted({0, 1, size - 1, size + 1, 2 * size} - {size, -1}):
            yield {**sizes, symbol: other}


def arrays_of(case: DynamicCase, sizes: dict[str, int]) -> list[np.ndarray]:
    """Return operands of these sizes with the case's elements, again and again."""
    return [
        np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)
        for array, shape in zip(case.program.arrays, case.static(sizes), strict=True)
    ]


def is_accepted(case: DynamicCase, sizes: dict[str, int]) -> bool:
    try:
        case.module(case.static(sizes))
    except OpError:
        return False
    return True
