"""A speech model of a folder: sound to text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from mirlo.extend.options import nearest, refuse_unknown
from mirlo.extend.runtime import Executable
from mirlo_llm.generate.checkpoints.whisper_options import ALIGNMENT, ALIGNMENT_HEADS, SPECTRUM
from mirlo_llm.generate.config import GENERATION, require_folder
from mirlo_llm.generate.decoder import StatesDecoder
from mirlo_llm.generate.encoder_decoder import ImportGraph, compile_pair
from mirlo_llm.generate.errors import GenerationError, ModelFolderError
from mirlo_llm.generate.json_file import MAX_BYTES, read_bytes
from mirlo_llm.generate.model import FORWARDED
from mirlo_llm.generate.sequences import Sequences
from mirlo_llm.generate.speech import ONLY_LANGUAGE, TASKS
from mirlo_llm.generate.speech.alignment import token_ends
from mirlo_llm.generate.speech.audio import Sound, log_mel, read_wav, resampled
from mirlo_llm.generate.speech.config import SpeechConfig, read_speech_config
from mirlo_llm.generate.speech.decoding import TranscriptRules
from mirlo_llm.generate.speech.words import split_words
from mirlo_llm.generate.tokenizer import FILE, ModelTokenizer

STEP_SECONDS = 0.02
"""Seconds between timestamp tokens."""
SILENCE, LEAST_MEAN = 0.6, -1.0
"""Thresholds of a silent window: the least probability of no speech, and the mean log probability of its tokens."""
OWN_OPTIONS = ("mapped",)


@dataclass(frozen=True)
class SpokenWord:
    """A word of a transcript, with the space before it and adjacent punctuation."""

    start: float
    """Seconds."""
    end: float
    text: str


@dataclass(frozen=True)
class Segment:
    """A part of a transcript."""

    start: float
    """Seconds."""
    end: float
    text: str
    tokens: tuple[int, ...]
    words: tuple[SpokenWord, ...] = ()
    """The words with their timestamps, if requested."""


@dataclass(frozen=True)
class Transcript:
    """The segments of a sound."""

    language: str
    segments: tuple[Segment, ...]
    seconds: float
    """The duration of the sound in seconds."""

    @property
    def text(self) -> str:
        """Return the whole text."""
        return "".join(segment.text for segment in self.segments).strip()

    @property
    def words(self) -> tuple[SpokenWord, ...]:
        """Return the words of all segments, if word timestamps were requested."""
        return tuple(word for segment in self.segments for word in segment.words)


class SpeechModel:
    """A compiled speech model; `transcribe` returns the text of a sound."""

    def __init__(self, config: SpeechConfig, encoder: Executable, decoder: Executable) -> None:
        self.config, self._encoder = config, encoder
        self._decoder = StatesDecoder(config.model, decoder)
        self._rules = TranscriptRules(config.tokens, config.model.vocabulary)
        path = config.folder / FILE
        if not path.exists():
            raise ModelFolderError(f"{config.folder}: there is no {FILE}, which texts need")
        self.tokenizer = ModelTokenizer(path, read_bytes(path, MAX_BYTES))

    def nbytes(self, calls: int) -> int:
        """Return the bytes of the weights, and of the memory of concurrent calls."""
        parts = (self._encoder.memory, self._decoder.executable.memory)
        d, frames = self.config.options.decoder, self.config.options.frames
        rows = 8 * len(d.layers) * d.hidden * (frames + d.positions)
        return sum(each.weights_bytes for each in parts) + calls * (rows + sum(each.arena_bytes for each in parts))

    @property
    def languages(self) -> tuple[str, ...]:
        """Return the codes of the supported languages; empty for a model of one language."""
        return tuple(self.config.tokens.languages)

    def transcribe(
        self,
        sound: str | os.PathLike[str] | Sound | np.ndarray,
        *,
        language: str | None = None,
        task: str = "transcribe",
        words: bool = False,
        on_segment: Callable[[Segment], None] | None = None,
    ) -> Transcript:
        """Return the transcript of a WAV file, a sound, or samples of the model's rate (16 kHz), from -1 to 1.

        Without `language`, it is detected in the first window. The task "translate" translates to English. With
        `words`, segments have the times of their words. `on_segment` is called with each segment as it is known.
        """
        if task not in TASKS:
            raise GenerationError(f"task: expected {' or '.join(TASKS)}, found {task!r:.40}")
        if words and not self.config.options.alignment:
            what = f"times of words need '{ALIGNMENT_HEADS}', which the publishers of a model name"
            raise GenerationError(f"{self.config.folder / GENERATION}: {what}")
        heard = self._sound(sound)
        segments, detected = list[Segment](), language
        for window_language, segment in self._segments(heard, language, task, words):
            detected = detected or window_language
            segments.append(segment)
            if on_segment is not None:
                on_segment(segment)
        return Transcript(detected or "", tuple(segments), heard.seconds)

    def detect_language(self, sound: str | os.PathLike[str] | Sound | np.ndarray) -> str:
        """Return the code of the language at the beginning of a sound."""
        spectrum = self._spectrum(self._sound(sound))
        return self._language(self._states(spectrum[:, : self._window]))

    @property
    def _window(self) -> int:
        """Return the number of frames of the encoder's window."""
        return 2 * self.config.options.frames

    def _sound(self, sound: str | os.PathLike[str] | Sound | np.ndarray) -> Sound:
        rate = self.config.spectrum.rate
        if isinstance(sound, np.ndarray):
            if sound.ndim != 1 or sound.dtype.kind != "f" or not np.isfinite(sound).all():
                raise GenerationError(
                    f"sound: expected finite samples in one dim of floats, found {sound.dtype}{list(sound.shape)}"
                )
            return Sound(sound.astype(np.float32), rate)
        return resampled(sound if isinstance(sound, Sound) else read_wav(sound), rate)

    def _spectrum(self, sound: Sound) -> np.ndarray:
        """Return the spectrum of a sound, padded with silence."""
        options = self.config.spectrum
        return log_mel(np.pad(sound.samples, (0, self._window * options.step)), options)

    def _segments(self, sound: Sound, language: str | None, task: str, words: bool) -> Iterator[tuple[str, Segment]]:
        """Yield the segments of a sound; each window begins where the last segment of the previous one ends."""
        options = self.config.spectrum
        spectrum, count = self._spectrum(sound), len(sound.samples) // options.step
        at = 0
        while at < count:
            states = self._states(spectrum[:, at : at + self._window])
            language = language or (self._language(states) if self.languages else "")
            size = min(self._window, count - at)
            if words:
                states = states.recording(ALIGNMENT)
            prompt = self._prompt(language, task)
            tokens, is_silent = self._tokens(states, prompt)
            if is_silent:
                at += size
                continue
            parts, consumed = self._parts(tokens, size)
            begin, seconds = at * options.step / options.rate, STEP_SECONDS
            times = iter(self._text_times(states, tokens, len(prompt), size, begin) if words else ())
            for start, end, part in parts:
                text, spoken = self.tokenizer.decode(part), self._words(part, [*islice(times, len(part))], language)
                if text.strip():
                    yield language, Segment(begin + start * seconds, begin + end * seconds, text, tuple(part), spoken)
            at += consumed

    def _text_times(
        self, decoder: StatesDecoder, tokens: Sequence[int], first: int, size: int, begin: float
    ) -> Iterator[tuple[float, float]]:
        """Yield the start and end of the tokens of texts, in seconds, for a window that begins at `begin`.

        `first` is the number of prompt tokens before them.
        """
        options, states = self.config.options, max(1, size // 2)
        queries = np.concatenate(decoder.recorded, 2)[0, :, first:]
        keys = [decoder.constants[f"states.{layer}.key"][0, head, :states] for layer, head in options.alignment]
        ends = token_ends(queries, np.stack(keys), options.median_width) * STEP_SECONDS
        # If the tokens are as many as the model takes, the last one was not read.
        around = [0.0, *ends.tolist(), *(ends.tolist() or [0.0])[-1:]]
        for token, start, end in zip(tokens, around, around[1:], strict=False):
            if token < self.config.tokens.first_time:
                yield begin + start, begin + end

    def _words(
        self, tokens: Sequence[int], times: Sequence[tuple[float, float]], language: str
    ) -> tuple[SpokenWord, ...]:
        """Return the words of a text with the times of their tokens; none without times."""
        if not times:
            return ()
        parts = split_words(tokens, language, self.tokenizer.decode)
        return tuple(SpokenWord(times[part.first][0], times[part.last][1], part.text) for part in parts)

    def _parts(self, tokens: list[int], size: int) -> tuple[list[tuple[int, int, list[int]]], int]:
        """Return the texts of a window with their times in steps, and the number of frames that they cover.

        Two timestamps separate adjacent texts. Tokens after the last pair are read again in the next window, unless the
        last text has an end.
        """
        first, step = self.config.tokens.first_time, round(STEP_SECONDS * self.config.spectrum.rate)
        frames = max(1, step // self.config.spectrum.step)  # of a step
        is_time = [token >= first for token in tokens]
        cuts = [i + 1 for i in range(len(tokens) - 1) if is_time[i] and is_time[i + 1]]
        if not cuts:
            times = [token - first for token in tokens if token >= first]
            end = times[-1] if times and times[-1] else size // frames
            begin = times[0] if is_time and is_time[0] and len(times) > 1 else 0
            return [(begin, end, [token for token in tokens if token < first])], size
        ends_in_time = is_time[-2:] == [False, True]
        if ends_in_time:
            cuts.append(len(tokens))
        parts = []
        for begin, end in zip([0, *cuts], cuts, strict=False):
            text = [token for token in tokens[begin:end] if token < first]
            parts.append((max(tokens[begin] - first, 0), max(tokens[end - 1] - first, 0), text))
        last = (tokens[cuts[-1] - 1] - first) * frames
        return parts, size if ends_in_time or not last else min(last, size)

    def _prompt(self, language: str, task: str) -> list[int]:
        """Return the tokens before a transcript."""
        tokens = self.config.tokens
        if not tokens.languages:
            if task != TASKS[0]:
                raise GenerationError(f"task: {self.config.folder} has one language, and does not translate")
            if language not in ("", ONLY_LANGUAGE):
                raise GenerationError(
                    f"language: {self.config.folder} knows one language, {ONLY_LANGUAGE}, found {language[:40]!a}"
                )
            return [tokens.start]
        if language not in tokens.languages:
            raise GenerationError(
                f"language: the model does not know {language[:40]!a}{nearest(language[:40], tokens.languages)}"
            )
        if task not in tokens.tasks:
            raise GenerationError(f"task: the model has no token for {task!a}")
        return [tokens.start, tokens.languages[language], tokens.tasks[task]]

    def _states(self, spectrum: np.ndarray) -> StatesDecoder:
        """Encode a window, and return the decoder for it."""
        return self._decoder.with_states(self._encoder.run({SPECTRUM: np.ascontiguousarray(spectrum[None])}))

    def _language(self, decoder: StatesDecoder) -> str:
        tokens = self.config.tokens
        if not tokens.languages:
            raise GenerationError(f"{self.config.folder}: the model has one language")
        sequence = Sequences(decoder, 1, 1)
        sequence.tokens[0].append(tokens.start)
        (logits,) = sequence.logits()
        return max(tokens.languages, key=lambda name: float(logits[tokens.languages[name]]))

    def _tokens(self, decoder: StatesDecoder, prompt: list[int]) -> tuple[list[int], bool]:
        """Return the tokens of a window, and whether it is silent."""
        tokens, sequence = self.config.tokens, Sequences(decoder, 1, len(prompt))
        (written,) = sequence.tokens
        written += prompt
        chosen, total, silence = list[int](), 0.0, 0.0
        while len(written) < self.config.model.context:
            (logits,) = sequence.logits()
            if not chosen and tokens.no_speech is not None:
                silence = _probability(logits, tokens.no_speech)
            token, logarithm = self._rules.choose(logits, chosen)
            total += logarithm
            if token == tokens.end:
                break
            chosen.append(token)
            written.append(token)
        return chosen, silence > SILENCE and total / (len(chosen) + 1) < LEAST_MEAN


def _probability(logits: np.ndarray, token: int) -> float:
    weights = np.exp(logits - logits.max())
    return float(weights[token] / weights.sum())


def load(folder: str | os.PathLike[str], *, mapped: bool = False, **options: Any) -> SpeechModel:
    """Compile the model of speech of a folder: Whisper in safetensors; `options` are those of `mirlo.compile`.

    With `mapped`, weights stay in the file.
    """
    refuse_unknown("mirlo.generate.load_speech", list(options), [*OWN_OPTIONS, *FORWARDED])
    config = read_speech_config(require_folder(folder, "a model of speech"))
    return SpeechModel(config, *compile_pair(config.model, _graphs, mapped, options))


def _graphs() -> tuple[ImportGraph, ImportGraph]:
    from mirlo_llm.generate.checkpoints.whisper import import_speech_decoder, import_speech_encoder

    return import_speech_encoder, import_speech_decoder
