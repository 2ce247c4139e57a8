"""Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.frontend import Tensor, UnsupportedOperation
from mirlo.extend.library import real_of_spectrum, spectrum_of_real, transform_along
from mirlo_stablehlo.operation import StablehloOperation
from mirlo_stablehlo.registry import complex_converter


@complex_converter("fft")
def fft(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `fft` over the last dims, one after the other; real transforms are innermost."""
    kind, lengths = op.word("fft_type"), op.ints("fft_length")
    if not lengths or any(length < 1 for length in lengths):
        raise UnsupportedOperation(f"transforms lengths {lengths}: expected at least 1")
    rank, parts = op.type(0).rank, list(op.operands)
    axes = range(rank - len(lengths), rank)
    outer = list(zip(axes, lengths, strict=True))[: -1 if kind in ("RFFT", "IRFFT") else None]
    if kind == "RFFT":
        parts = spectrum_of_real(parts[0], lengths[-1])
    for axis, length in reversed(outer):
        parts = transform_along(parts, axis, length, kind in ("IFFT", "IRFFT"))
    return [real_of_spectrum(parts, lengths[-1])] if kind == "IRFFT" else parts
