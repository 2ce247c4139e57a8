"""Configuration of a speech model: special tokens and spectrum parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mirlo_llm.generate.checkpoints.whisper_options import WhisperOptions, read_whisper_options
from mirlo_llm.generate.config import (
    PLAIN,
    ModelConfig,
    NodeNames,
    model_type_of,
    plain_config,
    read_generation,
    weights_file,
)
from mirlo_llm.generate.json_file import JsonObject, is_unsigned, read_json
from mirlo_llm.generate.search import SearchOptions
from mirlo_llm.generate.speech.audio import SpectrumOptions

FEATURES = "preprocessor_config.json"


@dataclass(frozen=True)
class SpeechTokens:
    """Special tokens of a speech model."""

    start: int
    end: int
    first_time: int
    """The timestamp token of 0 s; each of the following tokens is 20 ms later."""
    no_times: int | None
    """The token that disables timestamps; None for models without it."""
    no_speech: int | None
    languages: Mapping[str, int]
    """Language tokens by codes such as "en"; empty for English-only models."""
    tasks: Mapping[str, int]
    hidden: tuple[int, ...]
    """Tokens that are never chosen."""
    hidden_first: tuple[int, ...]
    """Tokens that are not chosen as the first token of a text."""
    latest_start: int | None
    """The latest start of the first text, in steps of 20 ms."""


@dataclass(frozen=True)
class SpeechConfig:
    """A model of speech in a folder."""

    model: ModelConfig
    options: WhisperOptions
    spectrum: SpectrumOptions
    tokens: SpeechTokens

    @property
    def folder(self) -> Path:
        """Return the folder."""
        return self.model.folder


def is_speech_folder(folder: Path) -> bool:
    """Return whether a folder has a speech model."""
    return model_type_of(folder) == "whisper"


def read_speech_config(folder: Path) -> SpeechConfig:
    """Read the configuration of a folder."""
    root = plain_config(folder, "a model of speech")
    kind = root.text("model_type")
    if kind != "whisper":
        raise root.refuse("model_type", f"'{kind:.40}' is not a model of speech that is read: whisper is")
    beside = read_generation(root)
    options = read_whisper_options(root, beside)
    weights = weights_file(folder)
    tokens = _read_tokens(root, beside if beside.path.exists() else root, options.decoder.vocabulary)
    model = ModelConfig(
        folder, weights, root.path, kind, NodeNames(), (tokens.end,), tokens.start, tokens.end,
        options.decoder.positions, options.decoder.vocabulary, SearchOptions(),
    )  # fmt: skip
    return SpeechConfig(model, options, _read_spectrum(folder, options.bands), tokens)


def _read_spectrum(folder: Path, bands: int) -> SpectrumOptions:
    path, default = folder / FEATURES, SpectrumOptions()
    if not path.exists():
        return SpectrumOptions(bands)
    config = read_json(path)
    options = SpectrumOptions(
        config.count("feature_size", bands, least=1, most=1 << 12),
        config.count("n_fft", default.window, least=2, most=1 << 16),
        config.count("hop_length", default.step, least=1, most=1 << 16),
        config.count("sampling_rate", default.rate, least=1, most=1 << 20),
    )
    if options.bands != bands:
        raise config.refuse("feature_size", f"expected {bands}, as num_mel_bins of {PLAIN} says, found {options.bands}")
    return options


def _read_tokens(root: JsonObject, generation: JsonObject, vocabulary: int) -> SpeechTokens:
    start, end = (
        root.count(key, generation.count(key, default), most=vocabulary - 1)
        for key, default in (("decoder_start_token_id", 50258), ("eos_token_id", 50257))
    )
    no_times = generation.count("no_timestamps_token_id", -1, most=vocabulary - 1)
    languages, tasks = (_numbers(generation, key, vocabulary) for key in ("lang_to_id", "task_to_id"))
    # The tokens of times are after all others.
    first_time = no_times + 1 if no_times >= 0 else vocabulary
    hidden = generation.tokens("suppress_tokens")
    return SpeechTokens(
        start, end, first_time, no_times if no_times >= 0 else None, no_times - 1 if no_times > 0 else None,
        {name.strip("<|>"): token for name, token in languages.items()}, tasks,
        tuple(token for token in hidden if token < vocabulary),
        tuple(token for token in generation.tokens("begin_suppress_tokens") if token < vocabulary),
        generation.count("max_initial_timestamp_index") if generation.has("max_initial_timestamp_index") else None,
    )  # fmt: skip


def _numbers(config: JsonObject, key: str, vocabulary: int) -> dict[str, int]:
    """Return tokens by names."""
    inner = config.object(key)
    result = {}
    for name in inner:
        value = inner.value(name)
        if not is_unsigned(value, 31) or value >= vocabulary:
            raise inner.fail(name, f"a token below {vocabulary}", value)
        result[name] = int(value)
    return result
