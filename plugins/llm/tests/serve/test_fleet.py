"""What a cluster adds to a server, without a cluster: streams that another replica continues, options, columns."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

for package in ("starlette", "tokenizers", "jinja2", "python_multipart"):
    pytest.importorskip(package)
pytest.importorskip("starlette.testclient")

from mirlo_llm.serve.application import Server  # noqa: E402
from mirlo_llm.serve.body import Message  # noqa: E402
from mirlo_llm.serve.errors import RequestError  # noqa: E402
from mirlo_llm.serve.options import ModelSource, ServeOptions  # noqa: E402
from mirlo_llm.serve.ray.columns import as_input  # noqa: E402
from mirlo_llm.serve.ray.deployment import _divide_options  # noqa: E402
from mirlo_llm.serve.ray.errors import RayError  # noqa: E402
from mirlo_llm.serve.ray.forwarding import ForwardedRequest, answer_of, forwarded  # noqa: E402
from mirlo_llm.serve.ray.front import Front  # noqa: E402
from mirlo_llm.serve.ray.options import FleetOptions  # noqa: E402
from mirlo_llm.serve.ray.resuming import NotNow, ResumableAnswer  # noqa: E402
from mirlo_llm.serve.tensors import TensorPort  # noqa: E402
from served import ready_client, write_language_model, write_tensor_model  # noqa: E402

from mirlo.extend.options import UnknownOption  # noqa: E402

BODIES = {
    "chat": {
        "messages": [{"role": "user", "content": "the fox"}], "n": 2, "logprobs": True, "top_logprobs": 1,
        "stream_options": {"include_usage": True},
    },
    "text": {"prompt": "the fox", "logprobs": 2, "n": 2},
    "calls": {
        "messages": [{"role": "user", "content": "x"}], "tool_choice": "required",
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"enum": [{}]}}}],
    },
}  # fmt: skip
HEADERS = [(b"content-type", b"application/json")]


class Lost(Exception):
    """What a lost replica raises here."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("fleet")
    sources = [ModelSource("tiny", write_language_model(folder / "tiny"))]
    sources.append(ModelSource("sum", write_tensor_model(folder / "sum.onnx")))
    server = Server(sources, ServeOptions(max_tokens=200))
    with ready_client(server) as client:
        server_loop.append(client.portal)
        yield server


server_loop: list[Any] = []


def in_loop(function: Any, *arguments: Any) -> Any:
    return server_loop[-1].call(function, *arguments)


async def collect(messages: AsyncIterator[Message]) -> list[Message]:
    return [message async for message in messages]


def scope_of(path: str, method: str = "POST") -> dict[str, Any]:
    return {"type": "http", "method": method, "path": path, "headers": HEADERS}


def request_of(kind: str, **more: object) -> ForwardedRequest:
    path = "/v1/completions" if kind == "text" else "/v1/chat/completions"
    most = 60 if kind == "calls" else 12
    body = {"model": "tiny", "stream": True, "max_tokens": most, "temperature": 1.0, **BODIES[kind], **more}
    return asyncio.run(forwarded(scope_of(path), json.dumps(body).encode(), ["tiny", "sum"]))


def events_of(messages: Sequence[Message]) -> list[Any]:
    content = b"".join(message.get("body", b"") for message in messages)
    events = [event.removeprefix(b"data: ") for event in content.split(b"\n\n") if event]
    assert events[-1] == b"[DONE]"
    return [json.loads(event) for event in events[:-1]]


def choices_of(events: Sequence[Any]) -> dict[int, dict[str, Any]]:
    """Return what a client puts together."""
    result: dict[int, dict[str, Any]] = {}
    for event in events:
        for choice in event["choices"]:
            whole = result.setdefault(choice["index"], {"text": "", "roles": [], "calls": [], "ends": [], "tokens": []})
            delta = choice.get("delta", {})
            whole["text"] += delta.get("content") or choice.get("text") or ""
            whole["roles"] += [delta["role"]] if delta.get("role") else []
            whole["calls"] += [call["function"] for call in delta.get("tool_calls") or []]
            whole["ends"] += [choice["finish_reason"]] if choice["finish_reason"] else []
            logprobs = choice["logprobs"] or {}
            whole["tokens"] += logprobs.get("token_logprobs") or [one["logprob"] for one in logprobs.get("content", [])]
    return result


def require_same(found: dict[int, dict[str, Any]], wanted: dict[int, dict[str, Any]]) -> None:
    """Compare answers; the last digits of logarithms depend on how many rows were computed together."""
    assert found.keys() == wanted.keys()
    for place, choice in found.items():
        np.testing.assert_allclose(choice["tokens"], wanted[place]["tokens"], atol=1e-4)
        assert {**choice, "tokens": None} == {**wanted[place], "tokens": None}


@pytest.mark.parametrize("kind", BODIES)
def test_a_stream_goes_on_where_another_replica_was_lost(server: Server, kind: str) -> None:
    """Wherever the first stream is cut, the client gets the text of the second one, each part once."""
    request = request_of(kind)
    assert request.model == "tiny" and json.loads(request.body)["seed"] >= 0
    first, second = (in_loop(collect, answer_of(server, request)) for _ in range(2))
    wanted = choices_of(events_of(second))
    require_same(choices_of(events_of(first)), wanted)
    assert len(first) >= 2  # the head, and events: a busy machine may send all of them at once
    for cut in range(len(first)):
        sent: list[Message] = []

        async def pass_both(sent: list[Message] = sent, cut: int = cut) -> None:
            async def send(message: Message) -> None:
                sent.append(message)

            answer = ResumableAnswer(send)
            for message in first[:cut]:
                await answer.take(message)
            answer.restart()
            for message in second:
                await answer.take(message)

        asyncio.run(pass_both())
        events = events_of(sent)
        require_same(choices_of(events), wanted)
        assert len({event["id"] for event in events}) == 1
        assert [message["type"] for message in sent].count("http.response.start") == 1
        assert sum(bool(event.get("usage")) for event in events) == (kind == "chat")


def test_events_with_names_do_not_go_on_at_another_replica() -> None:
    """Those of responses and messages pass as they are; another replica's would come again."""
    start = {
        "type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")],
    }  # fmt: skip
    event = {"type": "http.response.body", "body": b'event: a\ndata: {"type": "a"}\n\n', "more_body": True}
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def run() -> None:
        answer = ResumableAnswer(send)
        await answer.take(start)
        await answer.take(event)
        assert sent[-1]["body"] == event["body"]
        answer.restart()
        await answer.take(start)
        with pytest.raises(RequestError, match="the replica was lost"):
            await answer.take(event)

    asyncio.run(run())


def test_another_text_is_no_continuation(server: Server) -> None:
    first, second = (in_loop(collect, answer_of(server, request_of("text", seed=seed))) for seed in (1, 2))
    assert choices_of(events_of(first)) != choices_of(events_of(second))
    # All but the end, which a busy machine may send together with what is before it.
    events = b"".join(message.get("body", b"") for message in first).partition(b"data: [DONE]")[0]

    async def run() -> None:
        async def send(message: Message) -> None:
            pass

        answer = ResumableAnswer(send)
        await answer.take(first[0])
        await answer.take({"type": "http.response.body", "body": events, "more_body": True})
        answer.restart()
        for message in second:
            await answer.take(message)

    with pytest.raises(RequestError, match="answers differently"):
        asyncio.run(run())


class Replicas:
    """A handle of Ray Serve whose requests end as a test says: with a loss after some messages, or whole."""

    def __init__(self, answers: Sequence[tuple[Sequence[Message], Exception | None]]) -> None:
        self.answers, self.requests, self.cancelled = list(answers), list[ForwardedRequest](), 0
        self.answer = self

    def options(self, stream: bool, multiplexed_model_id: str) -> Replicas:
        assert stream and multiplexed_model_id in ("", "tiny", "sum")
        return self

    def remote(self, request: ForwardedRequest) -> Replicas:
        self.requests.append(request)
        return self

    def cancel(self) -> None:
        self.cancelled += 1

    async def __aiter__(self) -> AsyncIterator[Message]:
        messages, error = self.answers.pop(0)
        for message in messages:
            yield message
        if error is not None:
            raise error


@pytest.fixture
def pretended_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    class BackPressureError(Exception):
        """Ray's error for a full queue."""

    class OtherError(Exception):
        """Any other one."""

    names = (
        "NodeDiedError", "ObjectLostError", "OutOfMemoryError", "RaySystemError", "RayTaskError", "WorkerCrashedError",
    )  # fmt: skip
    exceptions: Any = ModuleType("ray.exceptions")
    exceptions.RayActorError = Lost
    for name in names:
        setattr(exceptions, name, OtherError)
    exceptions.RayTaskError = type("RayTaskError", (Exception,), {})
    served: Any = ModuleType("ray.serve.exceptions")
    served.BackPressureError, served.DeploymentUnavailableError = BackPressureError, OtherError
    for name, module in {"ray": ModuleType("ray"), "ray.serve": ModuleType("ray.serve")}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "ray.exceptions", exceptions)
    monkeypatch.setitem(sys.modules, "ray.serve.exceptions", served)
    monkeypatch.setattr("mirlo.serve.ray.front.PAUSE_SECONDS", 0.001)


def whole(status: int, value: object) -> list[Message]:
    start = {"type": "http.response.start", "status": status, "headers": HEADERS}
    return [start, {"type": "http.response.body", "body": json.dumps(value).encode()}]


def client_of(replicas: Any, seconds: float = 5.0, **options: Any) -> Any:
    from starlette.testclient import TestClient

    return TestClient(Front(replicas, ["tiny", "sum"], ServeOptions(**options), seconds))


@pytest.mark.usefixtures("pretended_ray")
def test_the_front_sends_a_request_again() -> None:
    good = whole(200, {"a": 1})
    replicas = Replicas([([], Lost()), (good[:1], Lost()), (whole(503, {"error": "stopping"}), None), (good, None)])
    with client_of(replicas) as client:
        body = {"model": "tiny", "prompt": "x"}
        answer = client.post("/v1/completions", json=body)
        assert (answer.status_code, answer.json()) == (200, {"a": 1})
        assert [json.loads(request.body) for request in replicas.requests] == [body] * 4
        figures = client.get("/metrics").text
        assert "mirlo_retried_requests_total 3" in figures
        assert 'mirlo_requests_total{endpoint="/v1/completions",model="tiny",status="200"} 1' in figures
        assert client.get("/v2/health/live").json() == {"live": True}


@pytest.mark.usefixtures("pretended_ray")
def test_the_front_gives_up_in_time() -> None:
    replicas = Replicas([([], Lost())] * 99)
    with client_of(replicas, 0.05) as client:
        answer = client.post("/v2/models/sum/infer", json={})
    assert answer.status_code == 503 and "no replica answered in 0.05 s: Lost" in answer.json()["error"]
    assert 1 < len(replicas.requests) < 99


@pytest.mark.usefixtures("pretended_ray")
def test_errors_of_the_front() -> None:
    busy = sys.modules["ray.serve.exceptions"].BackPressureError
    with client_of(Replicas([([], busy())])) as client:
        assert client.post("/v1/completions", json={"model": "tiny"}).status_code == 429
        assert client.get("/v1/models", headers={"origin": "http://elsewhere"}).status_code == 403
        assert client.get("/v1/models", headers={"host": "elsewhere"}).status_code == 403
    with client_of(Replicas([(whole(200, {}), None)]), keys=("k" * 16,)) as client:
        assert client.get("/v1/models").status_code == 401
        assert client.get("/v1/models", headers={"authorization": f"Bearer {'k' * 16}"}).status_code == 200
    with client_of(Replicas([([], ValueError("a fault"))])) as client:
        assert client.get("/v1/models").status_code == 500


def test_models_of_requests() -> None:
    form = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\ntiny\r\n--b--\r\n'
    cases = [
        (scope_of("/v2/models/sum/infer"), b"", "sum"),
        (scope_of("/v1/models/tiny", "GET"), b"", "tiny"),
        (scope_of("/v1/completions"), b'{"model": "none"}', ""),
        (scope_of("/v1/completions"), b"{", ""),
        (scope_of("/v1/completions"), b'{"model": 1, "stream": 2}', ""),
        ({**scope_of("/v1/audio"), "headers": [(b"content-type", b"multipart/form-data; boundary=b")]}, form, "tiny"),
    ]
    for scope, body, model in cases:
        request = asyncio.run(forwarded(scope, body, ["tiny", "sum"]))
        assert (request.model, request.body) == (model, body)
    scope = {**scope_of("/x"), "headers": [(b"authorization", b"secret"), *HEADERS]}
    assert asyncio.run(forwarded(scope, b"", [])).headers == tuple(HEADERS)


def test_a_replica_that_is_asked_to_wait(server: Server) -> None:
    """A model that others keep in use is asked for again."""

    async def run() -> None:
        async def send(message: Message) -> None:
            raise AssertionError(message)

        answer = ResumableAnswer(send)
        for message in whole(503, {"error": "busy"}):
            await answer.take(message)

    with pytest.raises(NotNow, match="busy"):
        asyncio.run(run())


@pytest.mark.sample(0)
def test_models_are_loaded_when_requests_need_them(tmp_path: Path) -> None:
    sources = [ModelSource(name, write_tensor_model(tmp_path / f"{name}.onnx")) for name in ("a", "b")]
    server = Server(sources, ServeOptions(is_lazy=True, loaded=1))
    inputs = [{"name": name, "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]} for name in ("x", "bias")]
    with ready_client(server) as client:
        assert not server.state.pool.loaded
        for name in ("a", "b", "a"):
            answer = client.post(f"/v2/models/{name}/infer", json={"inputs": inputs})
            assert answer.json()["outputs"][0]["data"] == [3, 6, 9]
            assert [model.source.name for model in server.state.pool.loaded] == [name]


def test_options() -> None:
    divided = _divide_options({"cpus": 2, "slots": 3, "kv_cache_dtype": "bf16"})
    assert (divided.fleet.cpus, divided.served.slots) == (2, 3)
    assert divided.compiled == {"threads": 2, "kv_cache_dtype": "bf16"}
    assert _divide_options({"threads": 1, "cpus": 2}).compiled == {"threads": 1}
    with pytest.raises(UnknownOption, match="has no option 'slot'.*slots"):
        _divide_options({"slot": 1})
    with pytest.raises(RayError, match="max_replicas: expected at least 3"):
        FleetOptions(min_replicas=3, max_replicas=2)
    with pytest.raises(RayError, match="cpus: expected .*, found 0"):
        FleetOptions(cpus=0)


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("dtype", "array", "wanted"),
    [
        ("f32", np.array([1.5], np.float64), np.array([1.5], np.float32)),
        ("i32", np.array([7], np.int64), np.array([7], np.int32)),
        ("i8", np.array([300], np.int64), "takes i8, found values of int64"),
        ("f32", np.array([1]), "takes f32, found values of int64"),
        ("f32", np.array([[1], [1, 2]], object), "its rows have different shapes"),
        ("string", np.array([1]), "takes string, found values of int64"),
    ],
)
def test_element_types_of_columns(dtype: str, array: np.ndarray, wanted: Any) -> None:
    port = TensorPort("x", dtype, None)
    if isinstance(wanted, str):
        with pytest.raises(RayError, match=wanted):
            as_input(port, array, "c")
        return
    found = as_input(port, array, "c")
    assert found.dtype == wanted.dtype and np.array_equal(found, wanted)
    assert as_input(port, wanted, "c") is wanted
