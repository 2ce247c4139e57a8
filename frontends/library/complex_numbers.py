"""Arithmetic on complex tensors, which are pairs of real ones, written as formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.frontends.tensor import Tensor, maximum, minimum, where
from mirlo.runtime.records import dataclass

Formula: TypeAlias = "Callable[[Complex], Complex]"
"""Computes a function of complex numbers."""
SMALL_OF_TANH = 9.0
"""The sine of i*x beyond this is large: the hyperbolic tangent is 1 but for terms of e to the -18."""


def copy_sign(x: Tensor, sign: Tensor) -> Tensor:
    """Return a tensor that is not negative with the sign of another, that of zeros included."""
    return where((sign < 0.0) | (1.0 / sign < 0.0), -x, x)


@dataclass(frozen=True, eq=False)
class Complex:
    """A complex tensor in formulas of one operation."""

    re: Tensor
    im: Tensor

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Return the dims."""
        return self.re.shape

    @property
    def rank(self) -> int:
        """Return the number of dims."""
        return self.re.rank

    @property
    def dtype(self) -> DType:
        """Return the element type of the parts."""
        return self.re.dtype

    @property
    def type(self) -> str:
        """Return a text for messages."""
        return f"complex of {self.re.type}"

    def tensors(self) -> list[Tensor]:
        """Return the two tensors that the value is imported as."""
        return [self.re, self.im]

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
        wide = abs(other.im) > abs(other.re)
        large, small = (where(wide, other.im, other.re), where(wide, other.re, other.im))
        ratio = small / large
        ratio = where(small.equals(0.0), 0.0, ratio)
        divisor = large + small * ratio
        first, second = (where(wide, self.im, self.re), where(wide, self.re, self.im))
        re = (first + second * ratio) / divisor
        im = (second - first * ratio) / divisor
        return Complex(re, where(wide, -im, im))

    def times_i(self) -> Complex:
        """Return i times the value."""
        return Complex(-self.im, self.re)

    def times_minus_i(self) -> Complex:
        """Return -i times the value."""
        return Complex(self.im, -self.re)

    def abs(self) -> Tensor:
        """Return the absolute value; no square overflows."""
        x, y = abs(self.re), abs(self.im)
        large, small = maximum(x, y), minimum(x, y)
        ratio = where(large.equals(0.0), 0.0, small / large)
        infinite = x.equals(float("inf")) | y.equals(float("inf"))
        return where(infinite, float("inf"), large * (ratio * ratio + 1.0).sqrt())

    def angle(self) -> Tensor:
        """Return the angle in the plane."""
        return self.im.atan2(self.re)

    def exp(self) -> Complex:
        """Return e to the power of the value."""
        scale = self.re.exp()
        im = where(self.im.equals(0.0), 0.0, scale * self.im.sin())
        return Complex(scale * self.im.cos(), im)

    def expm1(self) -> Complex:
        """Return e to the power of the value, less one."""
        half = (self.im * 0.5).sin()
        scale = self.re.exp()
        re = self.re.expm1() * self.im.cos() - half * half * 2.0
        return Complex(re, where(self.im.equals(0.0), 0.0, scale * self.im.sin()))

    def log(self) -> Complex:
        """Return the logarithm; near absolute value 1, from the square's difference from 1."""
        size, x, y = self.abs(), abs(self.re), abs(self.im)
        large, small = maximum(x, y), minimum(x, y)
        square = (large - 1.0) * (large + 1.0) + small * small
        near = (size > 0.5) & (size < 2.0)
        return Complex(where(near, where(near, square, square.like(0.0)).log1p() * 0.5, size.log()), self.angle())

    def log1p(self) -> Complex:
        """Return the logarithm of one more than the value."""
        more = Complex(self.re + 1.0, self.im)
        square = self.re * (self.re + 2.0) + self.im * self.im
        near = where(abs(square) < 0.5, square, square.like(0.0))
        re = where(abs(square) < 0.5, near.log1p() * 0.5, more.log().re)
        return Complex(re, more.angle())

    def sqrt(self) -> Complex:
        """Return the root with the real part that is not negative."""
        x = abs(self.re)
        root = (x * 0.5 + self.abs() * 0.5).sqrt()
        other = where(root.equals(0.0), 0.0, abs(self.im) / (root * 2.0))
        left = self.re < 0.0
        return Complex(where(left, other, root), copy_sign(where(left, root, other), self.im))

    def power(self, other: Complex) -> Complex:
        """Return the value to a complex power; 0 to the power of 0 is 1."""
        result = (other * self.log()).exp()
        zero = self.re.equals(0.0) & self.im.equals(0.0)
        none = other.re.equals(0.0) & other.im.equals(0.0)
        known = zero & (none | (other.re > 0.0))
        re = where(known, where(none, 1.0, other.re.filled(0.0)), result.re)
        return Complex(re, where(known, 0.0, result.im))

    def sin(self) -> Complex:
        """Return the sine."""
        return Complex(
            self.re.sin() * self.im.cosh(), self.re.cos() * self.im.sinh()
        )  # fmt: skip

    def cos(self) -> Complex:
        """Return the cosine."""
        return Complex(
            self.re.cos() * self.im.cosh(), -(self.re.sin() * self.im.sinh())
        )  # fmt: skip

    def sinh(self) -> Complex:
        """Return the hyperbolic sine."""
        return self.times_i().sin().times_minus_i()

    def cosh(self) -> Complex:
        """Return the hyperbolic cosine."""
        return self.times_i().cos()

    def tanh(self) -> Complex:
        """Return the hyperbolic tangent by Kahan's formulas."""
        size = abs(self.re)
        large = size > SMALL_OF_TANH
        tangent = self.im.tan()
        beta = tangent * tangent + 1.0
        s = where(large, 0.0, self.re).sinh()
        divisor = beta * s * s + 1.0
        re = beta * (s * s + 1.0).sqrt() * s / divisor
        far = self.im.sin() * self.im.cos() * (size * -2.0).exp() * 4.0
        return Complex(where(large, self.re.sign(), re), where(large, far, tangent / divisor))

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

    def equals(self, other: Complex) -> Tensor:
        """Return where both parts are equal."""
        return self.re.equals(other.re) & self.im.equals(other.im)

    def scaled(self, factor: float) -> Complex:
        """Return the value times a real number."""
        return Complex(self.re * factor, self.im * factor)

    def sign(self) -> Complex:
        """Return the value divided by its absolute value; 0 for 0."""
        size = self.abs()
        zero = size.equals(0.0)
        return Complex(where(zero, 0.0, self.re / size), where(zero, 0.0, self.im / size))

    def square(self) -> Complex:
        """Return the square."""
        return self * self

    def one(self) -> Complex:
        """Return 1, of this shape."""
        return Complex(self.re.filled(1.0), self.re.filled(0.0))


FORMULAS: dict[str, Formula] = {
    "cos": Complex.cos,
    "cosh": Complex.cosh,
    "exp": Complex.exp,
    "exp2": lambda z: z.scaled(math.log(2)).exp(),
    "expm1": Complex.expm1,
    "log": Complex.log,
    "log10": lambda z: z.log().scaled(1 / math.log(10)),
    "log1p": Complex.log1p,
    "log2": lambda z: z.log().scaled(1 / math.log(2)),
    "reciprocal": Complex.reciprocal,
    "rsqrt": Complex.rsqrt,
    "sigmoid": Complex.logistic,
    "sin": Complex.sin,
    "sinh": Complex.sinh,
    "sqrt": Complex.sqrt,
    "square": Complex.square,
    "tan": Complex.tan,
    "tanh": Complex.tanh,
}
"""By elementwise operator of relax, what it is of complex numbers. Front ends take their names from its class."""
