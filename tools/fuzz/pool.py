"""The values of a graph while it grows: each with its array, so that every node that is added is valid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

LIMIT = 1e3
"""Larger floats are excluded, because their rounding depends on the order of a sum too much."""
MAX_ELEMENTS = 4096

FLOATS = (np.float32, np.float32, np.float32, np.float32, np.float64, np.float16)
INTS = (np.int64, np.int32, np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.uint64)
DIMS = (2, 3, 4, 5, 7, 8, 9, 16, 17, 33)
DYNAMIC_SHARE = 0.15
"""Part of the graphs whose sizes are known at run time only."""
DIMS_OF_A_GRAPH = 4
"""Few: values of equal shapes meet in nodes, and nodes in kernels."""


@dataclass(eq=False)
class GraphValue:
    """A tensor of the graph."""

    name: str
    array: np.ndarray
    is_exact: bool
    """Whether every implementation computes the same bits: what rounds, compares or sorts may read it."""
    epsilon: float = 0.0
    """The rounding of the narrowest floats that it was computed from."""

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim

    @property
    def is_float(self) -> bool:
        return self.array.dtype.kind == "f"


@dataclass(frozen=True)
class NodeDraft:
    """A node that may be added."""

    operator: str
    inputs: tuple[GraphValue | None, ...]
    attributes: Mapping[str, object] = field(default_factory=dict)
    outputs: int = 1
    is_exact: bool = False
    """Whether the results are exact where the inputs are."""
    domain: str = ""


T = TypeVar("T")


class ValuePool:
    """Values to choose from; missing ones are added as inputs or constants of the graph."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.dims = (1, *(self.choice(DIMS) for _ in range(DIMS_OF_A_GRAPH)))
        self.is_dynamic = self.chance(DYNAMIC_SHARE)
        """Whether sizes are known at run time only: dims of inputs, and some of the numbers that decide shapes."""
        self.values: list[GraphValue] = []
        self.inputs: list[GraphValue] = []
        self.constants: list[GraphValue] = []

    # Choices

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def choice(self, items: Sequence[T]) -> T:
        return items[int(self.rng.integers(len(items)))]

    def number(self, low: int, high: int) -> int:
        """Draw an integer from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def shape(self, low: int = 0, high: int = 4) -> tuple[int, ...]:
        dims: list[int] = [self.choice(self.dims) for _ in range(self.number(low, high))]
        while np.prod(dims, dtype=np.int64) > MAX_ELEMENTS:
            dims[int(np.argmax(dims))] = 1
        return tuple(dims)

    # Values

    def array(self, shape: Sequence[int], dtype: npt.DTypeLike, low: float = -2.0, high: float = 2.0) -> np.ndarray:
        """Draw values that floats of any width represent: multiples of 1/16, or small integers."""
        kind = np.dtype(dtype)
        if kind == np.bool_:
            return self.rng.integers(0, 2, shape).astype(bool)
        if kind.kind in "iu":
            least = 0 if kind.kind == "u" else -7
            return self.rng.integers(least, 8, shape).astype(kind)
        return (np.round(self.rng.uniform(low, high, shape) * 16) / 16).astype(kind)

    def leaf(self, array: np.ndarray, constant: bool | None = None) -> GraphValue:
        """Add an input of the graph, or a constant."""
        constant = self.chance(0.4) if constant is None else constant
        owned = self.constants if constant else self.inputs
        value = GraphValue(f"{'c' if constant else 'x'}{len(owned)}", np.asarray(array), True)
        owned.append(value)
        self.values.append(value)
        return value

    def constant(self, array: np.ndarray) -> GraphValue:
        """Add a constant that only the current node reads: axes, shapes, indices."""
        value = GraphValue(f"c{len(self.constants)}", np.asarray(array), True)
        self.constants.append(value)
        return value

    def sizes(self, numbers: Sequence[int]) -> GraphValue:
        """Draw integers that determine a shape: a constant, or an input if sizes are dynamic."""
        array = np.array(numbers, np.int64)
        if not self.is_dynamic or self.chance(0.5):
            return self.constant(array)
        value = GraphValue(f"x{len(self.inputs)}", array, True)
        self.inputs.append(value)
        return value

    def find(self, fits: Callable[[GraphValue], bool]) -> GraphValue | None:
        """Draw a value that fits; newer ones are likelier, so that graphs are deep."""
        selected = [value for value in self.values if fits(value)]
        if not selected:
            return None
        weights = np.arange(1, len(selected) + 1, dtype=float) ** 2
        return selected[int(self.rng.choice(len(selected), p=weights / weights.sum()))]

    def floats(
        self, low: int = 0, high: int = 4, exact: bool = False, dtype: npt.DTypeLike | None = None
    ) -> GraphValue:
        """Draw a tensor of floats whose rank is from `low` to `high`."""

        def fits(value: GraphValue) -> bool:
            right = value.is_float if dtype is None else value.dtype == dtype
            return right and low <= value.rank <= high and (value.is_exact or not exact) and value.array.size > 0

        existing = self.find(fits) if self.chance(0.85) else None
        return existing or self.leaf(self.array(self.shape(low, high), dtype or self.choice(FLOATS)))

    def of_shape(self, shape: Sequence[int], dtype: npt.DTypeLike) -> GraphValue:
        """Draw a tensor of this shape and type."""
        value = self.find(lambda v: v.shape == tuple(shape) and v.dtype == dtype) if self.chance(0.6) else None
        return value or self.leaf(self.array(shape, dtype))

    def any(self, low: int = 0, high: int = 5, kinds: str = "fiub", exact: bool = False) -> GraphValue:
        """Draw a tensor of any type of these kinds."""

        def fits(value: GraphValue) -> bool:
            right = value.dtype.kind in kinds and low <= value.rank <= high
            return right and (value.is_exact or not exact) and value.array.size > 0

        existing = self.find(fits) if self.chance(0.85) else None
        if existing is not None:
            return existing
        kind = self.choice(kinds)
        dtype = {"f": self.choice(FLOATS), "b": np.bool_}.get(kind) or self.choice(
            [t for t in INTS if np.dtype(t).kind == kind]
        )
        return self.leaf(self.array(self.shape(low, min(high, 4)), dtype))

    def broadcastable(self, other: GraphValue, dtype: npt.DTypeLike | None = None) -> GraphValue:
        """Draw a tensor that broadcasts with another one, in either direction."""
        shape = list(other.shape)
        for axis in range(len(shape)):
            if self.chance(0.3):
                shape[axis] = 1
        shape = shape[self.number(0, len(shape)) if self.chance(0.3) else 0 :]
        if shape and self.chance(0.1) and len(shape) < 4 and len(shape) == other.rank:
            shape = [self.choice((1, 2, 3)), *shape]
        return self.of_shape(shape, dtype or other.dtype)
