"""Images in conversations over HTTP."""

from __future__ import annotations

import base64
import io
import runpy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from repository import ROOT

for package in ("starlette", "tokenizers", "jinja2", "PIL"):
    pytest.importorskip(package)
pytest.importorskip("starlette.testclient")

from mirlo_llm import generate  # noqa: E402
from mirlo_llm.serve.application import Server  # noqa: E402
from mirlo_llm.serve.errors import ServeError  # noqa: E402
from mirlo_llm.serve.options import ModelSource, ServeOptions, parse_models  # noqa: E402
from served import load_failure, ready_client  # noqa: E402

write = runpy.run_path(str(ROOT / "examples" / "tiny_image_model.py"))["write"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = write(tmp_path_factory.mktemp("served") / "pictures")
    return path


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Any]:
    with ready_client(Server([ModelSource("pictures", folder)], ServeOptions(slots=2))) as client:
        yield client


def ask(client: Any, url: str, text: str = "w1") -> Any:
    parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}]
    messages = [{"role": "user", "content": parts}]
    return client.post("/v1/chat/completions", json={"model": "pictures", "messages": messages, "max_tokens": 6})


def test_answers_are_those_of_the_model(client: Any, folder: Path) -> None:
    content = (folder / "image.png").read_bytes()
    answer = ask(client, f"data:image/png;base64,{base64.b64encode(content).decode()}").json()
    parts = [{"type": "text", "text": "w1"}, {"type": "image", "image": content}]
    model = generate.load(folder)
    tokens = model.chat_tokens([{"role": "user", "content": parts}])
    assert answer["choices"][0]["message"]["content"] == "".join(model.generator(max_new_tokens=6).stream(tokens))
    assert answer["usage"]["prompt_tokens"] == len(tokens) > 16
    # Tokens of an image that another request has sent are none of this one.
    wrong = client.post("/v1/completions", json={"model": "pictures", "prompt": [1, 65], "max_tokens": 2})
    assert wrong.status_code == 400 and "a token must be from 0 to 64, found 65" in wrong.json()["error"]["message"]


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://example.org/image.png", "the server fetches no images from other addresses"),
        ("file:///etc/passwd", "the server fetches no images from other addresses"),
        ("data:image/png;base64,AAAA", "the image cannot be decoded"),
        ("data:image/png;base64,AAA", "the data are no base64"),
    ],
)
def test_images_that_are_refused(client: Any, url: str, text: str) -> None:
    answer = ask(client, url)
    assert answer.status_code == 400 and text in answer.json()["error"]["message"]


@pytest.mark.sample(0)
def test_images_of_any_size(tmp_path: Path) -> None:
    """Conversations that run together, with images of other sizes, are answered as alone."""
    from grid_models import write_grid_model
    from PIL import Image

    folder = write_grid_model(tmp_path / "grids")
    model, random, contents = generate.load(folder), np.random.default_rng(0), list[bytes]()
    for shape in ((30, 40, 3), (50, 21, 3)):
        file = io.BytesIO()
        Image.fromarray(random.integers(0, 256, shape).astype(np.uint8)).save(file, "PNG")
        contents.append(file.getvalue())
    urls = [f"data:image/png;base64,{base64.b64encode(content).decode()}" for content in contents]
    server = Server([ModelSource("pictures", folder)], ServeOptions(slots=2))
    with ready_client(server) as client, ThreadPoolExecutor(2) as pool:
        answers = [answer.json() for answer in pool.map(lambda url: ask(client, url), urls * 2)]
    for answer, content in zip(answers, contents * 2, strict=True):
        parts = [{"type": "text", "text": "w1"}, {"type": "image", "image": content}]
        tokens = model.chat_tokens([{"role": "user", "content": parts}])
        assert answer["choices"][0]["message"]["content"] == "".join(model.generator(max_new_tokens=6).stream(tokens))
        assert answer["usage"]["prompt_tokens"] == len(tokens)


@pytest.mark.sample(0)
def test_a_gguf_file_with_an_encoder_of_images(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    from grid_models import TEMPLATE
    from mmproj_files import GRID_AROUND, write_grid_files

    begin, end, image = GRID_AROUND
    template = TEMPLATE.replace("<s> <image> </s>", f"{begin}{image}{end}")
    text, encoder = write_grid_files(tmp_path, **{"tokenizer.chat_template": template})
    content = (tmp_path / "image.png").read_bytes()
    sources = parse_models([f"pictures={text},mmproj={encoder}"])
    with ready_client(Server(sources, ServeOptions(slots=2))) as client:
        answer = ask(client, f"data:image/png;base64,{base64.b64encode(content).decode()}", "A").json()
    parts = [{"type": "text", "text": "A"}, {"type": "image", "image": content}]
    model = generate.load(text, mmproj=encoder)
    tokens = model.chat_tokens([{"role": "user", "content": parts}])
    assert answer["choices"][0]["message"]["content"] == "".join(model.generator(max_new_tokens=6).stream(tokens))
    assert answer["usage"]["prompt_tokens"] == len(tokens) > 16


@pytest.mark.sample(0)
def test_encoders_of_images_that_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ServeError, match="no.gguf: there is no such file or folder"):
        parse_models([f"{folder},mmproj={tmp_path / 'no.gguf'}"])
    with pytest.raises(ServeError, match=",mmproj=: there is no such file or folder"):
        parse_models([f"{folder},mmproj="])
    server = Server(parse_models([f"{folder},mmproj={folder / 'config.json'}"]), ServeOptions())
    assert "pictures: mmproj is for GGUF files of language models" in load_failure(server)
