"""Elements for the graphs of patterns, and numpy's results: exactly, and within rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from mirlo.dialects.core.types import TensorType
from mirlo.runtime.records import dataclass
from mirlo.tools.conformance.case import TOLERANCE, Operand, UndefinedResult, wide
from mirlo.tools.conformance.derivations import GraphLeaf, GraphOperation, GraphValue
from mirlo.tools.conformance.derived import evaluate
from mirlo.tools.conformance.typed_graphs import TypedGraph, may_be_positions

TRIALS = 32
"""Draws of magnitudes: results of few bits must neither vanish nor saturate throughout."""
GOOD = 0.6
"""The share of the possible information of a result at which the search for magnitudes ends."""
ROUNDING = {"f64": 1e-13, "f32": 4e-6, "f16": 1e-3, "bf16": 8e-3}
"""How far a correct result may be off, relative to the largest element of the tensor."""
OPERAND_ROUNDING = {"f64": 4e-16, "f32": 2e-7, "f16": 2e-7, "bf16": 2e-7}
"""How far an operand may be off, relative to itself: a quotient or a position is computed in f32 at least."""
MAX_ROUNDED = 0.01
"""The share of integers that may be rounded to the other side, where they are computed from floats."""

Arrays = dict[GraphLeaf, np.ndarray]
Fallback = Callable[[GraphOperation, Sequence[Operand], dict[str, object]], tuple[np.ndarray, ...]]
"""Computes an operation that has no reference in numpy."""


@dataclass(frozen=True)
class ExpectedResult:
    """A result in numpy, and its range under rounding.

    Where that is NaN nothing is compared, as libraries need not agree on NaN.
    """

    exact: np.ndarray
    low: np.ndarray
    high: np.ndarray
    kind: str
    rounds: bool
    """Whether it is computed from floats."""

    def error_in(self, got: np.ndarray, tolerance: float = 0.0) -> str | None:
        """Return the error of a result, or None; `tolerance` is the error that its target declares."""
        if got.shape != self.exact.shape:
            return f"shape {got.shape} instead of {self.exact.shape}"
        values = wide(got).astype(np.float64)
        low, high = self.low.astype(np.float64), self.high.astype(np.float64)
        is_undefined = np.isnan(low) | np.isnan(high)
        if self.kind in TOLERANCE:
            finite = np.abs(self.exact[np.isfinite(self.exact)])
            slack = max(TOLERANCE[self.kind], tolerance) * float(finite.max(initial=0) or 1)
            low, high = low - slack, high + slack
        fits = is_undefined | ((values >= low) & (values <= high))
        if fits.all():
            return None
        near = (values >= low - 1) & (values <= high + 1)
        if self.kind not in TOLERANCE and self.rounds and near.all() and (~fits).sum() <= MAX_ROUNDED * fits.size:
            return None
        at = tuple(int(i[0]) for i in np.nonzero(~fits))
        place = f"[{', '.join(map(str, at))}]"
        return (
            f"{int((~fits).sum())} of {fits.size} elements differ, the first at {place}: {values[at]:.6g} instead of "
            f"{float(self.exact[at]):.6g}"
        )


def compute(
    typed: TypedGraph, arrays: Arrays, fallback: Fallback, noise: float = 0.0, error: float = 0.0
) -> list[np.ndarray]:
    """Return the outputs of a graph in the widest types; `noise` moves floats by this many roundings.

    Floats between operations are moved by `error` where that is more, relative to the largest element of the tensor.
    """
    computed: dict[GraphOperation, list[np.ndarray]] = {}
    last = {value.operation for value in typed.graph.outputs}
    read = _moved(typed, arrays, noise) if noise else arrays

    def value_of(value: GraphValue) -> np.ndarray:
        return read[value] if isinstance(value, GraphLeaf) else computed[value.operation][value.number]

    for operation in typed.graph.operations:
        operands: list[Operand] = [
            [value_of(v) for v in o] if isinstance(o, list) else None if o is None else value_of(o)
            for o in operation.operands.values()
        ]
        attributes = typed.attributes[operation]
        _refuse_integers_of_nan(operation, operands, typed.results[operation])
        try:
            results = evaluate(operation.name.removeprefix("relax."), operands, attributes)
        except UndefinedResult:
            raise
        except (ValueError, OverflowError):
            results = fallback(operation, _as_declared(typed, operation, operands), attributes)
        computed[operation] = [
            _stored(array, kind.dtype.name, noise, 0.0 if operation in last else error)
            for array, kind in zip(results, typed.results[operation], strict=True)
        ]
    return [computed[value.operation][value.number] for value in typed.graph.outputs]


def _as_declared(typed: TypedGraph, operation: GraphOperation, operands: Sequence[Operand]) -> list[Operand]:
    """Return operands whose integers, which are computed in 64 bits, have the types of the graph."""

    def narrowed(value: GraphValue, array: np.ndarray) -> np.ndarray:
        kind = typed.type_of(value).dtype
        return array.astype(kind.to_numpy()) if kind.is_integer and kind.bits >= 8 else array

    return [
        [narrowed(*pair) for pair in zip(values, arrays, strict=True)]  # type: ignore[arg-type]
        if isinstance(values, list)
        else None if values is None or arrays is None else narrowed(values, arrays)  # type: ignore[arg-type]
        for values, arrays in zip(operation.operands.values(), operands, strict=True)
    ]  # fmt: skip


def _refuse_integers_of_nan(
    operation: GraphOperation, operands: Sequence[Operand], results: Sequence[TensorType]
) -> None:
    """Raise UndefinedResult where integers or bools are computed from NaN."""
    kind = next((result.dtype.name for result in results if not result.dtype.is_float), None)
    flat = [array for o in operands for array in (o if isinstance(o, list) else [o]) if array is not None]
    if kind is not None and any(array.dtype.kind == "f" and np.isnan(array).any() for array in flat):
        raise UndefinedResult(f"'{operation.name}' makes {kind} of NaN")


def _moved(typed: TypedGraph, arrays: Arrays, noise: float) -> Arrays:
    """Return arrays whose floats are moved by roundings, neighbours in opposite directions."""
    moved = dict(arrays)
    for number, leaf in enumerate(typed.types):
        rounding = OPERAND_ROUNDING.get(typed.types[leaf].dtype.name)
        if rounding is not None:
            sign = -1 if number % 2 else 1
            moved[leaf] = arrays[leaf].astype(np.float64) * (1 + sign * noise * rounding)
    return moved


def _stored(array: np.ndarray, kind: str, noise: float, error: float) -> np.ndarray:
    """Return a result as its type holds it, floats in f64."""
    if kind in ROUNDING:
        numbers = array.astype(np.float64)
        if not noise or not numbers.size:
            return numbers
        finite = np.abs(numbers[np.isfinite(numbers)])
        return numbers + noise * max(ROUNDING[kind], error) * float(finite.max(initial=0))
    if kind == "bool":
        return array.astype(np.bool_)
    named = {"i": "int", "u": "uint"}.get(kind[0])
    return wide(array.astype(np.dtype(f"{named}{kind[1:]}"))) if named and kind[1:].isdigit() else array


def expectations(typed: TypedGraph, arrays: Arrays, fallback: Fallback, error: float = 0.0) -> list[ExpectedResult]:
    """Return the expected results of the outputs; each operation before may have the error that its target declares."""
    exact, above, below = (compute(typed, arrays, fallback, noise, error) for noise in (0.0, 1.0, -1.0))
    rounds = any(kind.dtype.is_float for results in typed.results.values() for kind in results)
    kinds = [typed.type_of(value).dtype.name for value in typed.graph.outputs]
    return [
        ExpectedResult(one, np.minimum(one, np.minimum(up, down)), np.maximum(one, np.maximum(up, down)), kind, rounds)
        for kind, one, up, down in zip(kinds, exact, above, below, strict=True)
    ]


def draws(typed: TypedGraph, random: np.random.Generator, fallback: Fallback) -> Iterator[Arrays]:
    """Yield elements of the leaves with informative results, then elements with which results of few bits saturate."""
    best: tuple[float, Arrays | None] = (-1.0, None)
    saturated: tuple[float, Arrays | None] = (0.2, None)
    for trial in range(TRIALS):
        arrays = drawn(typed, random, trial)
        try:
            with np.errstate(all="ignore"):
                outputs = compute(typed, arrays, fallback)
        except ValueError:
            if trial + 1 == TRIALS and best[1] is None:
                raise
            continue
        if any(output.dtype.kind == "f" and output.size and np.isnan(output).all() for output in outputs):
            continue
        kinds = [typed.type_of(value).dtype.name for value in typed.graph.outputs]
        scores = [_information(output, kind) for output, kind in zip(outputs, kinds, strict=True)]
        score = min(scores)
        if score > best[0]:
            best = score, arrays
        if any(_saturates(output, kind) for output, kind in zip(outputs, kinds, strict=True)) and score > saturated[0]:
            saturated = score, arrays
        is_narrow = any(kind in ("i8", "u8") for kind in kinds)
        if best[0] >= GOOD and (not is_narrow or saturated[1] is not None):
            break
    if best[1] is not None:
        yield best[1]
    if saturated[1] is not None and saturated[1] is not best[1]:
        yield saturated[1]


def constant_of(value: float, like: np.ndarray) -> np.ndarray:
    """Return an array of one number; a number that a type of integers cannot represent wraps."""
    numbers = np.full(like.shape, value)
    return numbers.astype(np.int64).astype(like.dtype) if like.dtype.kind in "iu" else numbers.astype(like.dtype)


def drawn(typed: TypedGraph, random: np.random.Generator, trial: int) -> Arrays:
    """Return elements of the leaves, of other magnitudes in each trial."""
    arrays = {}
    for leaf, kind in typed.types.items():
        magnitude = 1.0 if trial < 2 else 10.0 ** random.uniform(-4, 2)
        is_free = typed.ranges[leaf].dtype.is_float and leaf not in typed.arguments
        array = typed.ranges[leaf].draw(kind.static_shape, random, magnitude if is_free else 1.0, trial % 2 == 0)
        arrays[leaf] = array if leaf.value is None else constant_of(leaf.value, array)
    return arrays


def again(typed: TypedGraph, arrays: Arrays, random: np.random.Generator, constants: bool = False) -> Arrays:
    """Return other elements of the arguments, or of the constants, within the same limits.

    Positions do not change if other positions would be invalid, such as nodes of a tree in an order with a cycle.
    """
    changed = dict(arrays)
    for leaf, array in arrays.items():
        if (leaf in typed.arguments) != constants and array.size and leaf.value is None:
            # The rows of positions stay whole: each column has an axis of its own.
            parts = array if array.ndim and may_be_positions(array.dtype) else array.reshape(-1)
            changed[leaf] = random.permutation(parts).reshape(array.shape)
    positions = {leaf: array for leaf, array in arrays.items() if may_be_positions(array.dtype)}
    return changed if not positions or _has_results(typed, changed) else changed | positions


def _has_results(typed: TypedGraph, arrays: Arrays) -> bool:
    """Return whether operators are defined on these elements; those without a reference compute zeros."""

    def zeros(
        operation: GraphOperation, operands: Sequence[Operand], attributes: dict[str, object]
    ) -> tuple[np.ndarray, ...]:
        return tuple(np.zeros(kind.static_shape, kind.dtype.to_numpy()) for kind in typed.results[operation])

    try:
        with np.errstate(all="ignore"):
            compute(typed, arrays, zeros)
    except UndefinedResult:
        return False
    return True


def _information(array: np.ndarray, kind: str) -> float:
    """Return the entropy of the elements, relative to what as many elements of the type can have."""
    if array.size < 2:
        return 1.0 if np.isfinite(array.astype(np.float64)).all() else 0.0
    numbers: np.ndarray = array.astype(np.float64)
    if kind in ROUNDING:
        if not np.isfinite(numbers).all() or np.abs(numbers).max() > 1e6:
            return 0.0
        numbers = np.asarray(np.round(numbers / (np.abs(numbers).max() or 1), 4), np.float64)
    _, counts = np.unique(numbers, return_counts=True)
    shares = counts / array.size
    possible = min(array.size, 2 if kind == "bool" else 256)
    return float(min(1.0, -(shares * np.log2(shares)).sum() / np.log2(possible)))


def _saturates(array: np.ndarray, kind: str) -> bool:
    """Return whether some of the bytes, not most of them, are the largest or the smallest."""
    if kind not in ("i8", "u8") or not array.size:
        return False
    limits = np.iinfo(np.dtype("int8" if kind == "i8" else "uint8"))
    return bool(0.03 <= (array == limits.max).mean() <= 0.7)
