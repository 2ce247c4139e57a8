"""Generated bodies: each gets an answer or an error that says what is wrong, never a failure of the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

for package in ("starlette", "tokenizers", "jinja2", "llguidance"):
    pytest.importorskip(package)
pytest.importorskip("starlette.testclient")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from mirlo_llm.serve.application import Server  # noqa: E402
from mirlo_llm.serve.generation_body import CHAT_KEYS, TEXT_KEYS  # noqa: E402
from mirlo_llm.serve.options import ModelSource, ServeOptions  # noqa: E402
from served import ready_client, write_language_model, write_tensor_model  # noqa: E402


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("served")
    sources = [
        ModelSource("tiny", write_language_model(folder / "tiny")),
        ModelSource("sum", write_tensor_model(folder / "sum.onnx")),
    ]
    server = Server(sources, ServeOptions(max_tokens=4, max_choices=2, max_body=1 << 16))
    with ready_client(server) as client:
        yield client
        engine: Any = server.state.pool.models["tiny"].backend
        assert engine.pending == 0


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 40), st.integers(), st.floats(allow_nan=False), st.text(max_size=12)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
LIKELY = st.sampled_from(
    ["tiny", "sum", "user", "assistant", "tool", "text", "function", "auto", "required", "json_object", "the fox", True]
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system"]), "content": st.text(max_size=9) | VALUES},
    optional={"name": VALUES, "tool_calls": VALUES, "tool_call_id": VALUES},
)
TOOL = st.fixed_dictionaries({"type": st.just("function"), "function": st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b", "a b"])}, optional={"parameters": VALUES, "description": VALUES})})  # fmt: skip


def bodies(keys: set[str], **likely: Any) -> Any:
    optional = {key: VALUES | LIKELY for key in sorted(keys) if key not in likely}
    return st.fixed_dictionaries(likely, optional=optional) | VALUES


CHATS = bodies(
    CHAT_KEYS - {"stream"},
    model=st.just("tiny"),
    messages=st.lists(MESSAGE, min_size=1, max_size=3),
    max_tokens=st.just(2),
)
FEW_KEYS = st.fixed_dictionaries(
    {"model": st.just("tiny"), "messages": st.lists(MESSAGE, min_size=1, max_size=3), "max_tokens": st.just(2)},
    optional={"tools": st.lists(TOOL, max_size=2), "temperature": VALUES, "tool_choice": VALUES | LIKELY, "n": VALUES},
)
TEXTS = bodies(
    TEXT_KEYS - {"stream"}, model=st.just("tiny"), prompt=VALUES | st.text(max_size=9), max_tokens=st.just(2)
)
TENSOR = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["x", "bias", "z"]) | VALUES, "datatype": st.just("FP32") | VALUES,
        "shape": st.lists(st.integers(-1, 4), max_size=3) | st.just([1, 3]) | VALUES,
        "data": st.lists(st.floats(allow_nan=False, width=32), min_size=3, max_size=3) | VALUES,
        "parameters": st.fixed_dictionaries({}, optional={"binary_data_size": VALUES}) | VALUES,
    },
)  # fmt: skip
INFERENCES = bodies({"id", "parameters", "outputs"}, inputs=st.lists(TENSOR, max_size=3) | VALUES)
WRONG = {400, 404, 413, 422}


def require_answer(client: Any, path: str, body: Any, headers: dict[str, str] | None = None) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = client.post(path, content=content, headers={"content-type": "application/json"} | (headers or {}))
    assert answer.status_code == 200 or answer.status_code in WRONG, (answer.status_code, answer.text)
    found = answer.json() if answer.headers["content-type"] == "application/json" else {}
    assert answer.status_code == 200 or "error" in found


SOME = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@pytest.mark.sample(0)
@pytest.mark.parametrize("bodies", [CHATS, FEW_KEYS], ids=["keys", "messages"])
def test_conversations(client: Any, bodies: Any) -> None:
    SOME(given(body=bodies)(lambda body: require_answer(client, "/v1/chat/completions", body)))()


def test_texts(client: Any) -> None:
    SOME(given(body=TEXTS)(lambda body: require_answer(client, "/v1/completions", body)))()


def test_tensors(client: Any) -> None:
    SOME(given(body=INFERENCES)(lambda body: require_answer(client, "/v2/models/sum/infer", body)))()


@pytest.mark.sample(0)
def test_bytes(client: Any) -> None:
    def check(content: bytes, length: str, body: Any) -> None:
        headers = {"inference-header-content-length": length}
        require_answer(client, "/v2/models/sum/infer", content, headers)
        head = json.dumps(body).encode()
        headers = {"inference-header-content-length": str(len(head))}
        require_answer(client, "/v2/models/sum/infer", head + content, headers)

    lengths = st.integers(-5, 100).map(str) | st.sampled_from(["", "x", "1e3", "99999999999999999999"])
    SOME(given(content=st.binary(max_size=80), length=lengths, body=INFERENCES)(check))()
