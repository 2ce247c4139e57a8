"""Arithmetic on sizes at import: programs with dynamic shapes compute shapes from the dims of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mirlo.extend.frontend import OF_INPUTS, SIZES, Dim, Tensor, TensorType, Undecided, UndecidedDim
from mirlo_stablehlo.enumerations import COMPARISONS
from mirlo_stablehlo.names import NAMES

if TYPE_CHECKING:
    from mirlo_stablehlo.operation import StablehloOperation

Sizes = tuple[Dim, ...]


def evaluate(op: StablehloOperation) -> Tensor | None:
    """Return the result of an operation on known sizes, or None if it must be computed at run time."""
    rule = _RULES.get(op.name)
    if rule is None or len(op.op.results) != 1:
        return None
    declared = TensorType.from_mlir(op.op.results[0].type)
    if declared is None or not declared.is_static or not (declared.dtype.is_integer or declared.dtype.is_bool):
        return None
    count = declared.elements
    if not isinstance(count, int) or not 0 < count <= SIZES:
        return None
    operands = [operand.known_sizes for operand in op.operands] if op.name != "get_dimension_size" else []
    if any(sizes is None for sizes in operands):
        return None
    try:
        result = rule(op, [sizes for sizes in operands if sizes is not None])
    except (Undecided, UndecidedDim, ZeroDivisionError):
        return None
    if result is None or len(result) != count or not all(_fits(size, declared) for size in result):
        return None
    return op.builder.known(declared, tuple(result))


def _fits(size: Dim, declared: TensorType) -> bool:
    if not isinstance(size, int):
        return not declared.dtype.is_bool
    bits = declared.dtype.bits if declared.dtype.is_integer else 1
    if declared.dtype.kind == "int":
        return -(1 << bits - 1) <= size < 1 << bits - 1
    return 0 <= size < 1 << bits


def _binary(function: Callable[[Dim, Dim], Dim]) -> Callable[[StablehloOperation, Sequence[Sizes]], Sizes]:
    return lambda op, operands: tuple(function(a, b) for a, b in zip(*operands, strict=True))


def _bits(function: Callable[[int, int], int]) -> Callable[[StablehloOperation, Sequence[Sizes]], Sizes]:
    def apply(left: Dim, right: Dim) -> Dim:
        if isinstance(left, int) and isinstance(right, int):
            return function(left, right)
        raise Undecided

    return _binary(apply)


def _not(op: StablehloOperation, operands: Sequence[Sizes]) -> Sizes:
    if not op.type(0).dtype.is_bool:
        raise Undecided
    return tuple(1 - size for size in operands[0])


def _select(op: StablehloOperation, operands: Sequence[Sizes]) -> Sizes:
    which, then, otherwise = operands
    chosen = which * len(then) if len(which) == 1 else which
    return tuple(a if flag else b for flag, a, b in zip(chosen, then, otherwise, strict=True))


def _clamp(op: StablehloOperation, operands: Sequence[Sizes]) -> Sizes:
    low, value, high = operands
    count = len(value)
    low, high = (low * count if len(low) == 1 else low), (high * count if len(high) == 1 else high)
    return tuple(OF_INPUTS.minimum(OF_INPUTS.maximum(v, a), b) for a, v, b in zip(low, value, high, strict=True))


def _convert(op: StablehloOperation, operands: Sequence[Sizes]) -> Sizes:
    if op.declared().dtype.is_bool:
        return tuple(int(OF_INPUTS.sign(size) != 0) for size in operands[0])
    return operands[0]


def _broadcast(op: StablehloOperation, operands: Sequence[Sizes]) -> Sizes | None:
    count = op.declared().elements
    assert isinstance(count, int)
    return operands[0] * count if len(operands[0]) == 1 else operands[0] if len(operands[0]) == count else None


def _concatenate(op: StablehloOperation, operands: Sequence[Sizes]) -> Sizes | None:
    return tuple(size for sizes in operands for size in sizes) if op.declared().rank == 1 else None


def _slice(op: StablehloOperation, operands: Sequence[Sizes]) -> Sizes | None:
    if op.declared().rank != 1:
        return None
    start, stop, stride = (op.ints(name)[0] for name in ("start_indices", "limit_indices", "strides"))
    return operands[0][start:stop:stride]


def _dimension(op: StablehloOperation, operands: Sequence[Sizes]) -> Sizes:
    return (op.type(0).shape[op.integer("dimension")],)


_ARITHMETIC = {name: of_dims for relax, of_dims in OF_INPUTS.functions.items() for name in NAMES.get(relax, ())}
"""Functions of dims, by the names of StableHLO."""
_RULES: dict[str, Callable[[StablehloOperation, Sequence[Sizes]], Sizes | None]] = {
    **{name: _binary(of_dims) for name, of_dims in _ARITHMETIC.items()},
    "and": _bits(lambda a, b: a & b),
    "or": _bits(lambda a, b: a | b),
    "xor": _bits(lambda a, b: a ^ b),
    "not": _not,
    "negate": lambda op, operands: tuple(-size for size in operands[0]),
    "sign": lambda op, operands: tuple(OF_INPUTS.sign(size) for size in operands[0]),
    "compare": lambda op, operands: tuple(
        int(OF_INPUTS.functions[COMPARISONS[op.word("comparison_direction")]](a, b))
        for a, b in zip(*operands, strict=True)
    ),
    "select": _select,
    "clamp": _clamp,
    "convert": _convert,
    "reshape": lambda op, operands: operands[0],
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "slice": _slice,
    "get_dimension_size": _dimension,
}
