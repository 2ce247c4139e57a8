"""Resampling of images (or signals, or volumes)."""

from __future__ import annotations

from mirlo.dialects.core.attributes import Bool, Dims, Float, Floats, Str
from mirlo.dialects.core.conditions import require_elements
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import OpError, operand
from mirlo.dialects.core.traits import AxisAttributes, Precision
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import FLOAT, NUMBER, require_equal_dims, require_kind, shape_text
from mirlo.dialects.relax.infer_windows import spatial_rank

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


class Resize(RelaxOp, name="resize"):
    """x interpolated to the output shape `shape`.

    Coordinates are divided by `scales`, one per dim; without them, by output size / input size. `coordinates` and
    `nearest` take ONNX's names; "pytorch_asymmetric" multiplies by the reciprocal, as PyTorch does. With mode "nearest"
    coordinates are f32, as both compute them. `roi` holds the begins, then the ends of each dim as fractions; it
    applies to "tf_crop_and_resize", which reads `extrapolation` outside of the operand. With `antialias`, the kernel of
    "linear" and "cubic" is as wide as the range of the operand that an element of the result stands for.
    """

    FLOPS_PER_ELEMENT = 8
    PRECISION = Precision.REGISTERS
    AXES = AxisAttributes(per_axis=("shape", "scales"), per_side=("roi",))
    x = operand()
    shape = Dims()
    scales = Floats(())
    mode = Str("nearest", choices=("nearest", "linear", "cubic"))
    coordinates = Str("half_pixel", choices=COORDINATES)
    nearest = Str("round_prefer_floor", choices=NEAREST)
    cubic_coeff = Float(-0.75)
    exclude_outside = Bool(False)
    antialias = Bool(False)
    extrapolation = Float(0.0)
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
