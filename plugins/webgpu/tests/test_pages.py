"""Models in a page, in a browser with a software device, compared with ONNX Runtime."""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import model
from onnx.helper import make_node as node

from mirlo.extend.command import main as command

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="install chromium")
RNG = np.random.default_rng(0)
FLAGS = (
    "--headless", "--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--disable-quic",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--remote-debugging-port=0",
)  # fmt: skip
PAGE = """<script type="module">
import { load } from "./index.js";
const plain = (value) => (typeof value === "bigint" ? Number(value) : value);
async function outcome() {
  const model = await load();
  CODE
}
outcome().catch((error) => ({ error: `${error.constructor.name}: ${error.message}` }))
  .then((result) => fetch("/result", { method: "POST", body: JSON.stringify(result) }));
</script>"""
CALL = """
  const results = [];
  for (const feeds of FEEDS) {
    const outputs = await model.run(feeds);
    const entries = Object.entries(outputs);
    results.push(Object.fromEntries(entries.map(([name, { data, dims }]) => [name, [Array.from(data, plain), dims]])));
  }
  return results;
"""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and receives the result of a page."""

    results: list[Any] = []
    finished = threading.Event()

    def do_POST(self) -> None:
        self.results.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()
        self.finished.set()

    def log_message(self, *arguments: object) -> None:
        pass


def compiled(proto: onnx.ModelProto, folder: Path, *flags: str) -> Path:
    onnx.save(proto, folder / "model.onnx")
    command(["compile", str(folder / "model.onnx"), "--emit", "webgpu", "-o", str(folder / "page"), *flags])
    return folder / "page"


def visit(folder: Path, code: str) -> Any:
    """Return the result of code in a page of a folder."""
    (folder / "test.html").write_text(PAGE.replace("CODE", code))
    Handler.finished.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        words = [str(BROWSER), *FLAGS, f"--user-data-dir={profile}"]
        words.append(f"http://127.0.0.1:{server.server_address[1]}/test.html")
        environment = {**os.environ, "HOME": profile}
        process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            assert Handler.finished.wait(120), "the page hands in nothing"
        finally:
            process.terminate()
            process.wait()
            server.shutdown()
            server.server_close()
    return Handler.results.pop()


def literals(feed: Mapping[str, np.ndarray]) -> str:
    """Return arrays as JavaScript literals."""
    kinds = {"float32": "Float32Array", "int64": "BigInt64Array", "int8": "Int8Array"}
    rows = []
    for name, array in feed.items():
        values = ", ".join(
            f"{value}n" if array.dtype == np.int64 else repr(float(value)) for value in array.reshape(-1)
        )
        rows.append(f"{json.dumps(name)}: new {kinds[str(array.dtype)]}([{values}])")
    return f"{{{', '.join(rows)}}}"


@needs_browser
def test_page_computes_what_onnx_runtime_does(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), node("Relu", ["a"], ["b"]),
        node("GlobalAveragePool", ["b"], ["c"]), node("Flatten", ["c"], ["d"]), node("MatMul", ["d", "v"], ["y"]),
        node("Softmax", ["y"], ["p"]), node("ArgMax", ["y"], ["best"], axis=1), node("Gather", ["t", "best"], ["row"]),
        node("Greater", ["y", "zero"], ["is_positive"]), node("Add", ["i", "best"], ["j"]),
    ]  # fmt: skip
    weights = {
        "w": RNG.standard_normal((8, 3, 3, 3), np.float32), "v": RNG.standard_normal((8, 10), np.float32),
        "t": RNG.standard_normal((10, 4), np.float32), "zero": np.zeros((), np.float32),
    }  # fmt: skip
    proto = model(
        nodes, {"x": ("f32", ("batch", 3, 9, 9)), "i": ("i64", ("batch",))},
        {"p": "f32", "best": "i64", "row": "f32", "is_positive": "bool", "j": "i64"}, weights,
    )  # fmt: skip
    page = compiled(proto, tmp_path, "--dim", "batch=2")
    feeds = [{"x": RNG.standard_normal((2, 3, 9, 9), np.float32), "i": np.array([1 << 40, -5])} for _ in range(2)]
    results = visit(page, CALL.replace("FEEDS", f"[{', '.join(map(literals, feeds))}]"))
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for feed, outputs in zip(feeds, results, strict=True):
        for output, expected in zip(session.get_outputs(), session.run(None, feed), strict=True):
            values, dims = outputs[output.name]
            assert tuple(dims) == expected.shape
            np.testing.assert_allclose(np.array(values).reshape(dims), expected, rtol=1e-5, atol=1e-6)


@needs_browser
def test_errors_name_the_input(tmp_path: Path) -> None:
    page = compiled(model([node("Neg", ["x"], ["y"])], {"x": ("f32", (4,))}, {"y": "f32"}), tmp_path)
    code = """
  const text = (error) => `${error.constructor.name}: ${error.message}`;
  const message = (feeds) => model.run(feeds).then(() => "", text);
  const x = new Float32Array([1, 2, 3, 4]);
  return [await message({ x: new Float32Array(3) }), await message({ x: [1] }), await message({ x, z: 1 }),
    Array.from((await model.run({ x })).y.data)];"""
    assert visit(page, code) == [
        "ModelError: 'x': expected 4 elements, [4], found 3", "ModelError: 'x': expected a Float32Array, found Array",
        "ModelError: 'z' is no input of the model: x", [-1, -2, -3, -4],
    ]  # fmt: skip


def test_open_sizes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = model([node("Neg", ["x"], ["y"])], {"x": ("f32", ("n",))}, {"y": "f32"})
    assert not compiled(proto, tmp_path).exists()
    assert "name those that are open, for example --dim batch=1" in capsys.readouterr().err
