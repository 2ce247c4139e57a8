"""Configuration of an encoder-decoder model in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mirlo_llm.generate.checkpoints.seq2seq_options import ARCHITECTURES, read_seq2seq_options
from mirlo_llm.generate.config import GENERATION, ModelConfig, NodeNames, model_type_of, plain_config, weights_file
from mirlo_llm.generate.json_file import JsonObject, read_json
from mirlo_llm.generate.search import read_search


@dataclass(frozen=True)
class Seq2SeqConfig:
    """An encoder-decoder model in a folder."""

    model: ModelConfig
    """The configuration of the decoder."""
    first: tuple[int, ...]
    """The tokens that each output text begins with."""
    longest: int
    """Most tokens of an input text; 0 without a limit."""


def is_seq2seq_folder(folder: Path) -> bool:
    """Return whether a folder has the weights of an encoder-decoder model."""
    return model_type_of(folder) in ARCHITECTURES


def read_seq2seq_config(folder: Path) -> Seq2SeqConfig:
    """Read the configuration of a folder."""
    root = plain_config(folder, "a model")
    options = read_seq2seq_options(root)
    weights = weights_file(folder)
    generation = folder / GENERATION
    defaults = read_json(generation) if generation.exists() else JsonObject(generation, "", {})

    def tokens(key: str) -> tuple[int, ...]:
        token_ids = defaults.tokens(key) or root.tokens(key)
        if any(token >= options.decoder.vocabulary for token in token_ids):
            raise root.refuse(key, f"expected tokens below {options.decoder.vocabulary}, found {token_ids[0]}")
        return token_ids

    start, pad = tokens("decoder_start_token_id"), tokens("pad_token_id")
    if not start:
        raise root.refuse("decoder_start_token_id", "it is missing: a text that is written begins with this token")
    first = (start[0], *tokens("forced_bos_token_id")[:1])
    model = ModelConfig(
        folder, weights, root.path, root.text("model_type"), NodeNames(), tokens("eos_token_id"), start[0],
        pad[0] if pad else 0, options.decoder.positions, options.decoder.vocabulary, read_search(defaults),
    )  # fmt: skip
    return Seq2SeqConfig(model, first, options.longest)
