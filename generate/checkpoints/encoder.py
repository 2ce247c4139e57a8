"""An encoder as a graph: layers in which all tokens of a text see each other, as BERT has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mirlo.dialects.core.types import TensorType
from mirlo.frontends.builder import GraphBuilder
from mirlo.frontends.foreign import ImportedModule
from mirlo.frontends.library.attention import join_heads, split_heads
from mirlo.frontends.library.normalizations import layer_norm
from mirlo.frontends.tensor import Tensor, iota, where
from mirlo.generate.checkpoints.architectures import (
    MAX_LAYERS,
    MAX_WIDTH,
    read_activation,
    read_size,
    require_heads,
    under_common_names,
)  # fmt: skip
from mirlo.generate.checkpoints.distances import Distances, read_distances, scores_of
from mirlo.generate.checkpoints.graph import (
    BATCH,
    HIDDEN,
    LENGTH,
    CheckpointGraph,
    CheckpointWeights,
    Names,
    import_graph,
    present,
    renamed,
)  # fmt: skip
from mirlo.generate.checkpoints.safetensors import read_checkpoint
from mirlo.generate.json_file import JsonObject, read_json

MAX_LABELS = 1 << 16
HEADS = ("pooler.", "cls.", "lm_head.", "vocab_transform.", "vocab_layer_norm.", "vocab_projector.")
"""What the names of tensors begin with that only training and guesses of masked tokens need."""
_DISTILBERT: Names = (
    ("encoder.layer.", "transformer.layer."), (".attention.self.query.", ".attention.q_lin."),
    (".attention.self.key.", ".attention.k_lin."), (".attention.self.value.", ".attention.v_lin."),
    (".attention.output.dense.", ".attention.out_lin."), (".attention.output.LayerNorm.", ".sa_layer_norm."),
    (".intermediate.dense.", ".ffn.lin1."), (".output.dense.", ".ffn.lin2."),
    (".output.LayerNorm.", ".output_layer_norm."),
)  # fmt: skip
_MPNET: Names = (
    (".attention.self.query.", ".attention.attn.q."), (".attention.self.key.", ".attention.attn.k."),
    (".attention.self.value.", ".attention.attn.v."), (".attention.output.dense.", ".attention.attn.o."),
    (".attention.output.LayerNorm.", ".attention.LayerNorm."),
)  # fmt: skip


@dataclass(frozen=True)
class EncoderOptions:
    """An encoder whose norms are behind attention and behind the products."""

    vocabulary: int
    hidden: int
    inner: int
    heads: int
    layers: int
    positions: int
    """Rows of the table that is added to tokens by their positions."""
    epsilon: float
    activation: str
    kinds: int = 0
    """Rows of the table that is added by the kind of a token: of the first or the second text; 0 for none."""
    first: int = 0
    """The row of the first token."""
    distances: Distances | None = None
    """What is added to the scores of attention by the distances of tokens."""
    labels: int = 0
    """Scores of a text or a pair of texts; 0 for a model that gives a row for each token."""
    head: tuple[str, str, str] = ("pooler.dense", "tanh", "classifier")
    """The products that give scores, and the function between them."""
    prefix: str = ""
    """What names of the file begin with."""
    embedding_scale: float = 1.0
    renamed: Names = ()
    """Parts of the names of tensors that a file has in place of others."""

    @property
    def longest(self) -> int:
        """Return how many tokens the model takes."""
        return self.positions - self.first


def read_encoder_options(config: JsonObject) -> EncoderOptions:
    """Return the options of the encoder that a configuration names, which is one of `ENCODERS`."""
    kind = config.text("model_type")
    config = under_common_names(config, kind)
    if config.text("position_embedding_type", "absolute") != "absolute" or config.flag("is_decoder", False):
        raise config.refuse("position_embedding_type", "only encoders with a table of positions: export to ONNX")
    activation = read_activation(config, "hidden_act", "gelu")
    hidden = read_size(config, "hidden_size")
    options = EncoderOptions(
        read_size(config, "vocab_size"), hidden, read_size(config, "intermediate_size"),
        require_heads(config, "num_attention_heads", hidden), read_size(config, "num_hidden_layers", most=MAX_LAYERS),
        read_size(config, "max_position_embeddings", 512), config.number("layer_norm_eps", 1e-12),
        activation, config.count("type_vocab_size", 0, most=MAX_WIDTH), labels=_labels(config),
        prefix=kind,
    )  # fmt: skip
    return ENCODERS[kind](config, options)


def _labels(config: JsonObject) -> int:
    """Return how many scores a model of a class `...ForSequenceClassification` gives."""
    classes = config.value("architectures")
    if not isinstance(classes, list) or not any(str(each).endswith("ForSequenceClassification") for each in classes):
        return 0
    labels = len(list(config.object("id2label"))) or 2
    return config.count("num_labels", labels, least=1, most=MAX_LABELS)


def _bert(config: JsonObject, options: EncoderOptions) -> EncoderOptions:
    return options


def _roberta(config: JsonObject, options: EncoderOptions) -> EncoderOptions:
    first = config.count("pad_token_id", 1, most=options.positions - 2) + 1
    return replace(options, first=first, prefix="roberta", head=("classifier.dense", "tanh", "classifier.out_proj"))


def _distilbert(config: JsonObject, options: EncoderOptions) -> EncoderOptions:
    return replace(options, kinds=0, renamed=_DISTILBERT, head=("pre_classifier", "relu", "classifier"))


def _mpnet(config: JsonObject, options: EncoderOptions) -> EncoderOptions:
    return replace(
        _roberta(config, options), kinds=0, distances=read_distances(config), prefix="mpnet", renamed=_MPNET
    )  # fmt: skip


ENCODERS: Mapping[str, Callable[[JsonObject, EncoderOptions], EncoderOptions]] = {
    "bert": _bert, "roberta": _roberta, "xlm-roberta": _roberta, "camembert": _roberta, "distilbert": _distilbert,
    "mpnet": _mpnet,
}  # fmt: skip
"""What reads the configuration of an encoder, by `model_type`."""


def import_encoder(weights: Path, config: Path) -> ImportedModule:
    """Return the graph of an encoder, whose weights are those of a file."""
    options, tensors = read_encoder_options(read_json(config)), read_checkpoint(weights)

    def name_of(name: str) -> str:
        name = renamed(name, options.renamed)
        older = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        return present((name, f"{options.prefix}.{name}", older, f"{options.prefix}.{older}"), tensors)

    checked = CheckpointWeights(weights, tensors, name_of)
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if options.kinds > 1 else [])]
    inputs = {name: TensorType.of((BATCH, LENGTH), "i64") for name in names}

    def build(builder: GraphBuilder, *given: Tensor) -> dict[str, Tensor]:
        graph = EncoderGraph(builder, options, checked)
        states = graph.hidden_states(*given)
        result = {"logits": graph.scores(states)} if options.labels else {"last_hidden_state": states}
        for name in tensors:
            if name.removeprefix(f"{options.prefix}.").startswith(HEADS) or name.endswith("position_ids"):
                checked.discard(name)
        checked.finish()
        return result

    return import_graph(checked, inputs, build)


class EncoderGraph(CheckpointGraph):
    """The graph of an encoder under construction."""

    def __init__(self, builder: GraphBuilder, options: EncoderOptions, weights: CheckpointWeights) -> None:
        super().__init__(builder, weights)
        self.options = options

    def hidden_states(self, tokens: Tensor, mask: Tensor, kinds: Tensor | None = None) -> Tensor:
        """Return a row for each token; those that the mask hides are at the end of a text."""
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
        """Return the result of a layer; `hidden` is added to the scores of attention."""
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
        """Return the scores of texts, of their first tokens."""
        dense, function, classifier = self.options.head
        first = self.product(dense, states.slice(1, 0, 1).squeeze(1), self.options.hidden)
        return self.product(classifier, first.relu() if function == "relu" else first.tanh(), self.options.labels)

    def table(self, name: str, count: int, index: Tensor) -> Tensor:
        """Return rows of a table of the embedding."""
        rows = self._weights.take(f"embeddings.{name}_embeddings.weight", count, self.options.hidden)
        return self.rows(rows, index)

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Return rows of mean 0 and variance 1, scaled and moved by weights."""
        scale, bias = (self.weight(name, self.options.hidden, part=part) for part in ("weight", "bias"))
        return layer_norm(x, scale, bias, -1, self.options.epsilon)
