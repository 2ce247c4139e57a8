"""Parts of models that several front ends build: attention, normalizations, experts, scans."""

from mirlo.frontends.library.attention import join_heads, split_heads
from mirlo.frontends.library.complex_numbers import FORMULAS, Complex, Formula
from mirlo.frontends.library.experts import mix_experts
from mirlo.frontends.library.fourier import real_of_spectrum, spectrum_of_real, transform_along
from mirlo.frontends.library.integers import count_leading_zeros, count_ones, saturating_cast
from mirlo.frontends.library.linear_algebra import cholesky, first_without_root, first_zero_pivot, solve_triangular
from mirlo.frontends.library.loops import row_at
from mirlo.frontends.library.loops import scan as scan_rows
from mirlo.frontends.library.normalizations import (
    batch_norm,
    batch_norm_of_batch,
    channel_axes,
    layer_norm,
    of_channels,
    rms_norm,
)
from mirlo.runtime.extenders import record_extenders

__all__ = [
    "Complex",
    "FORMULAS",
    "Formula",
    "batch_norm",
    "batch_norm_of_batch",
    "channel_axes",
    "cholesky",
    "count_leading_zeros",
    "count_ones",
    "first_without_root",
    "first_zero_pivot",
    "join_heads",
    "layer_norm",
    "mix_experts",
    "of_channels",
    "real_of_spectrum",
    "rms_norm",
    "row_at",
    "saturating_cast",
    "scan_rows",
    "solve_triangular",
    "spectrum_of_real",
    "split_heads",
    "transform_along",
]

record_extenders(__name__)
