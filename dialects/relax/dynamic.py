"""Data-dependent sizes: binding symbols to elements of a tensor, and operators on symbolic sizes."""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.attributes import Dims, Ints, Str, Strs
from mirlo.dialects.core.conditions import require_at_most, require_elements, require_part
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import OpError, operand, optional
from mirlo.dialects.core.traits import AxisAttributes, Precision, Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import array_meanings, shardings
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import require_equal_dims, same_dtype
from mirlo.dialects.relax.vision import ResizeBase


class BindDims(RelaxOp, name="bind_dims"):
    """Bind symbols to run-time values: `symbols[i]` is element i of `values`, a vector of i64.

    A value that is negative, or larger than its entry in `bounds` (a dim, or "?" for no bound), ends the call with
    an error that contains `what`.
    """

    TRAITS = (Trait.INTERFACE, Trait.CHECKS_DIMS)
    DEFAULT_RESULT = False
    PURE = False
    values = operand()
    symbols = Strs()
    bounds = Dims(())
    what = Str("a size")

    def check(self) -> None:
        tensor_type = TensorType.from_mlir(self.operation.operands[0].type)
        count = len(self.symbols)
        if tensor_type is None or tensor_type.dtype.name != "i64" or tensor_type.shape != (count,):
            raise OpError(f"values must be a tensor<{count}xi64>, an element per symbol, got {tensor_type}")
        for name in self.symbols:
            if not D.is_symbol_name(name):
                raise OpError(f"'{name}' is not a name for a dim")
        if len(set(self.symbols)) != count:
            raise OpError("symbols must be different names")
        if self.bounds and len(self.bounds) != count:
            raise OpError(f"bounds must have an entry for each of {count} symbols, got {len(self.bounds)}")

    @property
    def limits(self) -> list[tuple[Dim, Dim]]:
        """Return the pairs of dims of which the first must not be larger than the second."""
        pairs = zip(map(D.symbol, self.symbols), self.bounds, strict=bool(self.bounds))
        return [(symbol, bound) for symbol, bound in pairs if bound is not D.UNKNOWN]

    @property
    def checked_dims(self) -> list[Dim]:
        """Return the dims that are not negative after it."""
        return [high - low for low, high in self.limits]


class RequireDims(RelaxOp, name="require_dims"):
    """End the call with an error that contains `what` unless 0 <= dims[i] <= bounds[i] ("?" for no bound).

    Dims of inputs are checked before anything is computed.
    """

    TRAITS = (Trait.INTERFACE, Trait.CHECKS_DIMS)
    DEFAULT_RESULT = False
    PURE = False
    dims = Dims()
    bounds = Dims(())
    what = Str("a size")

    def check(self) -> None:
        if self.bounds and len(self.bounds) != len(self.dims):
            raise OpError(f"bounds must have an entry for each of {len(self.dims)} dims, got {len(self.bounds)}")
        if D.UNKNOWN in self.dims:
            raise OpError(f"dims must be known, got {list(map(str, self.dims))}")

    @property
    def limits(self) -> list[tuple[Dim, Dim]]:
        """Return the pairs of dims of which the first must not be larger than the second."""
        bounds = self.bounds or (D.UNKNOWN,) * len(self.dims)
        above = [(dim, bound) for dim, bound in zip(self.dims, bounds, strict=True) if bound is not D.UNKNOWN]
        return [*((0, dim) for dim in self.dims if not D.is_nonnegative(dim)), *above]

    @property
    def checked_dims(self) -> list[Dim]:
        """Return the dims that are not negative after it."""
        return [high - low for low, high in self.limits]


class EraseDims(RelaxOp, name="erase_dims"):
    """x, of a type that does not have the dims of these axes: such a tensor may have other sizes in each iteration.

    Control flow carries and yields such tensors; `match_dims` gives their dims names.
    """

    TRAITS = (Trait.INTERFACE,)
    x = operand()
    axes = Ints()

    @staticmethod
    def infer(x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
        if list(axes) != sorted(set(axes)) or any(not 0 <= axis < x.rank for axis in axes):
            raise OpError(f"axes must be different ones of {x} in ascending order, got {list(axes)}")
        return x.with_shape([D.UNKNOWN if i in axes else dim for i, dim in enumerate(x.shape)])


class MatchDims(RelaxOp, name="match_dims"):
    """x, each of whose erased dims is bound to a symbol: its size when this operation runs."""

    TRAITS = (Trait.INTERFACE,)
    PURE = False
    x = operand()
    symbols = Strs()

    @staticmethod
    def infer(x: TensorType, *, symbols: tuple[str, ...]) -> TensorType:
        erased = [axis for axis, dim in enumerate(x.shape) if dim is D.UNKNOWN]
        if len(erased) != len(symbols) or len(set(symbols)) != len(symbols):
            raise OpError(f"symbols must be different names for the {len(erased)} erased dims of {x}, got {symbols}")
        for name in symbols:
            if not D.is_symbol_name(name):
                raise OpError(f"'{name}' is not a name for a dim")
        shape = list(x.shape)
        for axis, name in zip(erased, symbols, strict=True):
            shape[axis] = D.symbol(name)
        return x.with_shape(shape)


class DimsTensor(RelaxOp, name="dims_tensor"):
    """The run-time values of dims, as a vector of i64."""

    dims = Dims()

    @staticmethod
    def infer(*, dims: tuple[Dim, ...]) -> TensorType:
        return TensorType.of((len(dims),), "i64")


class Steps(RelaxOp, name="steps"):
    """start, start + delta, start + 2 * delta, ...: as many elements as the one dim of `shape`."""

    start = operand()
    delta = operand()
    shape = Dims()

    @staticmethod
    def infer(start: TensorType, delta: TensorType, *, shape: tuple[Dim, ...]) -> TensorType:
        same_dtype("start and delta", start, delta)
        if start.rank or delta.rank or len(shape) != 1:
            raise OpError(f"start and delta must have rank 0, and shape one dim, got {start}, {delta} and {len(shape)}")
        return TensorType(shape, start.dtype)


class Nonzero(RelaxOp, name="nonzero"):
    """Indices of the non-zero elements in row-major order: one row of indices for each dim of x.

    The one dim of `count` is the number of columns; operator `bind_dims` binds it to the counted value.
    """

    meaning = staticmethod(array_meanings.nonzero)
    x = operand()
    count = Dims()

    @staticmethod
    def infer(x: TensorType, *, count: tuple[Dim, ...]) -> TensorType:
        if len(count) != 1:
            raise OpError(f"count must be one dim, got {len(count)}")
        return TensorType.of((x.rank, count[0]), "i64")


class SliceBounds(RelaxOp, name="slice_bounds"):
    """Begin, length and step of a slice for each axis of a tensor of this shape, with the semantics of ONNX's Slice.

    Starts, ends, axes and steps have one element per sliced axis; without axes, the first axes are sliced. Negative
    starts and ends count from the end, and positions outside of the tensor are clamped.
    """

    meaning = staticmethod(array_meanings.slice_bounds)
    shape = operand()
    starts = operand()
    ends = operand()
    axes = optional()
    steps = optional()

    @staticmethod
    def infer(
        shape: TensorType, starts: TensorType, ends: TensorType, axes: TensorType | None, steps: TensorType | None
    ) -> TensorType:
        bounds = [t for t in (starts, ends, axes, steps) if t is not None]
        listed = ", ".join(map(str, bounds))
        if shape.rank != 1 or any(t.rank != 1 for t in bounds):
            raise OpError(f"operands must be vectors, got {listed}")
        for each in bounds[1:]:
            require_equal_dims(starts.shape[0], each.shape[0], f"the sizes of starts, ends, axes and steps ({listed})")
        if any(t.dtype.name != "i64" for t in (shape, *bounds)):
            raise OpError("operands must be of i64")
        text = f"starts {starts} must not be more than the axes, {shape.shape[0]}"
        require_at_most(starts.shape[0], shape.shape[0], text)
        return TensorType.of((3, shape.shape[0]), "i64")


class SliceAt(RelaxOp, name="slice_at"):
    """The elements at begin + i * step of each axis; `bounds` has the rows begin, (length), step of `slice_bounds`."""

    PRECISION = Precision.MOVES
    TRAITS = (Trait.SUBSET,)
    FLOPS_PER_ELEMENT = 0

    x = operand()
    bounds = operand()
    shape = Dims()

    @staticmethod
    def infer(x: TensorType, bounds: TensorType, *, shape: tuple[Dim, ...]) -> TensorType:
        if len(shape) != x.rank or bounds.shape != (3, x.rank) or bounds.dtype.name != "i64":
            raise OpError(f"a slice of {x} needs i64[3, {x.rank}] and {x.rank} dims, got {bounds} and {len(shape)}")
        for axis, (count, dim) in enumerate(zip(shape, x.shape, strict=True)):
            require_at_most(count, dim, f"a slice of {count} elements is larger than axis {axis} of the operand {x}")
        return x.with_shape(shape)


class SliceDims(RelaxOp, name="slice_dims"):
    """The elements at begin + i * stride of each axis, where the begins are dims; strides may be negative."""

    PRECISION = Precision.MOVES
    TRAITS = (Trait.SUBSET,)
    AXES = AxisAttributes(per_axis=("begin", "shape", "strides"))
    FLOPS_PER_ELEMENT = 0

    sharding = staticmethod(shardings.slice_dims)
    x = operand()
    begin = Dims()
    shape = Dims()
    strides = Ints()

    @staticmethod
    def infer(x: TensorType, *, begin: tuple[Dim, ...], shape: tuple[Dim, ...], strides: tuple[int, ...]) -> TensorType:
        if not len(begin) == len(shape) == len(strides) == x.rank:
            raise OpError(f"a slice of {x} needs begin, shape and strides for each of its {x.rank} axes")
        if 0 in strides:
            raise OpError(f"strides must not be 0, got {list(strides)}")
        for axis, (dim, first, count, stride) in enumerate(zip(x.shape, begin, shape, strides, strict=True)):
            if (first, count, stride) != (0, dim, 1):
                every = "" if stride == 1 else f", each {stride} after the one before"
                text = f"{count} elements from element {first}{every}, are not within axis {axis} of {x}"
                require_part(dim, first, count, stride, text)
        return x.with_shape(shape)


class PadAt(RelaxOp, name="pad_at"):
    """x with elements added before each axis (or, if `begins` is negative, without its first ones).

    `shape` is the shape of the result. Elements beyond the edges are `value`, or as the mode defines.
    """

    PRECISION = Precision.REGISTERS
    FLOPS_PER_ELEMENT = 0

    x = operand()
    begins = operand()
    value = optional()
    shape = Dims()
    mode = Str("constant", choices=("constant", "reflect", "edge", "wrap"))

    @staticmethod
    def infer(
        x: TensorType, begins: TensorType, value: TensorType | None, *, shape: tuple[Dim, ...], mode: str
    ) -> TensorType:
        if len(shape) != x.rank or begins.shape != (x.rank,) or begins.dtype.name != "i64":
            raise OpError(f"padding of {x} needs i64[{x.rank}] and {x.rank} dims, got {begins} and {len(shape)} dims")
        if value is not None and (value.rank or value.dtype is not x.dtype):
            raise OpError(f"value must be {x.dtype} of rank 0, got {value}")
        return x.with_shape(shape)


class SpreadAxes(RelaxOp, name="spread_axes"):
    """Split each axis of x into two: the element of the result at (outer, inner) is that of x at outer + inner.

    Of each pair of dims one is the dim of x and the other 1; which one may depend on run-time sizes. The inner axes
    follow all outer ones, so that a reduction over axes known at run time becomes a reduction over the inner axes.
    """

    x = operand()
    outer = Dims()
    inner = Dims()

    @staticmethod
    def infer(x: TensorType, *, outer: tuple[Dim, ...], inner: tuple[Dim, ...]) -> TensorType:
        if len(outer) != x.rank or len(inner) != x.rank:
            raise OpError(f"outer and inner must have a dim for each of the {x.rank} axes of {x}")
        for axis, (dim, out, within) in enumerate(zip(x.shape, outer, inner, strict=True)):
            text = f"axis {axis} of {x} is split into {out} and {within}: one must be {dim}, the other one 1"
            require_at_most(out + within, dim + 1, text)
        return x.with_shape((*outer, *inner))


class ResizeAt(ResizeBase, name="resize_at"):
    """`resize` with scales and a region that are known at run time; `roi` applies to "tf_crop_and_resize" only."""

    scales = operand()
    roi = optional()

    @staticmethod
    def infer(
        x: TensorType, scales: TensorType, roi: TensorType | None, *, shape: tuple[Dim, ...], mode: str,
        coordinates: str, nearest: str, cubic_coeff: float, exclude_outside: bool, antialias: bool,
        extrapolation: float,
    ) -> TensorType:  # fmt: skip
        if len(shape) != x.rank or scales.shape != (x.rank,) or (roi is not None and roi.shape != (2 * x.rank,)):
            raise OpError(f"shape and scales must have {x.rank} elements for {x}, and roi twice as many")
        for axis, dim in enumerate(x.shape):
            require_elements(dim, shape, f"axis {axis} of the operand {x}, which is resized to {shape[axis]}, is empty")
        return x.with_shape(shape)
