"""Resampling of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.onnx.declared import count_of, declared_shape, equals, required
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.antialias import resize_antialiased
from mirlo.frontends.onnx.registry import converter, removed

MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic", "bicubic": "cubic"}
ROI, SCALES, SIZES = 1, 2, 3


@dataclass(frozen=True)
class _Target:
    """The whole output shape, and the scales where they are not output size / input size."""

    shape: tuple[Dim, ...]
    scales: tuple[float, ...]


@converter("Upsample")
def upsample(node: Node) -> Any:
    return _simple_resize(node, node.attr.floats("scales"))


@converter("Upsample", since=9)
@converter("Resize", since=10)
def upsample_input(node: Node) -> Any:
    return _simple_resize(node, [float(scale) for scale in node.array(1)])


def _simple_resize(node: Node, scales: Sequence[float]) -> Any:
    """The operators before opset 11: coordinates are divided by the scale, and nothing else can be chosen."""
    mode = MODES[node.attr.choice("mode", "nearest", ("nearest", "linear", "bilinear"))]
    target = _scaled(node, scales)
    # Towards the origin when growing; when shrinking, away from it.
    nearest = "ceil" if min(target.scales) < 1 else "floor"
    if mode == "nearest" and min(target.scales) < 1 < max(target.scales):
        raise NodeError(
            f"scales that grow one dim and shrink another are not supported before opset 11: {list(scales)}"
        )
    return node.emit(
        "resize",
        node[0],
        shape=target.shape,
        scales=target.scales,
        mode=mode,
        coordinates="asymmetric",
        nearest=nearest,
    )


removed("Upsample", since=10)


@converter("Resize", since=11)
def resize(node: Node) -> Any:
    rank = node.type(0).rank
    axes = [axis % rank for axis in node.attr.ints("axes", None) or range(rank)]
    made = _resize(node, axes)
    sizes, ratios = declared_shape(node, SIZES), _declared_ratios(node, axes)
    if sizes is not None:
        wanted = [sizes[axis] for axis in axes]
        return required(node, equals(node, SIZES, wanted), "input 'sizes' is another", made)
    if ratios is not None:
        are_ratios = equals(node, SCALES, ratios)
        why = "as scales that are known at run time only must be: make it an initializer"
        return required(node, are_ratios, "input 'scales' is not output size / input size", made, why=why)
    return made


def _declared_ratios(node: Node, axes: list[int]) -> list[float] | None:
    """The scales of a declared shape, where those that are given are known at run time only."""
    shape, x = declared_shape(node, SCALES), node.type(0)
    if shape is None or not x.is_static or count_of(node, SCALES) != len(axes):
        return None
    return [shape[axis] / x.static_shape[axis] for axis in axes]


def _resize(node: Node, axes: list[int]) -> Any:
    target = _target(node, axes)
    mode = MODES[node.attr.choice("mode", "nearest", ("nearest", "linear", "cubic"))]
    coordinates = node.attr.str("coordinate_transformation_mode", "half_pixel")
    scales = list(target.scales) or _ratios(node, target)
    if node.attr.bool("antialias", 0) and mode != "nearest" and min(scales) < 1:
        node.ignore(ROI)
        return resize_antialiased(node, target.shape, scales, mode, coordinates)
    roi: tuple[float, ...] = ()
    if coordinates == "tf_crop_and_resize":
        roi = _roi(node, axes)
    else:
        node.ignore(ROI)
    return node.emit(
        "resize",
        node[0],
        shape=target.shape,
        scales=target.scales,
        mode=mode,
        coordinates=coordinates,
        nearest=node.attr.str("nearest_mode", "round_prefer_floor"),
        cubic_coeff=node.attr.float("cubic_coeff_a", -0.75),
        exclude_outside=node.attr.bool("exclude_outside", 0),
        extrapolation=node.attr.float("extrapolation_value", 0.0),
        roi=roi,
    )


def _target(node: Node, axes: list[int]) -> _Target:
    x = node.type(0)
    policy = node.attr.choice("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    if _declared_ratios(node, axes) is not None:
        return _Target(tuple(declared_shape(node, SCALES) or ()), ())
    if node.has(SCALES) and node.type(SCALES).elements != 0:
        given = [float(scale) for scale in node.array(SCALES)]
        _require_one_per_axis("scales", given, axes)
        scales = [1.0] * x.rank
        for axis, scale in zip(axes, given, strict=True):
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
    """One scale for all axes: the smallest, or the largest, that a wanted size asks for."""
    x = node.type(0)
    pairs = [(size, x.shape[axis]) for axis, size in zip(axes, sizes, strict=True)]
    if not all(isinstance(size, int) and isinstance(old, int) and old for size, old in pairs):
        raise NodeError(f"attribute 'keep_aspect_ratio_policy' = '{policy}' needs known sizes, got {x}")
    ratios = [size / old for size, old in pairs]  # type: ignore[operator]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    shape, scales = list(x.shape), [1.0] * x.rank
    for axis in axes:
        shape[axis] = math.floor(scale * x.shape[axis] + 0.5)  # type: ignore[operator]
        scales[axis] = scale
    return _Target(tuple(shape), tuple(scales))


def _require_one_per_axis(what: str, given: Sequence[Any], axes: list[int]) -> None:
    if len(given) != len(axes):
        raise NodeError(f"input '{what}' must have {len(axes)} elements, one per axis, got {len(given)}")


def _scaled(node: Node, scales: Sequence[float]) -> _Target:
    x = node.type(0)
    if len(scales) != x.rank or any(not scale > 0 or math.isinf(scale) for scale in scales):
        raise NodeError(f"scales must be {x.rank} positive numbers, one per dim of {x}, got {list(scales)}")
    shape = tuple(_scaled_dim(dim, scale, x) for dim, scale in zip(x.shape, scales, strict=True))
    return _Target(shape, tuple(scales))


def _scaled_dim(dim: Dim, scale: float, x: Any) -> Dim:
    """floor(dim * scale)."""
    if isinstance(dim, int):
        return math.floor(dim * scale)
    if scale == int(scale):
        return dim * int(scale)
    if 1 / scale == round(1 / scale):
        return D.apply("floordiv", dim, round(1 / scale))
    raise NodeError(f"a scale of {scale} needs a known size, but a dim of {x} is {dim}; fix the input's shape")


def _ratios(node: Node, target: _Target) -> list[float]:
    pairs = zip(target.shape, node.type(0).shape, strict=True)
    return [new / old if isinstance(new, int) and isinstance(old, int) and old else 1.0 for new, old in pairs]


def _roi(node: Node, axes: list[int]) -> tuple[float, ...]:
    """The region that is resized: begins, then ends of each dim, as fractions of it."""
    rank = node.type(0).rank
    given = [float(item) for item in node.array(ROI)]
    if len(given) != 2 * len(axes):
        raise NodeError(f"input 'roi' must have {2 * len(axes)} elements, begins then ends, got {len(given)}")
    begins, ends = [0.0] * rank, [1.0] * rank
    for i, axis in enumerate(axes):
        begins[axis], ends[axis] = given[i], given[i + len(axes)]
    return (*begins, *ends)


@converter("GridSample", since=16)
def grid_sample(node: Node) -> Any:
    mode = node.attr.choice("mode", "bilinear" if node.opset < 20 else "linear", tuple(MODES))
    return node.emit(
        "grid_sample",
        node[0],
        node[1],
        mode=MODES[mode],
        padding_mode=node.attr.choice("padding_mode", "zeros", ("zeros", "border", "reflection")),
        align_corners=node.attr.bool("align_corners", 0),
    )
