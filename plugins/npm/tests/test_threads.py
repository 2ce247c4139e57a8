"""Threads of npm packages: in Node.js, and in pages with and without isolation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from mirlo_npm.server import IsolatedHandler
from onnx import TensorProto, helper, numpy_helper
from packages import BROWSERS, REQUIRES_TOOLS, Handler, compiled, in_browser, in_node, served

pytestmark = REQUIRES_TOOLS
RNG = np.random.default_rng(0)
X = RNG.standard_normal((96, 128)).astype(np.float32)


def products() -> onnx.ModelProto:
    """Return a model with enough work in each kernel that threads share it."""
    weights = {name: (RNG.standard_normal((128, 128)) / 11).astype(np.float32) for name in ("a", "b")}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["c"]), helper.make_node("Tanh", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "b"], ["e"]), helper.make_node("Softmax", ["e"], ["y"]),
    ]  # fmt: skip
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "products", [info("x", TensorProto.FLOAT, ["n", 128])], [info("y", TensorProto.FLOAT, ["n", 128])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(products(), tmp_path_factory.mktemp("threads"), "--threads", "4")


@pytest.fixture(scope="module")
def expected(package: Path) -> np.ndarray:
    """Return ONNX Runtime's result."""
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(str(package.parent / "model.onnx"))
    result: np.ndarray = session.run(None, {"x": X})[0]
    return result.reshape(-1)


CALLS = f"""
const x = Float32Array.from({json.dumps(X.reshape(-1).tolist())});
const calls = async (model) => {{
  const first = Array.from((await model.run({{ x }})).y.data);
  for (let i = 0; i < 300; ++i) {{
    const {{ y }} = await model.run({{ x }});
    if (!y.data.every((value, k) => value === first[k])) throw new Error(`call ${{i}} differs`);
  }}
  return {{ first, threads: model.threads, reason: model.reason }};
}};
"""
TWO_CORES = """
import os from "node:os";
import { syncBuiltinESMExports } from "node:module";
os.availableParallelism = () => 2; // whatever this machine has
syncBuiltinESMExports();
"""


def test_results_are_those_of_onnx_runtime_with_threads(package: Path, expected: np.ndarray) -> None:
    code = """
        const model = await load();
        const several = await calls(model);
        model.close();
        const closed = await model.run({ x }).catch((error) => error.message);
        const one = await calls(await load({ threads: 1 }));
        console.log(JSON.stringify({ several, one, closed }));
    """
    result = in_node(package, TWO_CORES + CALLS + code)
    several, one = result["several"], result["one"]
    np.testing.assert_allclose(several["first"], expected, rtol=1e-4, atol=1e-6)
    assert several["first"] == one["first"]
    assert (several["threads"], several["reason"]) == (2, "there are 2 cores")
    assert (one["threads"], one["reason"]) == (1, "the options of load say so")
    assert result["closed"] == "the model is closed"


def test_workers_stay_awake_from_call_to_call(package: Path) -> None:
    """Workers that sleep between kernels cost time: waking one takes as long as a small kernel."""
    code = """
        const instantiate = WebAssembly.instantiate;
        let exports;
        WebAssembly.instantiate = async (...values) => {
            const instance = await instantiate(...values);
            exports ??= instance.exports;
            return instance;
        };
        const model = await load();
        for (let i = 0; i < 100; ++i) await model.run({ x }); // the engine compiles what is called often
        const before = exports.sleeps();
        for (let i = 0; i < 300; ++i) await model.run({ x });
        const inCalls = exports.sleeps() - before;
        await new Promise((resolve) => setTimeout(resolve, 100));
        console.log(JSON.stringify({ inCalls, all: exports.sleeps(), threads: model.threads }));
    """
    result = in_node(package, TWO_CORES + CALLS + code)
    assert result["threads"] == 2
    assert result["inCalls"] < 100  # one is enough if the caller's core is taken away for a moment
    assert result["all"] > 0  # without calls they do sleep


def test_reasons_for_fewer_threads(package: Path, tmp_path: Path) -> None:
    code = """
        const facts = ({ threads, reason }) => [threads, reason];
        const one = new URL("./model.wasm", "PACKAGE/");
        const given = facts(await load({ module: one }));
        const wrong = await load({ threads: 0 }).catch((error) => error.message);
        globalThis.crossOriginIsolated = false;
        console.log(JSON.stringify([given, facts(await load()), wrong]));
    """
    given, open_page, wrong = in_node(package, TWO_CORES + code)
    assert given == [1, "the module that was given is for one thread"]
    assert open_page[0] == 1 and open_page[1].startswith("the page is not isolated: its server has to send the headers")
    assert wrong == "threads: expected a number from 1 on, found 0"
    single = compiled(products(), tmp_path)
    result = in_node(
        single, "const { threads, reason } = await load(); console.log(JSON.stringify([threads, reason]));"
    )
    assert result == [1, "the model was compiled for one thread: mirlo compile --threads N"]


class PageHandler(IsolatedHandler, Handler):
    """Serves a package to isolated pages and receives their results."""


PAGE = f"""<script type="module">
    import {{ load, loadInWorker }} from "./index.js";
    const send = (value) => fetch("/result", {{ method: "POST", body: JSON.stringify(value) }});
    Object.defineProperty(Navigator.prototype, "hardwareConcurrency", {{ get: () => 2 }});
    {CALLS}
    try {{
        const here = await calls(await load());
        const worker = await loadInWorker({{ threads: 2 }});
        const there = await calls(worker);
        worker.close();
        await send({{ here, there }});
    }} catch (error) {{ await send({{ error: error.stack }}); }}
</script>"""


@pytest.fixture(params=[True, False], ids=["isolated", "open"])
def address(package: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, bool]]:
    with served(package, PageHandler if request.param else Handler) as address:
        yield address, request.param


@pytest.mark.parametrize("browser", BROWSERS)
def test_pages(package: Path, address: tuple[str, bool], browser: str, expected: np.ndarray) -> None:
    url, is_isolated = address
    result = in_browser(browser, package, url, PAGE)
    assert "error" not in result, result
    for each in result.values():
        np.testing.assert_allclose(each["first"], expected, rtol=1e-4, atol=1e-6)
        assert each["reason"].startswith("" if is_isolated else "the page is not isolated")
    assert result["here"]["threads"] == (2 if is_isolated else 1)
