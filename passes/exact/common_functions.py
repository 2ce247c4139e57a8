"""Functions of one value with exponentials, such as GELU, that both forms of a kernel compute by the same operations.

Where they do, results are equal for any such function if they are equal for a random one: it stands for the function.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import BlockView, PrimView
from mirlo.passes.exact.function_calls import FunctionCalls
from mirlo.passes.exact.operations import operations_in
from mirlo.passes.exact.translate_intrinsics import EXPONENTIALS
from mirlo.passes.exact.values import is_float
from mirlo.runtime.records import dataclass

_ELEMENTWISE = ("arith.", "tir.")
_BROADCASTS = ("vector.broadcast", "vector.splat")
_IGNORED = ("fastmath",)


@dataclass(frozen=True)
class CommonFunction:
    """A function of one float in a definition: the operations from its operand to its result, which is a float, too."""

    operand: ir.Value
    result: ir.Value
    inner: frozenset[ir.Value]
    """What only the function reads."""

    @property
    def calls(self) -> FunctionCalls:
        """Return where the definition computes it."""
        return FunctionCalls({self.result: self.operand}, self.inner)


def function_of(view: PrimView) -> CommonFunction | None:
    """Return the function that has all exponentials of a definition, None if there is none of one value."""
    blocks = [block for block in view.blocks if any(op.name in EXPONENTIALS for op in operations_in(block.op))]
    if len(blocks) != 1 or blocks[0].is_reduction or _is_read(view, blocks[0]):
        return None
    (block,) = blocks
    exponentials: set[ir.Value] = {op.results[0] for op in operations_in(block.op) if op.name in EXPONENTIALS}
    values = [*block.input_arguments, *(op.results[0] for op in block.body_ops if len(op.results) == 1)]
    for operand in (value for value in values if is_float(value.type)):
        function = _function_of_value(operand, values, exponentials)
        if function is not None:
            return function
    return None


def _is_read(view: PrimView, block: BlockView) -> bool:
    """Return whether another block reads the results of a block: a sum of exponentials has several forms."""
    results = {output.value for output in block.outputs}
    return any(operand.value in results for each in view.blocks for operand in each.inputs)


def _function_of_value(operand: ir.Value, values: list[ir.Value], exponentials: set[ir.Value]) -> CommonFunction | None:
    """Return the function of a value whose result is the last possible one."""
    depend = {operand}
    for value in values:
        if isinstance(value, ir.OpResult) and _is_elementwise(value.owner) and _is_of(value.owner, depend):
            depend.add(value)
    for result in reversed(values):
        if result in depend and result != operand and is_float(result.type):
            inner = _between(operand, result)
            if exponentials <= {*inner, result} and _is_closed(inner, result):
                return CommonFunction(operand, result, frozenset(inner))
    return None


def _is_elementwise(op: ir.OpView | ir.Operation) -> bool:
    return op.name.startswith(_ELEMENTWISE) and len(op.results) == 1 and not len(op.operation.regions)


def _is_of(op: ir.OpView | ir.Operation, values: set[ir.Value]) -> bool:
    """Return whether the operands of an operation are some values and constants, and not constants only."""
    return any(x in values for x in op.operands) and all(x in values or _is_constant(x) for x in op.operands)


def _is_constant(value: ir.Value) -> bool:
    return isinstance(value, ir.OpResult) and value.owner.name == "arith.constant"


def _between(operand: ir.Value, result: ir.Value) -> set[ir.Value]:
    """Return the values that a result is computed of, from an operand on, without both and constants."""
    inner: set[ir.Value] = set()
    rest = [result]
    while rest:
        for x in rest.pop().owner.operands:
            if x != operand and x not in inner and not _is_constant(x):
                inner.add(x)
                rest.append(x)
    return inner


def _is_closed(inner: set[ir.Value], result: ir.Value) -> bool:
    """Return whether nothing but the function reads what it computes on its way."""
    own = {*inner, result}
    return all(
        len(use.owner.operation.results) == 1 and use.owner.operation.results[0] in own
        for value in inner for use in value.uses
    )  # fmt: skip


def calls_in(function: CommonFunction, kernel: ir.Operation) -> FunctionCalls | None:
    """Return where a kernel computes the function by the same operations; None if it has exponentials elsewhere."""
    operations = list(operations_in(kernel))
    if any(op.name.startswith("gpu.") for op in operations):
        return None
    name = function.result.owner.name
    calls: dict[ir.Value, ir.Value] = {}
    inner: set[ir.Value] = set()
    for op in operations:
        if op.name == name:
            match = _Match(function)
            if match.is_equal(function.result, op.results[0]):
                own = set(match.pairs) - {op.results[0]}
                if match.operand is None or not _is_closed(own, op.results[0]):
                    return None
                calls[op.results[0]] = match.operand
                inner |= own
    exponentials = {op.results[0] for op in operations if op.name in EXPONENTIALS}
    return FunctionCalls(calls, frozenset(inner)) if exponentials <= inner | calls.keys() else None


class _Match:
    """The comparison of a function with operations of a kernel."""

    def __init__(self, function: CommonFunction):
        self._function = function
        self.operand: ir.Value | None = None
        """The value that is the operand of the function."""
        self.pairs: dict[ir.Value, ir.Value] = {}
        """The value of the definition that each value of the kernel is equal to."""

    def is_equal(self, mine: ir.Value, other: ir.Value) -> bool:
        """Return whether a value of the kernel is computed as one of the definition."""
        if mine == self._function.operand:
            self.operand = self.operand or other
            return bool(self.operand == other)
        if _is_constant(mine):
            return _number(mine) is not None and _number(mine) == _number(other)
        if other in self.pairs:
            return bool(self.pairs[other] == mine)
        if not isinstance(other, ir.OpResult) or not self._are_alike(mine.owner, other.owner):
            return False
        self.pairs[other] = mine
        return all(self.is_equal(x, y) for x, y in zip(mine.owner.operands, other.owner.operands, strict=True))

    @staticmethod
    def _are_alike(mine: ir.OpView, other: ir.OpView) -> bool:
        if mine.name != other.name or len(mine.operands) != len(other.operands) or len(other.results) != 1:
            return False
        left, right = (
            {name: op.attributes[name] for name in op.operation.attributes if name not in _IGNORED}
            for op in (mine, other)
        )
        return left == right


def _number(value: ir.Value) -> ir.Attribute | None:
    """Return the constant that a value is in all lanes."""
    owner = value.owner if isinstance(value, ir.OpResult) else None
    if owner is None:
        return None
    if owner.name in _BROADCASTS:
        return _number(owner.operands[0])
    if owner.name != "arith.constant":
        return None
    attribute = owner.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr):
        return attribute.get_splat_value() if attribute.is_splat else None
    return attribute
