"""The graph of a bidirectional encoder such as BERT."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mirlo.extend.frontend import GraphBuilder, ImportedModule, Tensor, TensorType, iota, where
from mirlo.extend.library import join_heads, layer_norm, split_heads
from mirlo_llm.generate.checkpoints.architectures import renamed
from mirlo_llm.generate.checkpoints.distances import scores_of
from mirlo_llm.generate.checkpoints.encoder_options import EncoderOptions, read_encoder_options
from mirlo_llm.generate.checkpoints.graph import (
    BATCH,
    HIDDEN,
    LENGTH,
    CheckpointGraph,
    CheckpointWeights,
    import_graph,
    present,
)
from mirlo_llm.generate.checkpoints.safetensors import read_checkpoint
from mirlo_llm.generate.json_file import read_json

HEADS = ("pooler.", "cls.", "lm_head.", "vocab_transform.", "vocab_layer_norm.", "vocab_projector.")
"""Prefixes of tensors that only training and masked-token prediction need."""


def import_encoder(weights: Path, config: Path) -> ImportedModule:
    """Return the graph of an encoder, whose weights are those of a file."""
    options, tensors = read_encoder_options(read_json(config)), read_checkpoint(weights)

    def name_of(name: str) -> str:
        name = renamed(name, options.renamed)
        older = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        return present((name, f"{options.prefix}.{name}", older, f"{options.prefix}.{older}"), tensors)

    others = [
        name
        for name in tensors
        if name.removeprefix(f"{options.prefix}.").startswith(HEADS) or name.endswith("position_ids")
    ]
    return encoder_module(options, CheckpointWeights(weights, tensors, name_of), others)


def encoder_module(options: EncoderOptions, weights: CheckpointWeights, others: Iterable[str] = ()) -> ImportedModule:
    """Return the graph of an encoder of these weights; it does not need those that are `others` and not used."""
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if options.kinds > 1 else [])]
    inputs = {name: TensorType.of((BATCH, LENGTH), "i64") for name in names}

    def build(builder: GraphBuilder, *operands: Tensor) -> dict[str, Tensor]:
        graph = EncoderGraph(builder, options, weights)
        states = graph.hidden_states(*operands)
        result = {"logits": graph.scores(states)} if options.labels else {"last_hidden_state": states}
        for name in others:
            weights.discard(name)
        return result

    return import_graph(weights, inputs, build)


class EncoderGraph(CheckpointGraph):
    """The graph of an encoder under construction."""

    def __init__(self, builder: GraphBuilder, options: EncoderOptions, weights: CheckpointWeights) -> None:
        super().__init__(builder, weights)
        self.options = options

    def hidden_states(self, tokens: Tensor, mask: Tensor, kinds: Tensor | None = None) -> Tensor:
        """Return a row for each token; `mask` is 0 for padding at the end of a text."""
        options, places = self.options, iota(self.builder, LENGTH)
        x = self.table("word", options.vocabulary, tokens) * options.embedding_scale
        x = x + self.table("position", options.positions, places + options.first)
        if options.kinds:
            first = self.builder.constant(0, "i64")
            x = x + self.table("token_type", options.kinds, first if kinds is None else kinds)
        x = self.norm("embeddings.LayerNorm", x)
        seen = mask.not_equals(0).expand_dims(1, 2)
        zero = self.builder.constant(0, "f32")
        hidden = where(seen, zero, zero.like(HIDDEN))
        if options.distances is not None:
            name, apart = "encoder.relative_attention_bias", places.expand_dims(0) - places.expand_dims(1)
            added = scores_of(self, name, options.heads, apart, options.distances, True)
            hidden = hidden + added.permute([2, 0, 1]).expand_dims(0)
        for i in range(options.layers):
            x = self.layer(f"encoder.layer.{i}", x, hidden)
        return x

    def layer(self, name: str, x: Tensor, hidden: Tensor) -> Tensor:
        """Return the result of a layer; `hidden` is the additive attention mask."""
        options = self.options
        parts = (self.product(f"{name}.attention.self.{part}", x, options.hidden) for part in ("query", "key", "value"))
        size = options.hidden // options.heads
        heads = [split_heads(each, options.heads, size) for each in parts]
        attended = join_heads(self.builder.emit("attention", *heads, hidden))
        attended = self.product(f"{name}.attention.output.dense", attended, options.hidden)
        x = self.norm(f"{name}.attention.output.LayerNorm", x + attended)
        inner = self.activated(self.product(f"{name}.intermediate.dense", x, options.inner), options.activation)
        return self.norm(f"{name}.output.LayerNorm", x + self.product(f"{name}.output.dense", inner, options.hidden))

    def scores(self, states: Tensor) -> Tensor:
        """Return the classification scores of texts, computed from their first tokens."""
        dense, function, classifier = self.options.head
        first = self.product(dense, states.slice(1, 0, 1).squeeze(1), self.options.hidden)
        return self.product(classifier, first.relu() if function == "relu" else first.tanh(), self.options.labels)

    def table(self, name: str, count: int, index: Tensor) -> Tensor:
        """Return rows of a table of the embedding."""
        rows = self._weights.take(f"embeddings.{name}_embeddings.weight", count, self.options.hidden)
        return self.rows(rows, index)

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Apply LayerNorm."""
        scale, bias = (self.weight(name, self.options.hidden, part=part) for part in ("weight", "bias"))
        return layer_norm(x, scale, bias, -1, self.options.epsilon)
