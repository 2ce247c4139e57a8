"""Interpolation: images and other tensors resampled to another shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.frontends.tensor import Tensor, concat, number
from mirlo.runtime.records import dataclass

F64 = DTYPES["f64"]


@dataclass(frozen=True)
class Interpolation:
    """How elements between those of the operand are computed; the names are those of `relax.resize`."""

    mode: str
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic_coeff: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0


def resize(
    x: Tensor, shape: Sequence[Dim], how: Interpolation, scales: Sequence[float | None] | Tensor = (),
    roi: Sequence[float] | Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the tensor interpolated to a shape.

    Coordinates are divided by `scales`, one for each axis: numbers, or a tensor of f64 that only the call knows. None
    stands for output size / input size; without scales that holds for all axes. `roi` is the region that is cropped.
    """
    if not isinstance(scales, Tensor) and any(scale is not None for scale in scales):
        scales = _complete(x, shape, scales)
    if isinstance(scales, Tensor):
        return x.builder.emit("resize_at", x, scales, roi, shape=tuple(shape), **asdict(how))
    known = [scale for scale in scales if scale is not None]
    return x.builder.emit("resize", x, shape=tuple(shape), scales=known, roi=roi or (), **asdict(how))


def _complete(x: Tensor, shape: Sequence[Dim], scales: Sequence[float | None]) -> Sequence[float] | Tensor:
    """Return scales with the quotients of sizes for those that are None: numbers if these are known."""
    known: list[float] = []
    parts: list[Tensor] = []
    for scale, before, after in zip(scales, x.shape, shape, strict=True):
        if scale is None and isinstance(before, int) and isinstance(after, int):
            scale = after / before if before else 1.0
        if scale is None:
            quotient = number(x.builder, after, F64) / number(x.builder, before, F64)
        else:
            known.append(scale)
            quotient = number(x.builder, scale, F64)
        parts.append(quotient.reshape((1,)))
    return known if len(known) == len(parts) else concat(parts, 0)
