"""Arithmetic of complex tensors: formulas of their parts."""

from __future__ import annotations

import math
from collections.abc import Callable

from mirlo.extend.frontend import OPS, DType, Tensor, where
from mirlo.extend.library import FORMULAS, Complex, Formula
from mirlo_torch.operation import AtenOperation, Operand
from mirlo_torch.registry import CONVERTERS, aten_names, complex_converter, converter

ComplexOperand = Complex | Operand | complex
"""What operators on complex tensors take: also real tensors and numbers."""


def complex_value(op: AtenOperation, x: ComplexOperand, kind: DType) -> Complex:
    """Return an operand as a complex value whose parts have an element type."""
    if isinstance(x, Complex):
        return Complex(x.re.cast(kind), x.im.cast(kind))
    if isinstance(x, complex):
        return Complex(op.constant(x.real, kind), op.constant(x.imag, kind))
    real = op.operand(x, kind)
    return Complex(real, op.constant(0, kind, real.shape))


def kind_of(*operands: ComplexOperand) -> DType:
    """Return the element type of the parts: the widest among operands with dims, otherwise among scalars."""
    dtypes = [x.dtype for x in operands if isinstance(x, Complex)]
    floats = [x.dtype for x in operands if isinstance(x, Tensor) and x.dtype.is_float]
    return max((*dtypes, *floats), key=lambda dtype: dtype.bits)


def _converter_of(formula: Formula) -> Callable[[AtenOperation, Complex], Complex]:
    return lambda op, x: formula(complex_value(op, x, op.dtype))


for _operator, _formula in FORMULAS.items():
    complex_converter(*aten_names(OPS[_operator]))(_converter_of(_formula))


@complex_converter("aten.neg.default", "aten.negative.default", "aten._neg_view.default")
def negative(op: AtenOperation, x: Complex) -> Complex:
    return -x


@complex_converter("aten.sgn.default")
def direction(op: AtenOperation, x: Complex) -> Complex:
    """Convert `sgn`: numbers divided by their absolute value."""
    return x.sign()


@complex_converter(
    "aten.conj.default", "aten._conj.default", "aten.conj_physical.default", "aten._conj_physical.default"
)
def conjugate(op: AtenOperation, x: Complex) -> Complex:
    return x.conj()


@complex_converter("aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar", "aten.rsub.Tensor",
                   "aten.rsub.Scalar", "aten.subtract.Tensor")  # fmt: skip
def add(op: AtenOperation, x: ComplexOperand, y: ComplexOperand, other: complex = 1, *, alpha: complex = 1) -> Complex:
    """Convert sums and differences."""
    factor = other if op.name.endswith("Scalar") else alpha
    left, right = (complex_value(op, each, op.dtype) for each in (x, y))
    if "rsub" in op.name:
        left, right = right, left
    if factor != 1:
        right = right * complex_value(op, complex(factor), op.dtype)
    return left + right if ".add." in op.name else left - right


@complex_converter("aten.mul.Tensor", "aten.mul.Scalar", "aten.multiply.Tensor", "aten.multiply.Scalar")
def multiply(op: AtenOperation, x: ComplexOperand, y: ComplexOperand) -> Complex:
    return complex_value(op, x, op.dtype) * complex_value(op, y, op.dtype)


@complex_converter("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor", "aten.divide.Tensor",
                   "aten.divide.Scalar")  # fmt: skip
def divide(op: AtenOperation, x: ComplexOperand, y: ComplexOperand) -> Complex:
    return complex_value(op, x, op.dtype) / complex_value(op, y, op.dtype)


@complex_converter("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar")
def power(op: AtenOperation, x: ComplexOperand, y: ComplexOperand) -> Complex:
    """Convert powers; squares and cubes are products, as in PyTorch."""
    base = complex_value(op, x, op.dtype)
    if isinstance(y, (int, float)) and y in (1, 2, 3):
        product = base
        for _ in range(int(y) - 1):
            product = product * base
        return product
    if isinstance(y, (int, float)) and y == 0.5:
        return base.sqrt()
    return base.power(complex_value(op, y, op.dtype))


@complex_converter("aten.eq.Tensor", "aten.eq.Scalar", "aten.ne.Tensor", "aten.ne.Scalar", "aten.not_equal.Tensor",
                   "aten.not_equal.Scalar")  # fmt: skip
def compare(op: AtenOperation, x: ComplexOperand, y: ComplexOperand) -> Tensor:
    kind = kind_of(x, y)
    same = complex_value(op, x, kind).equals(complex_value(op, y, kind))
    return same if ".eq." in op.name else ~same


@complex_converter("aten.isnan.default")
def isnan(op: AtenOperation, x: Complex) -> Tensor:
    return x.re.isnan() | x.im.isnan()


@complex_converter("aten.isinf.default")
def isinf(op: AtenOperation, x: Complex) -> Tensor:
    return x.re.isinf() | x.im.isinf()


@complex_converter("aten.isfinite.default")
def isfinite(op: AtenOperation, x: Complex) -> Tensor:
    return x.re.isfinite() & x.im.isfinite()


def truth(op: AtenOperation, x: Complex) -> Tensor:
    """Return where elements are not 0."""
    return x.re.not_equals(0) | x.im.not_equals(0)


OF_TRUTH = (
    "logical_not.default", "logical_and.default", "logical_or.default", "logical_xor.default", "any.default",
    "any.dim", "any.dims", "all.default", "all.dim", "all.dims", "count_nonzero.default",
    "count_nonzero.dim_IntList", "nonzero.default", "argwhere.default",
)  # fmt: skip


@complex_converter(*(f"aten.{name}" for name in OF_TRUTH))
def of_truth(op: AtenOperation, *args: object, **kwargs: object) -> object:
    """Convert operators that depend on which elements are not 0."""
    arguments = [truth(op, x) if isinstance(x, Complex) else x for x in args]
    return CONVERTERS[op.name](op, *arguments, **kwargs)


# Parts


@complex_converter("aten.abs.default", "aten.absolute.default")
def absolute(op: AtenOperation, x: Complex) -> Tensor:
    return complex_value(op, x, op.dtype).abs()


@converter("aten.angle.default")
def angle_of_real(op: AtenOperation, x: Tensor) -> Tensor:
    """Convert the angle of real numbers: 0 or pi."""
    y = x.cast(op.dtype)
    result = where(y < 0, math.pi, 0, op.dtype)
    return where(y.not_equals(y), y, result, op.dtype)


@complex_converter("aten.angle.default")
def angle(op: AtenOperation, x: Complex) -> Tensor:
    return complex_value(op, x, op.dtype).angle()


@converter("aten.real.default")
def real_of_real(op: AtenOperation, x: Tensor) -> Tensor:
    return x


@complex_converter("aten.real.default")
def real(op: AtenOperation, x: Complex) -> Tensor:
    return x.re


@complex_converter("aten.imag.default")
def imaginary(op: AtenOperation, x: Complex) -> Tensor:
    return x.im


@complex_converter("aten.complex.default")
def make(op: AtenOperation, real: Tensor, imaginary: Tensor) -> Complex:
    return Complex(real.expand(op.shape), imaginary.expand(op.shape))


@complex_converter("aten.polar.default")
def polar(op: AtenOperation, size: Tensor, turn: Tensor) -> Complex:
    return Complex(size * turn.cos(), size * turn.sin())


@complex_converter("aten.view_as_real.default", "aten.view_as_real_copy.default")
def view_as_real(op: AtenOperation, x: Complex) -> Tensor:
    return op.builder.join_parts(x.re, x.im)


@complex_converter("aten.view_as_complex.default", "aten.view_as_complex_copy.default")
def view_as_complex(op: AtenOperation, x: Tensor) -> Complex:
    return Complex(*op.builder.split_parts(x))


@converter("aten._neg_view.default")
def negative_view(op: AtenOperation, x: Tensor) -> Tensor:
    return -x


@complex_converter(
    "aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device", "aten.type_as.default",
    "aten.to.other", "aten.to.prim_Device", "prims.convert_element_type.default",
)  # fmt: skip
def to_copy(op: AtenOperation, x: Complex | Tensor, *_: object, **ignored: object) -> Complex | Tensor:
    """Convert a change of the element type: real to complex adds an imaginary part 0, complex to real drops it."""
    if not op.is_complex:
        assert isinstance(x, Complex)
        return truth(op, x) if op.dtype.is_bool else x.re.cast(op.dtype)
    return complex_value(op, x, op.dtype)


# Norms


@complex_converter("aten.linalg_vector_norm.default")
def vector_norm(op: AtenOperation, x: Complex, *args: object, **kwargs: object) -> object:
    return CONVERTERS[op.name](op, x.abs(), *args, **kwargs)


# Choice


@complex_converter("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def choose(op: AtenOperation, condition: Tensor, x: ComplexOperand, y: ComplexOperand) -> Complex:
    flags = condition.cast("bool")
    left, right = (complex_value(op, each, op.dtype) for each in (x, y))
    return Complex(where(flags, left.re, right.re), where(flags, left.im, right.im))


@complex_converter("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(op: AtenOperation, x: Complex, mask: Tensor, value: ComplexOperand) -> Complex:
    result = choose(op, mask, value, x)
    return Complex(*(part.expand(op.shape) for part in (result.re, result.im)))
