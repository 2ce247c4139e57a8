"""A tensor of a program that is imported: an SSA value of relax, or what is known of its elements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.types import TensorType

SIZES = 64
"""Integer tensors of up to so many elements are followed as sizes."""


@dataclass(eq=False)
class Tensor:
    """A tensor: one of `value`, `array` and `sizes` says what it holds.

    `value` broadcasts to the shape of `type`: StableHLO and ATen expand operands before operations, relax does not
    need it for elementwise ones.
    """

    type: TensorType
    value: ir.Value | None = None
    array: np.ndarray | None = None
    """The elements of a constant; of any shape that broadcasts."""
    sizes: tuple[Dim, ...] | None = None
    """The elements of an integer tensor, in row-major order, where they are known: numbers and dims."""
    made: ir.Value | None = None
    """The SSA value with the whole shape, once there is one."""
    block: ir.Block | None = None
    """The block that holds `made`."""

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Return the dims."""
        return self.type.shape

    @property
    def rank(self) -> int:
        """Return the number of dims."""
        return self.type.rank

    @property
    def dtype(self) -> DType:
        """Return the element type."""
        return self.type.dtype

    @property
    def constant(self) -> np.ndarray | None:
        """Return the elements if all are known numbers, in the whole shape."""
        if self.array is not None and self.type.is_static:
            return np.broadcast_to(self.array, self.type.static_shape)
        if self.sizes is not None and all(isinstance(size, int) for size in self.sizes):
            return np.array(self.sizes, self.type.dtype.to_numpy()).reshape(self.type.static_shape)
        return None

    @property
    def known_sizes(self) -> tuple[Dim, ...] | None:
        """Return the elements as sizes if they are known."""
        if self.sizes is not None:
            return self.sizes
        constant = self.constant if self.type.dtype.is_integer or self.type.dtype.is_bool else None
        if constant is None or constant.size > SIZES:
            return None
        return tuple(int(item) for item in constant.reshape(-1))


def known(type_: TensorType, sizes: tuple[Dim, ...]) -> Tensor:
    """Return an integer tensor of known elements."""
    return Tensor(type_, sizes=sizes)


def of_array(array: np.ndarray, type_: TensorType) -> Tensor:
    """Return a constant; the array may have any shape that broadcasts to the type's."""
    return Tensor(type_, array=np.asarray(array))
