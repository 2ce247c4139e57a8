"""A tensor of an imported program, with operators, so that converters read as mathematics.

    low = x + weight * (end - x)               # relax.subtract, relax.multiply, relax.add
    near = abs(weight) < 0.5                   # relax.abs, relax.less
    result = where(near, low, end - (end - x) * (1 - weight))

A tensor is an SSA value of relax, or its known elements. Operators make relax operators through its builder. The other
operand is a tensor of the same element type, or a number or a size, which becomes a constant of that type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import EllipsisType
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, SymbolicDim
from mirlo.dialects.core.dtypes import DTYPES, DType
from mirlo.dialects.core.dtypes import dtype as dtype_of
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.infer import normalize_axes, normalize_axis
from mirlo.runtime.callbacks import Expected, each_is, is_integer
from mirlo.runtime.kinds import Kind
from mirlo.runtime.records import dataclass

SIZES = 64
"""Integer tensors of up to this many elements are followed as sizes."""
Like: TypeAlias = TensorType | DType | str
"""What has the element type that a constant gets."""
Operand: TypeAlias = "Tensor | SymbolicDim | float"
"""What stands beside an operator: a tensor, a size or a number."""
Axes: TypeAlias = "int | Sequence[int] | None"
"""Axes of a reduction; None for all of them."""
Index: TypeAlias = "int | slice | None | EllipsisType"
"""What stands in brackets for an axis, as in numpy."""


class TensorBuilder(Protocol):
    """The interface of a function builder that tensors use."""

    def constant(
        self, array: npt.ArrayLike, like: Like | None = None, shape: Sequence[Dim] | None = None, name: str = ""
    ) -> Tensor:
        """Return a constant, with the element type and the shape of the array unless others are given."""

    def elementwise(self, name: str, operands: Sequence[Tensor], attributes: Mapping[str, object]) -> Tensor:
        """Make an elementwise operator on tensors that broadcast."""

    def emit(self, operator: str, *operands: Any, **attributes: Any) -> Tensor:
        """Make an operator of one result."""

    def emit_all(self, operator: str, *operands: Any, **attributes: Any) -> list[Tensor]:
        """Make an operator of several results."""

    def compact(self, tensor: Tensor) -> ir.Value:
        """Return an SSA value that broadcasts to the shape of a tensor."""

    def full(self, tensor: Tensor) -> ir.Value:
        """Return the SSA value with the whole shape of a tensor."""


def _unary(operator: str) -> Callable[[Tensor], Tensor]:
    """Return a method that makes an elementwise operator of the tensor alone."""

    def apply(x: Tensor) -> Tensor:
        return x.elementwise(operator)

    return apply


def _binary(operator: str) -> Callable[[Tensor, Operand], Tensor]:
    """Return a method that makes an elementwise operator of the tensor and another operand."""

    def apply(x: Tensor, y: Operand) -> Tensor:
        return x.elementwise(operator, y)

    return apply


def _reflected(operator: str) -> Callable[[Tensor, Operand], Tensor]:
    """Return a method that makes an elementwise operator of another operand and the tensor."""

    def apply(x: Tensor, y: Operand) -> Tensor:
        return x.like(y).elementwise(operator, x)

    return apply


def _reduction(operator: str) -> Callable[..., Tensor]:
    """Return a method that reduces the tensor over axes, over all of them if none are given."""

    def apply(x: Tensor, axes: Axes = None, keepdims: bool = False) -> Tensor:
        return x.builder.emit(operator, x, axes=[axes] if isinstance(axes, int) else axes, keepdims=keepdims)

    return apply


@dataclass(eq=False)
class Tensor:
    """A tensor: one of `value`, `array` and `sizes` says what it holds.

    `value` broadcasts to the shape of `type`: StableHLO and ATen expand operands before operations, relax does not
    need it for elementwise ones.
    """

    builder: TensorBuilder
    """The function that operators add to."""
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
    name: str = ""
    """The name in the model, if it has one."""
    parameter: str = ""
    """The name under which the parameter store keeps a constant of the model's file; "" for any."""
    partial: tuple[Dim | None, ...] | None = None
    """The elements of a list of integers, of which only some are known at import; None for the others."""
    fractions: np.ndarray | None = None
    """The elements of a float tensor that are fractions of dims."""
    packed: np.ndarray | None = None
    """The bytes of a constant of 2 or 4 bits an element, which is not known at import."""
    slices: tuple[np.ndarray, ...] | None = None
    """The elements of a constant, not known at import: an array for each position along its first dim."""
    compute: Callable[[], Tensor] | None = field(default=None, repr=False)
    """Makes the operation whose result is known as sizes."""
    deferred: int = 0
    """How many operations `compute` makes of which each needs the next one: as many calls in each other."""
    region: int | None = None
    """The depth of the region in which a constant is placed, where all its users see it; None for the current one."""

    __array_ufunc__ = None
    """Lets numbers of numpy on the left leave the operator to this class."""
    __iter__ = None
    """A tensor is no sequence, although parts of it are taken by `[]`."""

    @property
    def ssa(self) -> ir.Value:
        """Return the SSA value with the whole shape, which operations take as an operand."""
        return self.builder.full(self)

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

    @property
    def partial_sizes(self) -> list[Dim | None]:
        """Return the elements of a list that are known sizes; None for the others."""
        elements = self.partial or ()
        return [None if dim is None or dim == 0 or not D.is_nonnegative(dim) else dim for dim in elements]

    @property
    def known(self) -> np.ndarray | None:
        """Return the elements if they are known, as objects if some are sizes."""
        if self.array is not None:
            return self.array if self.array.shape == self.type.shape else self.constant
        if self.sizes is None:
            return None
        elements = np.empty(len(self.sizes), object)
        elements[:] = self.sizes
        return elements.reshape(self.type.static_shape)

    @property
    def kind(self) -> Kind:
        """Return the type as the kind of a run-time value."""
        return Kind(self.dtype.name, tuple(dim if isinstance(dim, int) else str(dim) for dim in self.shape))

    def __str__(self) -> str:
        return str(self.type)

    # Constants

    def like(self, x: Operand | np.ndarray) -> Tensor:
        """Return a number, a size or an array as a constant of this element type; a tensor as it is."""
        if isinstance(x, np.ndarray):
            array = x.astype(self.dtype.to_numpy())
            return Tensor(self.builder, TensorType(array.shape, self.dtype), array=array)
        return x if isinstance(x, Tensor) else number(self.builder, x, self.dtype)

    def filled(self, x: float) -> Tensor:
        """Return a constant of this type, all of whose elements are one number."""
        return Tensor(self.builder, self.type, array=self.like(x).array)

    # Elementwise operators

    def elementwise(self, operator: str, *others: Operand, **attributes: object) -> Tensor:
        """Make an elementwise operator of this tensor and others."""
        return self.builder.elementwise(operator, [self, *map(self.like, others)], attributes)

    __add__ = _binary("add")
    __radd__ = _reflected("add")
    __sub__ = _binary("subtract")
    __rsub__ = _reflected("subtract")
    __mul__ = _binary("multiply")
    __rmul__ = _reflected("multiply")
    __truediv__ = _binary("divide")
    """Divide as `relax.divide` does: integers towards zero."""
    __rtruediv__ = _reflected("divide")
    __floordiv__ = _binary("floor_divide")
    __rfloordiv__ = _reflected("floor_divide")
    __mod__ = _binary("mod")
    """Return the remainder with the sign of the divisor."""
    __rmod__ = _reflected("mod")
    __pow__ = _binary("power")
    __rpow__ = _reflected("power")
    __lshift__ = _binary("shift_left")
    __rshift__ = _binary("shift_right")
    __lt__ = _binary("less")
    __le__ = _binary("less_equal")
    __gt__ = _binary("greater")
    __ge__ = _binary("greater_equal")
    equals = _binary("equal")
    """Compare the elements; `==` compares the tensors themselves."""
    not_equals = _binary("not_equal")
    __and__ = _binary("bitwise_and")
    """Return the common bits; of bools, whether both hold."""
    __rand__ = _reflected("bitwise_and")
    __or__ = _binary("bitwise_or")
    __ror__ = _reflected("bitwise_or")
    __xor__ = _binary("bitwise_xor")
    __rxor__ = _reflected("bitwise_xor")
    __invert__ = _unary("bitwise_not")
    __neg__ = _unary("negative")
    __abs__ = _unary("abs")
    fmod = _binary("fmod")
    """Return the remainder with the sign of the dividend."""
    atan2 = _binary("atan2")

    acos, acosh, asin, asinh = _unary("acos"), _unary("acosh"), _unary("asin"), _unary("asinh")
    atan, atanh, cos, cosh = _unary("atan"), _unary("atanh"), _unary("cos"), _unary("cosh")
    sin, sinh, tan, tanh = _unary("sin"), _unary("sinh"), _unary("tan"), _unary("tanh")
    exp, exp2, expm1 = _unary("exp"), _unary("exp2"), _unary("expm1")
    log, log2, log10, log1p = _unary("log"), _unary("log2"), _unary("log10"), _unary("log1p")
    sqrt, rsqrt, cbrt, square = _unary("sqrt"), _unary("rsqrt"), _unary("cbrt"), _unary("square")
    reciprocal, sign = _unary("reciprocal"), _unary("sign")
    erf, erfc, erfinv = _unary("erf"), _unary("erfc"), _unary("erfinv")
    lgamma, digamma = _unary("lgamma"), _unary("digamma")
    floor, ceil, trunc = _unary("floor"), _unary("ceil"), _unary("trunc")
    round = _unary("round")
    """Round to the nearest integer, halves to the even one."""
    isnan, isinf, isfinite = _unary("isnan"), _unary("isinf"), _unary("isfinite")
    relu, sigmoid, softplus = _unary("relu"), _unary("sigmoid"), _unary("softplus")

    def clip(self, least: float | None = None, most: float | None = None) -> Tensor:
        """Return the elements bounded by two numbers; NaN stays."""
        bounds = {key: value for key, value in (("min", least), ("max", most)) if value is not None}
        return self.elementwise("clip", **bounds)

    def cast(self, dtype: DType | str, *, saturate: bool = False) -> Tensor:
        """Return elements of another type; `saturate` bounds those of floats of 8 bits or less by the largest."""
        wanted = dtype_of(dtype)
        if self.dtype is wanted:
            return self
        known = self.constant
        if known is not None and known.size == 1 and not self.dtype.is_float and wanted.bits >= 8:
            array = known.reshape(()).astype(wanted.to_numpy())
            return Tensor(self.builder, self.type.with_dtype(wanted), array=array)
        attributes = {"saturate": saturate} if wanted.is_float and wanted.bits <= 8 else {}
        return self.elementwise("cast", dtype=wanted, **attributes)

    def bitcast(self, dtype: DType | str) -> Tensor:
        """Return the bits of the elements as another type of the same size."""
        wanted = dtype_of(dtype)
        return self if self.dtype is wanted else self.elementwise("bitcast", dtype=wanted)

    # Reductions

    sum, mean, prod = _reduction("reduce_sum"), _reduction("reduce_mean"), _reduction("reduce_prod")
    max, min = _reduction("reduce_max"), _reduction("reduce_min")
    any, all = _reduction("reduce_any"), _reduction("reduce_all")

    def argmax(self, axis: int, keepdims: bool = False) -> Tensor:
        """Return the first position of the maximum along an axis."""
        return self.builder.emit("argmax", self, axis=axis, keepdims=keepdims)

    def argmin(self, axis: int, keepdims: bool = False) -> Tensor:
        """Return the first position of the minimum along an axis."""
        return self.builder.emit("argmin", self, axis=axis, keepdims=keepdims)

    def cumsum(self, axis: int, **attributes: bool) -> Tensor:
        """Return running sums along an axis."""
        return self.builder.emit("cumsum", self, axis=axis, **attributes)

    def softmax(self, axis: int) -> Tensor:
        """Return the exponentials along an axis, divided by their sum."""
        return self.builder.emit("softmax", self, axis=axis)

    def log_softmax(self, axis: int) -> Tensor:
        """Return the logarithms of `softmax`."""
        return self.builder.emit("log_softmax", self, axis=axis)

    # Products

    def matmul(self, y: Tensor, **attributes: object) -> Tensor:
        """Return the product of matrices, batched over leading dims."""
        return self.builder.emit("matmul", self, y, **attributes)

    def __matmul__(self, y: Tensor) -> Tensor:
        return self.matmul(y)

    # Shapes

    def reshape(self, shape: Sequence[Dim]) -> Tensor:
        """Return the same elements, in row-major order, in another shape."""
        shape = tuple(shape)
        if self.shape == shape:
            return self
        if self.array is not None and self.array.size == 1 and self.type.elements == D.product(shape):
            return Tensor(self.builder, self.type.with_shape(shape), array=self.array.reshape(()))
        return self.builder.emit("reshape", self, shape=shape)

    def expand(self, shape: Sequence[Dim]) -> Tensor:
        """Return the tensor broadcast to a shape, without computing it."""
        type_ = self.type.with_shape(tuple(shape))
        if type_.shape == self.shape:
            return self
        if self.array is not None:
            return Tensor(self.builder, type_, array=self.array)
        if self.sizes is not None and len(self.sizes) == 1 and type_.elements == 1:
            return Tensor(self.builder, type_, sizes=self.sizes)
        return Tensor(self.builder, type_, self.builder.compact(self))

    def permute(self, axes: Sequence[int]) -> Tensor:
        """Return the tensor with its dims in another order."""
        axes = list(axes)
        return self if axes == list(range(self.rank)) else self.builder.emit("permute", self, axes=axes)

    def transpose(self, first: int = -2, second: int = -1) -> Tensor:
        """Return the tensor with two dims exchanged."""
        axes = list(range(self.rank))
        axes[first], axes[second] = axes[second], axes[first]
        return self.permute(axes)

    def flip(self, axes: Sequence[int]) -> Tensor:
        """Return the elements in reverse order along axes."""
        return self.builder.emit("reverse", self, axes=list(axes)) if axes else self

    def expand_dims(self, *axes: int) -> Tensor:
        """Return the tensor with dims of 1 at these axes of the result."""
        rank = self.rank + len(axes)
        new, old = normalize_axes(axes, rank), iter(self.shape)
        return self.reshape([1 if axis in new else next(old) for axis in range(rank)])

    def squeeze(self, *axes: int) -> Tensor:
        """Return the tensor without these axes, which are 1."""
        gone = normalize_axes(axes, self.rank)
        for axis in gone:
            if self.shape[axis] != 1:
                raise OpError(f"axis {axis} of {self.type} is {self.shape[axis]}: only a dim of 1 can be squeezed")
        return self.reshape([dim for axis, dim in enumerate(self.shape) if axis not in gone])

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Tensor:
        """Return a part of the tensor by numbers, slices, `None` and `...`, as in numpy.

        Bounds may be sizes. The bounds of a dynamic dim are not clamped: they are in its range.
        """
        entries = index if isinstance(index, tuple) else (index,)
        used = sum(entry is not None and entry is not ... for entry in entries)
        if used > self.rank or sum(entry is ... for entry in entries) > 1:
            raise OpError(f"{len(entries)} indices do not select a part of {self.type}")
        parts: list[tuple[Dim, Dim, int]] = []
        kept: list[int | None] = []
        for entry in entries if any(entry is ... for entry in entries) else (*entries, ...):
            axis = len(parts)
            if entry is None:
                kept.append(None)
            elif isinstance(entry, EllipsisType):
                parts.extend((0, dim, 1) for dim in self.shape[axis : axis + self.rank - used])
                kept.extend(range(axis, len(parts)))
            elif isinstance(entry, slice):
                parts.append(_bounds(entry, self.shape[axis]))
                kept.append(axis)
            else:
                parts.append((_from_start(entry, self.shape[axis]), 1, 1))
        part = self.part(*zip(*parts, strict=True)) if parts else self
        return part.reshape([1 if axis is None else part.shape[axis] for axis in kept])

    def slice(self, axis: int, begin: Dim, size: Dim, step: int = 1) -> Tensor:
        """Return this many elements along an axis; `begin` counts from 0."""
        begins: list[Dim] = [0] * self.rank
        sizes, steps = list(self.shape), [1] * self.rank
        begins[axis], sizes[axis], steps[axis] = begin, size, step
        return self.part(begins, sizes, steps)

    def part(self, begins: Sequence[Dim], sizes: Sequence[Dim], steps: Sequence[int] | None = None) -> Tensor:
        """Return the elements at begin + i * step of each axis; the call checks what sizes decide."""
        steps = [1] * self.rank if steps is None else list(steps)
        parts = list(zip(begins, sizes, steps, strict=True))
        axes = [axis for axis, part in enumerate(parts) if part != (0, self.shape[axis], 1)]
        if not axes:
            return self
        if self.array is not None and self.array.size == 1:
            return Tensor(self.builder, self.type.with_shape(tuple(sizes)), array=self.array)
        if all(isinstance(each, int) for axis in axes for each in (self.shape[axis], *parts[axis])):
            ends = [_end(*parts[axis]) for axis in axes]
            starts = [_number(begins[axis]) for axis in axes]
            return self.strided_slice(axes, starts, ends, [steps[axis] for axis in axes])
        return self.builder.emit("slice_dims", self, begin=list(begins), shape=tuple(sizes), strides=steps)

    def strided_slice(
        self, axes: Sequence[int], begin: Sequence[int], end: Sequence[int], strides: Sequence[int]
    ) -> Tensor:
        """Return the elements between bounds of axes; bounds are clamped, and negative ones count from the end."""
        return self.builder.emit("strided_slice", self, axes=axes, begin=begin, end=end, strides=strides)

    def split(self, sizes: Sequence[Dim], axis: int) -> list[Tensor]:
        """Return consecutive parts of these sizes along an axis."""
        return self.builder.emit_all("split", self, axis=normalize_axis(axis, self.rank), sizes=tuple(sizes))

    def halves(self, axis: int) -> list[Tensor]:
        """Return the two halves along an axis of an even size."""
        half = self.shape[axis] // 2
        return self.split((half, half), axis)

    # Accesses

    def gather(self, indices: Tensor, axis: int = 0) -> Tensor:
        """Return slices at positions along an axis."""
        return self.builder.emit("gather", self, indices, axis=axis)

    def gather_elements(self, indices: Tensor, axis: int) -> Tensor:
        """Return elements at positions along an axis, which has one for each element of the result."""
        return self.builder.emit("gather_elements", self, indices, axis=axis)


ONE_TENSOR = Expected("a Tensor", lambda value: isinstance(value, Tensor))
"""What a function of a front end returns that computes one tensor."""


_are_dims = each_is(lambda each: is_integer(each) or isinstance(each, SymbolicDim))
TWO_DIMS = Expected("2 dims", lambda value: _are_dims(value) and len(value) == 2)
"""What a function of a front end returns that binds two elements as sizes."""


def expected_tensors(count: int) -> Expected:
    """Return the type of the result of a front end's function that computes several tensors."""
    holds = each_is(ONE_TENSOR.holds)
    return Expected(f"a list of {count} Tensors", lambda value: holds(value) and len(value) == count)


def _bounds(entry: slice, dim: Dim) -> tuple[Dim, Dim, int]:
    """Return the begin, the size and the step of a slice."""
    step = 1 if entry.step is None else int(entry.step)
    if isinstance(dim, int) and all(each is None or isinstance(each, int) for each in (entry.start, entry.stop)):
        taken = range(dim)[entry]
        return taken.start, len(taken), step
    if step < 0:
        raise OpError(f"a slice with step {step} of a dim of size '{dim}' is not supported: flip the axis first")
    begin = 0 if entry.start is None else _from_start(entry.start, dim)
    end = dim if entry.stop is None else _from_start(entry.stop, dim)
    return begin, D.ceildiv(end - begin, step), step


def _from_start(position: Dim, dim: Dim) -> Dim:
    """Return a position that counts from the start; a negative number counts from the end."""
    return dim + position if isinstance(position, int) and position < 0 else position


def _end(begin: Dim, size: Dim, step: int) -> int:
    """Return the end of a strided slice."""
    first, count = _number(begin), _number(size)
    end = first + (count - 1) * step + (1 if step > 0 else -1) if count else first
    return end if end >= 0 else -_LARGEST_DIM


def _number(dim: Dim) -> int:
    assert isinstance(dim, int)
    return dim


_LARGEST_DIM = 2**31 - 1
"""Negative ends of strided slices count from the end of the dim: that of minus its size and less is the start."""


def number(builder: TensorBuilder, x: SymbolicDim | float, dtype: DType) -> Tensor:
    """Return a number or a size as a tensor without dims; integers wrap around."""
    type_ = TensorType((), dtype)
    if isinstance(x, SymbolicDim):
        return Tensor(builder, TensorType.of((), "i64"), sizes=(x,)).cast(dtype)
    if not dtype.is_integer:
        return Tensor(builder, type_, array=np.asarray(x).astype(dtype.to_numpy()))
    if int(x) != x:
        raise OpError(f"{x} stands beside a tensor of {dtype}, which has no such number: cast the tensor first")
    wrapped = np.array(int(x) & ((1 << dtype.bits) - 1), np.uint64)
    return Tensor(builder, type_, array=wrapped.astype(dtype.to_numpy()))


def iota(builder: TensorBuilder, count: Dim) -> Tensor:
    """Return 0, 1, 2, ... as an i64 vector."""
    zero, one = (number(builder, each, DTYPES["i64"]) for each in (0, 1))
    return steps(zero, one, count)


def steps(start: Tensor, step: Tensor, count: Dim) -> Tensor:
    """Return start, start + step, start + 2 * step, ... as a vector of their element type."""
    return start.builder.emit("steps", start, step, shape=(count,))


def where(condition: Tensor, x: Operand, y: Operand, dtype: DType | None = None) -> Tensor:
    """Return the elements of x where the condition holds, else those of y; both in this type, if one is given."""
    if dtype is None:
        kinds = [each.dtype for each in (x, y) if isinstance(each, Tensor)]
        if not kinds:
            raise OpError(f"needs the element type of {x} and {y}")
        dtype = kinds[0]
    else:
        x, y = (each.cast(dtype) if isinstance(each, Tensor) else each for each in (x, y))
    builder = condition.builder
    chosen = [each if isinstance(each, Tensor) else number(builder, each, dtype) for each in (x, y)]
    return builder.elementwise("where", [condition, *chosen], {})


def maximum(x: Tensor, y: Operand) -> Tensor:
    """Return the larger elements; NaN wins."""
    return x.elementwise("maximum", y)


def minimum(x: Tensor, y: Operand) -> Tensor:
    """Return the smaller elements; NaN wins."""
    return x.elementwise("minimum", y)


def concat(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Return tensors one after another along an axis."""
    axis = normalize_axis(axis, tensors[0].rank)
    return tensors[0] if len(tensors) == 1 else tensors[0].builder.emit("concat", tensors, axis=axis)


def stack(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Return tensors of one shape along a new axis."""
    return tensors[0].builder.emit("stack", tensors, axis=normalize_axis(axis, tensors[0].rank + 1))
