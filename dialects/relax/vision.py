"""Images: resampling (of signals and volumes too), patches, regions and boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.attributes import Bool, Dims, Float, Floats, Int, Ints, Str
from mirlo.dialects.core.conditions import require_at_most, require_elements, require_equal, require_multiple
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import OpError, operand, optional, result
from mirlo.dialects.core.traits import AxisAttributes, Precision
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import array_meanings
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import (
    FLOAT,
    INTEGER,
    NUMBER,
    padding_pairs,
    per_dim,
    require_equal_dims,
    require_kind,
    require_rank,
    same_dtype,
    shape_text,
    spatial_rank,
    window_count,
)


class Col2im(RelaxOp, name="col2im"):
    """Patches assembled into images; overlapping elements are added.

    x is [N, C * elements of a window, number of windows], the result [N, C, *image]. The size of a window is either
    `window`, or the operand `sizes` at run time together with `channels`, the value of C. If sizes are known at run
    time only, the creator of the operation must make sure that x has the windows of the image.
    """

    meaning = staticmethod(array_meanings.col2im)
    x = operand()
    sizes = optional()
    image = Dims()
    window = Dims(())
    channels = Int(0)
    strides = Ints(())
    padding = Ints(())
    dilations = Ints(())

    @staticmethod
    def infer(
        x: TensorType,
        sizes: TensorType | None,
        *,
        image: tuple[Dim, ...],
        window: tuple[Dim, ...],
        channels: int,
        strides: tuple[int, ...],
        padding: tuple[int, ...],
        dilations: tuple[int, ...],
    ) -> TensorType:
        require_kind(x, NUMBER, "operand")
        require_rank(x, 3, "operand")
        count = len(image)
        if not count:
            raise OpError(f"image must be sizes, got {shape_text(image)}")
        for size in image:
            require_at_most(1, size, f"image must be sizes of 1 or more, got {shape_text(image)}")
        strides, dilations = per_dim(strides, count, 1, 1, "strides"), per_dim(dilations, count, 1, 1, "dilations")
        pads = padding_pairs(padding, count)
        if sizes is not None:
            require_kind(sizes, INTEGER, "sizes")
            require_rank(sizes, 1, "sizes")
            require_equal_dims(sizes.shape[0], count, f"sizes {sizes} and the dims of an image")
            if window or channels < 1:
                raise OpError("with sizes, window must be left out, and channels be given")
            return x.with_shape((x.shape[0], channels, *image))
        if len(window) != count or channels:
            raise OpError(f"window must be the sizes of {count} dims, channels be left out, got {shape_text(window)}")
        for size in window:
            require_at_most(1, size, f"window must be sizes of 1 or more, got {shape_text(window)}")
        windows = [window_count(image[i], window[i], strides[i], dilations[i], pads[i]) for i in range(count)]
        last, text = D.product(windows), f"the last dim of {x} and the windows of such an image must agree"
        require_equal(x.shape[2], last, f"{text}, got {x.shape[2]} and {last}")
        rows, elements = x.shape[1], D.product(window)
        require_multiple(rows, elements, f"dim 1 of {x} must be a multiple of the {elements} elements of a window")
        return x.with_shape((x.shape[0], rows // elements, *image))


class RoiAlign(RelaxOp, name="roi_align"):
    """Regions of images, each divided into bins: the mean, or the maximum, of interpolated samples of a bin.

    x is [N, C, H, W], rois [R, 4] (x1, y1, x2, y2, in units of 1 / `scale` pixels), batch [R] the image of each. A
    bin is sampled `samples` times in each direction; 0 samples it once per pixel. With `half_pixel`, pixel centers
    are at halves, and regions may be smaller than a pixel.
    """

    FLOPS_PER_ELEMENT = 32
    x = operand()
    rois = operand()
    batch = operand()
    height = Int(1)
    width = Int(1)
    samples = Int(0)
    scale = Float(1.0)
    mode = Str("mean", choices=("mean", "max"))
    half_pixel = Bool(True)

    @staticmethod
    def infer(
        x: TensorType,
        rois: TensorType,
        batch: TensorType,
        *,
        height: int,
        width: int,
        samples: int,
        scale: float,
        mode: str,
        half_pixel: bool,
    ) -> TensorType:
        if height < 1 or width < 1 or samples < 0:
            raise OpError(f"height and width must be at least 1 and samples 0, got {height}, {width}, {samples}")
        return x.with_shape(_shape_of_regions(x, rois, batch, height, width))


class MaxRoiPool(RelaxOp, name="max_roi_pool"):
    """Regions of images, each divided into bins: the maximum of the pixels of a bin, 0 of one without pixels.

    x is [N, C, H, W], rois [R, 4] (x1, y1, x2, y2, in units of 1 / `scale` pixels, rounded to pixels, which belong to
    the region), batch [R] the image of each. Bins begin and end at pixels: neighbours overlap where their bound is
    within one.
    """

    FLOPS_PER_ELEMENT = 8
    x = operand()
    rois = operand()
    batch = operand()
    height = Int(1)
    width = Int(1)
    scale = Float(1.0)

    @staticmethod
    def infer(
        x: TensorType, rois: TensorType, batch: TensorType, *, height: int, width: int, scale: float
    ) -> TensorType:
        shape = _shape_of_regions(x, rois, batch, height, width)
        if height < 1 or width < 1:
            raise OpError(f"height and width must be at least 1, got {height}, {width}")
        return x.with_shape(shape)


def _shape_of_regions(
    x: TensorType, rois: TensorType, batch: TensorType, height: int, width: int
) -> tuple[Dim, Dim, int, int]:
    """Return the shape of the bins of regions, after checks of the operands."""
    require_kind(x, FLOAT, "operand")
    require_rank(x, 4, "operand")
    same_dtype("operand and rois", x, rois)
    require_rank(rois, 2, "rois")
    require_equal_dims(rois.shape[1], 4, f"the last dim of rois {rois} and the numbers of a region")
    require_kind(batch, INTEGER, "batch")
    require_rank(batch, 1, "batch")
    require_equal_dims(rois.shape[0], batch.shape[0], f"the regions of {rois} and batch {batch}")
    shape = (rois.shape[0], x.shape[1], height, width)
    for axis in (0, 2, 3):
        require_elements(x.shape[axis], shape, f"axis {axis} of the operand {x}, which has regions, is empty")
    return shape


class DeformConv(RelaxOp, name="deform_conv"):
    """Deformable convolution: each element of a window is read at a position moved by `offset`, in pixels.

    x is [N, C, *spatial], weight [O, C / groups, *window], offset [N, offset groups * elements of a window * spatial
    dims, *out]. The elements read are multiplied by mask [N, offset groups * elements of a window, *out].
    """

    FLOPS_PER_ELEMENT = 64
    x = operand()
    weight = operand()
    offset = operand()
    bias = optional()
    mask = optional()
    strides = Ints(())
    padding = Ints(())
    dilations = Ints(())
    groups = Int(1)
    offset_groups = Int(1)

    @staticmethod
    def infer(
        x: TensorType,
        weight: TensorType,
        offset: TensorType,
        bias: TensorType | None,
        mask: TensorType | None,
        *,
        strides: tuple[int, ...],
        padding: tuple[int, ...],
        dilations: tuple[int, ...],
        groups: int,
        offset_groups: int,
    ) -> TensorType:
        require_kind(x, FLOAT, "operand")
        same_dtype("the operands", x, weight, offset, bias, mask)
        count = spatial_rank(x, "operand")
        for tensor, what in ((weight, "weight"), (offset, "offset"), (mask, "mask")):
            if tensor is not None:
                require_rank(tensor, x.rank, what)
        strides, dilations = per_dim(strides, count, 1, 1, "strides"), per_dim(dilations, count, 1, 1, "dilations")
        pads = padding_pairs(padding, count)
        window = weight.shape[2:]
        out = [window_count(x.shape[2 + i], window[i], strides[i], dilations[i], pads[i]) for i in range(count)]
        if groups < 1 or offset_groups < 1:
            raise OpError(f"groups and offset_groups must be at least 1, got {groups} and {offset_groups}")
        channels, elements = x.shape[1], D.product(window)
        require_equal_dims(channels, weight.shape[1] * groups, f"the channels of {x} and those of {weight}")
        text = f"the channels of {x} must be a multiple of groups {groups} and offset_groups {offset_groups}"
        for parts in (groups, offset_groups):
            require_multiple(channels, parts, text)
        wanted = [(offset, elements * offset_groups * count, "offset"), (mask, elements * offset_groups, "mask")]
        for tensor, numbers, what in wanted:
            if tensor is None:
                continue
            for axis, dim in enumerate((x.shape[0], numbers, *out)):
                require_equal_dims(tensor.shape[axis], dim, f"dim {axis} of {what} {tensor} and what the windows need")
        if bias is not None:
            require_rank(bias, 1, "bias")
            require_equal_dims(bias.shape[0], weight.shape[0], f"bias {bias} and the out channels of {weight}")
        shape = (x.shape[0], weight.shape[0], *out)
        for axis in range(2, x.rank):
            require_elements(x.shape[axis], shape, f"axis {axis} of the operand {x}, which is sampled, is empty")
        return x.with_shape(shape)


class NonMaxSuppression(RelaxOp, name="non_max_suppression"):
    """The best boxes of each class of each image, without those that overlap a better one.

    boxes is [N, B, 4] (y1, x1, y2, x2 of opposite corners in any order; with `center`, x, y, width and height),
    scores [N, classes, B]; the other operands are scalars. `selected` holds up to `most` (one dim) boxes per class,
    as rows of image, class and box. `count` is the number of valid rows; the others are 0.
    """

    meaning = staticmethod(array_meanings.non_max_suppression)
    boxes = operand()
    scores = operand()
    limit = operand()
    overlap = operand()
    threshold = optional()
    selected = result()
    count = result()
    most = Dims()
    center = Bool(False)

    @classmethod
    def meaning_steps(cls, operands: Sequence[Sequence[int]]) -> int:
        """Return how many pairs of boxes there are."""
        return math.prod(operands[1]) * operands[0][1]

    @staticmethod
    def infer(
        boxes: TensorType,
        scores: TensorType,
        limit: TensorType,
        overlap: TensorType,
        threshold: TensorType | None,
        *,
        most: tuple[Dim, ...],
        center: bool,
    ) -> tuple[TensorType, TensorType]:
        require_kind(boxes, FLOAT, "boxes")
        same_dtype("the operands", boxes, scores, overlap, threshold)
        require_kind(limit, INTEGER, "limit")
        require_rank(boxes, 3, "boxes")
        require_rank(scores, 3, "scores")
        for tensor, what in ((limit, "limit"), (overlap, "overlap"), (threshold, "threshold")):
            if tensor is not None:
                require_rank(tensor, 0, what)
        require_equal_dims(boxes.shape[2], 4, f"the last dim of boxes {boxes} and the numbers of a box")
        require_equal_dims(boxes.shape[0], scores.shape[0], f"the images of {boxes} and {scores}")
        require_equal_dims(boxes.shape[1], scores.shape[2], f"the boxes of {boxes} and {scores}")
        if len(most) != 1:
            raise OpError(f"most must be one dim, got {shape_text(most)}")
        rows = D.product((*scores.shape[:2], *most))
        return boxes.with_shape((rows, 3)).with_dtype("i64"), boxes.with_shape(()).with_dtype("i64")


CORNERS = "align_corners"
CROP = "tf_crop_and_resize"
RATIO = "pytorch_asymmetric"
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    CORNERS,
    "asymmetric",
    RATIO,
    "tf_half_pixel_for_nn",
    CROP,
)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


class ResizeBase(RelaxOp):
    """What operators that resample x to a shape have in common; the names are ONNX's."""

    PRECISION = Precision.REGISTERS
    x = operand()
    shape = Dims()
    mode = Str("nearest", choices=("nearest", "linear", "cubic"))
    coordinates = Str("half_pixel", choices=COORDINATES)
    nearest = Str("round_prefer_floor", choices=NEAREST)
    cubic_coeff = Float(-0.75)
    exclude_outside = Bool(False)
    antialias = Bool(False)
    extrapolation = Float(0.0)


class Resize(ResizeBase, name="resize"):
    """x interpolated to the output shape `shape`.

    Coordinates are divided by `scales`, one per dim; without them, by output size / input size. `coordinates` and
    `nearest` take ONNX's names; "pytorch_asymmetric" multiplies by the reciprocal, as PyTorch does. With mode "nearest"
    coordinates are f32, as both compute them. `roi` holds the begins, then the ends of each dim as fractions; it
    applies to "tf_crop_and_resize", which reads `extrapolation` outside of the operand. With `antialias`, the kernel of
    "linear" and "cubic" is as wide as the range of the operand that an element of the result stands for.
    """

    FLOPS_PER_ELEMENT = 8
    AXES = AxisAttributes(per_axis=("shape", "scales"), per_side=("roi",))
    scales = Floats(())
    roi = Floats(())

    @staticmethod
    def infer(
        x: TensorType,
        *,
        shape: tuple[Dim, ...],
        scales: tuple[float, ...],
        mode: str,
        coordinates: str,
        nearest: str,
        cubic_coeff: float,
        exclude_outside: bool,
        antialias: bool,
        extrapolation: float,
        roi: tuple[float, ...],
    ) -> TensorType:
        require_kind(x, NUMBER, "operand")
        if len(shape) != x.rank:
            raise OpError(f"shape must have a dim per axis of {x}, got {shape_text(shape)}")
        if scales and (len(scales) != x.rank or min(scales) <= 0):
            raise OpError(f"scales must be one positive number per axis of {x}, got {list(scales)}")
        if (coordinates == CROP) != bool(roi) or (roi and len(roi) != 2 * x.rank):
            raise OpError(
                f"roi must be {2 * x.rank} numbers when coordinates is '{CROP}', and empty otherwise, got {list(roi)}"
            )
        for axis, dim in enumerate(x.shape):
            require_elements(dim, shape, f"axis {axis} of the operand {x}, which is resized to {shape[axis]}, is empty")
        return x.with_shape(shape)


class GridSample(RelaxOp, name="grid_sample"):
    """x sampled at the points of a grid.

    x is [N, C, *spatial], grid [N, *out, number of spatial dims], with coordinates in -1 to 1, last dim first.
    A coordinate that is NaN or infinite gives NaN if elements have weights, with two exceptions of `linear`, which are
    those of `nearest`: NaN is the first element of a border, and what is not finite is the first one if reflected.
    """

    FLOPS_PER_ELEMENT = 16
    x = operand()
    grid = operand()
    mode = Str("linear", choices=("nearest", "linear", "cubic"))
    padding_mode = Str("zeros", choices=("zeros", "border", "reflection"))
    align_corners = Bool(False)

    @staticmethod
    def infer(x: TensorType, grid: TensorType, *, mode: str, padding_mode: str, align_corners: bool) -> TensorType:
        require_kind(x, FLOAT, "operand")
        require_kind(grid, FLOAT, "grid")
        count = spatial_rank(x, "operand")
        if grid.rank != x.rank:
            raise OpError(f"grid must have the rank of the operand {x}, got {grid}")
        require_equal_dims(x.shape[0], grid.shape[0], f"the batch dims of {x} and grid {grid}")
        require_equal_dims(grid.shape[-1], count, f"the last dim of grid {grid} and the number of spatial dims of {x}")
        shape = (x.shape[0], x.shape[1], *grid.shape[1:-1])
        for axis in range(2, x.rank):
            require_elements(x.shape[axis], shape, f"axis {axis} of the operand {x}, which is sampled, is empty")
        return x.with_shape(shape)
