"""Arithmetic on complex tensors, which are pairs of real ones, written as formulas."""

from __future__ import annotations

from dataclasses import dataclass

from mirlo.frontends.builder import OperationView
from mirlo.frontends.tensor import Tensor

SMALL_OF_TANH = 9.0
"""The sine of i*x beyond this is large: the hyperbolic tangent is 1 but for terms of e to the -18."""


@dataclass(frozen=True)
class Real:
    """A real tensor in formulas of one operation."""

    op: OperationView
    tensor: Tensor

    def call(self, name: str, *others: Real | float) -> Real:
        """Return an elementwise operator of relax of this tensor and others."""
        return Real(self.op, self.op.elementwise(name, self.tensor, *(self.like(x).tensor for x in others)))

    def like(self, number: Real | float) -> Real:
        """Return a number as a constant of this element type; a tensor as it is."""
        if isinstance(number, Real):
            return number
        return Real(self.op, self.op.constant(number, self.tensor.dtype))

    def filled(self, number: float) -> Real:
        """Return a constant of this type."""
        type_ = self.tensor.type
        return Real(self.op, self.op.constant(number, type_.dtype, type_.shape))

    def where(self, then: Real | float, otherwise: Real) -> Real:
        """Return the elements of one tensor where this one, of bools, holds, and of another elsewhere."""
        return Real(
            self.op, self.op.elementwise("where", self.tensor, otherwise.like(then).tensor, otherwise.tensor)
        )  # fmt: skip

    def __add__(self, other: Real | float) -> Real:
        return self.call("add", other)

    def __sub__(self, other: Real | float) -> Real:
        return self.call("subtract", other)

    def __mul__(self, other: Real | float) -> Real:
        return self.call("multiply", other)

    def __truediv__(self, other: Real | float) -> Real:
        return self.call("divide", other)

    def __neg__(self) -> Real:
        return self.call("negative")

    def __lt__(self, other: Real | float) -> Real:
        return self.call("less", other)

    def __gt__(self, other: Real | float) -> Real:
        return self.call("greater", other)

    def equals(self, other: Real | float) -> Real:
        """Return where elements are equal."""
        return self.call("equal", other)

    def copy_sign(self, sign: Real) -> Real:
        """Return this tensor, which is not negative, with the sign of another, that of zeros included."""
        return ((sign < 0.0).call("logical_or", self.like(1.0).call("divide", sign) < 0.0)).where(-self, self)


@dataclass(frozen=True)
class Complex:
    """A complex tensor in formulas of one operation."""

    re: Real
    im: Real

    @staticmethod
    def of(op: OperationView, re: Tensor, im: Tensor) -> Complex:
        """Return the complex tensor with these parts."""
        return Complex(Real(op, re), Real(op, im))

    def tensors(self) -> list[Tensor]:
        """Return the two tensors that the value is imported as."""
        return [self.re.tensor, self.im.tensor]

    def __add__(self, other: Complex) -> Complex:
        return Complex(self.re + other.re, self.im + other.im)

    def __sub__(self, other: Complex) -> Complex:
        return Complex(self.re - other.re, self.im - other.im)

    def __neg__(self) -> Complex:
        return Complex(-self.re, -self.im)

    def __mul__(self, other: Complex) -> Complex:
        return Complex(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)

    def __truediv__(self, other: Complex) -> Complex:
        """Return the quotient by Smith's formulas, in which no square of the divisor overflows."""
        wide = other.im.call("abs") > other.re.call("abs")
        large, small = wide.where(other.im, other.re), wide.where(other.re, other.im)
        ratio = small / large
        ratio = small.equals(0.0).where(0.0, ratio)
        divisor = large + small * ratio
        first, second = wide.where(self.im, self.re), wide.where(self.re, self.im)
        re = (first + second * ratio) / divisor
        im = (second - first * ratio) / divisor
        return Complex(re, wide.where(-im, im))

    def times_i(self) -> Complex:
        """Return i times the value."""
        return Complex(-self.im, self.re)

    def times_minus_i(self) -> Complex:
        """Return -i times the value."""
        return Complex(self.im, -self.re)

    def abs(self) -> Real:
        """Return the absolute value; no square overflows."""
        x, y = self.re.call("abs"), self.im.call("abs")
        large, small = x.call("maximum", y), x.call("minimum", y)
        ratio = large.equals(0.0).where(0.0, small / large)
        infinite = x.equals(float("inf")).call("logical_or", y.equals(float("inf")))
        return infinite.where(float("inf"), large * (ratio * ratio + 1.0).call("sqrt"))

    def angle(self) -> Real:
        """Return the angle in the plane."""
        return self.im.call("atan2", self.re)

    def exp(self) -> Complex:
        """Return e to the power of the value."""
        scale = self.re.call("exp")
        im = self.im.equals(0.0).where(0.0, scale * self.im.call("sin"))
        return Complex(scale * self.im.call("cos"), im)

    def expm1(self) -> Complex:
        """Return e to the power of the value, less one."""
        half = (self.im * 0.5).call("sin")
        scale = self.re.call("exp")
        re = self.re.call("expm1") * self.im.call("cos") - half * half * 2.0
        return Complex(re, self.im.equals(0.0).where(0.0, scale * self.im.call("sin")))

    def log(self) -> Complex:
        """Return the logarithm; near absolute value 1, from the square's difference from 1."""
        size, x, y = self.abs(), self.re.call("abs"), self.im.call("abs")
        large, small = x.call("maximum", y), x.call("minimum", y)
        square = (large - 1.0) * (large + 1.0) + small * small
        near = (size > 0.5).call("logical_and", size < 2.0)
        return Complex(
            near.where(near.where(square, square.like(0.0)).call("log1p") * 0.5, size.call("log")), self.angle()
        )

    def log1p(self) -> Complex:
        """Return the logarithm of one more than the value."""
        more = Complex(self.re + 1.0, self.im)
        square = self.re * (self.re + 2.0) + self.im * self.im
        near = (square.call("abs") < 0.5).where(square, square.like(0.0))
        re = (square.call("abs") < 0.5).where(near.call("log1p") * 0.5, more.log().re)
        return Complex(re, more.angle())

    def sqrt(self) -> Complex:
        """Return the root with the real part that is not negative."""
        x = self.re.call("abs")
        root = (x * 0.5 + self.abs() * 0.5).call("sqrt")
        other = root.equals(0.0).where(0.0, self.im.call("abs") / (root * 2.0))
        left = self.re < 0.0
        return Complex(left.where(other, root), left.where(root, other).copy_sign(self.im))

    def power(self, other: Complex) -> Complex:
        """Return the value to a complex power; 0 to the power of 0 is 1."""
        made = (other * self.log()).exp()
        zero = self.re.equals(0.0).call("logical_and", self.im.equals(0.0))
        none = other.re.equals(0.0).call("logical_and", other.im.equals(0.0))
        known = zero.call("logical_and", none.call("logical_or", other.re > 0.0))
        re = known.where(none.where(1.0, other.re.filled(0.0)), made.re)
        return Complex(re, known.where(0.0, made.im))

    def sin(self) -> Complex:
        """Return the sine."""
        return Complex(
            self.re.call("sin") * self.im.call("cosh"), self.re.call("cos") * self.im.call("sinh")
        )  # fmt: skip

    def cos(self) -> Complex:
        """Return the cosine."""
        return Complex(
            self.re.call("cos") * self.im.call("cosh"), -(self.re.call("sin") * self.im.call("sinh"))
        )  # fmt: skip

    def sinh(self) -> Complex:
        """Return the hyperbolic sine."""
        return self.times_i().sin().times_minus_i()

    def cosh(self) -> Complex:
        """Return the hyperbolic cosine."""
        return self.times_i().cos()

    def tanh(self) -> Complex:
        """Return the hyperbolic tangent by Kahan's formulas."""
        size = self.re.call("abs")
        large = size > SMALL_OF_TANH
        tangent = self.im.call("tan")
        beta = tangent * tangent + 1.0
        s = large.where(0.0, self.re).call("sinh")
        divisor = beta * s * s + 1.0
        re = beta * (s * s + 1.0).call("sqrt") * s / divisor
        far = self.im.call("sin") * self.im.call("cos") * (size * -2.0).call("exp") * 4.0
        return Complex(large.where(self.re.call("sign"), re), large.where(far, tangent / divisor))

    def tan(self) -> Complex:
        """Return the tangent."""
        return self.times_i().tanh().times_minus_i()

    def rsqrt(self) -> Complex:
        """Return one divided by the root."""
        return self.one() / self.sqrt()

    def logistic(self) -> Complex:
        """Return one divided by one and e to the power of minus the value."""
        return self.one() / (self.one() + (-self).exp())

    def reciprocal(self) -> Complex:
        """Return one divided by the value."""
        return self.one() / self

    def conj(self) -> Complex:
        """Return the conjugate."""
        return Complex(self.re, -self.im)

    def equals(self, other: Complex) -> Real:
        """Return where both parts are equal."""
        return self.re.equals(other.re).call("logical_and", self.im.equals(other.im))

    def scaled(self, factor: float) -> Complex:
        """Return the value times a real number."""
        return Complex(self.re * factor, self.im * factor)

    def sign(self) -> Complex:
        """Return the value divided by its absolute value; 0 for 0."""
        size = self.abs()
        zero = size.equals(0.0)
        return Complex(zero.where(0.0, self.re / size), zero.where(0.0, self.im / size))

    def square(self) -> Complex:
        """Return the square."""
        return self * self

    def one(self) -> Complex:
        """Return 1, of this shape."""
        return Complex(self.re.filled(1.0), self.re.filled(0.0))
