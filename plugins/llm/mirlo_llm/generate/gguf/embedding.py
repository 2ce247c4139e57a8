"""Embedding models in GGUF files: encoders such as BERT, and decoders whose file says how rows become one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from mirlo.extend.frontend import ImportedModule
from mirlo_llm.generate.checkpoints.encoder import encoder_module
from mirlo_llm.generate.checkpoints.encoder_options import EncoderOptions, read_encoder_options
from mirlo_llm.generate.checkpoints.graph import CheckpointWeights
from mirlo_llm.generate.gguf.container import GgufFile
from mirlo_llm.generate.gguf.keys import ARCHITECTURE, EMBEDDING
from mirlo_llm.generate.json_file import JsonObject, RenamedObject

ENCODER = "bert"
"""The architecture of encoders whose positions are a table."""
KINDS = "token_types.weight"
"""The tensor with the embeddings of token types."""
_POOLINGS = {1: "mean", 2: "cls", 3: "lasttoken"}
"""Names of poolings by the number that files have."""
SCORES = 4
"""The number of a pooling that gives a score of a pair of texts."""
_KEYS = {
    "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length", "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count", "max_position_embeddings": "context_length",
    "layer_norm_eps": "attention.layer_norm_epsilon",
}  # fmt: skip
"""Names of `config.json` by the suffix of the file's keys after the architecture."""
_TABLES = {
    "embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
}  # fmt: skip
_PARTS = {
    "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm",
}  # fmt: skip
"""Names of a layer's tensors in files by those in checkpoints."""


def is_embedding_file(file: GgufFile) -> bool:
    """Return whether a file has a model of embeddings or scores of texts."""
    return is_encoder_file(file) or read_pooling(file) is not None


def is_encoder_file(file: GgufFile) -> bool:
    """Return whether a file has an encoder."""
    return file.metadata.text(ARCHITECTURE) == ENCODER


def read_pooling(file: GgufFile) -> str | None:
    """Return how the rows of a text's tokens become one, as the file says; None if it does not."""
    metadata = file.metadata
    key = f"{metadata.text(ARCHITECTURE)}.pooling_type"
    number = metadata.count(key, 0)
    if number == SCORES:
        raise metadata.refuse(key, "files that score pairs of texts are not supported: use the folder of the model")
    if number and number not in _POOLINGS:
        expected = ", ".join(f"{each} ({name})" for each, name in _POOLINGS.items())
        raise metadata.refuse(key, f"expected one of {expected}, found {number}")
    return _POOLINGS.get(number)


def encoder_keys(file: GgufFile) -> JsonObject:
    """Return the configuration of a file's encoder under the names of `config.json`."""
    metadata = file.metadata
    names = {name: f"{ENCODER}.{key}" for name, key in _KEYS.items()}
    value = {name: metadata.value(key) for name, key in names.items() if metadata.has(key)}
    if metadata.flag(f"{ENCODER}.attention.causal", False):
        raise metadata.refuse(f"{ENCODER}.attention.causal", "an encoder reads a text in both directions")
    kinds, words = (file.tensors.get(name) for name in (KINDS, EMBEDDING))
    value |= {
        "model_type": "bert", "vocab_size": 0 if words is None else words.shape[0],
        "type_vocab_size": 0 if kinds is None else kinds.shape[0],
    }  # fmt: skip
    return RenamedObject(metadata.path, names | {"vocab_size": EMBEDDING, "type_vocab_size": KINDS}, value)


def read_options(file: GgufFile) -> EncoderOptions:
    """Return the options of a file's encoder."""
    return read_encoder_options(encoder_keys(file))


def import_gguf_encoder(path: Path, file: GgufFile) -> ImportedModule:
    """Return the graph of a file's encoder."""
    tensors = {name: each.kind.read(each.data, each.shape) for name, each in file.tensors.items()}
    return encoder_module(read_options(file), CheckpointWeights(path, tensors, _name_in_file))


def _name_in_file(name: str) -> str:
    place, _, part = name.rpartition(".")
    layer = re.fullmatch(r"encoder\.layer\.(\d+)\.(.+)", place)
    names: Mapping[str, str] = _PARTS if layer else _TABLES
    own = names[layer[2] if layer else place]
    return f"blk.{layer[1]}.{own}.{part}" if layer else f"{own}.{part}"
