"""The binary floating-point formats that intrinsics compute with."""

from __future__ import annotations

from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class FloatFormat:
    """An IEEE interchange format."""

    bits: int
    fraction: int
    """Stored bits of the significand."""
    bias: int

    @property
    def int_kind(self) -> str:
        return f"i{self.bits}"

    @property
    def exponent(self) -> int:
        """Return the bits of the exponent."""
        return self.bits - 1 - self.fraction

    @property
    def sign_bit(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def rounding_constant(self) -> float:
        """Return 1.5 × 2^fraction: adding it rounds to an integer, which is then in the low bits of the sum."""
        return 1.5 * 2.0**self.fraction

    @property
    def largest(self) -> float:
        """Return the largest finite value."""
        return (2.0 - 2.0**-self.fraction) * 2.0**self.bias

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (1 - self.bias)


FORMATS = {
    "f16": FloatFormat(16, 10, 15),
    "bf16": FloatFormat(16, 7, 127),
    "f32": FloatFormat(32, 23, 127),
    "f64": FloatFormat(64, 52, 1023),
}
