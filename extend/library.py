"""Parts of models that several front ends build: attention, normalizations, experts, scans."""

from mirlo.frontends.library.attention import join_heads, split_heads
from mirlo.frontends.library.complex_numbers import FORMULAS, Complex, Formula
from mirlo.frontends.library.experts import mix_experts
from mirlo.frontends.library.fourier import real_of_spectrum, spectrum_of_real, transform_along
from mirlo.frontends.library.frames import frames_of
from mirlo.frontends.library.integers import count_leading_zeros, count_ones, saturating_cast
from mirlo.frontends.library.linear_algebra import (
    cholesky,
    first_without_root,
    first_zero_pivot,
    solve_triangular,
    transposed,
)
from mirlo.frontends.library.loops import row_at
from mirlo.frontends.library.loops import scan as scan_rows
from mirlo.frontends.library.normalizations import (
    batch_norm,
    batch_norm_of_batch,
    channel_axes,
    group_norm,
    layer_norm,
    moments,
    moved,
    of_channels,
    rms_norm,
)
from mirlo.frontends.library.pages import PackedSequences
from mirlo.frontends.library.quantization import range_with_zero, zero_point
from mirlo.frontends.library.recurrent import Cell, Direction, linear_gru_step, lstm_step, recurrent_layer, rnn_step
from mirlo.frontends.library.resizing import Interpolation, resize
from mirlo.frontends.library.rings import RingCache
from mirlo.runtime.extenders import record_extenders

__all__ = [
    "Cell",
    "Complex",
    "Direction",
    "FORMULAS",
    "Formula",
    "Interpolation",
    "PackedSequences",
    "RingCache",
    "batch_norm",
    "batch_norm_of_batch",
    "channel_axes",
    "cholesky",
    "count_leading_zeros",
    "count_ones",
    "first_without_root",
    "first_zero_pivot",
    "frames_of",
    "group_norm",
    "join_heads",
    "layer_norm",
    "linear_gru_step",
    "lstm_step",
    "mix_experts",
    "moments",
    "moved",
    "of_channels",
    "range_with_zero",
    "real_of_spectrum",
    "recurrent_layer",
    "resize",
    "rms_norm",
    "rnn_step",
    "row_at",
    "saturating_cast",
    "scan_rows",
    "solve_triangular",
    "spectrum_of_real",
    "split_heads",
    "transform_along",
    "transposed",
    "zero_point",
]

record_extenders(__name__)
