"""The definition of a kernel, run on random inputs, with which candidates for its schedule are compared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, parse, symbols_of
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.tir.view import PrimView
from mirlo.passes.exact.arithmetic import Arithmetic
from mirlo.passes.exact.coefficients import Coefficient
from mirlo.passes.exact.common_functions import CommonFunction, function_of
from mirlo.passes.exact.definition import Stage, stages_of, translate_stage
from mirlo.passes.exact.degree import proven_bits
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.inputs import bool_arguments, integer_inputs, mask_arguments
from mirlo.passes.exact.ir_text import ModuleText
from mirlo.passes.exact.maxima import points_of, rounds_for_maxima
from mirlo.passes.exact.memory import (
    Array,
    GuardedBuffer,
    IntegerInputs,
    RandomMemory,
    UnsetMemory,
    ZeroMemory,
    forget_inputs,
    number_of,
)
from mirlo.passes.exact.native import ExactFunction, NativeFunction, compile_function
from mirlo.passes.exact.operations import operations_in
from mirlo.passes.exact.primes import MINUS_INFINITY
from mirlo.passes.exact.products import SumOfProducts
from mirlo.passes.exact.rounds import OrderBounds, round_constants
from mirlo.passes.exact.row_combinations import RowCombinations, product_in_result
from mirlo.passes.exact.separable import SeparableBuffer, SeparableFactor
from mirlo.passes.exact.translate_intrinsics import EXPONENTIALS
from mirlo.passes.exact.translator import Argument
from mirlo.passes.exact.values import bits_of, element_of, is_float
from mirlo.runtime.records import dataclass

MASKED, MASKED_ROWS = 0.7, 0.3
"""The shares of elements and of whole rows of a mask that are minus infinity."""
LONG = 1 << 22
"""The points of the blocks of a definition from which they take longer than their fast code takes to compile."""
DEFINITION = "definition"
"""The name of the function of a definition."""
KEPT_BYTES = 64 << 20
"""The most memory for results that are kept for further candidates."""


@dataclass(frozen=True)
class RoundSettings:
    """The settings of a round of a kernel."""

    number: int
    sizes: tuple[tuple[str, int], ...] = ()
    compared: tuple[float, ...] = ()
    """The constants that keep their order."""
    scale: float = 1.0
    """By what inputs are multiplied, where they are 64-bit floats."""

    has_easy_sums: bool = False
    """Whether the sums of products that a definition computes may be few, in each round in another way: in even ones
    one factor is a product of two, in odd ones the other one, or maxima pass their operand on."""

    @property
    def is_odd(self) -> bool:
        return self.number % 2 == 1


class DefinitionResults:
    """The inputs of a round, and the results of the definition."""

    def __init__(
        self, inputs: list[GuardedBuffer], table: Array, evaluate: Callable[[], list[GuardedBuffer]],
        combinations: RowCombinations | None = None,
    ):  # fmt: skip
        """Evaluate the results, unless others are compared with combinations of their rows."""
        self.inputs = inputs
        self.table = table
        """The constants of the round."""
        self._evaluate, self._combinations = evaluate, combinations
        self._outputs = evaluate() if combinations is None else None

    @property
    def outputs(self) -> list[GuardedBuffer]:
        """Return the results, which are evaluated if only combinations of their rows are."""
        if self._outputs is None:
            self._outputs = self._evaluate()
        return self._outputs

    def are_equal(self, outputs: Sequence[GuardedBuffer]) -> bool:
        """Return whether other results are equal, but for the probability that `proven_bits` has."""
        if self._combinations is not None:
            return self._combinations.are_those_of(outputs[0].planes[0])
        pairs = zip(self.outputs, outputs, strict=True)
        return all(np.array_equal(left.planes[0], right.planes[0]) for left, right in pairs)

    @property
    def nbytes(self) -> int:
        buffers = [*self.inputs, *(self._outputs or ())]
        kept = 0 if self._combinations is None else self._combinations.nbytes
        return kept + sum(int(whole.nbytes) for each in buffers for whole in each.wholes)


class KernelDefinition(ABC):
    """The definition of a kernel: the results of each round are computed once, for all forms that are compared."""

    def __init__(self, operation: ir.Operation, constants: Sequence[Mapping[int, Array]] = ()):
        self.operation = operation
        self.name = symbol_name(operation)
        self.constants = list(constants)
        """Inputs that are constants in the calls of the kernel, by position; one call's for each round."""
        inputs, outputs = self.values()
        self.inputs = [argument_of("in", value) for value in inputs]
        self.outputs = [argument_of("out", value) for value in outputs]
        self.parameters = [(each.role, each.shape) for each in (*self.inputs, *self.outputs)]
        self._results: dict[tuple[object, ...], DefinitionResults] = {}
        self._kept = 0

    @abstractmethod
    def values(self) -> tuple[Sequence[ir.Value], Sequence[ir.Value]]:
        """Return the inputs and the outputs."""

    @property
    def sources(self) -> Sequence[Path]:
        """Return the source files that define the kernel, besides those of this package."""
        return ()

    @property
    def common_function(self) -> CommonFunction | None:
        """Return the function of one value that has all exponentials, None if there is none."""
        return None

    @abstractmethod
    def dims(self) -> list[Dim]:
        """Return all dims whose symbols have sizes."""

    @abstractmethod
    def rounds(self, sizes: Mapping[str, int], least: int) -> tuple[int, float]:
        """Return the rounds for maxima, and the share of their operands that win in one of them."""

    @abstractmethod
    def proven_bits(self, rounds: int, sizes: Mapping[str, int]) -> float:
        """Return b so that a fault passes this many rounds with a probability of at most 2^-b."""

    @abstractmethod
    def evaluate(
        self, arithmetic: Arithmetic, memory: RandomMemory, inputs: Sequence[GuardedBuffer], sizes: Mapping[str, int],
        table: Array,
    ) -> list[GuardedBuffer]:  # fmt: skip
        """Return the results for inputs."""

    def compared_results(
        self, arithmetic: Arithmetic, memory: RandomMemory, inputs: Sequence[GuardedBuffer], sizes: Mapping[str, int],
        table: Array,
    ) -> list[GuardedBuffer]:  # fmt: skip
        """Return the results for inputs, of which only the first plane is read."""
        return self.evaluate(arithmetic, memory, inputs, sizes, table)

    def integers(self, sizes: Mapping[str, int]) -> Mapping[int, IntegerInputs]:
        """Return the ranges of integer inputs, by position."""
        bools = {i for i, value in enumerate(self.values()[0]) if str(element_of(value.type)) == "i1"}
        return integer_inputs([*self.inputs, *self.outputs], self.dims(), sizes, bools)

    def conditions(self) -> list[Dim]:
        """Return dims that are not negative where there are inputs, besides those of parameters."""
        return []

    def prepare(  # noqa: B027  (most need nothing)
        self, inputs: Sequence[GuardedBuffer], sizes: Mapping[str, int], memory: RandomMemory
    ) -> None:
        """Change random inputs so that the kernel may be called with them."""

    @property
    def points(self) -> int:
        """Return how many points are computed in a run of constant size."""
        return 0

    def points_at(self, sizes: Mapping[str, int]) -> int:
        """Return how many points are computed in a run at some sizes; 0 if that is not known."""
        return 0

    def results(self, arithmetic: Arithmetic, settings: RoundSettings) -> DefinitionResults:
        """Return the inputs and outputs of a round."""
        key = (*arithmetic.key, settings)
        if key not in self._results:
            results = self._run(arithmetic, settings)
            if self._kept + results.nbytes > KEPT_BYTES:
                return results
            self._kept += results.nbytes
            self._results[key] = results
        return self._results[key]

    def forget_results(self) -> None:
        """Discard the results of each round, as its inputs were changed."""
        self._results.clear()
        self._kept = 0
        forget_inputs()

    def _run(self, arithmetic: Arithmetic, settings: RoundSettings) -> DefinitionResults:
        memory = RandomMemory(arithmetic, settings.number, settings.scale)
        bounds, has_powers = self.bounds(arithmetic, settings), arithmetic.planes > 1
        table = round_constants(settings.number, settings.compared, bounds, has_powers)
        inputs = self._inputs(memory, settings)
        sizes = dict(settings.sizes)
        self.prepare(inputs, sizes, memory)
        if settings.is_odd and isinstance(arithmetic, FieldArithmetic) and arithmetic.has_infinities:
            self.hide(memory, inputs, sizes)
        if settings.has_easy_sums and isinstance(arithmetic, FieldArithmetic) and not arithmetic.has_exact_casts:
            inputs = self.separated(arithmetic, memory, inputs, settings.is_odd)
        return DefinitionResults(
            inputs, table, lambda: self.compared_results(arithmetic, memory, inputs, sizes, table),
            self.combinations(arithmetic, memory, inputs, settings, table),
        )  # fmt: skip

    def bounds(self, arithmetic: Arithmetic, settings: RoundSettings) -> OrderBounds | None:
        """Return the constants between which results are, if the order of the round depends on them."""
        return None

    def separated(
        self, arithmetic: FieldArithmetic, memory: RandomMemory, inputs: list[GuardedBuffer], is_odd: bool
    ) -> list[GuardedBuffer]:
        """Return inputs of which those of sums of products are products of two factors, others in odd rounds."""
        return inputs

    def combinations(
        self, arithmetic: Arithmetic, memory: RandomMemory, inputs: Sequence[GuardedBuffer], settings: RoundSettings,
        table: Array,
    ) -> RowCombinations | None:  # fmt: skip
        """Return combinations of rows that stand for the results, if they take less time."""
        return None

    def _inputs(self, memory: RandomMemory, settings: RoundSettings) -> list[GuardedBuffer]:
        sizes = dict(settings.sizes)
        integers = self.integers(sizes)
        constants = self.constants[settings.number % len(self.constants)] if self.constants else {}
        inputs = [
            memory.buffer(argument, sizes, integers.get(i), is_kept=i not in constants and self.only_reads(i))
            for i, argument in enumerate(self.inputs)
        ]
        for i, array in constants.items():
            (plane,) = inputs[i].planes
            plane[:] = array.reshape(-1).astype(plane.dtype)
        return inputs

    def only_reads(self, position: int) -> bool:
        """Return whether an input stays as it is drawn, so that other kernels may read its elements, too."""
        return False

    def hide(  # noqa: B027  (most have no masks)
        self, memory: RandomMemory, inputs: Sequence[GuardedBuffer], sizes: Mapping[str, int]
    ) -> None:
        """Make elements of masks minus infinity."""


class BlockDefinition(KernelDefinition):
    """A prim function over tensors, whose blocks are compiled once for each arithmetic."""

    def __init__(self, operation: ir.Operation, constants: Sequence[Mapping[int, Array]] = ()):
        self.view = PrimView(operation)
        super().__init__(operation, constants)
        self._masks = mask_arguments(self.view)
        self._functions: dict[tuple[object, ...], NativeFunction] = {}
        products = {block.op: SumOfProducts.of(block) for block in self.view.blocks}
        coefficients = (Coefficient.of(block) for block in self.view.blocks if products[block.op] is None)
        self._coefficients = [each for each in coefficients if each is not None]
        products.update({each.product.block.op: each.product for each in self._coefficients})
        self._products = {op: product for op, product in products.items() if product is not None}
        self._combined = product_in_result(self.view, self._products)
        combined = self._combined
        has_no_sums = combined is not None and not combined.bounds
        self._separable = {} if has_no_sums else self._separable_factors(self._products)
        """By product, the factor that is a product of two in even rounds."""
        transposed = {op: product.transposed for op, product in self._products.items()}
        self._separable_in_odd = {} if combined is not None else self._separable_factors(transposed)
        """The same for odd rounds: the other factor."""

    @cached_property
    def _stages(self) -> list[Stage]:
        return stages_of(self.view, lambda block: block.op in self._products)

    @cached_property
    def common_function(self) -> CommonFunction | None:
        return function_of(self.view)

    @cached_property
    def _with_exponents(self) -> frozenset[ir.Value]:
        return _values_of_exponents(self.view)

    @cached_property
    def _with_all_exponents(self) -> frozenset[ir.Value]:
        return _values_of_exponents(self.view, self.view.returned)

    def values(self) -> tuple[Sequence[ir.Value], Sequence[ir.Value]]:
        return self.view.arguments, self.view.returned

    def dims(self) -> list[Dim]:
        dims: list[Dim] = [dim for _, shape in self.parameters for dim in shape]
        dims += [dim for block in self.view.blocks for dim in block.domain]
        dims += [dim for block in self.view.blocks for operand in block.inputs for dim in operand.shape]
        return dims + self._sizes_in_bodies

    @cached_property
    def _sizes_in_bodies(self) -> list[Dim]:
        return [parse(op.opview.dim) for op in operations_in(self.operation) if op.name == "tir.size"]

    @property
    def points(self) -> int:
        symbols = {name for dim in self.dims() for name in symbols_of(dim)}
        return 0 if symbols else points_of(self.view.blocks, {})

    def points_at(self, sizes: Mapping[str, int]) -> int:
        return points_of(self.view.blocks, sizes)

    def rounds(self, sizes: Mapping[str, int], least: int) -> tuple[int, float]:
        return rounds_for_maxima(self.view, sizes, least)

    def proven_bits(self, rounds: int, sizes: Mapping[str, int]) -> float:
        bits = []
        for factors in (self._separable, self._separable_in_odd):
            squares = [factor.product.left.value for factor in factors.values()]
            bits.append(proven_bits(self.view, rounds, sizes, self._combined is not None, squares))
        return min(bits)

    def evaluate(
        self, arithmetic: Arithmetic, memory: RandomMemory, inputs: Sequence[GuardedBuffer], sizes: Mapping[str, int],
        table: Array,
    ) -> list[GuardedBuffer]:  # fmt: skip
        values = self._values(arithmetic, memory, inputs, sizes, table, self._with_all_exponents)
        return [values[value] for value in self.view.returned]

    def compared_results(
        self, arithmetic: Arithmetic, memory: RandomMemory, inputs: Sequence[GuardedBuffer], sizes: Mapping[str, int],
        table: Array,
    ) -> list[GuardedBuffer]:  # fmt: skip
        values = self._values(arithmetic, memory, inputs, sizes, table, self._with_exponents)
        return [values[value] for value in self.view.returned]

    def _separable_factors(self, products: Mapping[ir.Operation, SumOfProducts]) -> dict[ir.Operation, SeparableFactor]:
        """Return the left factors of products that are random inputs and are read once."""
        reads = [operand.value for block in self.view.blocks for operand in block.inputs]
        known = {i for call in self.constants for i in call} | self._masks
        free = {x for i, x in enumerate(self.view.arguments) if i not in known and reads.count(x) == 1}
        chosen = {op: SeparableFactor.of(product) for op, product in products.items() if product.left.value in free}
        return {op: factor for op, factor in chosen.items() if factor is not None}

    def bounds(self, arithmetic: Arithmetic, settings: RoundSettings) -> OrderBounds | None:
        combined = self._combined
        if combined is None or not (settings.has_easy_sums and _can_combine(arithmetic)):
            return None
        if not combined.bounds or set(settings.compared) != set(combined.bounds):
            return None
        return OrderBounds(combined.least, combined.greatest, settings.is_odd)

    def separated(
        self, arithmetic: FieldArithmetic, memory: RandomMemory, inputs: list[GuardedBuffer], is_odd: bool
    ) -> list[GuardedBuffer]:
        inputs = list(inputs)
        for factor in (self._separable_in_odd if is_odd else self._separable).values():
            position = list(self.view.arguments).index(factor.product.left.value)
            inputs[position] = factor.separated(inputs[position], arithmetic.moduli, memory.rng)
        return inputs

    def combinations(
        self, arithmetic: Arithmetic, memory: RandomMemory, inputs: Sequence[GuardedBuffer], settings: RoundSettings,
        table: Array,
    ) -> RowCombinations | None:  # fmt: skip
        if self._combined is None or not _can_combine(arithmetic):
            return None
        bounds = self.bounds(arithmetic, settings)
        if self._combined.bounds and not (bounds and bounds.are_ends):
            return None
        product, sizes = self._combined.product, dict(settings.sizes)
        values = self._values(arithmetic, memory, inputs, sizes, table, self._with_exponents, without=product)
        (sums,), (result,) = product.block.outputs, self.view.returned
        addend = None if sums.value == result else values[result].planes[0]
        factors = values[product.left.value], values[product.right.value]
        return RowCombinations(product, *factors, addend, sizes, memory.rng)

    def _values(
        self, arithmetic: Arithmetic, memory: RandomMemory, inputs: Sequence[GuardedBuffer], sizes: Mapping[str, int],
        table: Array, with_exponents: frozenset[ir.Value], without: SumOfProducts | None = None,
    ) -> dict[ir.Value, GuardedBuffer]:  # fmt: skip
        """Return the values of blocks; the sums of the product `without` are zeros.

        Of values that are not `with_exponents`, only the first plane is computed.
        """
        values = dict(zip(self.view.arguments, inputs, strict=True))
        values.update({each.value: each.buffer(arithmetic) for each in self._coefficients})
        for number, stage in enumerate(self._stages):
            if without is not None and stage.blocks[0].op == without.block.op:
                (output,) = stage.outputs
                if output not in self.view.returned:
                    values[output] = ZeroMemory(arithmetic, 0).buffer(argument_of("out", output), sizes)
            elif not self._multiply(stage, arithmetic, values, sizes, with_exponents):
                function = self._function(arithmetic, stage, number, with_exponents)
                outputs, _ = run_function(function, memory, [values[each] for each in stage.inputs], sizes, table)
                values.update(zip(stage.outputs, outputs, strict=True))
        return values

    def _multiply(
        self, stage: Stage, arithmetic: Arithmetic, values: dict[ir.Value, GuardedBuffer], sizes: Mapping[str, int],
        with_exponents: frozenset[ir.Value],
    ) -> bool:  # fmt: skip
        """Compute a stage as a product of matrices; return False if it is none."""
        op = stage.blocks[0].op
        product = self._products.get(op)
        if product is None:
            return False
        (output,) = stage.outputs
        result = UnsetMemory(arithmetic, 0).buffer(argument_of("out", output), sizes)
        if not isinstance(arithmetic, FieldArithmetic):
            product.write_floats(values[product.left.value], values[product.right.value], result, sizes)
            values[output] = result
            return True
        compute = None
        for factor in (self._separable.get(op), self._separable_in_odd.get(op)):
            if factor is not None and isinstance(values[factor.product.left.value], SeparableBuffer):
                product, compute = factor.product, factor.sums
        moduli = arithmetic.moduli if output in with_exponents else arithmetic.moduli[:1]
        factors = values[product.left.value], values[product.right.value]
        is_written = product.write(*factors, result, moduli, sizes, compute)
        if is_written:
            values[output] = result
        return is_written

    def _function(
        self, arithmetic: Arithmetic, stage: Stage, number: int, with_exponents: frozenset[ir.Value]
    ) -> NativeFunction:
        key = (*arithmetic.key, number, len(stage.blocks), with_exponents)
        if key not in self._functions:
            points = points_of(stage.blocks, {}) if self.points else 0
            function = self.common_function if arithmetic.has_common_functions else None
            calls = None if function is None else function.calls
            module = ModuleText(points >= LONG)
            arguments = translate_stage(stage, arithmetic, module, DEFINITION, with_exponents, calls)
            self._functions[key] = compile_function(module, DEFINITION, arguments)
        return self._functions[key]

    def integers(self, sizes: Mapping[str, int]) -> Mapping[int, IntegerInputs]:
        return integer_inputs([*self.inputs, *self.outputs], self.dims(), sizes, bool_arguments(self.view))

    def only_reads(self, position: int) -> bool:
        return position not in self._masks

    def hide(self, memory: RandomMemory, inputs: Sequence[GuardedBuffer], sizes: Mapping[str, int]) -> None:
        """Make most elements of masks, and whole rows of them, minus infinity."""
        for i in self._masks:
            planes = inputs[i].planes
            shape = [number_of(dim, sizes) for dim in self.parameters[i][1]]
            width = max(shape[-1], 1) if shape else 1
            hidden = memory.rng.random(len(planes[0])) < MASKED
            hidden |= np.repeat(memory.rng.random(len(hidden) // width) < MASKED_ROWS, width)
            for plane in planes:
                plane[hidden] = MINUS_INFINITY


def _values_of_exponents(view: PrimView, others: Collection[ir.Value] = ()) -> frozenset[ir.Value]:
    """Return the values that exponentials, or some others, depend on: their residues modulo Q are read."""
    values = set(others)
    for block in reversed(view.blocks):
        has_exponentials = any(op.name in EXPONENTIALS for op in operations_in(block.op))
        if has_exponentials or any(output.value in values for output in block.outputs):
            values.update(operand.value for operand in block.inputs)
    return frozenset(values)


def _can_combine(arithmetic: Arithmetic) -> bool:
    """Return whether combinations of results are those of sums: they are residues, and casts are no functions."""
    if not isinstance(arithmetic, FieldArithmetic):
        return False
    return not (arithmetic.has_infinities or arithmetic.has_exact_casts)


def argument_of(role: str, value: ir.Value) -> Argument:
    """Return a tensor as an argument of a translated function."""
    element = element_of(value.type)
    return Argument(role, "f", 0, dims_of(value.type)) if is_float(element) else Argument(
        role, "i", bits_of(element), dims_of(value.type)
    )  # fmt: skip


def run_function(
    function: ExactFunction, memory: RandomMemory, inputs: Sequence[GuardedBuffer], sizes: Mapping[str, int],
    table: Array, is_reversed: bool = False,
) -> tuple[list[GuardedBuffer], bool]:  # fmt: skip
    """Run a function on inputs; return its outputs, and whether the guards around buffers are unchanged."""
    buffers: list[GuardedBuffer | None] = []
    left = iter(inputs)
    outputs = []
    for argument in function.arguments:
        if argument.role == "size":
            buffers.append(None)
        elif argument.role == "in":
            buffers.append(next(left))
        else:
            buffer = memory.buffer(argument, sizes)
            buffers.append(buffer)
            outputs += [buffer] if argument.role == "out" else []
    guards = [(each, each.guards()) for each in buffers if each is not None]
    function.call(buffers, sizes, table, is_reversed)
    return outputs, all(each.has_guards(before) for each, before in guards)
