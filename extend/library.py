"""Parts of models that several front ends build: attention, normalizations, experts."""

from mirlo.frontends.library.attention import join_heads, split_heads
from mirlo.frontends.library.experts import mix_experts
from mirlo.frontends.library.normalizations import layer_norm, rms_norm
from mirlo.runtime.extenders import record_extenders

__all__ = [
    "join_heads",
    "layer_norm",
    "mix_experts",
    "rms_norm",
    "split_heads",
]

record_extenders(__name__)
