"""Cases of operators: random operands, attributes, and numpy's results."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Collection
from dataclasses import field

import numpy as np

from mirlo.dialects.core.dtypes import DType, dtype
from mirlo.runtime.records import dataclass

FLOATS = ("f32", "f64", "f16", "bf16")
INTS = ("i8", "i32", "i64", "u8")
BOOL = ("bool",)
NUMERIC_TYPES = (*FLOATS, *INTS)
ANY = (*NUMERIC_TYPES, *BOOL)
COLUMNS = ANY
"""The element types that a support matrix shows, in order."""

TOLERANCE = {"f64": 1e-11, "f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}
"""Largest error, relative to the largest element of the result or to 1."""

Maker = Callable[["Draw"], "OperatorCase"]


Operand = np.ndarray | list[np.ndarray] | None
Reference = np.ndarray | tuple[np.ndarray, ...] | None


class UndefinedResult(ValueError):
    """Raised for elements on which an operator is not defined, and which no target must be given."""


@dataclass(frozen=True)
class OperatorCase:
    """Operands (None for an absent one, a list for a variadic one), attributes, and the expected results."""

    operands: tuple[Operand, ...]
    attributes: dict[str, object]
    expected: tuple[np.ndarray, ...]
    tolerance: float = 0.0
    """The error that is allowed where it is more than `TOLERANCE` says."""

    @property
    def arrays(self) -> list[np.ndarray]:
        """Return the operands that are present, in order."""
        flat = [part for o in self.operands for part in (o if isinstance(o, list) else [o])]
        return [array for array in flat if array is not None]


def case(
    *operands: Operand, expected: np.ndarray | tuple[np.ndarray, ...], tolerance: float = 0.0, **attributes: object
) -> OperatorCase:
    """Return `case(x, axis=1, expected=...)`; one array, or a tuple of them, is expected."""
    wanted = expected if isinstance(expected, tuple) else (expected,)
    return OperatorCase(operands, attributes, tuple(np.asarray(array) for array in wanted), tolerance)


@dataclass
class Draw:
    """Random arrays of the element type that a case is for."""

    kind: DType
    random: np.random.Generator
    tile: int = 1
    """What sizes of drawn arrays are multiples of, except small ones."""
    small: int = 1
    """The largest size that stays as it is."""
    beyond: int = 0
    """What is added to other sizes, beyond whole tiles."""
    kept: tuple[int, ...] = ()
    """Sizes that stay as they are."""
    most: int = 0
    """The most elements of an array; 0 for any number."""

    def sizes(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape that is drawn in place of another one."""
        drawn = tuple(
            size if size <= self.small or size in self.kept else -(-size // self.tile) * self.tile + self.beyond
            for size in shape
        )
        if self.most and np.prod(drawn) > self.most:
            raise ValueError(f"more than {self.most} elements")
        return drawn

    @property
    def is_float(self) -> bool:
        return self.kind.is_float

    def array(self, *shape: int, low: float = -3, high: float = 3) -> np.ndarray:
        """Draw values from low to high; unsigned integers are not below zero."""
        numpy_type, shape = self.kind.to_numpy(), self.sizes(shape)
        if self.is_float:
            drawn = self.random.uniform(low, high, shape)
            # Versions of ml_dtypes differ in whether they round f64 to bf16 once or by way of f32.
            return (drawn if self.kind.name in ("f64", "f16") else drawn.astype(np.float32)).astype(numpy_type)
        if self.kind.is_bool:
            return self.random.integers(0, 2, shape).astype(numpy_type)
        least = max(int(np.ceil(low)), 0) if self.kind.kind == "uint" else int(np.ceil(low))
        return self.random.integers(least, max(int(high), least) + 1, shape).astype(numpy_type)

    def nonzero(self, *shape: int, low: float = 0.5, high: float = 3) -> np.ndarray:
        """Draw positive numbers."""
        return self.array(*shape, low=low if self.is_float else 1, high=high)

    def ints(self, low: int, high: int, *shape: int) -> np.ndarray:
        """Draw i64 from low to high - 1, for indices."""
        return self.random.integers(low, high, shape)

    def permuted(self, *shape: int) -> np.ndarray:
        """Draw distinct values in any order, small enough for every type."""
        shape = self.sizes(shape)
        count = int(np.prod(shape))
        return (
            (self.random.permutation(count) - (0 if self.kind.kind == "uint" else count // 2))
            .reshape(shape)
            .astype(self.kind.to_numpy())
        )


def wide(array: np.ndarray) -> np.ndarray:
    """Convert to the type in which references compute: f64, i64 or bool."""
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    return array if array.dtype == np.bool_ else array.astype(np.float64)


@dataclass
class CaseTable:
    """The cases of operators, by operator and element type."""

    makers: dict[str, list[tuple[Maker, tuple[str, ...]]]] = field(default_factory=dict)
    references: dict[str, Callable[..., Reference]] = field(default_factory=dict)
    """What operators mean whose classes do not say it: on the widest types, with all attributes by name."""

    def add(self, name: str, kinds: tuple[str, ...], maker: Maker) -> None:
        self.makers.setdefault(name, []).append((maker, kinds))

    def forget(self, namespaces: Collection[str]) -> None:
        """Remove the cases and references of the operators of dialects."""
        for table in (self.makers, self.references):
            for name in [name for name in table if name.partition(".")[0] in namespaces and "." in name]:
                del table[name]

    def tiled_cases(self, operator: str, kind: str, tile: int, small: int = 1) -> list[OperatorCase]:
        """Return the cases of an operator whose sizes can be multiples of a tile's."""
        return self.drawn_cases(operator, Draw(dtype(kind), np.random.default_rng(tile), tile, small))

    def drawn_cases(self, operator: str, draw: Draw) -> list[OperatorCase]:
        """Return the cases of an operator whose sizes can be those that are drawn."""
        cases = []
        for maker, kinds in self.makers.get(operator, ()):
            with np.errstate(all="ignore"), contextlib.suppress(ValueError, IndexError):  # it has sizes of its own
                cases += [maker(draw)] if draw.kind.name in kinds else []
        return cases

    def cases(self, operator: str, kind: str) -> list[OperatorCase]:
        """Return the cases of an operator for an element type; they are always the same."""
        seed = zlib.crc32(f"{operator} {kind}".encode())
        draw = Draw(dtype(kind), np.random.default_rng(seed))
        with np.errstate(all="ignore"):
            return [maker(draw) for maker, kinds in self.makers.get(operator, ()) if kind in kinds]


TABLE = CaseTable()
VARIED = CaseTable()
"""More operands and attributes for patterns, which the support matrix does not show; these cases expect nothing."""


def operator(*names: str, kinds: tuple[str, ...] = FLOATS) -> Callable[[Maker], Maker]:
    """Register the decorated function as a case of these operators."""

    def register(maker: Maker) -> Maker:
        for name in names:
            TABLE.add(name, kinds, maker)
        return maker

    return register


def varied(*names: str, kinds: tuple[str, ...] = FLOATS) -> Callable[[Maker], Maker]:
    """Register the decorated function as a case of these operators in patterns."""

    def register(maker: Maker) -> Maker:
        for name in names:
            VARIED.add(name, kinds, maker)
        return maker

    return register


def reference(*names: str) -> Callable[[Callable[..., Reference]], Callable[..., Reference]]:
    """Register the decorated function as the meaning of these operators."""

    def register(function: Callable[..., Reference]) -> Callable[..., Reference]:
        TABLE.references.update(dict.fromkeys(names, function))
        return function

    return register
