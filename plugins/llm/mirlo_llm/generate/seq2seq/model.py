"""An encoder-decoder model of a folder: text to text."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from mirlo.extend.options import refuse_unknown
from mirlo.extend.runtime import Executable
from mirlo_llm.generate.config import require_folder
from mirlo_llm.generate.decoder import StatesDecoder
from mirlo_llm.generate.encoder_decoder import ImportGraph, compile_pair
from mirlo_llm.generate.errors import GenerationError
from mirlo_llm.generate.generator import Generator
from mirlo_llm.generate.json_file import MAX_BYTES, read_bytes
from mirlo_llm.generate.model import FORWARDED
from mirlo_llm.generate.prompt import stop_texts
from mirlo_llm.generate.search import with_options
from mirlo_llm.generate.seq2seq.config import Seq2SeqConfig, read_seq2seq_config
from mirlo_llm.generate.tokenizer import FILE, ModelTokenizer

OWN_OPTIONS = ("mapped",)


class Seq2SeqModel:
    """A compiled encoder-decoder model."""

    def __init__(self, config: Seq2SeqConfig, encoder: Executable, decoder: Executable) -> None:
        self.config, self._encoder = config, encoder
        self._decoder = StatesDecoder(config.model, decoder)
        path = config.model.folder / FILE
        self.tokenizer = ModelTokenizer(path, read_bytes(path, MAX_BYTES)) if path.exists() else None

    def generator(self, text: str | Sequence[int], stop: Sequence[str] | str = (), **search: object) -> Generator:
        """Return a generator of the output for a text or tokens; `search` changes the folder's options."""
        options = with_options(self.config.model.search, search)
        states = self._encoder.run(self._inputs(self._encoded(text)))
        decoder = self._decoder.with_states(states)
        return Generator(decoder, options, self.tokenizer, 1, stop_texts(stop))

    def generate(self, text: str | Sequence[int], **search: object) -> list[int]:
        """Return the output tokens for a text."""
        return cast("list[int]", self.generator(text, (), **search).generate(list(self.config.first)))

    def stream(self, text: str | Sequence[int], stop: Sequence[str] | str = (), **search: object) -> Iterator[str]:
        """Yield the output text for a text as it is generated."""
        yield from self.generator(text, stop, **search).stream(list(self.config.first))

    def _encoded(self, text: str | Sequence[int]) -> list[int]:
        if isinstance(text, str):
            if self.tokenizer is None:
                raise GenerationError(f"{self.config.model.folder}: there is no {FILE}: pass tokens in place of text")
            tokens = self.tokenizer.encode(text, special=True)
        else:
            tokens = [int(token) for token in text]
        longest, vocabulary = self.config.longest, self.config.model.vocabulary
        if not tokens or (longest and len(tokens) > longest):
            most = f" and at most {longest}" if longest else ""
            raise GenerationError(f"the text has {len(tokens)} tokens, the model reads at least one{most}")
        if not 0 <= min(tokens) <= max(tokens) < vocabulary:
            raise GenerationError(f"tokens: expected numbers from 0 to {vocabulary - 1}")
        return tokens

    @staticmethod
    def _inputs(tokens: list[int]) -> Mapping[str, np.ndarray]:
        array = np.array([tokens], np.int64)
        return {"input_ids": array, "attention_mask": np.ones_like(array)}

    def __repr__(self) -> str:
        return f"<Seq2SeqModel {self.config.model.kind} of {self.config.model.folder}>"


def load(folder: str | os.PathLike[str], *, mapped: bool = False, **options: Any) -> Seq2SeqModel:
    """Compile the encoder and the decoder of a folder: T5 or BART in safetensors.

    `options` are those of `mirlo.compile`. With `mapped`, weights stay in the file.
    """
    refuse_unknown("mirlo.generate.load_seq2seq", list(options), [*OWN_OPTIONS, *FORWARDED])
    config = read_seq2seq_config(require_folder(folder, "a model"))
    return Seq2SeqModel(config, *compile_pair(config.model, _graphs, mapped, options))


def _graphs() -> tuple[ImportGraph, ImportGraph]:
    from mirlo_llm.generate.checkpoints.seq2seq import import_text_decoder, import_text_encoder

    return import_text_encoder, import_text_decoder
