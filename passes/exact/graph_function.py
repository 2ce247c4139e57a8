"""A function of operators on tensors, run on residues: each operator by its definition.

Operators become prim functions by the default rules of `legalize`, without those of a target, and no schedules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.attributes import read_dense
from mirlo.dialects.core.dims import Dim, symbols_of
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.view import is_tensor_form, prim_functions
from mirlo.passes.bounds.calls import facts_in
from mirlo.passes.exact.double import DoubleArithmetic
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.inputs import integer_inputs
from mirlo.passes.exact.kernel_definition import KernelDefinition, argument_of
from mirlo.passes.exact.memory import Array, GuardedBuffer, NumberBuffer, RandomMemory, ZeroMemory, number_of
from mirlo.passes.exact.named_numbers import named
from mirlo.passes.exact.operations import OperationList, operations_in
from mirlo.passes.exact.operator_definition import definition_of, graph_of_operator
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.primes import RESIDUE, Plane
from mirlo.passes.exact.rounds import round_constants
from mirlo.passes.exact.sizes import TRIED
from mirlo.passes.exact.valid_sizes import ValidSizes
from mirlo.passes.exact.verdict_cache import text_of
from mirlo.passes.graph.constants import INLINE_ELEMENTS
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.runtime.errors import MirloError
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.records import dataclass

NEAR = 1e-12
"""How near to an integer a weight that a pass computes in f64 is it, of the largest one."""
LARGEST_INTEGER = 1 << 20
"""Integers below it are factors of products as they are."""
LEGALIZED = "builtin.module(legalize{target=c})"
"""Target `c` has no rules of its own for operators: the default ones apply."""


@dataclass
class GraphRound:
    """The common settings of all functions that are compared in a round."""

    number: int
    arithmetic: FieldArithmetic | DoubleArithmetic
    table: Array
    sizes: Mapping[str, int]

    def inputs(self, function: ir.Operation) -> list[GuardedBuffer]:
        """Return random arguments of a function."""
        memory = RandomMemory(self.arithmetic, self.number)
        arguments = list(function.regions[0].blocks[0].arguments)
        described = [argument_of("in", value) for value in arguments]
        dims = [dim for each in described for dim in each.shape]
        integers = integer_inputs(described, dims, self.sizes, _bools(arguments))
        return [memory.buffer(each, self.sizes, integers.get(i)) for i, each in enumerate(described)]


def _bools(arguments: Sequence[ir.Value]) -> set[int]:
    kinds = [TensorType.from_mlir(value.type) for value in arguments]
    return {i for i, kind in enumerate(kinds) if kind is not None and kind.dtype.is_bool}


ResultKey = tuple[object, ...]
"""The definition of a kernel, and the contents of its operands."""


class KeptResults:
    """Results of kernels of the module before: what a pass leaves as it is, is not computed again."""

    def __init__(self) -> None:
        self._before: dict[ResultKey, Sequence[GuardedBuffer]] = {}
        self._now: dict[ResultKey, Sequence[GuardedBuffer]] = {}

    def next_module(self) -> None:
        """Forget the results that the last module did not need."""
        self._before, self._now = self._now, {}

    def results(self, key: ResultKey, compute: Callable[[], Sequence[GuardedBuffer]]) -> Sequence[GuardedBuffer]:
        """Return the results of a kernel, which are computed if they are not known."""
        if key not in self._now:
            self._now[key] = self._before[key] if key in self._before else compute()
        return self._now[key]


class GraphModule:
    """The functions of a module, whose operators are legalized in a copy."""

    def __init__(
        self, module: ir.Module, params: ParameterStore, known: dict[str, KernelDefinition] | None = None,
        kept: KeptResults | None = None,
    ):  # fmt: skip
        self.params, self._kept = params, kept
        self._known = {} if known is None else known
        """Definitions by the text of functions, for all modules that are compared: each is compiled once."""
        try:
            Pipeline(LEGALIZED).run(module, Session(self.params, report=lambda *_: None))
        except (MirloError, ValueError) as error:
            raise OutsideError(f"operators without default rules: {str(error).splitlines()[0]}") from error
        self.module = module
        self.kernels = {symbol_name(each): each.operation for each in prim_functions(module.operation)}
        self._functions: dict[str, ir.Operation] = {
            symbol_name(each.operation): each.operation for each in module.body.operations
        }
        self._definitions: dict[str, KernelDefinition] = {}

    def function(self, name: str) -> ir.Operation:
        return self._functions[name]

    def symbols(self, name: str) -> list[str]:
        """Return the symbols of the dims of a function's arguments."""
        kinds = [TensorType.from_mlir(value.type) for value in self.function(name).regions[0].blocks[0].arguments]
        dims = [dim for kind in kinds if kind is not None for dim in kind.shape]
        return list(dict.fromkeys(symbol for dim in dims for symbol in sorted(symbols_of(dim))))

    def sizes(self, name: str, wanted: Mapping[str, int], facts: Iterable[Dim] = ()) -> dict[str, int]:
        """Return sizes of symbols, near the wanted ones, at which a function may be called, where such facts hold."""
        valid = ValidSizes(wanted, [*facts, *facts_in(self.function(name))]).nearest(wanted, TRIED)
        if valid is None:
            raise OutsideError(f"sizes of {', '.join(wanted)}: none of those that were tried is possible")
        return valid

    def definition(self, name: str) -> KernelDefinition:
        if name not in self._definitions:
            if name not in self.kernels:
                raise OutsideError(f"the kernel '{name}', which is in another module")
            function = self.kernels[name]
            if not is_tensor_form(function.opview):
                with ir.InsertionPoint(self.module.body):
                    operator = graph_of_operator(function)
                if operator is None:
                    raise OutsideError(f"the kernel '{name}', which is written as loops")
                function = operator
            text = text_of(function)
            if text not in self._known:
                self._known[text] = definition_of(function.clone())  # the module may be gone when it is read
            self._definitions[name] = self._known[text]
        return self._definitions[name]

    def run(self, name: str, round_: GraphRound, inputs: Sequence[GuardedBuffer]) -> list[GuardedBuffer]:
        """Return the results of a function."""
        block = self.function(name).regions[0].blocks[0]
        values: dict[ir.Value, GuardedBuffer] = dict(zip(block.arguments, inputs, strict=True))
        ops = [op.operation for op in block.operations]
        last = {value: i for i, op in enumerate(ops) for value in op.operands}
        for i, op in enumerate(ops):
            if op.name == "func.return":
                return [values[value] for value in op.operands]
            values.update(zip(op.results, self._results(op, values, round_), strict=True))
            for value in op.operands:
                if last[value] == i:
                    values.pop(value, None)
        raise OutsideError("a function without results")

    def _results(
        self, op: ir.Operation, values: Mapping[ir.Value, GuardedBuffer], round_: GraphRound
    ) -> Sequence[GuardedBuffer]:
        if op.name == "relax.require_dims":
            return []
        if op.name == "relax.constant":
            return [self._constant_buffer(op, round_.arithmetic)]
        operands = [values[value] for value in op.operands]
        if op.name == "relax.reshape":
            return operands[:1]
        if op.name == "relax.view_part":
            (start,) = (number_of(dim, round_.sizes) for dim in op.opview.offset)
            count = math.prod(number_of(dim, round_.sizes) for dim in argument_of("in", op.results[0]).shape)
            return [GuardedBuffer.of([plane[start : start + count] for plane in operands[0].planes])]
        if op.name == "relax.call_tir":
            definition = self.definition(op.opview.callee)
            memory = ZeroMemory(round_.arithmetic, round_.number)
            call = op.opview
            own = {name: number_of(size, round_.sizes) for name, size in zip(call.symbols, call.sizes, strict=True)}
            sizes = {**round_.sizes, **own}
            compute = partial(definition.evaluate, round_.arithmetic, memory, operands, sizes, round_.table)
            if self._kept is None:
                return compute()
            return self._kept.results((definition, *own.values(), *(each.digest for each in operands)), compute)
        if op.name == "func.call":
            callee: str = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
            return self.run(callee, round_, operands)
        raise OutsideError(f"the operation '{op.name}' in a graph")

    def _constant_buffer(self, op: ir.Operation, arithmetic: FieldArithmetic | DoubleArithmetic) -> GuardedBuffer:
        """Return a constant; residues of weights that are integers are not computed yet."""
        if isinstance(arithmetic, FieldArithmetic) and op.opview.param is not None:
            kind, array = self._array(op)
            numbers = _integers(array) if kind.dtype.is_float and array.size > INLINE_ELEMENTS else None
            if numbers is not None:
                return NumberBuffer(numbers, arithmetic.moduli, op.opview.param)
        return GuardedBuffer.of(self.constant(op, arithmetic))

    def _array(self, op: ir.Operation) -> tuple[TensorType, Array]:
        """Return the type and the elements of a constant."""
        kind = TensorType.from_mlir(op.results[0].type)
        assert kind is not None
        view = op.opview
        array = self.params.get(view.param) if view.param is not None else read_dense(view.value, kind)
        return kind, np.ascontiguousarray(array).reshape(-1)

    def constant(self, op: ir.Operation, arithmetic: FieldArithmetic | DoubleArithmetic) -> list[Array]:
        """Return the planes of a constant: its exact numbers, or the numbers that it is rounded from."""
        kind, array = self._array(op)
        if not kind.dtype.is_float:
            return [array.view(np.int8) if kind.dtype.is_bool else array.view(array.dtype.name.replace("uint", "int"))]
        if isinstance(arithmetic, DoubleArithmetic):
            return [arithmetic.numbers(array)]
        return [_residues_of(plane, array, arithmetic).astype(RESIDUE) for plane in arithmetic.moduli]


def _integers(array: Array) -> Array | None:
    """Return small integers from which rounding moved numbers; None if there are others among them."""
    numbers = array if array.dtype.kind == "f" and array.dtype.itemsize >= 4 else array.astype(np.float32)
    most = float(np.abs(numbers).max(initial=0.0))
    if not most < LARGEST_INTEGER:
        return None
    nearest = np.rint(numbers)
    return nearest if float(np.abs(numbers - nearest).max(initial=0.0)) <= NEAR * most else None


def _residues_of(plane: Plane, array: Array, arithmetic: FieldArithmetic) -> Array:
    """Return an array of floats modulo a prime; few elements are read as the numbers that they are rounded from."""
    wide = array.astype(np.float64)
    special = ~np.isfinite(wide)
    if special.any() and not arithmetic.has_infinities:
        raise OutsideError("an infinity or NaN among values that have none")
    if wide.size <= INLINE_ELEMENTS:
        finite = [plane.residue(named(float(x))) if np.isfinite(x) else 0 for x in wide]
        result = np.array(finite, np.int64)
    else:
        result = plane.residues(_without_rounding(np.where(special, 0.0, wide)))
    if special.any():
        result[special] = [arithmetic.special_number(float(x)) for x in wide[special]]
    return result


def _without_rounding(numbers: Array) -> Array:
    """Return numbers with integers in place of numbers that rounding moved from them: 1e-13 where a sum cancels."""
    nearest = np.rint(numbers)
    is_near = np.abs(numbers - nearest) < NEAR * np.abs(numbers).max(initial=0.0)
    return np.where(is_near, nearest, numbers)


def common_round(number: int, sizes: Mapping[str, int], *modules: GraphModule) -> GraphRound:
    """Return a round for comparing functions of modules."""
    operations = OperationList(*(module.module.operation for module in modules))
    has_infinities = operations.has_infinities or _has_infinities(modules)
    arithmetic = FieldArithmetic(operations.has_exponentials, has_infinities, has_named_numbers=True)
    table = round_constants(number, tuple(operations.compared_constants()))
    return GraphRound(number, arithmetic, table, sizes)


def _has_infinities(modules: Sequence[GraphModule]) -> bool:
    """Return whether constants of the graph contain infinities."""
    return any(
        op.name == "relax.constant" and not _is_finite(op, module.params)
        for module in modules
        for op in operations_in(module.module.operation)
    )


def _is_finite(op: ir.Operation, params: ParameterStore) -> bool:
    kind = TensorType.from_mlir(op.results[0].type)
    if kind is None or not kind.dtype.is_float:
        return True
    array = params.get(op.opview.param) if op.opview.param is not None else read_dense(op.opview.value, kind)
    return bool(np.isfinite(np.asarray(array, np.float32)).all())
