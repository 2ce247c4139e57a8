"""Speech to text: spectra, encoder and decoder as transformers computes them; hostile sound files are refused."""

from __future__ import annotations

import json
import runpy
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mirlo_llm import generate
from mirlo_llm.generate.errors import GenerationError, ModelFolderError
from mirlo_llm.generate.sequences import Sequences
from mirlo_llm.generate.speech.audio import Sound, SpectrumOptions, log_mel, mel_filters, parse_wav, read_wav, resampled
from mirlo_llm.generate.speech.config import SpeechTokens
from mirlo_llm.generate.speech.decoding import TranscriptRules
from repository import ROOT

RATE = 16000
TIMES = 60
"""The first token of times of the tiny models."""


def wav(samples: np.ndarray, rate: int = RATE, kind: int = 1, bits: int = 16, channels: int = 1) -> bytes:
    """Return the content of a WAV file."""
    if kind == 3:
        data = samples.astype(f"<f{bits // 8}").tobytes()
    elif bits == 8:
        data = (samples * 127 + 128).astype(np.uint8).tobytes()
    elif bits == 24:
        whole = (samples * (2**23 - 1)).astype("<i4")
        data = b"".join(struct.pack("<i", int(each))[:3] for each in whole)
    else:
        data = (samples * (2 ** (bits - 1) - 1)).astype(f"<i{bits // 8}").tobytes()
    size = channels * bits // 8
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * size, size, bits)
    parts = b"WAVE" + b"LIST\x03\0\0\0abc\0" + b"fmt " + struct.pack("<I", len(form)) + form
    parts += b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(parts)) + parts


def tone(hertz: float, rate: int, seconds: float = 0.5) -> np.ndarray:
    result: np.ndarray = (np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate) * 0.8).astype(np.float32)
    return result


@pytest.mark.parametrize(("kind", "bits"), [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)])
def test_formats_of_samples(kind: int, bits: int) -> None:
    samples = tone(440, RATE)
    found = parse_wav(wav(samples, kind=kind, bits=bits), "a.wav")
    assert found.rate == RATE and found.seconds == 0.5
    np.testing.assert_allclose(found.samples, samples, atol=0.02 if bits == 8 else 1e-4)
    two = np.stack([samples, -samples], 1).reshape(-1)
    assert abs(parse_wav(wav(two, kind=kind, bits=bits, channels=2), "a.wav").samples).max() < 0.02


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "this is no WAV file: convert it"),
        (b"ID3" + bytes(40), "this is no WAV file: convert it"),
        (wav(tone(1, RATE))[:30], "the file is damaged: it has no format or no samples"),
        (wav(tone(1, RATE), kind=85), "found format 85 of 16 bits"),
        (wav(tone(1, RATE), kind=3, bits=32).replace(struct.pack("<H", 32), struct.pack("<H", 0)), "of 0 bits"),
        (wav(tone(1, RATE), rate=0), "found 1 and 0"),
        (wav(tone(1, RATE), rate=1), "and 1000 to 192000 Hz, found 1 and 1"),
        (wav(tone(1, RATE), channels=65), "found 65 and 16000"),
        (wav(np.array([np.nan]), kind=3, bits=32), "there are samples that are not finite"),
    ],
)
def test_damaged_files(content: bytes, text: str) -> None:
    with pytest.raises(ModelFolderError, match=text):
        parse_wav(content, "a.wav")


def test_any_file_of_sound_is_read_or_refused() -> None:
    random, good = np.random.default_rng(0), wav(tone(100, RATE, 0.01))
    for _ in range(500):
        content = bytearray(good[: random.integers(len(good) + 1)])
        for _ in range(random.integers(4)):
            if content:
                content[random.integers(min(len(content), 60))] = random.integers(256)
        try:
            sound = parse_wav(bytes(content), "a.wav")
        except ModelFolderError:
            continue
        assert np.isfinite(sound.samples).all()


@pytest.mark.parametrize("rate", [8000, 11025, 16001, 22050, 44100, 48000, 191999])
def test_other_rates(rate: int) -> None:
    found = resampled(Sound(tone(1000, rate), rate), RATE)
    assert found.rate == RATE and abs(len(found.samples) - RATE // 2) <= 1
    expected = tone(1000, RATE)[: len(found.samples)]
    np.testing.assert_allclose(found.samples[400:-400], expected[400:-400], atol=1e-4)
    if rate > 20000:  # what the other rate cannot hold is left out
        assert abs(resampled(Sound(tone(9500, rate), rate), RATE).samples[400:-400]).max() < 1e-3


@pytest.mark.parametrize("bands", [80, 128])
def test_spectra(bands: int) -> None:
    transformers = pytest.importorskip("transformers")
    extractor = transformers.WhisperFeatureExtractor(feature_size=bands)
    np.testing.assert_allclose(mel_filters(SpectrumOptions(bands)), extractor.mel_filters.T, atol=1e-12)
    samples = np.concatenate(
        [tone(700, RATE, 1), np.random.default_rng(0).standard_normal(RATE).astype(np.float32) / 9]
    )
    expected = extractor(samples, sampling_rate=RATE, return_tensors="np").input_features[0]
    found = log_mel(np.pad(samples, (0, 30 * RATE - len(samples))), SpectrumOptions(bands))
    np.testing.assert_allclose(found, expected, atol=5e-5)


EXAMPLE = runpy.run_path(str(ROOT / "examples" / "tiny_speech_model.py"))
GENERATION = {
    "decoder_start_token_id": 53, "eos_token_id": 52, "pad_token_id": 52, "lang_to_id": {"<|en|>": 54, "<|de|>": 55},
    "task_to_id": {"translate": 56, "transcribe": 57}, "no_timestamps_token_id": 59, "is_multilingual": True,
    "suppress_tokens": [3, 53, 54, 55, 56, 57, 58], "begin_suppress_tokens": [5, 52], "max_initial_timestamp_index": 7,
}  # fmt: skip


def write_model(folder: Path, seed: int = 0) -> Any:
    """Write a tiny Whisper with random weights and windows of 0.6 s; return transformers' model."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(seed)
    config = transformers.WhisperConfig(
        vocab_size=TIMES + 31, num_mel_bins=80, d_model=16, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=24,
        decoder_ffn_dim=24, encoder_attention_heads=2, decoder_attention_heads=4, max_source_positions=30,
        max_target_positions=40, decoder_start_token_id=53, eos_token_id=52, bos_token_id=52, pad_token_id=52,
        suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    reference = transformers.WhisperForConditionalGeneration._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    reference.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps(GENERATION), encoding="utf-8")
    EXAMPLE["write_tokenizer"](folder)
    return reference


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = EXAMPLE["write"](tmp_path_factory.mktemp("speech"))
    (path / "generation_config.json").write_text(json.dumps(GENERATION), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def model(folder: Path) -> generate.SpeechModel:
    return generate.load_speech(folder, cache=False)


def test_logits(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    reference = write_model(tmp_path, 1)
    model = generate.load_speech(tmp_path, cache=False)
    spectrum = np.random.default_rng(0).standard_normal((80, 60)).astype(np.float32)
    prompt = [53, 54, 57, 60, 7, 9]
    with torch.no_grad():
        expected = reference(
            input_features=torch.from_numpy(spectrum)[None], decoder_input_ids=torch.tensor([prompt])
        ).logits[0].numpy()  # fmt: skip
    sequence = Sequences(model._states(spectrum), 1, 8)
    for begin, end in ((0, 3), (3, 4), (4, 6)):
        sequence.tokens[0].extend(prompt[begin:end])
        (found,) = sequence.logits()
        np.testing.assert_allclose(found, expected[end - 1], rtol=1e-4, atol=1e-4)


def reference_rules(logits: np.ndarray, chosen: list[int]) -> int:
    """Return the token that transformers' own rules choose."""
    import torch
    from transformers import GenerationConfig
    from transformers.generation.logits_process import (
        SuppressTokensAtBeginLogitsProcessor,
        SuppressTokensLogitsProcessor,
        WhisperTimeStampLogitsProcessor,
    )

    config = GenerationConfig(**{**GENERATION, "max_initial_timestamp_index": 7})
    config.no_timestamps_token_id, config.max_initial_timestamp_index = 59, 7
    prompt = [53, 54, 57]
    tokens, scores = torch.tensor([prompt + chosen]), torch.from_numpy(logits)[None]
    for processor in (
        SuppressTokensLogitsProcessor([3, 53, 54, 55, 56, 57, 58]),
        SuppressTokensAtBeginLogitsProcessor([5, 52], begin_index=3),
        WhisperTimeStampLogitsProcessor(config, begin_index=3),
    ):
        scores = processor(tokens, scores)
    return int(scores[0].argmax())


@pytest.mark.sample(0)
def test_rules_of_times(model: generate.SpeechModel) -> None:
    """Random walks: each token is the one that transformers' rules choose."""
    pytest.importorskip("transformers")
    rules, random = TranscriptRules(model.config.tokens, TIMES + 31), np.random.default_rng(0)
    seen = set()
    for _ in range(60):
        chosen: list[int] = []
        while len(chosen) < 12 and (not chosen or chosen[-1] != 52):
            logits = random.standard_normal(TIMES + 31).astype(np.float32) * 3
            logits[TIMES:] += random.choice([-3, 0, 1])
            token, logarithm = rules.choose(logits, chosen)
            assert token == reference_rules(logits, chosen), chosen
            assert logarithm <= 0
            seen.add((token >= TIMES, bool(chosen) and chosen[-1] >= TIMES))
            chosen.append(token)
    assert len(seen) == 4


def test_tokens_of_a_window(model: generate.SpeechModel, folder: Path) -> None:
    """Greedy tokens with times are those of transformers' generation of the same window."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    reference = transformers.WhisperForConditionalGeneration.from_pretrained(folder).eval()
    samples = tone(500, RATE, 0.4) + tone(1300, RATE, 0.4) * 0.3
    spectrum = model._spectrum(Sound(samples, RATE))[:, :60]
    chosen: list[int] = []
    with torch.no_grad():
        states = reference.model.encoder(torch.from_numpy(spectrum)[None])
        for _ in range(37):
            tokens = torch.tensor([[53, 54, 57, *chosen]])
            logits = reference(encoder_outputs=states, decoder_input_ids=tokens).logits[0, -1].numpy()
            token = reference_rules(logits, chosen)
            if token == 52:
                break
            chosen.append(token)
    found, _ = model._tokens(model._states(spectrum), [53, 54, 57])
    assert found == chosen and len(found) > 3


def test_transcripts(model: generate.SpeechModel, tmp_path: Path) -> None:
    """A sound of several windows, from a file of another rate and from samples."""
    samples = np.random.default_rng(3).standard_normal(3 * 8000).astype(np.float32) / 5
    path = tmp_path / "a.wav"
    path.write_bytes(wav(np.clip(samples, -1, 1), 8000, 3, 32))
    listed: list[Any] = []
    found = model.transcribe(path, language="de", on_segment=listed.append)
    assert list(found.segments) == listed and found.language == "de" and found.seconds == 3
    assert all(0 <= each.start <= each.end <= 3.6 for each in listed)
    assert all(a.start <= b.start for a, b in zip(listed, listed[1:], strict=False))
    same = model.transcribe(resampled(read_wav(path), RATE).samples, language="de")
    assert same.segments == found.segments
    assert model.transcribe(path).language == model.detect_language(path) in ("en", "de")
    assert model.transcribe(np.zeros(0, np.float32)).segments == ()


def tokens_of(**more: Any) -> SpeechTokens:
    return SpeechTokens(53, 52, TIMES, 59, 58, {}, {}, (), (), None, **more)


@pytest.mark.parametrize(
    ("tokens", "parts", "frames"),
    [
        ([60, 1, 2, 70], [(0, 10, [1, 2])], 60),
        ([60, 1, 70, 70, 2, 75], [(0, 10, [1]), (10, 15, [2])], 60),
        ([60, 1, 70, 70, 2], [(0, 10, [1])], 20),
        ([62, 1, 70, 72, 2, 75, 76], [(2, 10, [1]), (12, 15, [2])], 30),
        ([60, 1, 2], [(0, 30, [1, 2])], 60),
        ([1], [(0, 30, [1])], 60),
        ([], [(0, 30, [])], 60),
        ([60, 60], [(0, 0, [])], 60),
    ],
)
def test_parts_of_a_window(model: generate.SpeechModel, tokens: list[int], parts: Any, frames: int) -> None:
    """What is after the last pair of times without an end is read again."""
    assert model._parts(tokens, 60) == (parts, frames)


def test_wrong_arguments(model: generate.SpeechModel, tmp_path: Path) -> None:
    samples = tone(100, RATE)
    for arguments, text in (
        ({"language": "dee"}, "language: the model does not know 'dee'; did you mean 'de'"),
        ({"task": "sing"}, "task: expected transcribe or translate, found 'sing'"),
    ):
        with pytest.raises(GenerationError, match=text):
            model.transcribe(samples, **arguments)
    for wrong in (samples.reshape(2, -1), samples.astype(np.int16), samples * np.float32(np.nan)):
        with pytest.raises(GenerationError, match="sound: expected finite samples in one dim of floats"):
            model.transcribe(wrong)
    with pytest.raises(ModelFolderError, match="No such file"):
        model.transcribe(tmp_path / "none.wav")
    with pytest.raises(ModelFolderError, match="there is no such folder"):
        generate.load_speech(tmp_path / "none")


@pytest.mark.sample(0)
def test_models_of_one_language(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "english")
    own = {key: value for key, value in GENERATION.items() if key not in ("lang_to_id", "task_to_id")}
    (tmp_path / "english" / "generation_config.json").write_text(json.dumps(own), encoding="utf-8")
    english, samples = generate.load_speech(tmp_path / "english", cache=False), tone(100, RATE)
    assert english.transcribe(samples, language="en").text == english.transcribe(samples).text
    with pytest.raises(GenerationError, match="language: .*english knows one language, en, found 'de'"):
        english.transcribe(samples, language="de")


ERRORS: dict[str, tuple[str, Any, str]] = {
    "kind": ("config.json", {"model_type": "bert"}, "'bert' is not a model of speech that is read: whisper is"),
    "heads": ("config.json", {"encoder_attention_heads": 3}, "16 elements do not divide into 3 heads"),
    "function": ("config.json", {"activation_function": "sin"}, "'activation_function': expected one of silu"),
    "sizes": ("config.json", {"encoder_ffn_dim": 20}, r"expected \[20, 16\] of f32, f16 or bf16"),
    "layers": ("config.json", {"decoder_layers": 1}, "tensors are not those of the architecture"),
    "language": ("generation_config.json", {"lang_to_id": {"<|en|>": 999}}, "expected a token below 91, found 999"),
    "bands": ("preprocessor_config.json", {"feature_size": 40}, "expected 80, as num_mel_bins of config.json says"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_damaged_folders(name: str, folder: Path, tmp_path: Path) -> None:
    file, change, text = ERRORS[name]
    for each in folder.iterdir():
        (tmp_path / each.name).write_bytes(each.read_bytes())
    path = tmp_path / file
    given = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**given, **change}), encoding="utf-8")
    with pytest.raises(ModelFolderError, match=text):
        generate.load_speech(tmp_path)
