"""The Open Inference Protocol, version 2, with the extension for binary tensors."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mirlo.extend.options import nearest
from mirlo_llm.serve.body import (
    BodyFields,
    Disconnected,
    Receive,
    Scope,
    Send,
    fields_of,
    header,
    parse_object,
    read_body,
)
from mirlo_llm.serve.errors import RequestError, refused
from mirlo_llm.serve.json_pieces import encode_in_pieces
from mirlo_llm.serve.models import ModelPool, ModelUse
from mirlo_llm.serve.requests import note, require_type
from mirlo_llm.serve.sending import ClientWatch, send_bytes, send_json
from mirlo_llm.serve.state import ServerState
from mirlo_llm.serve.tensor_backend import TensorBackend
from mirlo_llm.serve.tensors import (
    TensorPort,
    array_of_bytes,
    array_of_json,
    bytes_of_array,
    json_of_array,
    read_shape,
    rows_of,
)
from mirlo_llm.serve.threads import run_in_thread

VERSION = "1"
"""The version of every model."""
MAX_TENSORS = 4096
TEXT_BYTES = 64
"""Estimated bytes of a text in a tensor."""
JSON_LENGTH = b"inference-header-content-length"
EXTENSIONS = ["binary_tensor_data"]


@dataclass(frozen=True)
class WantedOutput:
    """An output that a request selects."""

    port: TensorPort
    is_binary: bool


class ProtocolRoutes:
    """The endpoints below /v2."""

    def __init__(self, state: ServerState, version: str) -> None:
        self._state, self._version = state, version

    @property
    def _pool(self) -> ModelPool:
        return self._state.pool

    async def live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Report that the server runs."""
        await send_json(send, 200, {"live": True})

    async def ready(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Report whether each model has answered a first call."""
        is_ready = self._pool.is_ready and not self._state.is_stopping
        await send_json(send, 200 if is_ready else 503, {"ready": is_ready})

    async def server(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Describe the server."""
        await send_json(send, 200, {"name": "mirlo", "version": self._version, "extensions": EXTENSIONS})

    async def model_ready(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Report whether a model answers."""
        name = _name(scope)
        self._pool.find(name)
        is_ready = self._pool.is_ready and not self._state.is_stopping
        await send_json(send, 200 if is_ready else 503, {"name": name, "ready": is_ready})

    async def model(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Describe a model."""
        name = _name(scope)
        async with self._pool.use(name) as backend:
            result: dict[str, object] = {"name": name, "versions": [VERSION]}
            if isinstance(backend, TensorBackend):
                result["platform"] = backend.platform
                result["inputs"] = [port.metadata for port in backend.inputs.values()]
                result["outputs"] = [port.metadata for port in backend.outputs.values()]
            else:
                result |= {"platform": f"mirlo_{backend.kind}_model", "inputs": [], "outputs": []}
            await send_json(send, 200, result)

    async def infer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a model."""
        start = time.perf_counter()
        name = _name(scope)
        self._pool.find(name)
        note(scope, model=name)
        nbytes, fields, rest = await self._read(scope, receive)
        async with self._tensors(name) as backend:
            inputs = await run_in_thread(nbytes, lambda: _read_inputs(backend, fields, rest))
            wanted = _read_outputs(backend, fields)
            with backend.admitted(1):
                outputs = await self._infer(backend, inputs, receive)
            head: dict[str, Any] = {"model_name": name, "model_version": VERSION}
            if fields.has("id"):
                head["id"] = fields.text("id", most=1024)
            await _send_outputs(send, head, wanted, outputs)
            backend.took(time.perf_counter() - start)

    async def _infer(self, backend: TensorBackend, inputs: dict[str, np.ndarray], receive: Receive) -> Any:
        import asyncio

        call = asyncio.ensure_future(backend.infer(inputs))
        gone = False

        def leave() -> None:
            nonlocal gone
            gone = True
            call.cancel()

        try:
            async with ClientWatch(receive, leave):
                return await call
        except asyncio.CancelledError:
            if gone:
                self._state.metrics.cancelled.add(1, backend.name)
                raise Disconnected from None
            call.cancel()
            raise

    async def _read(self, scope: Scope, receive: Receive) -> tuple[int, BodyFields, memoryview]:
        """Return the size of a body, its JSON part, and the bytes after that."""
        options, length = self._state.options, header(scope, JSON_LENGTH)
        if length is None:
            require_type(scope)
        content = await read_body(scope, receive, options.max_body, options.body_seconds)
        most = len(content)
        if length is not None and (not length.isdigit() or len(length) > 12 or int(length) > most):
            message = f"Inference-Header-Content-Length: expected a number up to {most}, the size of the body"
            raise RequestError(400, message)
        end = most if length is None else int(length)
        fields = await run_in_thread(end, lambda: BodyFields(parse_object(content[:end])))
        return most, fields, memoryview(content)[end:]

    def _tensors(self, name: str) -> ModelUse[TensorBackend]:
        return self._pool.use_as(name, TensorBackend, "takes no tensors: use the endpoints below /v1")


def _name(scope: Scope) -> str:
    parameters = scope["path_params"]
    version = parameters.get("version", VERSION)
    if version != VERSION:
        raise RequestError(404, f"model {parameters['name'][:80]!a} has version {VERSION} only")
    return str(parameters["name"])


def _read_inputs(backend: TensorBackend, fields: BodyFields, rest: memoryview) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    at = 0
    for i, each in enumerate(fields.list("inputs", MAX_TENSORS)):
        tensor = fields_of(each, f"inputs[{i}]")
        port = _port(tensor, "input", backend.inputs)
        name = port.name
        if name in arrays:
            raise refused(tensor.name("name"), f"input '{name}' is given twice")
        datatype = tensor.text("datatype")
        if datatype != port.datatype:
            raise refused(tensor.name("datatype"), f"input '{name}' is {port.datatype}, found {datatype[:40]!a}")
        shape = read_shape(tensor)
        size = _binary_size(tensor)
        if size is None:
            arrays[name] = array_of_json(port, shape, tensor.value("data"), tensor.name("data"))
            continue
        if tensor.has("data"):
            raise refused(tensor.name("data"), "the tensor has elements as JSON and as bytes")
        if size > len(rest) - at:
            raise refused(tensor.name("parameters"), f"{size} bytes are expected, {len(rest) - at} are left")
        arrays[name] = array_of_bytes(port, shape, rest[at : at + size], tensor.name("parameters"))
        at += size
    if at != len(rest):
        raise RequestError(400, f"{len(rest) - at} bytes of the body belong to no input")
    missing = [name for name in backend.inputs if name not in arrays]
    if missing:
        raise refused("inputs", f"the model needs {', '.join(missing)} too")
    if backend.is_batched and len({rows_of(array.shape) for array in arrays.values()}) > 1:
        raise refused("inputs", "the first dims of the inputs differ")
    return arrays


def _port(tensor: BodyFields, kind: str, ports: Mapping[str, TensorPort]) -> TensorPort:
    """Return the input or output that a tensor of the request names."""
    name = tensor.text("name")
    if name not in ports:
        raise refused(tensor.name("name"), f"the model has no {kind} {name[:80]!a}{nearest(name[:80], ports)}")
    return ports[name]


def _parameters(tensor: BodyFields) -> BodyFields:
    return tensor.inner("parameters") if tensor.has("parameters") else BodyFields({})


def _binary_size(tensor: BodyFields) -> int | None:
    return _parameters(tensor).count("binary_data_size", 0, 1 << 40)


def _read_outputs(backend: TensorBackend, fields: BodyFields) -> list[WantedOutput]:
    is_binary = _parameters(fields).flag("binary_data_output")
    if not fields.has("outputs"):
        return [WantedOutput(port, is_binary) for port in backend.outputs.values()]
    wanted: dict[str, WantedOutput] = {}
    for i, each in enumerate(fields.list("outputs", MAX_TENSORS)):
        output = fields_of(each, f"outputs[{i}]")
        port = _port(output, "output", backend.outputs)
        parameters = _parameters(output)
        if parameters.count("classification", 0, 1 << 30, 0):
            raise refused(output.name("parameters"), "classification is not supported: request the scores")
        wanted[port.name] = WantedOutput(port, parameters.flag("binary_data", is_binary))
    return list(wanted.values())


async def _send_outputs(send: Send, head: dict[str, Any], wanted: list[WantedOutput], outputs: Any) -> None:
    arrays = [np.asarray(outputs[output.port.name]) for output in wanted]
    nbytes = sum(array.size * TEXT_BYTES if array.dtype == object else array.nbytes for array in arrays)
    content, parts = await run_in_thread(nbytes, lambda: _written(head, wanted, arrays))
    if not parts:
        await send_bytes(send, 200, content)
        return
    headers = [(JSON_LENGTH, str(len(content)).encode())]
    await send_bytes(send, 200, b"".join([content, *parts]), b"application/octet-stream", headers)


def _written(head: dict[str, Any], wanted: list[WantedOutput], arrays: list[np.ndarray]) -> tuple[bytes, list[bytes]]:
    """Return the JSON part of an answer, and the bytes after it."""
    described: list[dict[str, object]] = []
    parts: list[bytes] = []
    for output, array in zip(wanted, arrays, strict=True):
        port = output.port
        tensor: dict[str, object] = {"name": port.name, "datatype": port.datatype, "shape": list(array.shape)}
        if output.is_binary:
            parts.append(bytes_of_array(port, array))
            tensor["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            tensor["data"] = json_of_array(port, array)
        described.append(tensor)
    return encode_in_pieces({**head, "outputs": described}), parts
