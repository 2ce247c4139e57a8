"""Times of words: heads that see the sound aligned as transformers aligns them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mirlo_llm import generate
from mirlo_llm.generate.errors import GenerationError, ModelFolderError
from mirlo_llm.generate.speech.alignment import filter_medians, first_times, token_ends
from mirlo_llm.generate.speech.audio import Sound
from mirlo_llm.generate.speech.formats import as_object, as_srt, as_vtt
from mirlo_llm.generate.speech.words import split_words
from test_speech import EXAMPLE, GENERATION, RATE, write_model

HEADS = [[0, 1], [1, 2], [1, 0]]


def times_of_transformers(costs: np.ndarray) -> np.ndarray:
    """Return where each row begins, from the path that transformers finds."""
    from transformers.models.whisper.generation_whisper import _dynamic_time_warping

    rows, times = _dynamic_time_warping(costs)
    begins: np.ndarray = times[np.pad(np.diff(rows), (1, 0), constant_values=1).astype(bool)]
    return begins


def test_paths() -> None:
    pytest.importorskip("transformers")
    random = np.random.default_rng(0)
    for _ in range(60):
        rows, times = random.integers(1, 12, 2)
        costs = random.standard_normal((rows, times))
        if random.integers(2):  # equal totals
            costs = costs.round()
        np.testing.assert_array_equal(first_times(costs), times_of_transformers(costs))


@pytest.mark.parametrize("width", [1, 3, 7])
def test_medians(width: int) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from transformers.models.whisper.generation_whisper import _median_filter

    random = np.random.default_rng(0)
    for times in (1, 3, 4, 20):
        values = random.standard_normal((2, 5, times)).astype(np.float32)
        expected = _median_filter(torch.from_numpy(values)[None], width)[0].numpy()
        np.testing.assert_array_equal(filter_medians(values, width), expected)


def test_one_token_ends_at_the_beginning() -> None:
    """All weights of one token equal their mean."""
    random = np.random.default_rng(0)
    queries, keys = (random.standard_normal((2, count, 8)).astype(np.float32) for count in (1, 9))
    assert token_ends(queries, keys, 7).tolist() == [0] and token_ends(queries[:, :0], keys, 7).tolist() == []


class ByteTokenizer:
    """A tokenizer whose tokens are pieces of text in UTF-8, as transformers calls one."""

    eos_token_id = 1 << 30

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces

    def decode(self, tokens: Sequence[int], decode_with_timestamps: bool = False) -> str:
        return b"".join(self.pieces[token] for token in tokens).decode("utf-8", "replace")


TEXTS = (
    " Hello, world! It's (really) fine.", ' He said "no" - twice...', "¿Qué? ¡Sí!", " a\N{REPLACEMENT CHARACTER}b c",
    "東京へ行きます。", " naïve café 🙂🙂 ok", " [x] {y} 'z'", "", " .", "abc", ' ("',
)  # fmt: skip


@pytest.mark.parametrize(("language", "name"), [("en", "english"), ("ja", "japanese"), ("yue", "cantonese")])
def test_words_are_those_of_transformers(language: str, name: str) -> None:
    pytest.importorskip("transformers")
    from transformers.models.whisper.tokenization_whisper import _combine_tokens_into_words

    random = np.random.default_rng(0)
    for text in TEXTS * 4:
        content = text.encode()
        cuts = [0, *sorted(set(random.integers(1, len(content), len(content) // 2).tolist())), len(content)]
        tokenizer = ByteTokenizer([content[a:b] for a, b in zip(cuts, cuts[1:], strict=False)] if content else [])
        tokens = list(range(len(tokenizer.pieces)))
        words, _, indices = _combine_tokens_into_words(tokenizer, tokens, name)
        parts = split_words(tokens, language, tokenizer.decode)
        assert [part.text for part in parts] == words
        assert [[*range(part.first, part.last + 1)] for part in parts] == indices


@pytest.mark.parametrize(
    ("text", "language", "words"),
    [
        (TEXTS[0], "en", [" Hello", ", world!", " It's (really)", " fine."]),
        (TEXTS[1], "en", [" He said", ' "no', '" ', "- twice..."]),
        (TEXTS[5], "en", [" naïve café 🙂🙂", " ok"]),
        (TEXTS[4], "ja", ["東京", "へ行", "きま", "す。"]),
    ],
)
def test_words_that_were_recorded(text: str, language: str, words: list[str]) -> None:
    """Tokens of two bytes, as transformers 4.57 divides them."""
    content = text.encode()
    tokenizer = ByteTokenizer([content[at : at + 2] for at in range(0, len(content), 2)])
    parts = split_words(range(len(tokenizer.pieces)), language, tokenizer.decode)
    assert [part.text for part in parts] == words
    assert [part.first for part in parts[1:]] == [part.last + 1 for part in parts[:-1]]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = EXAMPLE["write"](tmp_path_factory.mktemp("example"))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    path = tmp_path_factory.mktemp("words")
    write_model(path, 3).save_pretrained(path)
    (path / "generation_config.json").write_text(json.dumps({**GENERATION, "alignment_heads": HEADS}), encoding="utf-8")
    return path


def test_times(folder: Path) -> None:
    """Segments and words of several windows are those that transformers' own loop over windows finds."""
    import torch
    import transformers

    reference = transformers.WhisperForConditionalGeneration.from_pretrained(
        folder, attn_implementation="eager"
    ).eval()  # fmt: skip
    model = generate.load_speech(folder, cache=False)
    samples = np.random.default_rng(3).standard_normal(2 * RATE).astype(np.float32) / 5
    spectrum = model._spectrum(Sound(samples, RATE))[:, : 2 * RATE // 160]
    expected = reference.generate(
        torch.from_numpy(np.ascontiguousarray(spectrum))[None],
        attention_mask=torch.ones(1, spectrum.shape[1], dtype=torch.long),
        language="en", task="transcribe", return_timestamps=True, return_token_timestamps=True, return_segments=True,
        max_new_tokens=37,
    )["segments"][0]  # fmt: skip
    transcript = model.transcribe(samples, language="en", words=True)
    before = 0.0
    compared = 0
    for theirs, ours in zip(expected, transcript.segments, strict=False):
        if ours.start + 0.6 > 2:  # transformers hears no silence after the end
            break
        tokens, ends = theirs["tokens"].tolist(), theirs["token_timestamps"].tolist()
        texts = [i for i, token in enumerate(tokens) if token < 60]
        assert [tokens[i] for i in texts] == list(ours.tokens)
        times = [(ends[i - 1] if i else before, ends[i]) for i in texts]
        np.testing.assert_allclose([(word.start, word.end) for word in ours.words], times, atol=1e-4)
        before = ends[-1]
        compared += len(times)
    assert compared > 20 and transcript.words[0] == transcript.segments[0].words[0]
    assert "".join(word.text for word in transcript.words) == "".join(each.text for each in transcript.segments)


RECORDED = (
    ((0.06, 5), (0.2, 1), (0.26, 24), (0.48, 6)),
    ((0.6, 3), (0.76, 2), (0.84, 3), (0.86, 7), (0.9, 2), (1.04, 2), (1.06, 15), (1.18, 2)),
)
"""When the words of the first two windows of the example end, and how many at the same time, by transformers 4.57."""


@pytest.mark.sample(0)
def test_times_that_were_recorded(example: Path) -> None:
    """Windows whose tokens are as many as the model takes: the last one ends with the one before."""
    transcript = generate.load_speech(example, cache=False).transcribe(example / "sound.wav", language="en", words=True)
    for segment, ends in zip(transcript.segments, RECORDED, strict=False):
        times = [time for time, count in ends for _ in range(count)]
        np.testing.assert_allclose([word.end for word in segment.words], times, atol=1e-6)
        np.testing.assert_allclose([word.start for word in segment.words][1:], times[:-1], atol=1e-6)
        assert "".join(word.text for word in segment.words) == segment.text


@pytest.mark.sample(0)
def test_forms(example: Path) -> None:
    model = generate.load_speech(example, cache=False)
    samples = np.random.default_rng(3).standard_normal(RATE // 2).astype(np.float32)
    transcript, plain = (model.transcribe(samples, language="de", words=words) for words in (True, False))
    assert plain.words == () and "words" not in as_object(plain)
    assert [each.tokens for each in plain.segments] == [each.tokens for each in transcript.segments]
    listed: Any = as_object(transcript)["words"]
    assert [each["word"] for each in listed] == [word.text.strip() for word in transcript.words]
    assert all(each["start"] <= each["end"] <= 0.5 for each in listed) and len(listed) > 3
    assert as_srt(transcript).count(" --> ") == as_vtt(transcript).count(" --> ") == len(transcript.words)


def changed(folder: Path, to: Path, file: str, **values: Any) -> Path:
    """Copy a folder, with other values in one of its files."""
    for each in folder.iterdir():
        (to / each.name).write_bytes(each.read_bytes())
    old = json.loads((folder / file).read_text(encoding="utf-8"))
    (to / file).write_text(json.dumps({**old, **values}), encoding="utf-8")
    return to


@pytest.mark.parametrize("heads", [5, [], [[0]], [[0, 4]], [[2, 0]], [[0, -1]], [[0, True]], [[0, 1.0]], [[0, 1]] * 9])
def test_damaged_heads(heads: Any, example: Path, tmp_path: Path) -> None:
    changed(example, tmp_path, "generation_config.json", alignment_heads=heads)
    with pytest.raises(ModelFolderError, match="'alignment_heads': expected a list of pairs: a layer below 2"):
        generate.load_speech(tmp_path)


@pytest.mark.parametrize(("width", "text"), [(4, "expected an odd number"), (0, "expected")])
def test_damaged_width(width: int, text: str, example: Path, tmp_path: Path) -> None:
    changed(example, tmp_path, "config.json", median_filter_width=width)
    with pytest.raises(ModelFolderError, match=f"'median_filter_width': {text}"):
        generate.load_speech(tmp_path)


@pytest.mark.sample(0)
def test_models_without_heads_for_it(example: Path, tmp_path: Path) -> None:
    changed(example, tmp_path, "generation_config.json", alignment_heads=None)
    model = generate.load_speech(tmp_path, cache=False)
    with pytest.raises(GenerationError, match=r"generation_config.json: times of words need 'alignment_heads'"):
        model.transcribe(np.zeros(RATE, np.float32), words=True)
