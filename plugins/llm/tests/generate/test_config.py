"""Configurations of folders: what is read, and that hostile ones are errors that name file and key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folders import write_genai, write_plain
from mirlo_llm import generate
from mirlo_llm.generate import ModelFolderError, read_config

from mirlo.extend.runtime import MirloError


def edited(folder: Path, file: str, key: str, value: Any) -> Path:
    """Change one value of a JSON file; `key` is a path with dots, the value `...` removes it."""
    path = folder / file
    content = json.loads(path.read_text()) if path.exists() else {}
    *outer, last = key.split(".")
    place = content
    for name in outer:
        place = place.setdefault(name, {})
    if value is ...:
        place.pop(last, None)
    else:
        place[last] = value
    path.write_text(json.dumps(content))
    return folder


@pytest.fixture
def genai(tmp_path: Path) -> Path:
    return write_genai(tmp_path / "genai")


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return write_plain(tmp_path / "plain")


def test_what_is_read(genai: Path) -> None:
    edited(genai, "genai_config.json", "model.eos_token_id", [5, 6])
    edited(genai, "genai_config.json", "search", {"do_sample": True, "top_k": 7, "random_seed": -1, "other": {}})
    config = read_config(genai)
    assert (config.kind, config.ends, config.start, config.pad, config.context) == ("llama", (5, 6), 0, 1, 2048)
    assert config.search.do_sample and config.search.top_k == 7 and config.search.seed is None
    assert config.names.caches is not None and config.names.caches["past_key_values.1.value"] == "present.1.value"


def test_what_is_read_of_a_plain_export(plain: Path) -> None:
    edited(plain, "generation_config.json", "eos_token_id", [3, 4])
    edited(plain, "generation_config.json", "temperature", 0.5)
    config = read_config(plain)
    assert (config.ends, config.context, config.search.temperature) == ((3, 4), 256, 0.5)
    assert config.model == plain / "onnx" / "model.onnx" and config.names.pads_left


HOSTILE: list[tuple[str, Any, str]] = [
    ("model", [], "'model': expected an object, found \\[\\]"),
    ("model.decoder", "x", "'model.decoder': expected an object"),
    ("model.decoder", ..., "'model.decoder.num_hidden_layers' .* is missing"),
    ("model.decoder.num_hidden_layers", 10**9, "'model.decoder.num_hidden_layers': expected an integer from 1 to 4096"),
    ("model.decoder.num_hidden_layers", True, "expected an integer from 1"),
    ("model.decoder.num_hidden_layers", -1, "expected an integer from 1"),
    ("model.decoder.num_hidden_layers", 3, "no input is named 'past_key_values.2.key'"),
    (
        "model.decoder.filename",
        "../../etc/passwd",
        "'model.decoder.filename': expected the name of a file in the folder",
    ),
    ("model.decoder.filename", "/etc/passwd", "expected the name of a file in the folder"),
    ("model.decoder.filename", "a/../../b", "expected the name of a file in the folder"),
    ("model.decoder.filename", "no\u0000.onnx", "expected the name of a file in the folder"),
    ("model.decoder.filename", "missing.onnx", "'model.decoder.filename': there is no file"),
    ("model.decoder.filename", 3, "'model.decoder.filename': expected text, found 3"),
    ("model.decoder.inputs.past_key_names", "past_key", "expected names with one %d"),
    ("model.decoder.inputs.past_key_names", "%d%s", "expected names with one %d"),
    ("model.decoder.inputs.past_key_names", "%d.%d", "expected names with one %d"),
    ("model.decoder.inputs.past_key_names", "other.%d", "no input is named 'other.0'"),
    ("model.decoder.inputs.input_ids", "tokens", "no input is named 'tokens'"),
    ("model.decoder.outputs.logits", "scores", "no output is named 'scores'"),
    ("model.decoder.outputs.present_key_names", "logits%d", "no output is named 'logits0'"),
    ("model.decoder.inputs.attention_mask", "mask", "input attention_mask: .* is not known"),
    ("model.decoder.pipeline", [{}], "'model.decoder.pipeline': decoders in several files are not supported"),
    ("model.decoder.sliding_window", {"window_size": 8}, "'model.decoder.sliding_window.slide_inputs': windows that"),
    ("model.decoder.sliding_window", {"slide_inputs": False}, "'.*slide_key_value_cache': windows that the caller"),
    ("model.decoder.sliding_window", {"slide_inputs": 0}, "'.*slide_inputs': expected true or false, found 0"),
    ("model.vision", {"filename": "x"}, "'model.vision': only models with a decoder alone"),
    ("model.encoder", {}, "'model.encoder': only models with a decoder alone"),
    ("model.eos_token_id", "end", "'model.eos_token_id': expected a token or a list of tokens"),
    ("model.eos_token_id", [1, -2], "'model.eos_token_id': expected a token or a list of tokens"),
    ("model.eos_token_id", 2.5, "expected a token or a list of tokens"),
    ("model.context_length", -5, "'model.context_length': expected an integer from 0"),
    ("model.type", {}, "'model.type': expected text"),
    ("search.temperature", -1, "'search': temperature: expected 0 or more"),
    ("search.temperature", "hot", "'search.temperature': expected a finite number"),
    ("search.top_k", 1.5, "'search.top_k': expected an integer"),
    ("search.num_return_sequences", 4, "'search.num_return_sequences': only 1 is supported, found 4"),
    ("search.num_beams", 0, "'search': num_beams: expected 1 to 256, found 0"),
    ("search.num_beams", 10**6, "'search': num_beams: expected 1 to 256"),
    ("search", 5, "'search': expected an object, found 5"),
]


@pytest.mark.sample(10)
@pytest.mark.parametrize(("key", "value", "message"), HOSTILE)
def test_hostile_configurations(genai: Path, key: str, value: Any, message: str) -> None:
    edited(genai, "genai_config.json", key, value)
    with pytest.raises(ModelFolderError, match=message) as raised:
        generate.load(genai)
    assert "genai_config.json" in str(raised.value) or "model.onnx" in str(raised.value)


@pytest.mark.sample(2)
@pytest.mark.parametrize("key", ("model.eos_token_id", "model.pad_token_id"))
def test_tokens_outside_of_the_vocabulary(genai: Path, key: str) -> None:
    edited(genai, "genai_config.json", key, 2**31 - 1)
    with pytest.raises(ModelFolderError, match=r"genai_config.json: .* 2147483647 is not a token: the model has 320"):
        generate.load(genai)


@pytest.mark.parametrize(
    ("content", "message"),
    (
        (b"{", "not a JSON file"),
        (b"[1]", "expected a JSON object, found a list"),
        (b"[" * 100_000, "not a JSON file"),
        (b"\xff\xfe{}", "not a JSON file"),
        (b'{"model": NaN}', "'model': expected an object"),
    ),
)
def test_hostile_files(genai: Path, content: bytes, message: str) -> None:
    (genai / "genai_config.json").write_bytes(content)
    with pytest.raises(ModelFolderError, match=message):
        read_config(genai)


def test_a_configuration_that_is_a_folder_or_too_large(genai: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mirlo_llm.generate import json_file

    path = genai / "genai_config.json"
    with pytest.raises(ModelFolderError, match="the file has more than 0 MiB"):
        json_file.read_bytes(path, 10)
    path.unlink(), path.mkdir()
    with pytest.raises(ModelFolderError, match="[Ii]s a directory"):
        read_config(genai)


def remove_caches(folder: Path) -> None:
    import onnx
    from folders import plain_model

    model = plain_model()
    for each in model.graph.input:
        if each.name.startswith("past"):
            each.name = each.name.replace("past_key_values", "cache")
    for node in model.graph.node:
        node.input[:] = [name.replace("past_key_values", "cache") for name in node.input]
    onnx.save(model, folder / "onnx" / "model.onnx")


PLAIN: list[tuple[Callable[[Path], Any], str]] = [
    (lambda f: (f / "onnx" / "model.onnx").unlink(), "expected one of model.onnx, .*, found none"),
    (
        lambda f: edited(f, "config.json", "is_encoder_decoder", True),
        "'is_encoder_decoder': only models with a decoder",
    ),
    (lambda f: edited(f, "config.json", "eos_token_id", {}), "'eos_token_id': expected a token"),
    (lambda f: edited(f, "config.json", "text_config", []), "'text_config': expected an object"),
    (
        lambda f: edited(f, "generation_config.json", "top_p", 0),
        "generation_config.json: '': top_p: expected more than 0",
    ),
    (lambda f: edited(f, "generation_config.json", "num_beam_groups", 3), "'num_beam_groups': only 1 is"),
    (remove_caches, "no input is a cache, such as past_key_values.0.key"),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("change", "message"), PLAIN)
def test_hostile_plain_folders(plain: Path, change: Callable[[Path], Any], message: str) -> None:
    change(plain)
    with pytest.raises(MirloError, match=message):
        generate.load(plain)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match="there is no such folder"):
        read_config(tmp_path / "nothing")
    with pytest.raises(ModelFolderError, match=r"neither genai_config.json nor config.json is there"):
        read_config(tmp_path)


def refusal(path: Path) -> str:
    with pytest.raises(ModelFolderError) as caught:
        read_config(path)
    return str(caught.value)


def test_files_in_the_place_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors say what a file is and what to do."""
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    for name, content, text in (
        (
            "a.gguf",
            b"GGUX" + bytes(60),
            "the file is damaged: expected a GGUF file, which begins with b'GGUF'; it begins with",
        ),
        ("empty.gguf", b"", "expected a GGUF file, which begins with b'GGUF'; it is empty"),
        ("b.gguf", pointer, "a pointer of git-lfs, its content was not downloaded: git -C"),
        ("model.safetensors", bytes(16), "this is a file of a model: pass the folder with its"),
        ("c.bin", b"x", "this is a file: pass the folder of a language model"),
    ):
        (tmp_path / name).write_bytes(content)
        assert text in refusal(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert "download it: hf download acme/llama-8b --local-dir llama-8b" in refusal(Path("acme/llama-8b"))
    assert refusal(tmp_path / "none").endswith(
        "there is no such folder: pass the folder of a language model, or a GGUF file"
    )
    sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    config = {"model_type": "llama", **dict.fromkeys(sizes, 8), "num_attention_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(pointer)
    with pytest.raises(ModelFolderError, match="a pointer of git-lfs"):
        generate.load(tmp_path, cache=False)
    (tmp_path / "a.gguf").write_bytes(b"GGUF" + bytes(60))
    with pytest.raises(ModelFolderError, match="a GGUF file is read as a language model or an embedding model"):
        generate.load_speech(tmp_path / "a.gguf")
