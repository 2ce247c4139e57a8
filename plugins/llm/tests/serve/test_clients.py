"""A server in a process of its own, called by published clients."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

for package in ("starlette", "uvicorn", "tokenizers", "jinja2", "llguidance"):
    pytest.importorskip(package)

from embedding_folders import TEXTS, write_encoder  # noqa: E402
from mirlo_llm import generate  # noqa: E402
from served import ServerProcess, serving, write_language_model, write_tensor_model, write_text_model  # noqa: E402

from mirlo.testing.browser import BROWSER, needs_browser  # noqa: E402

pytestmark = [
    pytest.mark.sample(0),
    pytest.mark.skipif(sys.platform == "win32", reason="servers end by signals"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    write_language_model(folder / "tiny")
    write_tensor_model(folder / "sum.onnx"), write_text_model(folder / "texts.onnx")
    write_encoder(folder / "encoder")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    models = (folder / each for each in ("tiny", "sum.onnx", "texts.onnx", "encoder"))
    with serving(*models, "--slots", 4) as server:
        yield server


@pytest.fixture(scope="module")
def expected(folder: Path) -> str:
    model = generate.load(folder / "tiny")
    messages = [{"role": "user", "content": "the fox"}]
    return "".join(model.generator(max_new_tokens=12).stream(model.chat_tokens(messages)))


TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tell the weather",
        "parameters": {
            "type": "object", "properties": {"city": {"enum": ["Bern", "Rome"]}}, "required": ["city"],
            "additionalProperties": False,
        },
    },
}  # fmt: skip


def test_openai(server: ServerProcess, expected: str) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == ["tiny", "sum", "texts", "encoder"]
    common: dict[str, Any] = {
        "model": "tiny", "messages": [{"role": "user", "content": "the fox"}], "max_tokens": 12, "temperature": 0,
    }  # fmt: skip
    answer = client.chat.completions.create(**common, logprobs=True, top_logprobs=2)
    assert answer.choices[0].message.content == expected and answer.choices[0].finish_reason == "length"
    assert len(answer.choices[0].logprobs.content) == answer.usage.completion_tokens == 12
    options = {"include_usage": True}
    chunks = list(client.chat.completions.create(**common, stream=True, stream_options=options))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == expected
    assert chunks[-1].usage.total_tokens == answer.usage.total_tokens
    called = client.chat.completions.create(**common | {"max_tokens": 60}, tools=[TOOL], tool_choice="required")
    (call,) = called.choices[0].message.tool_calls
    assert json.loads(call.function.arguments)["city"] in ("Bern", "Rome")
    for error, body in (
        (openai.NotFoundError, {"model": "none"}),
        (openai.BadRequestError, {"max_tokens": -1}),
        (openai.BadRequestError, {"model": "sum"}),
    ):
        with pytest.raises(error):
            client.chat.completions.create(**common | body)
    with pytest.raises(openai.BadRequestError, match="gives no embeddings"):
        client.embeddings.create(model="tiny", input="x")


def test_openai_embeddings(server: ServerProcess, folder: Path) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0)
    wanted = generate.load_embedding(folder / "encoder").embed(TEXTS)
    for options in ({}, {"encoding_format": "float"}):  # the client itself asks for base64
        answer = client.embeddings.create(model="encoder", input=TEXTS, **options)
        found = np.array([each.embedding for each in answer.data])
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(openai.BadRequestError, match="the model takes up to 24"):
        client.embeddings.create(model="encoder", input="rain " * 40)


def test_langchain_embeddings(server: ServerProcess, folder: Path) -> None:
    langchain = pytest.importorskip("langchain_openai")
    model = langchain.OpenAIEmbeddings(
        model="encoder", base_url=f"{server.address}/v1", api_key="none", check_embedding_ctx_length=False
    )
    wanted = generate.load_embedding(folder / "encoder").embed(TEXTS)
    np.testing.assert_allclose(model.embed_documents(TEXTS), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.embed_query(TEXTS[0]), wanted[0], rtol=1e-5, atol=1e-6)


def test_langchain(server: ServerProcess, expected: str) -> None:
    langchain = pytest.importorskip("langchain_openai")
    common: dict[str, Any] = {
        "model": "tiny", "base_url": f"{server.address}/v1", "api_key": "none", "temperature": 0, "max_tokens": 12,
    }  # fmt: skip
    model = langchain.ChatOpenAI(**common)
    assert model.invoke("the fox").content == expected
    assert "".join(str(chunk.content) for chunk in model.stream("the fox")) == expected
    schema = {
        "title": "person", "type": "object", "properties": {"age": {"enum": [1, 2]}}, "required": ["age"],
        "additionalProperties": False,
    }  # fmt: skip
    long = langchain.ChatOpenAI(**common | {"max_tokens": 200})
    assert long.with_structured_output(schema, method="function_calling").invoke("x")["age"] in (1, 2)


@pytest.mark.parametrize("is_binary", [False, True])
def test_tritonclient(server: ServerProcess, is_binary: bool) -> None:
    http = pytest.importorskip("tritonclient.http")
    client = http.InferenceServerClient(f"127.0.0.1:{server.port}")
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("sum")
    assert client.get_server_metadata()["name"] == "mirlo"
    assert client.get_model_metadata("sum")["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}]
    arrays = np.random.default_rng(0).standard_normal((2, 5, 3), np.float32)
    inputs = [http.InferInput(name, [5, 3], "FP32") for name in ("x", "bias")]
    for given, array in zip(inputs, arrays, strict=True):
        given.set_data_from_numpy(array, binary_data=is_binary)
    wanted = [http.InferRequestedOutput("y", binary_data=is_binary)]
    for outputs in (wanted, None):
        result = client.infer("sum", inputs, outputs=outputs, request_id="7")
        np.testing.assert_allclose(result.as_numpy("y"), 2 * arrays[0] + arrays[1], rtol=1e-6)
    text = http.InferInput("x", [2], "BYTES")
    text.set_data_from_numpy(np.array(["a", "\u00fc"], object), binary_data=is_binary)
    found = client.infer("texts", [text]).as_numpy("y")
    assert [each.decode() if isinstance(each, bytes) else each for each in found] == ["a!", "\u00fc!"]
    with pytest.raises(http.InferenceServerException if hasattr(http, "InferenceServerException") else Exception):
        client.infer("sum", inputs[:1])


def test_traces(folder: Path) -> None:
    """Spans are exported by what is configured, below the span of the client."""
    pytest.importorskip("opentelemetry.sdk")
    pytest.importorskip("starlette.testclient")
    code = f"""
import time
from pathlib import Path
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
from starlette.testclient import TestClient
from mirlo.serve.application import Server
from mirlo.serve.options import ModelSource, ServeOptions
with TestClient(Server([ModelSource("tiny", Path({str(folder / "tiny")!r}))], ServeOptions())) as client:
    while client.get("/v2/health/ready").status_code != 200:
        time.sleep(0.05)
    exporter.clear()
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    body = {{"model": "tiny", "prompt": "the fox", "max_tokens": 3}}
    client.post("/v1/completions", json=body, headers={{"traceparent": parent}})
(span,) = exporter.get_finished_spans()
assert span.name == "POST /v1/completions", span.name
assert span.context.trace_id == 0x0AF7651916CD43DD8448EB211C80319C
assert span.attributes["gen_ai.request.model"] == "tiny" and span.attributes["gen_ai.usage.output_tokens"] == 3
assert span.attributes["http.response.status_code"] == 200
"""
    from mirlo.testing.commands import output_of, run_python

    output_of(run_python("-c", code))


@needs_browser
@pytest.mark.parametrize("is_dark", [False, True])
def test_the_page_in_a_browser(server: ServerProcess, tmp_path: Path, is_dark: bool) -> None:
    """The page lists the models and shows figures; its script runs under its policy, and nothing else is loaded."""
    assert BROWSER is not None
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"--user-data-dir={tmp_path / 'profile'}"]
    flags += ["--virtual-time-budget=6000", "--enable-logging=stderr", "--window-size=1000,700"]
    flags += [f"--blink-settings=preferredColorScheme={0 if is_dark else 1}", f"--screenshot={tmp_path / 'page.png'}"]
    done = subprocess.run([BROWSER, *flags, f"{server.address}/"], capture_output=True, text=True, timeout=120)
    assert '<option value="tiny">tiny</option>' in done.stdout, done.stderr[-2000:]
    assert "<dt>Tokens per second</dt>" in done.stdout
    assert "Content Security Policy" not in done.stderr and "Uncaught" not in done.stderr
    assert (tmp_path / "page.png").stat().st_size > 5000
