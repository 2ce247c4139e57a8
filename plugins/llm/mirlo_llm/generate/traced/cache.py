"""The caches of a call with the interface of transformers; their tensors are inputs and outputs of the program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import cache_utils

from mirlo_llm.generate.traced.operators import cache_rows, cache_write, page_rows, page_write, ring_places

Tensor = Any
ROWS = ("key", "value", "indexer_key")
"""Kinds of states with a row per token; others have a fixed size."""
WINDOWS = ("sliding_attention", "chunked_attention", "hybrid_sliding")


@dataclass(frozen=True)
class LayerState:
    """A state that a layer keeps between calls."""

    layer: int
    kind: str
    """One of `ROWS`, or "conv_state" or "recurrent_state"."""
    shape: tuple[int, ...]
    """[heads, size] of rows; for other states all dims but the batch."""
    dtype: Any
    index: int = 0
    """Index among several states of a kind."""
    window: int | None = None
    """The number of last tokens whose rows the layer reads; None for all. The rows are a ring."""

    @property
    def grows(self) -> bool:
        """Return whether the state has a row for each token."""
        return self.kind in ROWS

    @property
    def name(self) -> str:
        """Return the suffix of the names of the input and the output."""
        return f"{self.layer}.{self.kind}" + (f".{self.index}" if self.index else "")


_CURRENT: list[DecoderCache] = []


@contextmanager
def reading_states_of(cache: DecoderCache) -> Iterator[None]:
    """Run a model call in the block with the states of this cache."""
    _CURRENT.append(cache)
    try:
        yield
    finally:
        _CURRENT.pop()


def current_cache() -> DecoderCache | None:
    """Return the cache of the current call, which some functions have no argument for; None for whole texts."""
    return _CURRENT[-1] if _CURRENT else None


@dataclass(frozen=True)
class RowPlaces:
    """Where caches have the rows of tokens."""

    new: Tensor
    """The rows of the new tokens, [batch, length]."""
    columns: Tensor
    """A tensor with a column for each row that is read."""
    positions: Tensor = None
    """The positions of the rows that are read, [batch, rows], negative for rows without a token; None: 0, 1, ...."""

    def written(self, cache: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        """Return a cache with new rows, and those of its rows that are read."""
        after = cache_write(cache, new, self.new, self.columns)
        return after, cache_rows(after, self.columns)


@dataclass(frozen=True)
class PagedPlaces:
    """Where caches in pages have the rows of packed tokens."""

    places: Tensor
    """A result of `page_places`."""
    columns: Tensor
    """The tokens, [1, tokens]."""
    positions: Tensor = None

    def written(self, cache: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        """Return a cache with new rows, and the rows of all pages."""
        after = page_write(cache, new, self.places)
        return after, page_rows(after)


class GrowingLayer(cache_utils.DynamicLayer):  # type: ignore[misc]
    """The keys and values of a layer, which are written at the places of new tokens."""

    def __init__(self, owner: DecoderCache, is_sliding: bool, window: int | None, **options: Any) -> None:
        super().__init__(**options)
        self.owner, self.is_sliding, self.is_initialized = owner, is_sliding, True
        self.places = owner.places[window]
        self.keys: Tensor
        self.values: Tensor
        self.indexer_keys: Tensor

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **options: Any) -> tuple[Tensor, Tensor]:
        """Write new rows, and return those of all tokens."""
        self.keys, keys = self._written(self.keys, key_states)
        self.values, values = self._written(self.values, value_states)
        return keys, values

    def update_indexer(self, indexer_key_states: Tensor) -> Tensor:
        """Write new rows of the indexer, which selects keys, and return those of all tokens."""
        self.indexer_keys, rows = self._written(self.indexer_keys, indexer_key_states[:, None])
        return rows[:, 0]

    def _written(self, cache: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        return self.places.written(cache, new.contiguous())

    def get_seq_length(self) -> int:
        """Return the number of tokens before the call."""
        return self.owner.get_seq_length()

    def get_mask_sizes(self, query_length: int) -> tuple[int, Any]:
        """Return the number of keys, and the position of the first, or those of all keys."""
        places = self.places
        return places.columns.shape[1], 0 if places.positions is None else places.positions


class StateLayer(cache_utils.LinearAttentionLayer):  # type: ignore[misc]
    """States of a fixed size; zeros, the initial value, mean that there are none yet."""

    def __init__(self, number_of_states: int = 1) -> None:
        super().__init__(number_of_states=number_of_states)
        self.has_previous_state = dict.fromkeys(range(number_of_states), True)

    def update_conv_state(self, conv_states: Tensor, state_idx: int = 0, *_: Any, **options: Any) -> Tensor:
        """Store the last input rows of a convolution, and return all of its input rows."""
        before = self.conv_states[state_idx]
        full = torch.cat([before, conv_states], -1)
        self.conv_states[state_idx] = full[..., -before.shape[-1] :]
        return full

    def update_recurrent_state(self, recurrent_states: Tensor, state_idx: int = 0, **options: Any) -> Tensor:
        """Store the state after the last token."""
        self.recurrent_states[state_idx] = recurrent_states
        return recurrent_states


class GrowingStateLayer(StateLayer, GrowingLayer):
    """A layer with keys and values, and states of a fixed size."""

    def __init__(self, owner: DecoderCache, is_sliding: bool, window: int | None, number_of_states: int = 1) -> None:
        GrowingLayer.__init__(self, owner, is_sliding, window)
        StateLayer.__init__(self, number_of_states)


class DecoderCache(cache_utils.Cache):  # type: ignore[misc]
    """The caches of a call; `positions` are those of new tokens, `mask` has a column for each token."""

    def __init__(
        self, config: Any, states: Sequence[LayerState], tensors: Sequence[Tensor], positions: Tensor, mask: Tensor,
        paged: PagedPlaces | None = None,
    ) -> None:  # fmt: skip
        """Store the caches, which are in pages at the places `paged`, if there are such."""
        self.positions, self.mask, self.states, self.paged = positions, mask, states, paged
        self.last_state: Tensor = None
        """The recurrent state that the model has read last."""
        kinds, options = cache_utils.get_layer_types_and_kwargs(config.get_text_config(decoder=True))
        kept: dict[int, set[bool]] = {}
        for state in states:
            kept.setdefault(state.layer, set()).add(state.grows)
        self.places: dict[int | None, RowPlaces | PagedPlaces] = {None: paged or RowPlaces(positions, mask)}
        """The places of rows by window; those of all tokens for None."""
        windows = {state.layer: state.window for state in states}
        for state, tensor in zip(states, tensors, strict=True):
            if state.window is not None and state.window not in self.places:
                new, each = ring_places(tensor, positions, mask, state.window)
                self.places[state.window] = RowPlaces(new, each, each)
        layers: list[Any] = []
        for i in range(max(len(kinds), 1 + max(kept, default=0))):
            is_sliding = i < len(kinds) and kinds[i] in WINDOWS
            number = options[i].get("number_of_states", 1) if i < len(kinds) else 1
            has, window = kept.get(i, set()), windows.get(i)
            if has == {True}:
                layers.append(GrowingLayer(self, is_sliding, window))
            elif has == {False}:
                layers.append(StateLayer(number))
            else:
                layers.append(GrowingStateLayer(self, is_sliding, window, number) if has else cache_utils.DummyLayer())
        super().__init__(layers=layers)
        for state, tensor in zip(states, tensors, strict=True):
            layer = layers[state.layer]
            # Models write states in place where there is one token: a clone leaves the input as it is.
            self._keep(state, tensor if state.grows else tensor.clone())
            if not state.grows:
                getattr(layer, f"is_{state.kind}s_initialized")[state.index] = True

    def _keep(self, state: LayerState, tensor: Tensor) -> None:
        kept = f"{state.kind}s"
        if state.grows:
            setattr(self.layers[state.layer], kept, tensor)
        else:
            getattr(self.layers[state.layer], kept)[state.index] = tensor

    def _kept(self, state: LayerState) -> Tensor:
        kept = getattr(self.layers[state.layer], f"{state.kind}s")
        return kept if state.grows else kept[state.index]

    def kept(self, layer: int) -> list[Tensor]:
        """Return the tensors of a layer, in the order of its states."""
        return [self._kept(state) for state in self.states if state.layer == layer]

    def keep(self, layer: int, tensors: Sequence[Tensor]) -> None:
        """Replace the tensors of a layer."""
        for state, tensor in zip([each for each in self.states if each.layer == layer], tensors, strict=True):
            self._keep(state, tensor)

    def results(self) -> list[Tensor]:
        """Return the states of the layers after the call, in order."""
        return [self._kept(state) for state in self.states]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of tokens before the call."""
        length: int = self.mask.shape[1] - self.positions.shape[1]
        return length

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, Any]:
        """Return the number of keys, and the position of the first, or those of all keys."""
        layer = self.layers[layer_idx]
        return layer.get_mask_sizes(query_length) if isinstance(layer, GrowingLayer) else (self.mask.shape[1], 0)

    def get_query_offset(self, layer_idx: int = 0) -> Tensor:
        """Return the positions of the new tokens, from which masks are computed."""
        return self.positions

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor:
        """Return the state of a layer before the new tokens."""
        self.last_state = super().get_recurrent_state(layer_idx, state_idx)
        return self.last_state
