"""Resampling of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from mirlo.dialects.core.dims import Dim
from mirlo.frontends.builder import as_sizes, sizes_if
from mirlo.frontends.library.resizing import Interpolation, resize
from mirlo.frontends.onnx.declared import declared_shape, equals, required
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter, removed
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor, concat
from mirlo.runtime.records import dataclass

MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic", "bicubic": "cubic"}
ROI, SCALES, SIZES = 1, 2, 3
MAX_DENOMINATOR = 1024
"""Largest denominator of a scale by which a symbolic size is multiplied and divided."""


@dataclass(frozen=True)
class _Target:
    """The complete output shape, and the scales if they are not output size / input size."""

    shape: tuple[Dim, ...]
    scales: tuple[float, ...]


@converter("Upsample")
def upsample(node: Node) -> Converted:
    return _simple_resize(node, _grown(node.attr.floats("scales")))


@converter("Upsample", since=9)
def upsample_input(node: Node) -> Converted:
    if node.value(1).known is None:
        return _dynamic_upsample(node)
    return _simple_resize(node, _grown([float(scale) for scale in node.array(1)]))


@converter("Resize", since=10)
def resize_10(node: Node) -> Converted:
    if node.value(1).known is None:
        return _dynamic_upsample(node)
    return _simple_resize(node, [float(scale) for scale in node.array(1)])


def _grown(scales: Sequence[float]) -> Sequence[float]:
    """Return scales of Upsample, which are at least 1."""
    if not all(scale >= 1 for scale in scales):
        raise NodeError(f"scales must be at least 1: found {list(scales)}")
    return scales


def _dynamic_upsample(node: Node) -> Tensor:
    """Convert Upsample with run-time scales; those below 1 would round away from the origin, and are refused."""
    mode = MODES[node.attr.choice("mode", "nearest", ("nearest", "linear", "bilinear"))]
    scales = node[1].cast("f64")
    grown = scales >= 1.0
    shape = node.bind(sizes_if(grown, _scaled_sizes(node, scales)), "dynamic scales must be at least 1")
    return resize(node[0], shape, Interpolation(mode, "asymmetric", "floor"), scales)


def _simple_resize(node: Node, scales: Sequence[float]) -> Tensor:
    """Convert the operators before opset 11: coordinates are divided by the scale, without options."""
    mode = MODES[node.attr.choice("mode", "nearest", ("nearest", "linear", "bilinear"))]
    target = _scaled(node, scales)
    # Round towards the origin when enlarging, and away from it when shrinking.
    nearest = "ceil" if min(target.scales) < 1 else "floor"
    if mode == "nearest" and min(target.scales) < 1 < max(target.scales):
        raise NodeError(
            f"scales that grow one dim and shrink another are not supported before opset 11: {list(scales)}"
        )
    return resize(node[0], target.shape, Interpolation(mode, "asymmetric", nearest), target.scales)


def resized(node: Node, scales: Sequence[float], mode: str, coordinates: str) -> Tensor:
    """Return the first input scaled; without interpolation, positions are rounded down."""
    target = _scaled(node, scales)
    return resize(node[0], target.shape, Interpolation(MODES[mode], coordinates, "floor"), target.scales)


removed("Upsample", since=10)


@converter("Resize", since=11)
def resize_node(node: Node) -> Tensor:
    rank = node.type(0).rank
    axes = [axis % rank for axis in node.attr.ints("axes", None) or range(rank)]
    if _is_dynamic(node):
        return _dynamic_resize(node, axes)
    result = _resize(node, axes)
    sizes = declared_shape(node, SIZES)
    if sizes is not None:
        wanted = [sizes[axis] for axis in axes]
        return required(node, equals(node, SIZES, wanted), "input 'sizes' is another", result)
    return result


def _is_dynamic(node: Node) -> bool:
    """Return whether scales or a region are known at run time only, or the sizes where a ratio is kept."""

    def is_dynamic(index: int) -> bool:
        return node.has(index) and node.value(index).known is None and node.type(index).elements != 0

    crops = node.attr.str("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    keeps = node.attr.str("keep_aspect_ratio_policy", "stretch") != "stretch"
    keeps = keeps and node.has(SIZES) and node.type(SIZES).elements != 0
    return (
        is_dynamic(SCALES)
        or (crops and is_dynamic(ROI))
        or (keeps and (is_dynamic(SIZES) or not node.type(0).is_static))
    )


def _dynamic_resize(node: Node, axes: list[int]) -> Tensor:
    """Convert Resize with run-time scales, sizes or region."""
    x = node.type(0)
    policy = node.attr.choice("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    coordinates = node.attr.str("coordinate_transformation_mode", "half_pixel")
    by_scales = node.has(SCALES) and node.type(SCALES).elements != 0
    if by_scales:
        node.ignore(SIZES)
        scales = _spread(node, node[SCALES].cast("f64"), axes, 1.0)
        sizes = _scaled_sizes(node, scales)
    else:
        node.ignore(SCALES)
        own = node.sizes(x.shape).cast("f64")
        wanted = node.vector(SIZES).cast("f64")
        ratios = wanted / own.gather(node.constant(axes, "i64"))
        if policy != "stretch":
            one = ratios.min(0) if policy == "not_larger" else ratios.max(0)
            ratios = one.expand((len(axes),))
        scales = _spread(node, ratios, axes, 1.0)
        sizes = as_sizes((own * scales + 0.5).floor())
    dims = node.bind(sizes, "the sizes that it makes")
    shape = [dims[i] if i in axes else dim for i, dim in enumerate(x.shape)]
    roi = None
    if coordinates == "tf_crop_and_resize":
        halves = node[ROI].cast("f64").reshape((2, len(axes)))
        parts = (halves.gather(node.constant(i, "i64")) for i in range(2))
        roi = concat([_spread(node, part, axes, float(i)) for i, part in enumerate(parts)], axis=0)
    else:
        node.ignore(ROI)
    return resize(node[0], shape, _interpolation(node), scales, roi)


def _interpolation(node: Node) -> Interpolation:
    return Interpolation(
        mode=MODES[node.attr.choice("mode", "nearest", ("nearest", "linear", "cubic"))],
        coordinates=node.attr.str("coordinate_transformation_mode", "half_pixel"),
        nearest=node.attr.str("nearest_mode", "round_prefer_floor"),
        cubic_coeff=node.attr.float("cubic_coeff_a", -0.75),
        exclude_outside=node.attr.bool("exclude_outside", 0),
        antialias=node.attr.bool("antialias", 0),
        extrapolation=node.attr.float("extrapolation_value", 0.0),
    )


def _spread(node: Node, values: Tensor, axes: list[int], default: float) -> Tensor:
    """Return a value per axis, from those given for some."""
    filled = concat([values, node.constant(np.array([default]), "f64")], axis=0)
    rank = node.type(0).rank
    chosen = [axes.index(i) if i in axes else len(axes) for i in range(rank)]
    return filled.gather(node.constant(chosen, "i64"))


def _resize(node: Node, axes: list[int]) -> Tensor:
    target, how = _target(node, axes), _interpolation(node)
    roi: tuple[float, ...] = ()
    if how.coordinates == "tf_crop_and_resize":
        roi = _roi(node, axes)
    else:
        node.ignore(ROI)
    return resize(node[0], target.shape, how, target.scales, roi)


def _target(node: Node, axes: list[int]) -> _Target:
    x = node.type(0)
    policy = node.attr.choice("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    if node.has(SCALES) and node.type(SCALES).elements != 0:
        axis_scales = [float(scale) for scale in node.array(SCALES)]
        _require_one_per_axis("scales", axis_scales, axes)
        scales = [1.0] * x.rank
        for axis, scale in zip(axes, axis_scales, strict=True):
            scales[axis] = scale
        return _scaled(node, scales)
    node.ignore(SCALES)
    if not node.has(SIZES):
        raise NodeError("either input 'scales' or input 'sizes' must be given")
    declared = declared_shape(node, SIZES) if policy == "stretch" else None
    sizes: Sequence[Dim] = node.dims(SIZES) if declared is None else [declared[axis] for axis in axes]
    _require_one_per_axis("sizes", sizes, axes)
    if policy != "stretch":
        return _keeping_aspect(node, axes, sizes, policy)
    shape = list(x.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    return _Target(tuple(shape), ())


def _keeping_aspect(node: Node, axes: list[int], sizes: Sequence[Dim], policy: str) -> _Target:
    """Return one scale for all axes: the smallest or the largest scale of the requested sizes."""
    x = node.type(0)
    pairs = [(size, x.shape[axis]) for axis, size in zip(axes, sizes, strict=True)]
    if not all(isinstance(size, int) and isinstance(old, int) and old for size, old in pairs):
        raise NodeError(f"attribute 'keep_aspect_ratio_policy' = '{policy}' needs sizes other than 0, got {x}")
    ratios = [size / old for size, old in pairs]  # type: ignore[operator]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    shape, scales = list(x.shape), [1.0] * x.rank
    for axis in axes:
        shape[axis] = math.floor(scale * x.shape[axis] + 0.5)  # type: ignore[operator]
        scales[axis] = scale
    return _Target(tuple(shape), tuple(scales))


def _require_one_per_axis(what: str, elements: Sequence[float | Dim], axes: list[int]) -> None:
    if len(elements) != len(axes):
        raise NodeError(f"input '{what}' must have {len(axes)} elements, one per axis, got {len(elements)}")


def _scaled(node: Node, scales: Sequence[float]) -> _Target:
    x = node.type(0)
    if len(scales) != x.rank or any(not scale > 0 or math.isinf(scale) for scale in scales):
        raise NodeError(f"scales must be {x.rank} positive numbers, one per dim of {x}, got {list(scales)}")
    dims = [_scaled_dim(dim, scale) for dim, scale in zip(x.shape, scales, strict=True)]
    if None in dims:
        sizes = _scaled_sizes(node, node.constant(scales, "f32"))
        dims = list(node.bind_unknown(sizes, "the sizes that it makes", dims))
    return _Target(tuple(dim for dim in dims if dim is not None), tuple(map(_exact_scale, scales)))


def _exact_scale(scale: float) -> float:
    """Return the fraction that a scale of f32 stands for, if positions are whole where f32 makes them so.

    With interpolation they are computed in f64, in which 1 / f32(1/3) is less than 3: two elements would be read.
    """
    fraction = Fraction(scale).limit_denominator(MAX_DENOMINATOR)
    is_whole = np.float32(fraction.numerator) / np.float32(scale) == fraction.denominator
    return fraction.numerator / fraction.denominator if fraction and is_whole else scale


def _scaled_sizes(node: Node, scales: Tensor) -> Tensor:
    """Return floor(size * scale) of each dim of the first input, computed in f32 as ONNX Runtime does."""
    return as_sizes((node.sizes(node.type(0).shape).cast("f32") * scales.cast("f32")).floor())


def _scaled_dim(dim: Dim, scale: float) -> Dim | None:
    """Return floor(dim * scale), computed in f32; None if a call has to compute it.

    A scale of f32 that is a fraction, or the next number above one, gives the quotient for all sizes below 2^24 / the
    numerator: it is above the quotient by less than what is missing to the next integer.
    """
    if isinstance(dim, int):
        return math.floor(float(np.float32(dim) * np.float32(scale)))
    fraction = Fraction(scale).limit_denominator(MAX_DENOMINATOR)
    is_next = np.float32(fraction.numerator / fraction.denominator) == np.float32(scale) and Fraction(scale) >= fraction
    quotient: Dim = dim * fraction.numerator // fraction.denominator
    return quotient if is_next else None


def _roi(node: Node, axes: list[int]) -> tuple[float, ...]:
    """Return the resized region: starts, then ends of each dim, as fractions of it."""
    rank = node.type(0).rank
    elements = [float(item) for item in node.array(ROI)]
    if len(elements) != 2 * len(axes):
        raise NodeError(f"input 'roi' must have {2 * len(axes)} elements, begins then ends, got {len(elements)}")
    begins, ends = [0.0] * rank, [1.0] * rank
    for i, axis in enumerate(axes):
        begins[axis], ends[axis] = elements[i], elements[i + len(axes)]
    return (*begins, *ends)


@converter("GridSample", since=16)
@converter("GridSample", domain="com.microsoft")
def grid_sample(node: Node) -> Converted:
    is_newer = not node.domain and node.opset >= 20
    mode = node.attr.choice("mode", "linear" if is_newer else "bilinear", tuple(MODES))
    return node.emit(
        "grid_sample",
        node[0],
        node[1],
        mode=MODES[mode],
        padding_mode=node.attr.choice("padding_mode", "zeros", ("zeros", "border", "reflection")),
        align_corners=node.attr.bool("align_corners", 0),
    )
