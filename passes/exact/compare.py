"""The comparison of a kernel with its definition: both run on the same random residues, and results are equal or not.

Buffers and scratch memory hold other residues for each of the two: what is read before it is written is a difference.
In every second round, parallel loops run backwards, and masks hold minus infinity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.tir.view import PrimView
from mirlo.passes.exact import translate_control, translate_instructions  # noqa: F401  (importing registers meanings)
from mirlo.passes.exact.arithmetic import Arithmetic
from mirlo.passes.exact.definition import translate_definition
from mirlo.passes.exact.degree import proven_bits
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.inputs import integer_values, mask_arguments
from mirlo.passes.exact.ir_text import ModuleText
from mirlo.passes.exact.memory import Array, GuardedBuffer, RandomMemory, number_of
from mirlo.passes.exact.native import NativeFunction, compile_function
from mirlo.passes.exact.operations import compared_constants, has_exponentials, has_infinities
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.primes import MINUS_INFINITY
from mirlo.passes.exact.rounds import round_constants
from mirlo.passes.exact.scheduled import translate_scheduled
from mirlo.passes.exact.verdict import DIFFERENT, EQUAL, OUTSIDE, KernelVerdict, WrongElements

MASKED, MASKED_ROWS = 0.7, 0.3
"""The shares of elements and of whole rows of a mask that are minus infinity."""


class KernelPair:
    """A kernel in its two forms: a prim function over tensors, and one over buffers."""

    def __init__(
        self, definition: ir.Operation, scheduled: ir.Operation, sizes: Mapping[str, int] | None = None,
        constants: Sequence[Mapping[int, Array]] = (),
    ):  # fmt: skip
        self.definition, self.scheduled = definition, scheduled
        self.constants = list(constants)
        """Inputs that are constants in the calls of the kernel, by position; one call's for each round."""
        self.view = PrimView(definition)
        self.sizes = dict(sizes or {})
        self.parameters = [
            *(("in", dims_of(value.type)) for value in self.view.arguments),
            *(("out", dims_of(value.type)) for value in self.view.returned),
        ]
        self.integers = integer_values(self.view, self.sizes)
        self.masks = mask_arguments(self.view)

    def verify(self, rounds: int = 2, has_exact_casts: bool = False) -> KernelVerdict:
        """Compare the two forms; return what was found."""
        name = symbol_name(self.definition)
        try:
            return self._verify(name, rounds, has_exact_casts)
        except OutsideError as error:
            return KernelVerdict(name, OUTSIDE, str(error))

    def _verify(self, name: str, rounds: int, has_exact_casts: bool) -> KernelVerdict:
        forms = self.definition, self.scheduled
        arithmetic = FieldArithmetic(has_exponentials(*forms), has_infinities(*forms), has_exact_casts)
        definition, scheduled = self._definition(arithmetic), self._scheduled(arithmetic)
        compared = compared_constants(*forms)
        for number in range(rounds):
            verdict = self._round(name, number, arithmetic, compared, definition, scheduled)
            if verdict is not None:
                return verdict
        return KernelVerdict(name, EQUAL, rounds=rounds, bits=proven_bits(self.view, rounds, self.sizes))

    def _definition(self, arithmetic: Arithmetic) -> NativeFunction:
        module = ModuleText()
        return compile_function(module, "definition", translate_definition(self.view, arithmetic, module, "definition"))

    def _scheduled(self, arithmetic: Arithmetic) -> NativeFunction:
        module = ModuleText()
        arguments = translate_scheduled(self.scheduled, self.parameters, arithmetic, module, "scheduled")
        return compile_function(module, "scheduled", arguments)

    def _round(
        self, name: str, number: int, arithmetic: FieldArithmetic, compared: Sequence[float],
        definition: NativeFunction, scheduled: NativeFunction,
    ) -> KernelVerdict | None:  # fmt: skip
        """Run both forms; return a verdict if they differ."""
        table = round_constants(number, compared)
        memory = RandomMemory(arithmetic, number)
        inputs = self._inputs(memory, scheduled, number)
        if number % 2 and arithmetic.has_infinities:
            self._hide(memory, inputs)
        before = [[whole.copy() for whole in each.wholes] for each in inputs]
        expected, _ = self._run(definition, memory, inputs, table, False)
        actual, is_intact = self._run(scheduled, memory, inputs, table, number % 2 == 1)
        if not is_intact:
            return KernelVerdict(name, DIFFERENT, "it writes outside of a buffer", rounds=number + 1, seed=number)
        if not all(
            np.array_equal(now, then)
            for each, wholes in zip(inputs, before, strict=True)
            for now, then in zip(each.wholes, wholes, strict=True)
        ):
            return KernelVerdict(name, DIFFERENT, "it writes an input", rounds=number + 1, seed=number)
        for position, (left, right) in enumerate(zip(expected, actual, strict=True)):
            wrong = self._wrong(position, left, right)
            if wrong is not None:
                return KernelVerdict(name, DIFFERENT, str(wrong), rounds=number + 1, wrong=wrong, seed=number)
        return None

    def _inputs(self, memory: RandomMemory, scheduled: NativeFunction, number: int) -> list[GuardedBuffer]:
        arguments = [each for each in scheduled.arguments if each.role == "in"]
        inputs = [memory.buffer(each, self.sizes, self.integers.get(i)) for i, each in enumerate(arguments)]
        constants = self.constants[number % len(self.constants)] if self.constants else {}
        for i, array in constants.items():
            (plane,) = inputs[i].planes
            plane[:] = array.reshape(-1).astype(plane.dtype)
        return inputs

    def _hide(self, memory: RandomMemory, inputs: Sequence[GuardedBuffer]) -> None:
        """Make most elements of masks, and whole rows of them, minus infinity."""
        for i in self.masks:
            planes = inputs[i].planes
            shape = self.view.arguments[i].type.shape
            width = shape[-1] if len(shape) and shape[-1] > 0 else 1
            hidden = memory.rng.random(len(planes[0])) < MASKED
            if len(hidden) % width == 0:
                hidden |= np.repeat(memory.rng.random(len(hidden) // width) < MASKED_ROWS, width)
            for plane in planes:
                plane[hidden] = MINUS_INFINITY

    def _run(
        self, function: NativeFunction, memory: RandomMemory, inputs: Sequence[GuardedBuffer], table: np.ndarray,
        is_reversed: bool,
    ) -> tuple[list[GuardedBuffer], bool]:  # fmt: skip
        """Run a function; return its outputs, and whether guards around buffers are as they were."""
        buffers: list[GuardedBuffer | None] = []
        left, outputs = iter(inputs), []
        for argument in function.arguments:
            if argument.role == "size":
                buffers.append(None)
            elif argument.role == "in":
                buffers.append(next(left))
            else:
                buffers.append(memory.buffer(argument, self.sizes))
                outputs += [buffers[-1]] if argument.role == "out" else []
        guards = [(each, each.guards()) for each in buffers if each is not None]
        function.call(buffers, self.sizes, table, is_reversed)
        return [each for each in outputs if each is not None], all(each.has_guards(old) for each, old in guards)

    def _wrong(self, position: int, expected: GuardedBuffer, actual: GuardedBuffer) -> WrongElements | None:
        """Return where the residues of two results differ."""
        left, right = expected.planes[0], actual.planes[0]
        if np.array_equal(left, right):
            return None
        different = np.flatnonzero(left != right)
        dims = self._output_shape(position)
        first = np.unravel_index(int(different[0]), dims or (1,))
        return WrongElements(position, tuple(map(int, first)) if dims else (), len(different), left.size)

    def _output_shape(self, position: int) -> list[int]:
        _, dims = self.parameters[len(self.view.arguments) + position]
        return [number_of(dim, self.sizes) for dim in dims]
