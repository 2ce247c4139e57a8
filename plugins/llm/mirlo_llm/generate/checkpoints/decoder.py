"""The graph of a decoder: it has the inputs and outputs of ONNX decoders and updates caches in place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mirlo.extend.frontend import GraphBuilder, ImportedModule, Tensor, TensorType, iota, maximum, where
from mirlo.extend.frontend import dims as D
from mirlo.extend.library import RingCache, join_heads, layer_norm, mix_experts, rms_norm, split_heads
from mirlo_llm.generate.checkpoints.architectures import (
    DecoderOptions,
    ExpertOptions,
    LayerOptions,
    read_options,
    renamed,
)
from mirlo_llm.generate.checkpoints.block_weights import BlockWeights
from mirlo_llm.generate.checkpoints.graph import (
    BATCH,
    HIDDEN,
    LENGTH,
    CheckpointGraph,
    CheckpointWeights,
    import_graph,
    present,
)
from mirlo_llm.generate.checkpoints.image_options import has_images, own_config, split_tensors
from mirlo_llm.generate.checkpoints.latent import Angles, LatentProjections
from mirlo_llm.generate.checkpoints.lora import AdaptedProducts
from mirlo_llm.generate.checkpoints.packed import Tensors, read_weights
from mirlo_llm.generate.checkpoints.router import route
from mirlo_llm.generate.json_file import read_json

PAST, TOTAL = map(D.symbol, ("past", "total"))
_FUSED = re.compile(r"(.+\.feed_forward\.experts)\.(gate_up|down)_proj")
"""Matrices of all experts of a layer in one tensor, stored as [in, out]."""
PREFIXES = ("transformer.", "model.")
"""The prefix that files of models without an output projection leave out."""


def import_checkpoint(weights: Path, config: Path, adapted: Sequence[str] = (), rings_below: int = 0) -> ImportedModule:
    """Import a decoder with the weights of a file; the other arguments are those of `import_decoder`."""
    return import_decoder(*read_decoder(weights, config), adapted=adapted, rings_below=rings_below)


def import_hidden_states(weights: Path, config: Path) -> ImportedModule:
    """Import a decoder without its output projection, for whole texts."""
    return hidden_states_module(*read_decoder(weights, config))


def hidden_states_module(options: DecoderOptions, tensors: CheckpointWeights) -> ImportedModule:
    """Return the graph of a decoder of these weights without its output projection, for whole texts."""
    inputs = {name: TensorType.of((BATCH, LENGTH), "i64") for name in ("input_ids", "attention_mask")}

    def build(builder: GraphBuilder, tokens: Tensor, mask: Tensor) -> dict[str, Tensor]:
        graph = DecoderGraph(builder, options, tensors)
        states, _ = graph.hidden_states(tokens, mask)
        tensors.discard("lm_head.weight")
        return {"last_hidden_state": states}

    return import_graph(tensors, inputs, build)


def read_decoder(weights: Path, config: Path) -> tuple[DecoderOptions, CheckpointWeights]:
    """Return the options and the tensors of a decoder, without those of image encoders."""
    root = read_json(config)
    keys = own_config(root)
    options, tensors = read_options(keys), read_weights(weights, keys)
    if has_images(root):
        tensors, _ = split_tensors(tensors)
    tensors = dict(separate_experts(tensors))

    def name_of(name: str) -> str:
        name = renamed(name, options.renamed)
        return present((name, *map(name.removeprefix, PREFIXES)), tensors)

    return options, CheckpointWeights(weights, tensors, name_of, options.unused)


def separate_experts(tensors: Tensors) -> Iterator[tuple[str, np.ndarray | BlockWeights]]:
    """Yield tensors, with those of all experts of a layer split into one per expert."""
    for name, tensor in tensors.items():
        match = _FUSED.fullmatch(name)
        if match is None or isinstance(tensor, BlockWeights) or tensor.ndim != 3:
            yield name, tensor
            continue
        for i, matrix in enumerate(tensor.swapaxes(1, 2)):
            parts = np.split(matrix, 2) if match[2] == "gate_up" and len(matrix) % 2 == 0 else [matrix]
            for part, rows in zip(("gate", "up") if len(parts) == 2 else (match[2],), parts, strict=True):
                yield f"{match[1]}.{i}.{part}_proj.weight", rows


MakeGraph = Callable[[GraphBuilder, DecoderOptions, CheckpointWeights, Sequence[Tensor]], "DecoderGraph"]


def import_decoder(
    options: DecoderOptions,
    weights: CheckpointWeights,
    states: Mapping[str, TensorType] | None = None,
    make_graph: MakeGraph | None = None,
    adapted: Sequence[str] = (),
    rings_below: int = 0,
) -> ImportedModule:
    """Build the graph of a decoder; `states` are further inputs, passed to `make_graph`.

    The matrices of adapters for the layers `adapted` are inputs after them. Layers with a sliding window of fewer
    tokens than `rings_below` keep the rows of the window only.
    """
    products = AdaptedProducts(weights, adapted, options.is_transposed)
    caches = {
        f"{i}.{kind}": layer.seen if layer.seen < rings_below else 0
        for i, layer in enumerate(options.layers)
        for kind in options.cache_kinds
    }
    windows = {window: D.symbol(f"window_{window}_rows") for window in caches.values() if window}

    def rows_of(window: int) -> TensorType:
        return TensorType.of((BATCH, options.kv_heads, windows.get(window, PAST), options.size), "f32")

    inputs = {
        "input_ids": TensorType.of((BATCH, LENGTH), "i64"),
        "attention_mask": TensorType.of((BATCH, TOTAL), "i64"),
        **{f"past_key_values.{name}": rows_of(window) for name, window in caches.items()},
    }

    def build(builder: GraphBuilder, tokens: Tensor, mask: Tensor, *others: Tensor) -> dict[str, Tensor]:
        first = len(others) - len(products.inputs)
        before, read = others[: len(caches)], others[len(caches) : first]
        products.place(others[first:])
        graph = (make_graph or DecoderGraph)(builder, options, weights, read)
        graph.adapted, graph.windows = products, windows
        logits, *after = graph.results(tokens, mask, *before)
        products.finish()
        kept = {f"present.{name}": x for name, x in zip(caches, after, strict=True)}
        return {"logits": logits, **kept, **graph.further_results()}

    rings_of_inputs = {f"past_key_values.{name}": window for name, window in caches.items() if window}
    return import_graph(weights, {**inputs, **(states or {}), **products.inputs}, build, windows=rings_of_inputs)


EXPERT_PARTS = ("gate_proj", "up_proj", "gate_up_proj", "down_proj")
"""The linear layers that an expert may have."""


@dataclass(frozen=True)
class TokenPlaces:
    """The positions of the new tokens and of the keys."""

    tokens: Tensor
    """[batch, length]."""
    keys: Tensor
    """[1, 1, 1, keys] in caches of all tokens, [batch, 1, 1, keys] in rings: negative for rows without a token."""
    rows: Tensor
    """The rows of the new tokens in caches, [batch, length]."""
    last: Tensor
    """The positions of the last tokens of sequences, [batch, 1]."""
    is_ring: bool = False
    """Whether caches are rings."""

    def in_ring(self, ring: RingCache) -> TokenPlaces:
        """Return the positions of keys, and the rows of tokens, in a ring."""
        keys = ring.key_positions().expand_dims(1, 2)
        return replace(self, keys=keys, rows=ring.row_of(self.tokens), is_ring=True)

    def mask(self, layer: LayerOptions, of_image: Tensor | None = None) -> Tensor:
        """Return the additive attention mask: each token sees itself and earlier ones of its window or chunk.

        `of_image` marks keys that belong to the same image as a token; these are visible even if they come later.
        """
        own = self.tokens.expand_dims(1, 3)
        seen = (self.keys >= 0) & (self.keys <= own) if self.is_ring else self.keys <= own
        if of_image is not None:
            seen = seen | of_image
        if layer.window:
            seen = seen & (self.keys > own - layer.window)
        if layer.chunk:
            seen = seen & (self.keys >= own // layer.chunk * layer.chunk)
        zero = own.like(0).cast("f32")
        return where(seen, zero, zero.like(HIDDEN))


class DecoderGraph(CheckpointGraph):
    """The graph of a decoder under construction."""

    def __init__(
        self, builder: GraphBuilder, options: DecoderOptions, weights: CheckpointWeights, states: Sequence[Tensor] = ()
    ) -> None:
        """Store the parts of the graph; `states` are cross-attention keys and values for each layer."""
        super().__init__(builder, weights, options.is_transposed)
        self.options = options
        self._angles: dict[tuple[bytes, float], Angles] = {}
        self._masks: dict[tuple[int, int], Tensor] = {}
        self.windows: Mapping[int, D.Dim] = {}
        """The rows of rings by the tokens of their windows; caches of other layers have all tokens."""
        self._rings: dict[int, TokenPlaces] = {}

    def results(self, tokens: Tensor, mask: Tensor, *caches: Tensor) -> list[Tensor]:
        """Return the logits and the caches afterwards."""
        options = self.options
        table = self._weights.take("model.embed_tokens.weight", options.vocabulary, options.hidden)
        x, kept = self.hidden_states(tokens, mask, *caches, table=table)
        if options.tied:
            self._weights.discard("lm_head.weight")
            with self.named("lm_head"):
                logits = self.multiply(x, table)
        else:
            logits = self.product("lm_head", x, options.vocabulary, is_transposed=False)
        return [self._capped(logits * options.logit_scale, options.logit_cap), *kept]

    def further_results(self) -> dict[str, Tensor]:
        """Return additional results by output name; a hook for subclasses."""
        return {}

    def hidden_states(
        self, tokens: Tensor, mask: Tensor, *caches: Tensor, table: np.ndarray | BlockWeights | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the hidden states before the output projection, and the updated caches.

        Without caches the tokens are whole texts. `table` is the embedding, if the caller has already taken it from the
        file.
        """
        options, places, kept = self.options, self.places(mask), list[Tensor]()
        x, kinds = self.first_states(tokens, places, table), len(options.cache_kinds)
        for i, layer in enumerate(options.layers):
            x, *written = self.layer(f"model.layers.{i}", x, layer, places, caches[kinds * i : kinds * (i + 1)])
            kept += written if caches else []
        return self.norm(options.final_norm, x), kept

    def embedded(self, table: np.ndarray | BlockWeights, tokens: Tensor) -> Tensor:
        """Return the embeddings of the tokens."""
        return self.rows(table, tokens) * self.options.embedding_scale

    def first_states(
        self, tokens: Tensor, places: TokenPlaces, table: np.ndarray | BlockWeights | None = None
    ) -> Tensor:
        """Return the input of the first layer."""
        options = self.options
        if table is None:
            table = self._weights.take("model.embed_tokens.weight", options.vocabulary, options.hidden)
        with self.named("model.embed_tokens"):
            x = self.embedded(table, tokens)
        if options.positions:
            count = options.positions + options.first_position
            positions = self._weights.take("model.embed_positions.weight", count, options.hidden)
            x = x + self.rows(positions, places.tokens + options.first_position)
        return self.norm(options.embedding_norm, x)

    def layer(
        self, name: str, x: Tensor, layer: LayerOptions, places: TokenPlaces, cache: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Return the result of a layer, and its caches afterwards."""
        before, behind, before_products, behind_products = (part and f"{name}.{part}" for part in self.options.norms)
        if self.options.norms_sums:
            attended, *kept = self.attention(f"{name}.self_attn", x, layer, places, cache)
            x = self.between(name, self.norm(before, x + attended), places)
            return self.norm(before_products, x + self.gated(f"{name}.mlp", x, self.options.inner)), *kept
        normed, start = self.norm(before, x), x
        attended, *kept = self.attention(f"{name}.self_attn", normed, layer, places, cache)
        x = self.between(name, x + self.norm(behind, attended) * self.options.residual_scale, places)
        if not self.options.is_parallel:
            normed = self.norm(before_products, x)
        elif f"{before_products}.weight" in self._weights:
            normed = self.norm(before_products, start)
        if layer.experts is None:
            inner = self.gated(f"{name}.mlp", normed, self.options.inner)
        else:
            with self.named(f"{name}.mlp"):
                inner = self.mixture(f"{name}.mlp", normed, layer.experts)
        return x + self.norm(behind_products, inner) * self.options.residual_scale, *kept

    def between(self, name: str, x: Tensor, places: TokenPlaces) -> Tensor:
        """Return the input of the MLP from the result of attention; a hook for subclasses."""
        return x

    def attention(
        self, name: str, x: Tensor, layer: LayerOptions, places: TokenPlaces, cache: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Attend the new tokens to the cache and to each other; return the updated caches too."""
        options = self.options
        turns = None if layer.frequencies is None else self._turns(layer.frequencies, layer.rotation_scale, places)
        latent = None if options.latent is None else LatentProjections(self, name, options.heads, options.latent)
        query, *rows = self._projected(name, x, turns, layer, places) if latent is None else latent.project(x, turns)
        read, at_end = rows, options.is_causal
        if cache:
            if layer.seen in self.windows:
                places, at_end = self._in_ring(layer.seen, places), False
            rows = [self._written(old, new, places) for old, new in zip(cache, rows, strict=True)]
            shape = (BATCH, options.kv_heads, places.keys.shape[3], options.size)
            read = [each.part((0, 0, 0, 0), shape) for each in rows]
        # No sequence is longer than the keys, so `at_end` hides nothing that is seen; kernels skip what it hides.
        attended = self.builder.emit(
            "attention", query, read[0], read[-1], self.mask(layer, places), scale=options.scale,
            softcap=options.score_cap, causal=at_end, at_end=at_end,
        )  # fmt: skip
        values = join_heads(attended if latent is None else latent.values(attended))
        return self.product(f"{name}.o_proj", values, options.hidden), *rows

    def _projected(
        self, name: str, x: Tensor, turns: Angles | None, layer: LayerOptions, places: TokenPlaces
    ) -> list[Tensor]:
        """Return queries, keys and values of heads, [batch, heads, length, size]."""
        options = self.options
        widths = [count * options.size for count in (options.heads, options.kv_heads, options.kv_heads)]
        if options.fused:
            query, key, value = self.product(f"{name}.qkv_proj", x, sum(widths)).split(widths, -1)
        else:
            parts = zip("qkv", widths, strict=True)
            query, key, value = (self.product(f"{name}.{part}_proj", x, width) for part, width in parts)
        if options.projection_limit:
            limit = options.projection_limit
            query, key, value = (each.clip(-limit, limit) for each in (query, key, value))
        if options.head_norms == "all":
            query, key = self.norm(f"{name}.q_norm", query), self.norm(f"{name}.k_norm", key)
        query, key, value = map(self._heads, (query, key, value))
        if options.head_norms == "each":
            query, key = self.norm(f"{name}.q_norm", query), self.norm(f"{name}.k_norm", key)
        if turns is not None:
            kind = {"interleaved": True} if options.is_interleaved else {}
            query, key = (self.builder.emit("rotary_embedding", each, *turns, **kind) for each in (query, key))
            if options.head_norms == "rotated":
                query, key = (rms_norm(each, None, -1, options.epsilon) for each in (query, key))
        if layer.temperature is not None:
            weight, tokens = layer.temperature
            behind = ((places.tokens + 1).cast("f32") / tokens).floor()
            query = query * (behind.log1p() * weight + 1).expand_dims(1, 3)
        return [query, key, value]

    def mask(self, layer: LayerOptions, places: TokenPlaces) -> Tensor:
        """Return the mask added to the scores of attention; layers with the same window share it."""
        key = layer.window, layer.chunk
        if key not in self._masks:
            self._masks[key] = places.mask(layer)
        return self._masks[key]

    def mixture(self, name: str, x: Tensor, experts: ExpertOptions) -> Tensor:
        """Return the sum of the results of the experts that a router chooses per token, weighted by the router."""
        hidden = self.options.hidden
        rows = x.reshape((BATCH * LENGTH, hidden))
        chosen, factors = route(self, name, rows, experts)
        mixed = self.mix(name, rows, chosen, factors, experts)
        if experts.shared:
            shared = self.gated(f"{name}.shared_expert", rows, experts.shared)
            if experts.is_shared_gated:
                shared = shared * self.product(f"{name}.shared_expert_gate", rows, 1).sigmoid()
            mixed = mixed + shared
        return mixed.reshape((BATCH, LENGTH, hidden))

    def mix(self, name: str, rows: Tensor, chosen: Tensor, factors: Tensor, experts: ExpertOptions) -> Tensor:
        """Return the weighted sum of the chosen experts' results."""
        b = self.builder
        numbers = b.constant(np.arange(experts.count)[None], chosen.dtype, (1, experts.count))

        def bound(sizes: Tensor, bounds: list[D.Dim]) -> tuple[D.Dim, ...]:
            return b.bind(sizes, "rows", "rows of an expert", bounds=bounds)

        def compute(members: tuple[int, ...], position: Tensor, own: Tensor) -> Tensor:
            if len(members) == 1:
                return self.gated(f"{name}.experts.{members[0]}", own, experts.inner)
            with self.choosing(f"{name}.experts", members, position):
                return self.gated(f"{name}.experts", own, experts.inner)

        groups = self.equal_modules(f"{name}.experts", experts.count, EXPERT_PARTS)
        return mix_experts(b, rows, chosen, factors, numbers, bound, compute, experts.scales_inputs, groups)

    def gated(self, name: str, x: Tensor, inner: int) -> Tensor:
        """Return the MLP's result: act(gate(x)) * up(x), or act(up(x)), times the down projection."""
        options = self.options
        if not options.is_gated:
            activated = self.activated(self.product(f"{name}.up_proj", x, inner), options.activation)
            return self.product(f"{name}.down_proj", activated, options.hidden)
        if options.fused:
            gate, up = self.product(f"{name}.gate_up_proj", x, 2 * inner).halves(-1)
        else:
            gate, up = (self.product(f"{name}.{part}_proj", x, inner) for part in ("gate", "up"))
        return self.product(f"{name}.down_proj", self.activated(gate, options.activation) * up, options.hidden)

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Apply RMSNorm or LayerNorm; an empty name means no norm."""
        if not name:
            return x
        if self.options.has_plain_norms:
            return layer_norm(x, None, None, -1, self.options.epsilon)
        width = x.shape[-1]
        assert isinstance(width, int)
        scale = self.weight(name, width)
        if self.options.norm_offset:
            scale = scale + self.options.norm_offset
        if self.options.is_layer_norm:
            bias = self.weight(name, width, part="bias") if f"{name}.bias" in self._weights else None
            return layer_norm(x, scale, bias, -1, self.options.epsilon)
        return rms_norm(x, scale, -1, self.options.epsilon)

    def _heads(self, x: Tensor) -> Tensor:
        """Return [batch, heads, length, size]."""
        width = x.shape[-1]
        assert isinstance(width, int)
        return split_heads(x, width // self.options.size, self.options.size)

    def _written(self, cache: Tensor, new: Tensor, places: TokenPlaces) -> Tensor:
        """Write the rows of new tokens to a cache, and return it."""
        rows = D.maximum(cache.shape[2], places.keys.shape[3])
        shape = (BATCH, self.options.kv_heads, rows, self.options.size)
        return self.builder.emit("cache_write", cache, new, places.rows, shape=shape)

    def _in_ring(self, window: int, places: TokenPlaces) -> TokenPlaces:
        """Return the places of tokens in the rings of a window, computed once for all layers."""
        if window not in self._rings:
            ring = RingCache(self.builder, self.windows[window], TOTAL, places.last)
            ring.require_room("the cache of a layer with a sliding window", window, LENGTH, TOTAL)
            self._rings[window] = places.in_ring(ring)
        return self._rings[window]

    def _turns(self, frequencies: np.ndarray, scale: float, places: TokenPlaces) -> Angles:
        """Return cos and sin of the angles, [batch, 1, length, pairs], computed once for all layers."""
        key = frequencies.tobytes(), scale
        if key not in self._angles:
            angles = self.angles(frequencies, places)
            self._angles[key] = angles.cos() * scale, angles.sin() * scale
        return self._angles[key]

    def angles(self, frequencies: np.ndarray, places: TokenPlaces) -> Tensor:
        """Return the angles of the new tokens, [batch, 1, length, pairs]."""
        return places.tokens.cast("f32").expand_dims(1, 3) * self.builder.constant(frequencies, "f32")

    def places(self, mask: Tensor) -> TokenPlaces:
        """Return the positions of tokens; shorter sequences are padded at the end of a prompt."""
        total = mask.sum(1).reshape((BATCH, 1))
        tokens = maximum(total - self._size(LENGTH), 0) + self._range(LENGTH).expand_dims(0)
        keys = self._range(mask.shape[1]).expand_dims(0, 1, 2)
        return TokenPlaces(tokens, keys, tokens, total - 1)

    def _range(self, size: D.Dim) -> Tensor:
        return iota(self.builder, size)

    def _size(self, size: D.Dim) -> Tensor:
        return self.builder.known(TensorType.of((), "i64"), (size,))

    @staticmethod
    def _capped(x: Tensor, cap: float | None) -> Tensor:
        return x if cap is None else (x * (1 / cap)).tanh() * cap
