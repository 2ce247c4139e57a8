"""Comparison of kernels of NVIDIA's GPUs with their definitions, as PTX: the emulator executes it on residues.

It is for kernels that have no meaning at the gpu dialect: tensor maps, `mbarrier`, `wgmma`, clusters and tensor memory.
What follows `lower-loops` is compared, too, up to PTX. Races are looked for in the first blocks of each launch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import dtype_of_mlir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.tir.view import is_tensor_form, prim_functions
from mirlo.passes.exact.arithmetic import Arithmetic
from mirlo.passes.exact.calls import CalledKernel, called_kernels
from mirlo.passes.exact.compare import ROUNDS, KernelPair
from mirlo.passes.exact.field import ORDER_FACTOR, ORDER_SHIFT, FieldArithmetic
from mirlo.passes.exact.function_calls import FunctionCalls
from mirlo.passes.exact.kernel_definition import BlockDefinition, RoundSettings
from mirlo.passes.exact.memory import Array, GuardedBuffer, RandomMemory
from mirlo.passes.exact.operations import operations_in
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.primes import P
from mirlo.passes.exact.translator import Argument
from mirlo.passes.exact.values import element_of, is_float
from mirlo.passes.exact.verdict import DIFFERENT, OUTSIDE, KernelVerdict
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.runtime.executable import Executable
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.records import dataclass
from mirlo.targets.nvvm.emit import emit
from mirlo.targets.nvvm.options import parse_options
from mirlo.testing.ptx.driver import emulated
from mirlo.testing.ptx.errors import KernelError
from mirlo.testing.ptx.residues import MeaninglessError, Residues
from mirlo.tools.verify.model import prepare_model

if TYPE_CHECKING:
    from mirlo.passes.exact.row_combinations import RowCombinations
    from mirlo.runtime.artifact import Artifact

MOST_POINTS = 1 << 29
"""The most points of a kernel that is executed: the emulator takes a second for ten millions of products."""
HALF = 16
_LOW = (1 << HALF) - 1
_MOST_OPERANDS, _MOST_RESULTS = 16, 4
Edit = Callable[[str], str]


def verify_emulated(
    model: object,
    target: str = "nvvm{chip=sm_90a}",
    *,
    shapes: Mapping[str, Sequence[int | str] | None] | None = None,
    precision: str | None = None,
    kernel: str | None = None,
    rounds: int = ROUNDS,
) -> tuple[KernelVerdict, ...]:
    """Compile each kernel of a model alone, execute its PTX on residues, and compare it with its definition.

    Kernels of 16-bit floats run in twice as many `rounds`, as their inputs are fewer numbers.
    """
    kernels = emulated_kernels(model, target, shapes=shapes, precision=precision)
    return tuple(each.verify(rounds) for each in kernels if kernel in (None, each.name))


def emulated_kernels(
    model: object,
    target: str = "nvvm{chip=sm_90a}",
    *,
    shapes: Mapping[str, Sequence[int | str] | None] | None = None,
    precision: str | None = None,
) -> list[EmulatedKernel]:
    """Return the kernels of a model, each of which is compiled alone."""
    prepared = prepare_model(model, target, shapes=shapes, precision=precision, tune=False, cache=False)
    steps = list(prepared.pipeline.steps)
    first = [step.name for step in steps].index("schedule")
    options = prepared.targets.host.options if prepared.targets.host is not None else ""
    with prepared.module.context, ir.Location.unknown():
        prepared.session.report = lambda *_: None
        Pipeline(steps[:first]).run(prepared.module, prepared.session)
        called = called_kernels(prepared.module.operation, prepared.session)
        return [
            EmulatedKernel(
                function.operation, called.get(symbol_name(function), CalledKernel()), Pipeline(steps[first:]),
                options,
            )
            for function in prim_functions(prepared.module.operation)
        ]  # fmt: skip


class EmulatedKernel:
    """A kernel that is compiled alone, with its definition."""

    def __init__(self, function: ir.Operation, call: CalledKernel, pipeline: Pipeline, options: str):
        self.name = symbol_name(function)
        self.function = function.clone()
        self._text = str(function)
        self._call, self._pipeline, self._options = call, pipeline, options

    def verify(self, rounds: int = ROUNDS, edit: Edit | None = None) -> KernelVerdict:
        """Compare the kernel with its definition; `edit` changes the PTX first, to see that a fault is found."""
        return replace(self._verdict(rounds, edit), nodes=tuple(self._call.nodes))

    def _verdict(self, rounds: int, edit: Edit | None) -> KernelVerdict:
        if not is_tensor_form(self.function.opview):
            return KernelVerdict(self.name, OUTSIDE, "it is written as loops")
        try:
            self.definition.require_meaning()
            return _EmulatedPair(self.definition, self, edit).verify(rounds * (2 if self.definition.has_halves else 1))
        except (OutsideError, MeaninglessError) as error:
            return KernelVerdict(self.name, OUTSIDE, str(error))
        except KernelError as error:
            return KernelVerdict(self.name, DIFFERENT, str(error).splitlines()[0])

    @cached_property
    def definition(self) -> _EmulatedDefinition:
        with self.function.context, ir.Location.unknown():
            return _EmulatedDefinition(self.function, self._call.constants)

    @cached_property
    def artifact(self) -> Artifact:
        """Return the kernel's PTX, and the host program that launches it."""
        with self.function.context, ir.Location.unknown():
            module = ir.Module.parse(_module_of(self.function, self._text))
            self._pipeline.run(module, Session())
            parsed = parse_options(self._options)
            return emit(module, parsed.chip, libraries=parsed.libraries)

    def results(self, arrays: Sequence[Array], residues: Residues | None, has_races: bool, edit: Edit | None) -> Any:
        """Return the results of the kernel on the emulator, for arrays of its own types."""
        artifact = self.artifact
        chip = str(parse_options(self._options).chip.name)
        with emulated(chip, races=has_races, residues=residues) as driver:
            if edit is not None:
                driver.edit = edit
            executable = Executable(artifact, ParameterStore())
            results = executable(*arrays)
            del executable
        return list(results) if isinstance(results, (tuple, list)) else [results]


def _is_half(value: ir.Value) -> bool:
    element = element_of(value.type)
    return is_float(element) and _bytes_of(element) == HALF // 8


def _bytes_of(element: ir.Type) -> int:
    dtype = dtype_of_mlir(element)
    return 0 if dtype is None else dtype.bytes


class _EmulatedDefinition(BlockDefinition):
    """A definition whose 16-bit floats have the low 16 bits of residues where they are inputs and results."""

    def require_meaning(self) -> None:
        """Raise an error for kernels that the emulator cannot execute on residues."""
        if any(not isinstance(dim, int) for dim in self.dims()):
            raise OutsideError("sizes that are known at run time")
        if self.points > MOST_POINTS:
            raise OutsideError(f"{self.points} points: the emulator takes minutes")
        elements = {element_of(value.type) for values in self.values() for value in values}
        if any(is_float(element) and _bytes_of(element) not in (2, 4) for element in elements):
            raise OutsideError("floats of other than 16 and 32 bits")

    @cached_property
    def float_constants(self) -> frozenset[float]:
        """Return the floats that the definition computes with."""
        attributes = [
            op.attributes[name] for op in operations_in(self.operation) for name in ("value", "init")
            if name in op.attributes
        ]  # fmt: skip
        parts = [part for each in attributes for part in (each if isinstance(each, ir.ArrayAttr) else (each,))]
        splats = [each.get_splat_value() for each in parts if isinstance(each, ir.DenseElementsAttr) and each.is_splat]
        return frozenset(each.value for each in (*parts, *splats) if isinstance(each, ir.FloatAttr))

    @cached_property
    def half(self) -> str | None:
        """Return the type of 16-bit floats, if there is one."""
        halves = {str(element_of(value.type)) for values in self.values() for value in values if _is_half(value)}
        return halves.pop() if len(halves) == 1 else None

    @property
    def has_halves(self) -> bool:
        """Return whether inputs or results have 16 bits."""
        return any(_is_half(value) for values in self.values() for value in values)

    def proven_bits(self, rounds: int, sizes: Mapping[str, int]) -> float:
        """Return the bits of a round of as many numbers as inputs have, and of results that are compared in part."""
        bits = super().proven_bits(rounds, sizes)
        if not self.has_halves:
            return bits
        degree = P / 2 ** (bits / rounds)
        return rounds * max(0.0, HALF - math.log2(degree + 1))

    @cached_property
    def _half_inputs(self) -> list[int]:
        return [i for i, value in enumerate(self.values()[0]) if _is_half(value)]

    def only_reads(self, position: int) -> bool:
        return position not in self._half_inputs and super().only_reads(position)

    def _inputs(self, memory: RandomMemory, settings: RoundSettings) -> list[GuardedBuffer]:
        inputs = super()._inputs(memory, settings)
        for position in self._half_inputs:
            for plane in inputs[position].planes:
                plane &= _LOW
        return inputs

    def compared_results(
        self, arithmetic: Arithmetic, memory: RandomMemory, inputs: Sequence[GuardedBuffer], sizes: Mapping[str, int],
        table: Array,
    ) -> list[GuardedBuffer]:  # fmt: skip
        results = super().compared_results(arithmetic, memory, inputs, sizes, table)
        for value, result in zip(self.values()[1], results, strict=True):
            if _is_half(value):
                result.planes[0][:] &= _LOW
        return results

    def separated(
        self, arithmetic: FieldArithmetic, memory: RandomMemory, inputs: list[GuardedBuffer], is_odd: bool
    ) -> list[GuardedBuffer]:
        """Return the inputs: products of two factors have more bits than 16."""
        return inputs

    def combinations(
        self, arithmetic: Arithmetic, memory: RandomMemory, inputs: Sequence[GuardedBuffer], settings: RoundSettings,
        table: Array,
    ) -> RowCombinations | None:  # fmt: skip
        """Return nothing: each element is compared."""
        return None


def _module_of(function: ir.Operation, text: str) -> str:
    """Return a module as text whose main function calls a kernel."""
    kind = ir.TypeAttr(function.attributes["function_type"]).value
    kinds, results = [str(each) for each in kind.inputs], [str(each) for each in kind.results]
    if len(kinds) > _MOST_OPERANDS or len(results) > _MOST_RESULTS:
        raise OutsideError(f"a kernel of {len(kinds)} operands and {len(results)} results")
    names = [f"%a{i}" for i in range(len(kinds))]
    parameters = ", ".join(
        f'{name}: {kind} {{relax.name = "{name[1:]}"}}' for name, kind in zip(names, kinds, strict=True)
    )
    operands = ", ".join(str(int(i < len(kinds))) for i in range(_MOST_OPERANDS))
    counts = ", ".join(str(int(i < len(results))) for i in range(_MOST_RESULTS))
    values = ", ".join(f"%r#{i}" for i in range(len(results)))
    named = ", ".join(f'{kind} {{relax.name = "r{i}"}}' for i, kind in enumerate(results))
    return f"""module {{
  func.func @main({parameters}) -> ({named}) attributes {{relax.entry}} {{
    %r:{len(results)} = "relax.call_tir"({", ".join(names)}) {{
      callee = @{symbol_name(function)}, operandSegmentSizes = array<i32: {operands}>,
      resultSegmentSizes = array<i32: {counts}>
    }} : ({", ".join(kinds)}) -> ({", ".join(results)})
    return {values} : {", ".join(results)}
  }}
  {text}
}}"""


class _EmulatedPair(KernelPair):
    """A definition, and PTX that is compared with it."""

    def __init__(self, definition: _EmulatedDefinition, kernel: EmulatedKernel, edit: Edit | None):
        super().__init__(definition, definition.operation)
        self._kernel, self._edit = kernel, edit

    def _function_calls(self) -> None:
        """Return that PTX has no function of a kernel as a whole."""

    def compile_scheduled(
        self, arithmetic: Arithmetic, places: list[str] | None = None, calls: FunctionCalls | None = None
    ) -> _EmulatedFunction:
        if arithmetic.planes > 1:
            raise OutsideError("exponentials, which PTX approximates")
        return _EmulatedFunction([*self.definition.inputs, *self.definition.outputs], self._kernel, self._edit)


@dataclass
class _EmulatedFunction:
    """PTX that is called like a translated function."""

    arguments: Sequence[Argument]
    kernel: EmulatedKernel
    edit: Edit | None

    def call(
        self, buffers: Sequence[GuardedBuffer | None], sizes: Mapping[str, int], table: Array, is_reversed: bool
    ) -> None:
        """Run on the elements of buffers; races are looked for in every second round."""
        known = [buffer for buffer in buffers if buffer is not None]
        arrays = [
            _as_bits(buffer, numpy_dtype(spec.dtype)).reshape(spec.shape)
            for buffer, spec in zip(known, self.kernel.artifact.inputs, strict=False)
        ]
        factor, shift = int(table[ORDER_FACTOR]), int(table[ORDER_SHIFT])
        definition = self.kernel.definition
        residues = Residues(factor, shift, definition.float_constants, definition.half)
        results = self.kernel.results(arrays, residues, not is_reversed, self.edit)
        for buffer, result in zip(known[len(arrays) :], results, strict=True):
            bits = np.ascontiguousarray(result).reshape(-1).view(f"u{result.dtype.itemsize}")
            buffer.planes[0][:] = bits.astype(np.int64).astype(buffer.planes[0].dtype)


def _as_bits(buffer: GuardedBuffer, dtype: np.dtype) -> Array:
    """Return the elements of a buffer as an array of a type whose bits they are."""
    return np.ascontiguousarray(buffer.planes[0].astype(f"i{dtype.itemsize}")).view(dtype)
