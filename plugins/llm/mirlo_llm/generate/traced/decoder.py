"""The graph of a decoder of transformers, with the inputs and outputs of other decoders."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from mirlo.extend.frontend import ImportedModule
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.traced.adapters import TracedAdapters
from mirlo_llm.generate.traced.cache import DecoderCache, LayerState, PagedPlaces, reading_states_of
from mirlo_llm.generate.traced.export import export, import_exported_model, problem_of
from mirlo_llm.generate.traced.interfaces import NAME, ExpertUse, calling
from mirlo_llm.generate.traced.layers import LayerCalls, LayersDifferError, find_equal_layers, with_all_layers
from mirlo_llm.generate.traced.operators import page_places
from mirlo_llm.generate.traced.scans import scanning
from mirlo_llm.generate.traced.skeleton import CACHES, LOCK, find_states, make_skeleton

Tensor = Any
SIZES = {"batch": 2, "length": 5, "total": 11, "past": 16}
"""Sizes of the traced example, all different and none 1."""


PAGED_SIZES = {"tokens": 5, "ends": 3, "sequences": 4, "most_pages": 6, "pages": 9}
"""Those of an example with caches in pages."""
TABLES = {"sequence_ends": "ends", "past_lengths": "past", "page_table": "table"}
"""The inputs that find rows in pages, with what they are to attention."""
PAGED = ("key", "value")
"""Kinds of states that may be in pages."""


class TracedDecoder(torch.nn.Module):  # type: ignore[misc]
    """A model with the interface of decoders: tokens, mask and states to logits and states."""

    def __init__(self, model: Any, states: Sequence[LayerState], calls: LayerCalls) -> None:
        super().__init__()
        self.model, self._states, self._calls = model, states, calls
        accepted = set(inspect.signature(inspect.unwrap(model.forward)).parameters)
        self._cache_name = next((name for name in CACHES if name in accepted), CACHES[0])
        self._takes = accepted & {"position_ids", "use_cache"}

    def forward(self, input_ids: Tensor, attention_mask: Tensor, past: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Compute the logits of new tokens, which follow those of the caches."""
        length = input_ids.shape[1]
        first = (attention_mask.sum(1, keepdim=True) - length).clamp(min=0)
        positions = first + torch.arange(length)[None]
        cache = DecoderCache(self.model.config, self._states, past, positions, attention_mask)
        return self._computed(input_ids, positions, cache)

    def _computed(self, input_ids: Tensor, positions: Tensor, cache: DecoderCache) -> tuple[Tensor, list[Tensor]]:
        """Run the model on tokens at positions."""
        given = {"position_ids": positions, "use_cache": True}
        named = {name: given[name] for name in self._takes}
        self._calls.start(cache)
        with reading_states_of(cache):
            output = self.model(input_ids=input_ids, **{self._cache_name: cache}, **named, return_dict=True)
        return output.logits, cache.results()

    @property
    def takes_positions(self) -> bool:
        """Return whether the model computes positions from an argument, not from the lengths of its caches."""
        return "position_ids" in self._takes


class TracedPagedDecoder(TracedDecoder):
    """A model with the interface of decoders with caches in pages: packed tokens, tables and caches to logits."""

    def forward(  # type: ignore[override]
        self, input_ids: Tensor, ends: Tensor, past: Tensor, table: Tensor, caches: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Compute the logits [tokens, vocabulary] of new tokens, one sequence after the other."""
        positions, places = page_places(input_ids, ends, past, table, caches[0])
        paged = PagedPlaces(places, input_ids)
        cache = DecoderCache(self.model.config, self._states, caches, positions, input_ids, paged)
        logits, results = self._computed(input_ids, positions, cache)
        return logits[0], results


def import_traced_decoder(
    weights: Path, config: Path, trust_remote_code: bool = False, adapted: Sequence[str] = (), rings_below: int = 0,
    page_rows: int = 0,
) -> ImportedModule:  # fmt: skip
    """Import a decoder by the code of transformers, with the weights of a file.

    The matrices of adapters for the layers `adapted` are inputs after the others. Layers with a sliding window of
    fewer tokens than `rings_below` keep the rows of the window only. With `page_rows` caches are in pages of as many.
    """
    with LOCK:
        model = make_skeleton(config.parent, trust_remote_code)
        _require_causal(model, config)
        try:
            states = find_states(model, rings_below)
        except (RuntimeError, TypeError, AttributeError, NotImplementedError) as error:
            raise ModelFolderError(f"{config}: {problem_of(model, error)}") from error
        adapters = TracedAdapters(model, adapted, weights)
        with calling(model, NAME, NAME) as use, scanning(model):
            if page_rows:
                _require_pages(states, config)
            program = _export(model, states, use, config, page_rows)
        adapters.require_used(program)
        names = [state.name for state in states]
        others = ["attention_mask"] if not page_rows else list(TABLES)
        inputs = ["input_ids", *others, *(f"past_key_values.{name}" for name in names), *adapters.inputs]
        outputs = ["logits", *(f"present.{name}" for name in names)]
        pages = {} if not page_rows else {**TABLES, **{f"past_key_values.{name}": "cache" for name in names}}
        windows = {f"past_key_values.{state.name}": state.window for state in states if state.window is not None}
        return import_exported_model(
            program, model, use, weights, config, (inputs, outputs), adapters.parameters, windows, pages
        )


def _require_pages(states: Sequence[LayerState], config: Path) -> None:
    """Raise an error for a model whose states cannot be in pages."""
    other = next((state for state in states if state.kind not in PAGED), None)
    if other is not None:
        raise ModelFolderError(f"{config}: the state '{other.name}' of a layer cannot be in pages: load without pages")


def _export(model: Any, states: Sequence[LayerState], use: ExpertUse, config: Path, page_rows: int) -> Any:
    """Export a model, tracing one of each group of equal layers."""
    groups = find_equal_layers(model, states)
    while True:
        calls = LayerCalls(groups, use)
        try:
            with calls.replaced():
                if page_rows:
                    example = _paged_example(states, page_rows)
                    decoder = TracedPagedDecoder(model, states, calls)
                    if not decoder.takes_positions:
                        what = "the model computes positions from a mask, which caches in pages have not"
                        raise ModelFolderError(f"{config}: {what}: load without pages")
                    program = export(decoder, model, *example, config)
                else:
                    program = export(TracedDecoder(model, states, calls), model, *_example(states), config)
            return with_all_layers(program, groups)
        except LayersDifferError as found:
            groups.remove(found.group)
            use.modules.clear()


def _require_causal(model: Any, config: Path) -> None:
    """Raise an error for a model whose tokens attend to later ones."""
    keys = model.config.get_text_config(decoder=True)
    for key, expected in (("is_causal", True), ("use_bidirectional_attention", False)):
        if getattr(keys, key, None) not in (None, expected):
            what = f"expected {str(expected).lower()}: tokens that see those behind them cannot be generated"
            raise ModelFolderError(f"{config}: '{key}': {what}; such models give embeddings: mirlo embed")


def _example(states: Sequence[LayerState]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the example arguments of the trace, and their dynamic dims."""
    sizes = {"past": SIZES["past"], **_ring_sizes(states)}
    dims = {name: torch.export.Dim(name) for name in (*SIZES, *sizes)}
    batch = SIZES["batch"]
    arguments = (
        torch.ones((batch, SIZES["length"]), dtype=torch.long),
        torch.ones((batch, SIZES["total"]), dtype=torch.long),
        [torch.zeros((batch, *_shape(state, sizes)), dtype=state.dtype) for state in states],
    )
    each_state = [{0: dims["batch"]} | ({2: dims[_rows_of(state)]} if state.grows else {}) for state in states]
    return arguments, ({0: dims["batch"], 1: dims["length"]}, {0: dims["batch"], 1: dims["total"]}, each_state)


def _paged_example(states: Sequence[LayerState], rows: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the example arguments of a trace with caches in pages, and their dynamic dims."""
    dims = {name: torch.export.Dim(name) for name in PAGED_SIZES}
    ends, past, most, pages = (PAGED_SIZES[name] for name in ("ends", "sequences", "most_pages", "pages"))
    arguments = (
        torch.ones((1, PAGED_SIZES["tokens"]), dtype=torch.long),
        torch.ones((ends,), dtype=torch.long), torch.ones((past,), dtype=torch.long),
        torch.ones((past, most), dtype=torch.long),
        [torch.zeros((pages, rows, *state.shape), dtype=state.dtype) for state in states],
    )  # fmt: skip
    tables = ({0: dims["ends"]}, {0: dims["sequences"]}, {0: dims["sequences"], 1: dims["most_pages"]})
    return arguments, ({1: dims["tokens"]}, *tables, [{0: dims["pages"]} for _ in states])


def _rows_of(state: LayerState) -> str:
    """Return the name of the number of rows of a state that grows."""
    return "past" if state.window is None else f"window_{state.window}_rows"


def _ring_sizes(states: Sequence[LayerState]) -> dict[str, int]:
    """Return the numbers of rows of rings in the example by name, different from all other sizes."""
    names = dict.fromkeys(_rows_of(state) for state in states if state.window is not None)
    return {name: size for size, name in enumerate(names, max(SIZES.values()) + 1)}


def _shape(state: LayerState, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of a state in the example, without the batch."""
    if not state.grows:
        return state.shape
    heads, size = state.shape
    return heads, sizes[_rows_of(state)], size
