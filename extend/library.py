"""Parts of models that several front ends build: attention, normalizations, experts, scans."""

from mirlo.frontends.library.attention import join_heads, split_heads
from mirlo.frontends.library.experts import mix_experts
from mirlo.frontends.library.fourier import transform_along
from mirlo.frontends.library.integers import count_leading_zeros, saturating_cast
from mirlo.frontends.library.loops import row_at
from mirlo.frontends.library.loops import scan as scan_rows
from mirlo.frontends.library.normalizations import layer_norm, rms_norm
from mirlo.runtime.extenders import record_extenders

__all__ = [
    "count_leading_zeros",
    "join_heads",
    "layer_norm",
    "mix_experts",
    "rms_norm",
    "saturating_cast",
    "row_at",
    "scan_rows",
    "split_heads",
    "transform_along",
]

record_extenders(__name__)
