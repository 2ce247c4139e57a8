"""Keys and values of a served model in pages: answers stay the same, and models without pages are refused."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

for package in ("starlette", "tokenizers", "jinja2"):
    pytest.importorskip(package)
pytest.importorskip("starlette.testclient")

from mirlo_llm import generate  # noqa: E402
from mirlo_llm.generate import GenerationError  # noqa: E402
from mirlo_llm.serve.application import Server  # noqa: E402
from mirlo_llm.serve.errors import ServeError  # noqa: E402
from mirlo_llm.serve.options import ServeOptions, parse_models  # noqa: E402
from served import load_failure, ready_client, write_language_model, write_tensor_model  # noqa: E402

TOKENS = ([3, 4, 5] * 3, [7, 8], [9, 10, 11, 12], [3, 4, 5] * 3 + [9])
PROMPTS = ("the fox the fox the fox the", "a dog", "the quick brown fox", "the fox the fox the fox a")


def completions(client: Any, prompts: Sequence[object], count: int) -> list[str]:
    body = {"model": "tiny", "prompt": list(prompts), "max_tokens": count, "temperature": 0}
    answer = client.post("/v1/completions", json=body).json()
    assert "choices" in answer, answer
    return [choice["text"] for choice in answer["choices"]]


def test_answers_in_few_pages(tmp_path: Path) -> None:
    """More requests than the pages hold wait for each other; each gets the answer that it would get alone."""
    folder = write_language_model(tmp_path / "tiny", paged=True)
    model = generate.load(folder)
    expected = ["".join(model.generator(max_new_tokens=30).stream(prompt)) for prompt in PROMPTS]
    sizes = []
    for pages in (3, 6):
        with ready_client(Server(parse_models([str(folder)]), ServeOptions(slots=4, pages=pages))) as client:
            assert completions(client, PROMPTS, 30) == expected
            (size,) = re.findall(r'^mirlo_model_bytes{model="tiny"} (\S+)$', client.get("/metrics").text, re.M)
            sizes.append(float(size))
            backend = next(iter(client.app.state.pool.loaded)).backend
            pool = backend.model._decoder.pool
            assert pool.limit == pages and pool.used <= pages
            assert backend.longest == pages * pool.page_rows  # no longer than all pages
    assert sizes[1] - sizes[0] == 3 * pool.page_bytes


def test_models_by_the_code_of_transformers(tmp_path: Path) -> None:
    pytest.importorskip("mirlo.benchmarks", reason="needs a clone of the repository")
    pytest.importorskip("torch"), pytest.importorskip("transformers")
    from mirlo.benchmarks.llm.architectures import tiny_model

    example, folder = write_language_model(tmp_path / "example"), tmp_path / "tiny"
    tiny_model("qwen3").save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(example / name, folder / name)
    answers = []
    for pages in (None, 4):
        options = ServeOptions(slots=4, max_tokens=64, max_prompt_tokens=64, model_impl="transformers", pages=pages)
        with ready_client(Server(parse_models([str(folder)]), options)) as client:
            answers.append(completions(client, TOKENS, 20))
            backend = next(iter(client.app.state.pool.loaded)).backend
            assert bool(backend.model.executable.artifact.pages) == (pages is not None)
    assert answers[0] == answers[1] and any(answers[0])
    source = parse_models([str(folder)])
    with pytest.raises(GenerationError, match="only PagedAttention, and models by the code of transformers"):
        Server(source, ServeOptions(pages=4))
    from gguf_files import write_model

    file = write_model(tmp_path / "tiny.gguf", tiny_model("qwen3"), "qwen3")
    with pytest.raises(GenerationError, match="GGUF files have no such code, the folder of safetensors may"):
        Server(parse_models([str(file)]), ServeOptions(pages=4))
    tiny_model("lfm2").save_pretrained(folder)
    assert "cannot be in pages" in load_failure(Server(source, ServeOptions(model_impl="transformers", pages=4)))


def test_what_has_no_pages_is_refused_before_the_server_listens(tmp_path: Path) -> None:
    plain = write_language_model(tmp_path / "plain")
    for models, compiled, error, message in (
        ([plain], {}, GenerationError, "pages: the caches of .*model.onnx are not in pages: only PagedAttention"),
        ([plain], {"ranks": 2}, ServeError, "--pages is for models on one rank"),
        ([write_tensor_model(tmp_path / "sum.onnx")], {}, ServeError, "--pages is for language models of a decoder"),
    ):
        with pytest.raises(error, match=message):
            Server(parse_models(list(map(str, models))), ServeOptions(pages=4), compiled)
    Server(parse_models([str(plain)]), ServeOptions())  # without the option nothing is read here
