"""Transcripts over HTTP."""

from __future__ import annotations

import runpy
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

for package in ("starlette", "tokenizers", "jinja2", "python_multipart"):
    pytest.importorskip(package)
pytest.importorskip("starlette.testclient")

from mirlo_llm import generate  # noqa: E402
from mirlo_llm.generate.speech.formats import as_object, as_srt, as_vtt  # noqa: E402
from mirlo_llm.serve.application import Server  # noqa: E402
from mirlo_llm.serve.options import ModelSource, ServeOptions  # noqa: E402
from served import ready_client, write_tensor_model  # noqa: E402

write = runpy.run_path(str(ROOT / "examples" / "tiny_speech_model.py"))["write"]


HEADER = b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8) + b"data\xff\xff\xff\xff"
"""Of sound with 8 bits a sample, whose length is not known."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = write(tmp_path_factory.mktemp("served") / "speech")
    return path


@pytest.fixture(scope="module")
def expected(folder: Path) -> generate.Transcript:
    return generate.load_speech(folder).transcribe(folder / "sound.wav", language="en")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Any]:
    sources = [ModelSource("speech", folder), ModelSource("sum", write_tensor_model(folder.parent / "sum.onnx"))]
    with ready_client(Server(sources, ServeOptions(max_body=8 << 20))) as client:
        yield client


def post(client: Any, content: bytes, path: str = "transcriptions", **fields: str | list[str]) -> Any:
    data = {"model": "speech", "language": "en", **fields}
    return client.post(f"/v1/audio/{path}", data=data, files={"file": ("a.wav", content, "audio/wav")})


def test_forms(client: Any, folder: Path, expected: generate.Transcript) -> None:
    content = (folder / "sound.wav").read_bytes()
    assert len(expected.segments) > 2
    assert post(client, content).json() == {"text": expected.text}
    answer = post(client, content, response_format="verbose_json").json()
    assert answer == {"task": "transcribe", **as_object(expected), "segments": answer["segments"]}
    assert [each["text"] for each in answer["segments"]] == [each.text for each in expected.segments]
    for name, text in (("text", f"{expected.text}\n"), ("srt", as_srt(expected)), ("vtt", as_vtt(expected))):
        answer = post(client, content, response_format=name)
        assert answer.text == text and answer.headers["content-type"].startswith("text/")
    translated = post(client, content, "translations", response_format="verbose_json").json()
    assert translated["task"] == "translate" and translated["duration"] == 2
    assert client.get("/v2/models/speech").json()["platform"] == "mirlo_speech_model"


@pytest.mark.sample(0)
def test_times_of_words(client: Any, folder: Path) -> None:
    """Words and segments are in verbose JSON as the form asks for them."""
    content = (folder / "sound.wav").read_bytes()
    expected = generate.load_speech(folder).transcribe(folder / "sound.wav", language="en", words=True)
    for parts in (["word"], ["segment", "word"], ["segment"]):
        answer = post(
            client, content, response_format="verbose_json", **{"timestamp_granularities[]": parts}
        ).json()  # fmt: skip
        assert [part for part in ("segment", "word") if f"{part}s" in answer] == parts
        if "word" in parts:
            assert answer["words"] == as_object(expected)["words"] and len(answer["words"]) > 3


@pytest.mark.parametrize(
    ("content", "fields", "status", "text"),
    [
        (b"RIFF", {}, 400, "this is no WAV file"),
        (None, {"language": "fr"}, 400, "the model does not know 'fr'"),
        (None, {"response_format": "xml"}, 400, "response_format: expected one of json, text"),
        (None, {"prompt": "names"}, 400, "prompt: it is not supported"),
        (None, {"temperature": "0.5"}, 400, "temperature: it is not supported"),
        (None, {"timestamp_granularities[]": "word"}, 400, "it needs the response_format verbose_json, found json"),
        (
            None,
            {"timestamp_granularities[]": "letter", "response_format": "verbose_json"},
            400,
            "timestamp_granularities[]: expected segment or word, found 'letter'",
        ),
        (None, {"timestamp_granularities": "word"}, 400, "timestamp_granularities: this field is not known"),
        (None, {"langage": "en"}, 400, "langage: this field is not known"),
        (None, {"model": "none"}, 404, "there is no model 'none'"),
        (None, {"model": "sum"}, 400, "model 'sum' is no model of speech"),
        (bytes(9 << 20), {}, 413, "the body is too large"),
        (
            HEADER.replace(struct.pack("<I", 8000), struct.pack("<I", 1000)) + bytes(7300 * 1000),
            {},
            400,
            "file: the sound is longer than 2 hours",
        ),
    ],
)
def test_wrong_forms(
    client: Any, folder: Path, content: bytes | None, fields: dict[str, str | list[str]], status: int, text: str
) -> None:
    answer = post(client, (folder / "sound.wav").read_bytes() if content is None else content, **fields)
    assert answer.status_code == status and text in answer.json()["error"]["message"], answer.text


@pytest.mark.sample(0)
def test_wrong_bodies(client: Any) -> None:
    path = "/v1/audio/transcriptions"
    for body, status, text in (
        ({"json": {"model": "speech"}}, 415, "expected multipart/form-data with a file"),
        ({"files": {"model": (None, "speech")}}, 400, "file: expected a sound file"),
        ({"content": b"--x\r\nbroken", "headers": {"content-type": "multipart/form-data; boundary=x"}}, 400, ""),
        ({"content": b"a", "headers": {"content-type": "multipart/form-data"}}, 400, "the body is no form"),
        ({"files": [("file", b"a"), ("file", b"b")], "data": {"model": "speech"}}, 400, "the body is no form"),
    ):
        answer = client.post(path, **body)
        assert answer.status_code == status and text in answer.json()["error"]["message"], answer.text
