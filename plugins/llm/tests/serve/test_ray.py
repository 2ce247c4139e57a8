"""Models on clusters of Ray whose nodes are processes of this machine, with all traffic on its loopback addresses."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

for package in ("starlette", "tokenizers", "jinja2"):
    pytest.importorskip(package)
if any(find_spec(name) is None for name in ("ray", "pyarrow")):
    pytest.skip("Ray is not installed: pip install 'mirlo-llm[ray]'", allow_module_level=True)

from mirlo_llm import generate  # noqa: E402
from served import LOOPBACK, free_port, write_language_model, write_tensor_model  # noqa: E402

import mirlo  # noqa: E402

pytestmark = [pytest.mark.sample(0), pytest.mark.skipif(sys.platform == "win32", reason="nodes end by signals")]
SECONDS = 120.0
"""Time in which any answer must come on a busy machine."""
CLIENTS, REQUESTS, TOKENS = 8, 4, 48
STORE = 100 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    for name in ("tiny", "other"):
        write_language_model(folder / name)
    write_tensor_model(folder / "sum.onnx")
    return folder


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in LOOPBACK.items():
            patch.setenv(name, value)
        scratch = tempfile.mkdtemp(prefix="ray-")  # a short path: sockets have names of 107 bytes
        patch.setenv("RAY_TMPDIR", scratch)
        import ray
        from ray import serve
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(2):
                cluster.add_node(num_cpus=2, object_store_memory=STORE)
            ray.init(address=cluster.address, logging_level=40, log_to_driver=False)
            assert {node["NodeManagerAddress"] for node in ray.nodes()} == {"127.0.0.1"}
            serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": PORT})
            yield cluster
        finally:
            with contextlib.suppress(Exception):
                serve.shutdown()
            ray.shutdown()
            cluster.shutdown()
            shutil.rmtree(scratch, ignore_errors=True)


PORT = free_port()


def post(path: str, body: object) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=SECONDS)
    try:
        connection.request("POST", path, json.dumps(body).encode(), {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def figure(name: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=SECONDS)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def nodes_of(deployment: str) -> list[str]:
    """Return the node of each replica that runs."""
    from ray._private.state import actors  # the public list needs Ray's dashboard

    running = [actor for actor in actors().values() if actor["State"] == "ALIVE"]
    return [actor["Address"]["NodeID"] for actor in running if f"#{deployment}#" in actor["Name"]]


def infer(model: str, number: float) -> list[float]:
    inputs = [{"name": n, "shape": [1, 3], "datatype": "FP32", "data": [number, 1, 2]} for n in ("x", "bias")]
    status, content = post(f"/v2/models/{model}/infer", {"inputs": inputs})
    assert status == 200, content
    result: list[float] = json.loads(content)["outputs"][0]["data"]
    return result


def text_of(content: bytes, is_streamed: bool) -> str:
    if not is_streamed:
        return str(json.loads(content)["choices"][0]["text"])
    events = [event.removeprefix(b"data: ") for event in content.split(b"\n\n") if event]
    assert events.pop() == b"[DONE]"
    return "".join(json.loads(event)["choices"][0]["text"] for event in events)


@pytest.fixture(scope="module")
def alone(folder: Path) -> Callable[[str], str]:
    model = generate.load(folder / "tiny")
    return lambda prompt: "".join(model.generator(max_new_tokens=TOKENS).stream(prompt))


def write_fixed_model(path: Path) -> Path:
    """Write y = x * 2 of [4, 2, 3]: a model of four rows."""
    info = helper.make_tensor_value_info
    node = helper.make_node("Add", ["x", "x"], ["y"])
    values = [info(name, TensorProto.FLOAT, [4, 2, 3]) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


@pytest.mark.parametrize("batch_format", ["numpy", "arrow"])
def test_batches(cluster: Any, folder: Path, tmp_path: Path, batch_format: str) -> None:
    """Rows of a data set get what ONNX Runtime computes, of a model by its path and of one that was compiled here."""
    import ray

    rows = np.random.default_rng(0).standard_normal((50, 2, 3), np.float32)
    dataset = ray.data.from_items([{"x": row[0], "b": row[1], "pair": row, "id": i} for i, row in enumerate(rows)])
    common: dict[str, Any] = {"batch_size": 17, "batch_format": batch_format, "workers": 1}
    found = mirlo.ray.predict(dataset, folder / "sum.onnx", columns={"bias": "b"}, outputs={"y": "sum"}, **common)
    taken = sorted(found.take_all(), key=lambda row: int(row["id"]))
    session = onnxruntime.InferenceSession(folder / "sum.onnx")
    (wanted,) = session.run(None, {"x": rows[:, 0], "bias": rows[:, 1]})
    np.testing.assert_allclose([row["sum"] for row in taken], wanted, rtol=1e-6)
    assert set(taken[0]) == {"x", "b", "pair", "id", "sum"}
    fixed = write_fixed_model(tmp_path / "fixed.onnx")
    found = mirlo.ray.predict(dataset, mirlo.compile(str(fixed)), columns={"x": "pair"}, **common)
    taken = sorted(found.take_all(), key=lambda row: int(row["id"]))
    (wanted,) = onnxruntime.InferenceSession(fixed).run(None, {"x": rows[:4]})
    np.testing.assert_allclose([row["y"] for row in taken[:4]], wanted, rtol=1e-6)
    assert len(taken) == 50


def test_errors_of_batches(cluster: Any, folder: Path) -> None:
    import ray

    dataset = ray.data.from_items([{"x": [1.0, 2.0, 3.0]}])
    with pytest.raises(mirlo.ray.RayError, match=r"none.onnx: there is no such file"):
        mirlo.ray.predict(dataset, folder / "none.onnx")
    with pytest.raises(mirlo.ray.RayError, match="batch_format: expected one of numpy, arrow"):
        mirlo.ray.predict(dataset, folder / "sum.onnx", batch_format="pandas")
    with pytest.raises(Exception, match="there is no column 'bias' for input 'bias'"):
        mirlo.ray.predict(dataset, folder / "sum.onnx", workers=1).take_all()


def test_columns_are_read_where_they_are() -> None:
    """Columns of Arrow whose values are side by side are no copies; what is no array is refused."""
    import pyarrow
    from mirlo_llm.serve.ray.columns import arrays_of_table

    values = np.arange(24, dtype=np.float32)
    flat = pyarrow.array(values)
    tensors = pyarrow.FixedShapeTensorArray.from_numpy_ndarray(values.reshape(4, 2, 3))
    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.FixedSizeListArray.from_arrays(flat, 3), 2)
    for column, shape in ((flat, (24,)), (tensors, (4, 2, 3)), (lists, (4, 2, 3))):
        (found,) = arrays_of_table(pyarrow.table({"c": column}), {"x": "c"}).values()
        assert found.shape == shape and np.shares_memory(found, values)
        np.testing.assert_array_equal(found.ravel(), values)
        (part,) = arrays_of_table(pyarrow.table({"c": column}).slice(1, 2), {"x": "c"}).values()
        assert np.shares_memory(part, values)
        np.testing.assert_array_equal(part, found[1:3])
    cases: list[tuple[Any, Any]] = [
        ([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]])),
        ([True, False], np.array([True, False])),
        (["a", "b"], np.array(["a", "b"], object)),
        ([[1, 2], [3]], "lists have different lengths, 1 to 2"),
        ([1, None], "1 of 2 values are null"),
        ([[1, None]], "1 values in its lists are null"),
        ([{"a": 1}], "is no input of a model"),
    ]
    for column, wanted in cases:
        table = pyarrow.table({"c": pyarrow.array(column)})
        if isinstance(wanted, str):
            with pytest.raises(mirlo.ray.RayError, match=wanted):
                arrays_of_table(table, {"x": "c"})
        else:
            np.testing.assert_array_equal(arrays_of_table(table, {"x": "c"})["x"], wanted)


def test_models_are_loaded_where_requests_go(cluster: Any, folder: Path) -> None:
    """Each replica has one model at a time, on a node of its own."""
    from ray import serve

    models = [f"{name}={folder / 'sum.onnx'}" for name in ("a", "b", "c")]
    app = mirlo.serve.deployment(*models, min_replicas=2, max_replicas=2, models_per_replica=1)
    serve.run(app, route_prefix="/")
    try:
        nodes = nodes_of("models")
        assert len(nodes) == len(set(nodes)) == 2
        for number in range(4):
            assert [infer(name, number)[0] for name in ("a", "b", "c")] == [3 * number] * 3
    finally:
        serve.delete("default")


def test_no_request_is_lost_with_a_node(cluster: Any, folder: Path, alone: Callable[[str], str]) -> None:
    """A node dies while it answers: each request is answered, and each stream is whole."""
    from ray import serve

    app = mirlo.serve.deployment(str(folder / "tiny"), min_replicas=2, max_replicas=2, slots=4, queue=256)
    serve.run(app, route_prefix="/")
    prompts = [f"the fox {number}" for number in range(CLIENTS * REQUESTS)]
    expected = {prompt: alone(prompt) for prompt in prompts}
    done = threading.Semaphore(0)

    def client(number: int) -> list[str]:
        wrong = []
        for place, prompt in enumerate(prompts[number::CLIENTS]):
            body = {"model": "tiny", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
            is_streamed = place % 2 == 0
            status, content = post("/v1/completions", {**body, "stream": is_streamed})
            if status != 200 or text_of(content, is_streamed) != expected[prompt]:
                wrong.append(f"{prompt}: {status} {content!r}")
            done.release()
        return wrong

    with ThreadPoolExecutor(CLIENTS) as threads:
        running = [threads.submit(client, number) for number in range(CLIENTS)]
        for _ in range(CLIENTS):  # the requests of a first round are answered, those of a second one run
            assert done.acquire(timeout=SECONDS)
        used = set(nodes_of("models"))
        node = next(node for node in cluster.worker_nodes if node.node_id in used)
        cluster.remove_node(node, allow_graceful=False)
        wrong = [line for each in running for line in each.result(2 * SECONDS)]
    assert not wrong
    assert figure("mirlo_retried_requests_total") > 0
    end = time.monotonic() + SECONDS
    cluster.add_node(num_cpus=2, object_store_memory=STORE)
    while len(nodes_of("models")) < 2:  # a replica on the node that came takes the place of the lost one
        assert time.monotonic() < end
        time.sleep(0.5)
