"""Regions on scalars: recognition of known functions, and their application to whole tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirlo.extend.frontend import Tensor, TensorType, UnsupportedOperation, enumeration, ir
from mirlo_stablehlo.scalars import Unknown, evaluate_region

if TYPE_CHECKING:
    from mirlo_stablehlo.operation import StablehloOperation

_COMBINERS = {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min", "and": "and", "or": "or"}


def combiner(block: ir.Block) -> str | None:
    """Return the function of a region on two scalars: 'add', 'mul', 'max', 'min', 'and', 'or', 'new', or None."""
    operations = [op.operation for op in block.operations]
    arguments = list(block.arguments)
    if len(operations) == 1 and len(arguments) == 2 and list(operations[0].operands) == arguments[1:]:
        return "new"  # what scatter writes, without what was there
    if len(operations) != 2 or len(arguments) != 2:
        return None
    first, last = operations
    name = _COMBINERS.get(first.name.removeprefix("stablehlo."))
    takes_both = list(first.operands) in (arguments, arguments[::-1])
    if name is None or not takes_both or list(last.operands) != list(first.results):
        return None
    tensor_type = TensorType.from_mlir(arguments[0].type)
    if name in ("and", "or") and (tensor_type is None or not tensor_type.dtype.is_bool):
        return None
    if tensor_type is not None and tensor_type.dtype.is_bool:
        return {"add": "or", "max": "or", "mul": "and", "min": "and"}.get(name, name)
    return name


def apply(op: StablehloOperation, block: ir.Block, operands: Sequence[Tensor]) -> list[Tensor]:
    """Apply a region on scalars to each element of tensors of one shape."""
    op.builder.lifted += 1
    try:
        results = op.builder.block(block, operands, op.scope)
    finally:
        op.builder.lifted -= 1
    shape = operands[0].shape
    for tensor in results:
        if tensor.shape not in ((), shape):
            raise UnsupportedOperation(
                f"its region makes {tensor.type} of {operands[0].type}: expected elementwise operations"
            )
    return [Tensor(op.builder, tensor.type.with_shape(shape), op.builder.compact(tensor)) for tensor in results]


@dataclass(frozen=True)
class SortKey:
    """A key of a comparator: the operand, and whether the order is descending."""

    operand: int
    descending: bool


def sort_keys(block: ir.Block) -> list[SortKey] | None:
    """Return the keys of a comparator, the most significant first; None for another function."""
    operations = [op.operation for op in block.operations]
    if not operations or len(operations[-1].operands) != 1:
        return None
    return _keys(operations[-1].operands[0], list(block.arguments))


def _keys(value: ir.Value, arguments: list[ir.Value]) -> list[SortKey] | None:
    """Read `a < b`, and `a < b or (a == b and the rest)` as JAX writes it for several keys."""
    op = _owner(value)
    if op is None:
        return None
    if op.name == "stablehlo.compare":
        key = _compared(op, arguments)
        direction = _direction(op)
        return None if key is None or direction not in ("LT", "GT") else [SortKey(key, direction == "GT")]
    if op.name == "stablehlo.or":
        for less, tie in (tuple(op.operands), tuple(op.operands)[::-1]):
            first, rest = _keys(less, arguments), _after_tie(tie, arguments)
            if first is not None and rest is not None and len(first) == 1 and rest[0] == first[0].operand:
                return [*first, *rest[1]]
    return None


def _after_tie(value: ir.Value, arguments: list[ir.Value]) -> tuple[int, list[SortKey]] | None:
    """Match `a == b and the rest`: return the operand of a and b, and the keys of the rest."""
    op = _owner(value)
    if op is None or op.name != "stablehlo.and":
        return None
    for equal, rest in (tuple(op.operands), tuple(op.operands)[::-1]):
        compare = _owner(equal)
        if compare is None or compare.name != "stablehlo.compare" or _direction(compare) != "EQ":
            continue
        key, keys = _compared(compare, arguments), _keys(rest, arguments)
        if key is not None and keys is not None:
            return key, keys
    return None


def _compared(op: ir.Operation, arguments: list[ir.Value]) -> int | None:
    """Return the operand of `sort` whose two elements are compared, in order."""
    left, right = (_plain(value) for value in op.operands)
    if left in arguments and right in arguments:
        at, other = arguments.index(left), arguments.index(right)
        if other == at + 1 and at % 2 == 0:
            return at // 2
    return None


def _plain(value: ir.Value) -> ir.Value:
    """Return the value inside of JAX's `where(x == 0, 0, x)` and `where(x != x, nan, x)`, which order floats."""
    while True:
        op = _owner(value)
        if op is None or op.name != "stablehlo.select":
            return value
        test, then, otherwise = op.operands
        compare, constant = _owner(test), _owner(then)
        if compare is None or compare.name != "stablehlo.compare" or constant is None:
            return value
        if constant.name != "stablehlo.constant" or _direction(compare) not in ("EQ", "NE"):
            return value
        value = otherwise


def _direction(op: ir.Operation) -> str:
    return enumeration(op, "comparison_direction")


def _owner(value: ir.Value) -> ir.Operation | None:
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def is_argument_of_extreme(block: ir.Block) -> str | None:
    """Return 'argmax' or 'argmin' for JAX's region on pairs of a value and its index, None for others.

    The smallest position wins among equal values, and NaN wins over numbers.
    """
    operations = [op.operation for op in block.operations]
    names = [op.name.removeprefix("stablehlo.") for op in operations]
    if len(block.arguments) != 4 or names[-3:] != ["select", "select", "return"]:
        return None
    compares = [_direction(op) for op in operations if op.name == "stablehlo.compare"]
    known: dict[tuple[str, ...], str] = {
        ("GT", "NE", "EQ", "LT"): "argmax", ("LT", "NE", "EQ", "LT"): "argmin",
        ("GT", "EQ", "LT"): "argmax", ("LT", "EQ", "LT"): "argmin",
    }  # fmt: skip
    result = known.get(tuple(compares))
    if result is None or not _is_pair_choice(block, operations, result):
        return None
    return result


def _is_pair_choice(block: ir.Block, operations: list[ir.Operation], kind: str) -> bool:
    """Evaluate the region on pairs: it consists of comparisons, so few pairs distinguish all cases."""
    floats = [float("nan"), -1.0, 0.0, 2.0]
    type_ = TensorType.from_mlir(block.arguments[0].type)
    values = floats if type_ is not None and type_.dtype.is_float else [0, 1, 2]
    for a in values:
        for b in values:
            for i, j in ((0, 1), (1, 0)):
                try:
                    choice = evaluate_region(operations, list(block.arguments), (a, i, b, j))
                except Unknown:
                    return False
                if choice[1] != _wanted(kind, a, i, b, j):
                    return False
    return True


def _wanted(kind: str, a: float, i: int, b: float, j: int) -> int:
    """Return the position of the expected result."""
    if a != a:
        return i  # the first NaN that is met stays
    if b != b:
        return j
    if a == b:
        return min(i, j)
    return i if (a > b) == (kind == "argmax") else j
