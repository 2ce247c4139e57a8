"""Recurrent layers as scans over tokens: one program for prompts, chunks of prompts and single tokens.

Modules of transformers call functions of these names, which optimized packages replace. The original functions divide a
text into chunks, whose number an export would fix.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

from mirlo_llm.generate.traced.cache import current_cache
from mirlo_llm.generate.traced.operators import channel_scan, delta_scan, gated_scan

Tensor = Any


def _as_heads(x: Tensor, heads: int) -> Tensor:
    """Repeat heads that several others share, [batch, length, heads, size]."""
    return x if x.shape[2] == heads else x.repeat_interleave(heads // x.shape[2], 2, output_size=heads)


def mamba2_chunk_scan(
    hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, chunk_size: int, D: Tensor = None,
    dt_bias: Tensor = None, initial_states: Tensor = None, dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")), return_final_states: bool = False, **_: Any,
) -> Any:  # fmt: skip
    """Compute transformers' function of this name."""
    heads = hidden_states.shape[2]
    dt = dt if dt_bias is None else dt + dt_bias.to(dt.dtype)
    dt = (functional.softplus(dt) if dt_softplus else dt).clamp(dt_limit[0], dt_limit[1]).float()
    x, key, query = hidden_states.float(), _as_heads(B.float(), heads), _as_heads(C.float(), heads)
    if initial_states is None:
        initial_states = x.new_zeros((x.shape[0], heads, x.shape[3], key.shape[3]))
    state = initial_states.float().transpose(2, 3)
    rows, state = gated_scan(state, (A.float() * dt).exp(), key, x * dt[..., None], query)
    rows = rows if D is None else rows + D[..., None] * x
    return (rows, state.transpose(2, 3)) if return_final_states else rows


def mamba_selective_scan(
    hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor = None, z: Tensor = None,
    delta_bias: Tensor = None, delta_softplus: bool = False, return_last_state: bool = False, **_: Any,
) -> Any:  # fmt: skip
    """Compute transformers' function of this name."""
    dt = dt if delta_bias is None else dt + delta_bias.to(dt.dtype)[..., None]
    dt = (functional.softplus(dt) if delta_softplus else dt).float()
    steps, x, key, query = (each.float().transpose(1, 2) for each in (dt, hidden_states, B, C))
    cache = current_cache()
    assert cache is not None
    rows, state = channel_scan(cache.last_state.float(), A.float(), steps, x, key, query)
    rows = rows.transpose(1, 2)
    rows = rows if D is None else rows + hidden_states * D[None, :, None]
    rows = rows if z is None else rows * functional.silu(z)
    return (rows, state) if return_last_state else rows


def torch_chunk_gated_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, chunk_size: int = 64,
    initial_state: Tensor = None, output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, **_: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Compute transformers' function of this name."""
    dtype, heads = query.dtype, value.shape[2]
    query, key = _as_heads(query, heads), _as_heads(key, heads)
    query, key, value, beta, g = (x.float() for x in (query, key, value, beta, g))
    if use_qk_l2norm_in_kernel:
        query, key = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (query, key))
    query = query * query.shape[-1] ** -0.5
    if initial_state is None:
        initial_state = query.new_zeros((query.shape[0], heads, key.shape[3], value.shape[3]))
    rows, state = delta_scan(initial_state.float(), g.exp(), key, value, query, beta)
    return rows.to(dtype), state


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "chunk_kimi_delta_attention": torch_chunk_gated_delta_rule,
    "mamba2_chunk_scan": mamba2_chunk_scan,
    "mamba_selective_scan": mamba_selective_scan,
    "torch_chunk_gated_delta_rule": torch_chunk_gated_delta_rule,
}
"""The replacements of functions in modeling files, by name."""


@contextmanager
def scanning(model: Any) -> Iterator[None]:
    """Make the modules of a model call these functions in the block."""
    modules = [sys.modules[name] for name in {type(each).__module__ for each in model.modules()}]
    before = [
        (module, name, getattr(module, name)) for module in modules for name in FUNCTIONS if hasattr(module, name)
    ]
    for module, name, _ in before:
        setattr(module, name, FUNCTIONS[name])
    try:
        yield
    finally:
        for module, name, function in before:
            setattr(module, name, function)
