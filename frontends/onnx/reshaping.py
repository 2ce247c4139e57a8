"""The result shape of a Reshape, as far as it is known at import."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx.dimensions import quotient
from mirlo.frontends.onnx.equations import divisible
from mirlo.frontends.onnx.errors import NodeError


class Undivided(NodeError):
    """A shape whose divisibility is known only at run time, with -1 for the rest."""

    def __init__(self, text: str, shape: Sequence[Dim], equation: tuple[Dim, Dim] | None = None) -> None:
        super().__init__(text)
        self.shape = tuple(shape)
        self.equation = equation
        """Two dims that are equal if the shape divides the elements."""


def reshaped(x: TensorType, wanted: Sequence[Dim], allow_zero: bool) -> tuple[Dim, ...]:
    """Return the result shape of a Reshape to `wanted`: 0 copies a dim, -1 is the rest."""
    shape: list[Dim] = []
    for i, dim in enumerate(wanted):
        if dim == 0 and not allow_zero:
            if i >= x.rank:
                raise NodeError(f"shape {_listed(wanted)} copies dim {i}, but the input is {x}")
            dim = x.shape[i]
        shape.append(dim)
    unknown = [i for i, dim in enumerate(shape) if dim == -1]
    if any(isinstance(dim, int) and dim < -1 for dim in shape) or len(unknown) > 1:
        raise NodeError(f"shape {_listed(wanted)} must be sizes, of which one may be -1")
    if unknown:
        known = D.product([dim for dim in shape if dim != -1])
        rest = quotient(x.elements, known)
        if rest is None:
            text = f"the input {x} cannot be reshaped to {_listed(wanted)}: {known} does not divide {x.elements}"
            number = D.product([dim for dim in shape if isinstance(dim, int) and dim != -1])
            total = quotient(x.elements, D.product([dim for dim in shape if not isinstance(dim, int)]))
            if total is None and D.symbols_of(x.elements):
                raise Undivided(text, shape)
            if total is None or not isinstance(number, int) or number < 1:
                raise NodeError(text)
            raise Undivided(text, shape, divisible(total, number))
        shape[unknown[0]] = rest
    return tuple(shape)


def _listed(dims: Sequence[Dim]) -> str:
    return "[" + ", ".join(map(str, dims)) + "]"
