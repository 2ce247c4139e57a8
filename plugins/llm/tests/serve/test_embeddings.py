"""Embeddings and scores of documents over HTTP."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

for package in ("starlette", "tokenizers", "jinja2"):
    pytest.importorskip(package)
pytest.importorskip("starlette.testclient")

from embedding_folders import TEXTS, write_encoder  # noqa: E402
from mirlo_llm import generate  # noqa: E402
from mirlo_llm.serve.application import Server  # noqa: E402
from mirlo_llm.serve.options import ModelSource, ServeOptions  # noqa: E402
from served import ready_client, write_tensor_model  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "encoder"
    folder.mkdir()
    write_encoder(folder)
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> generate.EmbeddingModel:
    return generate.load_embedding(folder)


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Any]:
    reranker = folder.parent / "reranker"
    reranker.mkdir()
    write_encoder(reranker, labels=1)
    sum_model = write_tensor_model(folder.parent / "sum.onnx")
    classifier = folder.parent / "classifier"
    classifier.mkdir()
    write_encoder(classifier, labels=3)
    paths = {"encoder": folder, "reranker": reranker, "classifier": classifier, "sum": sum_model}
    sources = [ModelSource(name, path) for name, path in paths.items()]
    server = Server(sources, ServeOptions(queue=8, max_body=1 << 20, batch=4, has_ollama=True))
    with ready_client(server) as client:
        yield client


@pytest.mark.sample(0)
def test_embeddings(client: Any, model: generate.EmbeddingModel) -> None:
    expected = model.embed(TEXTS)
    answer = client.post("/v1/embeddings", json={"model": "encoder", "input": TEXTS}).json()
    assert answer["object"] == "list" and answer["model"] == "encoder"
    assert [each["index"] for each in answer["data"]] == list(range(len(TEXTS)))
    np.testing.assert_allclose([each["embedding"] for each in answer["data"]], expected, rtol=1e-5, atol=1e-6)
    count = sum(len(model.encode(text)[0]) for text in TEXTS)
    assert answer["usage"] == {"prompt_tokens": count, "total_tokens": count}
    body = {"model": "encoder", "input": model.encode("rain")[0], "encoding_format": "base64", "dimensions": 5}
    (only,) = client.post("/v1/embeddings", json=body).json()["data"]
    found = np.frombuffer(base64.b64decode(only["embedding"]), "<f4")
    np.testing.assert_allclose(found, model.embed("rain", dimensions=5), rtol=1e-5, atol=1e-6)


@pytest.mark.sample(0)
def test_embeddings_of_ollamas_api(client: Any, model: generate.EmbeddingModel) -> None:
    body = {"model": "encoder:latest", "input": TEXTS, "dimensions": 5, "keep_alive": "5m", "options": {"num_ctx": 8}}
    answer = client.post("/api/embed", json=body).json()
    np.testing.assert_allclose(answer["embeddings"], model.embed(TEXTS, dimensions=5), rtol=1e-5, atol=1e-6)
    count = sum(len(model.encode(text)[0]) for text in TEXTS)
    assert answer["model"] == "encoder" and answer["prompt_eval_count"] == count and answer["total_duration"] > 0
    for path, key in (("/api/embed", "input"), ("/api/embeddings", "prompt")):
        found = client.post(path, json={"model": "encoder", key: "rain"}).json()
        row = found["embedding"] if key == "prompt" else found["embeddings"][0]
        np.testing.assert_allclose(row, model.embed("rain"), rtol=1e-5, atol=1e-6)


def test_long_texts_of_ollamas_api_are_truncated_by_default(client: Any, model: generate.EmbeddingModel) -> None:
    text = "rain " * 2 * model.config.longest
    found = client.post("/api/embed", json={"model": "encoder", "input": text}).json()
    assert found["prompt_eval_count"] == model.config.longest
    np.testing.assert_allclose(found["embeddings"][0], model.embed(text, truncate=True), rtol=1e-5, atol=1e-6)
    refused = client.post("/api/embed", json={"model": "encoder", "input": text, "truncate": False})
    assert refused.status_code == 400 and "tokens, the model takes up to" in refused.json()["error"]


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("embed", {"input": []}, "input: there are no texts"),
        ("embed", {"input": [1, 2]}, "input: expected a text, or an array of texts"),
        ("embed", {"input": ["a"] * 2049}, "input: expected up to 2048"),
        ("embed", {"input": "a", "dimensions": 1000}, "dimensions: expected 1 to"),
        ("embed", {"input": "a", "model": "reranker"}, "scores pairs of texts"),
        ("embed", {"input": "a", "model": "sum"}, "gives no embeddings"),
        ("embed", {}, "input: expected an array, found nothing"),
        ("embeddings", {"prompt": ["a"]}, "prompt: expected a text"),
    ],
)
def test_wrong_requests_of_ollamas_api(client: Any, path: str, body: dict[str, Any], text: str) -> None:
    answer = client.post(f"/api/{path}", json={"model": "encoder", **body})
    assert answer.status_code == 400 and text in answer.json()["error"]


def test_reranking(client: Any, model: generate.EmbeddingModel, folder: Path) -> None:
    """An embedding model orders documents by cosines, a reranker by its own scores."""
    for name, scorer in (("encoder", model), ("reranker", generate.load_embedding(folder.parent / "reranker"))):
        scores = scorer.score("the rain", TEXTS)
        body = {"model": name, "query": "the rain", "documents": [TEXTS[0], {"text": TEXTS[1]}, *TEXTS[2:]], "top_n": 3}
        results = client.post("/v1/rerank", json={**body, "return_documents": True}).json()["results"]
        assert [each["index"] for each in results] == np.argsort(-scores)[:3].tolist()
        np.testing.assert_allclose([each["relevance_score"] for each in results], np.sort(scores)[::-1][:3],
                                   rtol=1e-4, atol=1e-6)  # fmt: skip
        assert [each["document"]["text"] for each in results] == [TEXTS[each["index"]] for each in results]


@pytest.mark.parametrize(
    ("path", "change", "text"),
    [
        ("embeddings", {"input": []}, "input: there are no texts"),
        ("embeddings", {"input": [3, "a"]}, "expected a text, tokens, or an array of them"),
        ("embeddings", {"input": [[2, 77]]}, "expected numbers below 32"),
        ("embeddings", {"input": "a " * 60}, "a text has 62 tokens, the model takes up to 24"),
        ("embeddings", {"input": [2] * 60}, "a text has 60 tokens, the server takes up to 24"),
        ("embeddings", {"input": ["a"] * 2049}, "expected up to 2048 texts, found 2049"),
        ("embeddings", {"dimensions": 25}, "dimensions: expected 1 to 24, found 25"),
        ("embeddings", {"encoding_format": "int8"}, "encoding_format: expected one of float, base64"),
        ("embeddings", {"model": "sum"}, "model 'sum' gives no embeddings: serve the folder of an encoder"),
        ("embeddings", {"model": "reranker"}, "model 'reranker' scores pairs of texts: use /v1/rerank"),
        ("rerank", {"documents": []}, "documents: expected an array of texts"),
        ("rerank", {"documents": ["a", 3]}, "documents: expected an array of texts"),
        ("rerank", {"query": 3}, "query: expected a text"),
        ("rerank", {"model": "classifier"}, "the model gives 3 scores a pair, a reranker gives one"),
    ],
)
def test_wrong_bodies(client: Any, path: str, change: dict[str, Any], text: str) -> None:
    good = {"embeddings": {"input": "a"}, "rerank": {"query": "a", "documents": ["a"]}}[path]
    answer = client.post(f"/v1/{path}", json={"model": "encoder", **good, **change})
    assert answer.status_code == 400 and text in answer.json()["error"]["message"]


def test_models_and_protocol(client: Any) -> None:
    assert client.get("/v2/models/encoder").json()["platform"] == "mirlo_embedding_model"
    chat = {"model": "encoder", "messages": [{"role": "user", "content": "a"}]}
    answer = client.post("/v1/chat/completions", json=chat)
    assert answer.status_code == 400 and "is no language model" in answer.json()["error"]["message"]
    assert client.post("/v2/models/encoder/infer", json={"inputs": []}).status_code == 400
