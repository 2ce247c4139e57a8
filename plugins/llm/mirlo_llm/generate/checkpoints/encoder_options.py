"""Architectures of encoders: each `config.json` is read as the options of one encoder (`encoder.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from mirlo_llm.generate.checkpoints.architectures import (
    MAX_LAYERS,
    MAX_WIDTH,
    Names,
    read_activation,
    read_size,
    require_heads,
    under_common_names,
)
from mirlo_llm.generate.json_file import JsonObject

MAX_LABELS = 1 << 16
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
class Distances:
    """The buckets of relative position biases."""

    buckets: int
    far: int
    """The distance from which on all tokens are in the last bucket."""


@dataclass(frozen=True)
class EncoderOptions:
    """The options of an encoder with norms after attention and after the MLP."""

    vocabulary: int
    hidden: int
    inner: int
    heads: int
    layers: int
    positions: int
    """Rows of the table of position embeddings."""
    epsilon: float
    activation: str
    kinds: int = 0
    """Rows of the table of token types, the first or the second text; 0 if there is none."""
    first: int = 0
    """The position of the first token."""
    distances: Distances | None = None
    """The relative position biases, if any."""
    labels: int = 0
    """Number of classification scores of a text or a pair; 0 for a model that returns token rows."""
    head: tuple[str, str, str] = ("pooler.dense", "tanh", "classifier")
    """The names of the layers that compute scores, and the activation between them."""
    prefix: str = ""
    """The prefix of the file's tensor names."""
    embedding_scale: float = 1.0
    renamed: Names = ()
    """Replacements of parts of tensor names: checkpoint name to the name in a file."""

    @property
    def longest(self) -> int:
        """Return the maximum number of tokens."""
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
    """Return the number of scores of a model of a class `...ForSequenceClassification`."""
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
"""The reader of each encoder's configuration, by `model_type`."""


def read_distances(config: JsonObject) -> Distances:
    """Read the buckets of relative position biases from a configuration."""
    key = "relative_attention_max_distance"
    distances = Distances(
        config.count("relative_attention_num_buckets", 32, least=4, most=1 << 12),
        config.count(key, 128, least=2, most=1 << 16),
    )
    if distances.far <= distances.buckets // 2:
        raise config.refuse(key, f"expected more than half of {distances.buckets} buckets")
    return distances
