"""Resampling of images: interpolation, sampling at the points of a grid."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.frontend import RATIO, Dim, Tensor, UnsupportedOperation
from mirlo.extend.library import Interpolation, resize
from mirlo_torch.operation import AtenOperation
from mirlo_torch.registry import converter


def _resized(
    op: AtenOperation, x: Tensor, mode: str, align: bool, factors: Sequence[float | None], antialias: bool = False
) -> Tensor:
    """Return x resized to the declared size; coordinates are divided by the scale factors, if any."""
    count = x.rank - 2
    if antialias and align:
        raise UnsupportedOperation("aligns corners and has an antialias")
    if mode != "nearest" and not x.dtype.is_float:
        raise UnsupportedOperation("interpolates integers")
    y = x if mode == "nearest" else op.wide(x)
    how = Interpolation(
        mode, nearest="floor", cubic_coeff=-0.5 if antialias else -0.75, antialias=antialias,
        exclude_outside=antialias,
        coordinates="align_corners" if align else RATIO if mode == "nearest" else "half_pixel",
    )  # fmt: skip
    declared_factors = [factor if factor and not align else None for factor in factors]
    scales = [1.0, 1.0, *declared_factors, *[None] * (count - len(declared_factors))] if any(declared_factors) else []
    return resize(y, op.shape, how, scales).cast(op.dtype)


@converter("aten.upsample_nearest1d.vec", "aten.upsample_nearest2d.vec", "aten.upsample_nearest3d.vec")
def nearest_vec(op: AtenOperation, x: Tensor, size: object, factors: Sequence[float] | None) -> Tensor:
    return _resized(op, x, "nearest", False, list(factors or ()))


@converter("aten.upsample_nearest1d.default", "aten.upsample_nearest2d.default", "aten.upsample_nearest3d.default")
def nearest(op: AtenOperation, x: Tensor, size: object, *factors: float | None) -> Tensor:
    return _resized(op, x, "nearest", False, list(factors))


@converter("aten.upsample_linear1d.vec", "aten.upsample_bilinear2d.vec", "aten.upsample_trilinear3d.vec",
           "aten.upsample_bicubic2d.vec")  # fmt: skip
def linear_vec(op: AtenOperation, x: Tensor, size: object, align: bool, factors: Sequence[float] | None) -> Tensor:
    return _resized(op, x, "cubic" if "cubic" in op.name else "linear", bool(align), list(factors or ()))


@converter("aten.upsample_linear1d.default", "aten.upsample_bilinear2d.default", "aten.upsample_trilinear3d.default",
           "aten.upsample_bicubic2d.default")  # fmt: skip
def linear(op: AtenOperation, x: Tensor, size: object, align: bool, *factors: float | None) -> Tensor:
    return _resized(op, x, "cubic" if "cubic" in op.name else "linear", bool(align), list(factors))


@converter("aten._upsample_bilinear2d_aa.vec", "aten._upsample_bicubic2d_aa.vec")
def smooth_vec(op: AtenOperation, x: Tensor, size: object, align: bool, factors: Sequence[float] | None) -> Tensor:
    return _resized(op, x, "cubic" if "cubic" in op.name else "linear", bool(align), list(factors or ()), True)


@converter("aten._upsample_bilinear2d_aa.default", "aten._upsample_bicubic2d_aa.default")
def smooth(op: AtenOperation, x: Tensor, size: object, align: bool, *factors: float | None) -> Tensor:
    return _resized(op, x, "cubic" if "cubic" in op.name else "linear", bool(align), list(factors), True)


@converter("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default", "aten.grid_sampler.default")
def grid_sampler(op: AtenOperation, x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Tensor:
    words = {
        "mode": ("linear", "nearest", "cubic")[mode],
        "padding_mode": ("zeros", "border", "reflection")[padding],
        "align_corners": bool(align),
    }
    return op.emit("grid_sample", op.wide(x), op.wide(grid), **words).cast(op.dtype)


@converter("aten.col2im.default")
def col2im(
    op: AtenOperation, x: Tensor, size: Sequence[Dim], kernel: Sequence[int], dilation: Sequence[int],
    padding: Sequence[int], stride: Sequence[int],
) -> Tensor:  # fmt: skip
    batched = x if x.rank == 3 else x.reshape((1, *x.shape))
    result = op.emit(
        "col2im", op.wide(batched), image=tuple(size), window=tuple(kernel), strides=list(stride),
        padding=list(padding) * 2, dilations=list(dilation),
    )  # fmt: skip
    return result.reshape(op.shape).cast(op.dtype)
