"""Implementations of attention, masks and experts for transformers, by operators that Mirlo compiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._python_dispatch import _disable_current_modes
from transformers.integrations import moe
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from mirlo_llm.generate.checkpoints.graph import HIDDEN
from mirlo_llm.generate.traced.cache import current_cache
from mirlo_llm.generate.traced.operators import attention, experts, page_attention, page_mask

Tensor = Any
NAME = "mirlo"
"""The name of the attention implementation, beside "eager" and "sdpa"."""
FALLBACK = "grouped_mm"
"""The implementation of experts whose gates are not in `GATES`."""
GATES = {
    "SiLUActivation": "silu", "SiLU": "silu", "GELUActivation": "gelu", "GELUTanh": "gelu_tanh", "ReLU": "relu",
    "PytorchGELUTanh": "gelu_tanh",
}  # fmt: skip
"""Gates of experts, act(gate) * value, by the class of the activation."""
CLAMPED = "clamped_swiglu"
"""The gate of gpt-oss, whose gate and value columns alternate."""


def attention_forward(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor = None, scaling: Any = None,
    dropout: float = 0.0, softcap: Any = None, s_aux: Tensor = None, is_causal: Any = None, **options: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Compute attention like transformers' `eager`."""
    scale = float(scaling if scaling is not None else query.shape[-1] ** -0.5)
    bias = options.get("position_bias")
    if bias is not None:
        attention_mask = bias if attention_mask is None else bias + attention_mask
    cache = current_cache()
    if cache is not None and cache.paged is not None:
        places = cache.paged.places
        paged = page_attention(query, key, value, attention_mask, s_aux, places, scale, float(softcap or 0))
        return paged.transpose(1, 2).contiguous(), None
    # In a cache of all tokens the new ones are the last; in a ring they are anywhere.
    is_whole = cache is not None and statically_known_true(key.shape[2] == cache.mask.shape[1])
    hides = is_whole and attention_mask is not None
    result = attention(query, key, value, attention_mask, s_aux, scale, float(softcap or 0), hides)
    return result.transpose(1, 2).contiguous(), None


def position_mask(
    batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: Any = 0,
    mask_function: Callable[..., Tensor] | None = None, attention_mask: Tensor = None, device: str = "cpu",
    **options: Any,
) -> Tensor:  # fmt: skip
    """Return an additive mask; `q_offset` are the positions of new tokens, [batch, length], or the first one.

    `kv_offset` are the positions of keys, [batch, keys], negative where there is none, or the first one. The mask is of
    floats, as that of `eager`, because some models add it themselves.
    """
    assert mask_function is not None
    cache = current_cache()
    if cache is not None and cache.paged is not None:
        return page_mask(cache.paged.columns, window_of(mask_function))
    tokens = q_offset if isinstance(q_offset, torch.Tensor) else (torch.arange(q_length) + q_offset)[None]
    sequences = torch.arange(batch_size)[:, None, None, None]
    is_ring = isinstance(kv_offset, torch.Tensor)
    keys = kv_offset[:, None, None, :] if is_ring else torch.arange(kv_length)[None, None, None, :] + kv_offset
    seen = mask_function(sequences, torch.zeros_like(sequences), tokens[:, None, :, None], keys)
    if is_ring:  # what the mask of tokens hides is at positions after all tokens
        seen = seen & (keys >= 0)
    elif attention_mask is not None:
        seen = seen & attention_mask[:, None, None, :].bool()
    return torch.where(seen, 0.0, HIDDEN).expand(batch_size, -1, q_length, kv_length)


PROBES = (0, 1, 2, 7, 100, 5000, 1 << 17)
"""Positions of the tokens with which masks are tried."""


def window_of(mask_function: Callable[..., Tensor]) -> int:
    """Return the tokens of the window of a causal mask, 0 for all; raise an error for other masks."""
    with _disable_current_modes():
        zero, starts = torch.zeros((1, 1, 1, 1), dtype=torch.long), {}
        for token in PROBES:
            keys = torch.arange(token + 8)[None, None, None, :]
            seen = mask_function(zero, zero, zero + token, keys).reshape(-1).nonzero().reshape(-1).tolist()
            if seen != list(range(seen[0] if seen else 0, token + 1)):
                raise NotImplementedError("the caches of a mask that is no window of tokens cannot be in pages")
            starts[token] = seen[0]
    last = PROBES[-1]
    window = last + 1 - starts[last]
    if any(start != max(0, token + 1 - window) for token, start in starts.items()):
        raise NotImplementedError("the caches of a mask whose window differs by token cannot be in pages")
    return window if starts[last] else 0


class ExpertUse:
    """The modules of experts whose matrices the operator reads."""

    def __init__(self) -> None:
        self.modules: list[Any] = []

    @property
    def parameters(self) -> dict[int, bool]:
        """Return, by parameter `id`, whether matrices are transposed."""
        pairs = ((each, (each.gate_up_proj, each.down_proj)) for each in self.modules)
        return {id(matrices): module.is_transposed for module, both in pairs for matrices in both}


_USES: list[ExpertUse] = []


def gate_of(module: Any) -> str | None:
    """Return the name of the experts' gate; None if it is not supported."""
    if not module.has_gate or module.has_post_expert_norm:
        return None
    if type(module)._apply_gate is moe._default_apply_gate:
        return GATES.get(type(module.act_fn).__name__) if module.is_concatenated else None
    return CLAMPED if type(module).__name__ == "GptOssExperts" else None


def experts_forward(self: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """Compute a mixture of experts."""
    gate = gate_of(self)
    if gate is None:
        fallback: Callable[..., Tensor] = moe.ALL_EXPERTS_FUNCTIONS[FALLBACK]
        return fallback(self, hidden_states, top_k_index, top_k_weights)
    _USES[-1].modules.append(self)
    biases = (self.gate_up_proj_bias, self.down_proj_bias) if self.has_bias else (None, None)
    return experts(
        hidden_states, top_k_index, top_k_weights.to(hidden_states.dtype), self.gate_up_proj, self.down_proj, *biases,
        gate, self.is_transposed, *(float(getattr(self, name, 0) or 0) for name in ("limit", "alpha")),
    )  # fmt: skip


ALL_ATTENTION_FUNCTIONS.register(NAME, attention_forward)
ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, position_mask)
moe.ALL_EXPERTS_FUNCTIONS.register(NAME, experts_forward)


def configurations(model: Any) -> list[Any]:
    """Return the distinct configurations of a model's modules."""
    found = [model.config, model.config.get_text_config(decoder=True)]
    found += [module.config for module in model.modules() if hasattr(module, "config")]
    return list({id(each): each for each in found}.values())


@contextmanager
def calling(model: Any, attention_name: str, experts_name: str) -> Iterator[ExpertUse]:
    """Make a model call these implementations of attention and experts in the block; yield the use of experts."""
    configs = configurations(model)
    before = [(each._attn_implementation_internal, each._experts_implementation_internal) for each in configs]
    for each in configs:  # the setters know transformers' own implementations only
        each._attn_implementation_internal, each._experts_implementation_internal = attention_name, experts_name
    use = ExpertUse()
    _USES.append(use)
    try:
        yield use
    finally:
        _USES.pop()
        for each, (attention_before, experts_before) in zip(configs, before, strict=True):
            each._attn_implementation_internal = attention_before
            each._experts_implementation_internal = experts_before
