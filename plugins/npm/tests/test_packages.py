"""npm packages in Node.js and in a browser, compared with ONNX Runtime; types; errors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from packages import BROWSERS, NODE, REQUIRES_TOOLS, Handler, compiled, in_browser, in_node, served

pytestmark = REQUIRES_TOOLS
RNG = np.random.default_rng(0)


def model(
    nodes: Sequence[onnx.NodeProto], inputs: dict[str, Sequence[Any]], outputs: Sequence[str],
    weights: dict[str, np.ndarray] | None = None, kinds: dict[str, int] | None = None,
) -> onnx.ModelProto:  # fmt: skip
    kinds = kinds or {}
    values = [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), s) for n, s in inputs.items()]
    results = [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), None) for n in outputs]
    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "model", values, results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def classifier() -> onnx.ModelProto:
    """Return a model with weights, a dynamic batch, and an output of integers."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]), helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "v"], ["y"]), helper.make_node("ArgMax", ["y"], ["best"], axis=1),
    ]  # fmt: skip
    weights = {"w": RNG.standard_normal((16, 3, 3, 3), np.float32), "v": RNG.standard_normal((16, 10), np.float32)}
    return model(nodes, {"x": ["batch", 3, 12, 12]}, ["y", "best"], weights, {"best": TensorProto.INT64})


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(classifier(), tmp_path_factory.mktemp("classifier"))


def expected(made: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    ort = pytest.importorskip("onnxruntime")
    return list(ort.InferenceSession(made.SerializeToString()).run(None, feed))


CALL = """
const model = await load();
const results = await model.run(FEEDS);
const plain = (value) => (typeof value === "bigint" ? Number(value) : value);
console.log(JSON.stringify(Object.fromEntries(Object.entries(results).map(
  ([name, { data, dims }]) => [name, { data: Array.from(data, plain), dims, kind: data.constructor.name }]))));
"""
ARRAYS = {
    "float32": "Float32Array", "float64": "Float64Array", "int64": "BigInt64Array", "int32": "Int32Array",
    "uint8": "Uint8Array", "int8": "Int8Array", "bool": "Uint8Array",
}  # fmt: skip


def feeds(arrays: dict[str, np.ndarray]) -> str:
    """Return arrays as an object of JavaScript."""
    rows = []
    for name, array in arrays.items():
        flat = ", ".join(
            f"{int(value)}n" if array.dtype == np.int64 else repr(value) for value in array.reshape(-1).tolist()
        )
        flat = flat.replace("True", "1").replace("False", "0")
        rows.append(
            f"{json.dumps(name)}: {{ data: new {ARRAYS[array.dtype.name]}([{flat}]), dims: {list(array.shape)} }}"
        )
    return f"{{ {', '.join(rows)} }}"


def check(package: Path, made: onnx.ModelProto, arrays: dict[str, np.ndarray]) -> None:
    """Compare a call in Node.js with ONNX Runtime."""
    found = in_node(package, CALL.replace("FEEDS", feeds(arrays)))
    for output, wanted in zip(made.graph.output, expected(made, arrays), strict=True):
        result = found[output.name]
        assert result["dims"] == list(wanted.shape) and result["kind"] == ARRAYS[wanted.dtype.name]
        np.testing.assert_allclose(np.array(result["data"]).reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 3])
def test_results_are_those_of_onnx_runtime(package: Path, batch: int) -> None:
    made = onnx.load(package.parent / "model.onnx")
    check(package, made, {"x": RNG.standard_normal((batch, 3, 12, 12), np.float32)})


def test_the_files_of_a_package(package: Path) -> None:
    names = {path.name for path in package.iterdir()}
    scripts = ("index", "call", "state", "generate", "sample", "threads", "thread", "worker")
    files = {f"{name}.js" for name in scripts} | {"index.d.ts", "generate.d.ts", "demo.html", "package.json"}
    assert names == {"model.wasm", "model.weights", *files}
    manifest = json.loads((package / "package.json").read_text())
    assert manifest["name"] == "some-model" and set(manifest["files"]) | {"package.json"} == names
    text = (package / "index.d.ts").read_text()
    assert '"x": Float32Array | Tensor<Float32Array>;' in text and '"best": Tensor<BigInt64Array>;' in text


def test_arrays_alone_where_one_size_is_open(package: Path) -> None:
    code = CALL.replace("FEEDS", "{ x: new Float32Array(2 * 3 * 12 * 12) }")
    assert in_node(package, code)["y"]["dims"] == [2, 10]


def test_progress_of_loading(package: Path) -> None:
    marks = in_node(package, """
        const marks = [];
        await load({ onProgress: (loaded, total) => marks.push([loaded, total]) });
        console.log(JSON.stringify(marks));
    """)  # fmt: skip
    size = sum((package / name).stat().st_size for name in ("model.wasm", "model.weights"))
    assert marks[-1] == [size, size] and [loaded for loaded, _ in marks] == sorted(loaded for loaded, _ in marks)


def test_sizes_that_depend_on_data(tmp_path: Path) -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["i"]), helper.make_node("Transpose", ["i"], ["y"])]
    made = model(nodes, {"x": ["n", 4]}, ["y"], kinds={"y": TensorProto.INT64})
    package = compiled(made, tmp_path)
    check(package, made, {"x": np.array([[1, 0, 2, 0], [0, 0, 0, 3]], np.float32)})


@pytest.mark.parametrize(
    "kind", [TensorProto.INT8, TensorProto.UINT8, TensorProto.INT64, TensorProto.BOOL, TensorProto.DOUBLE]
)
def test_element_types(tmp_path: Path, kind: int) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["a"], ["y"], to=kind),
    ]
    made = model(nodes, {"x": ["n"]}, ["y"], kinds={"x": kind, "y": kind})
    check(compiled(made, tmp_path), made, {"x": np.arange(2, 7).astype(helper.tensor_dtype_to_np_dtype(kind))})


@pytest.mark.parametrize(
    ("feed", "reason"),
    [
        ("{}", "input 'x' is missing"),
        ("{ x: new Float32Array(7) }", "'x' has 7 elements, expected batch x 3 x 12 x 12"),
        ("{ x: new Float64Array(432) }", "'x' is Float64Array, expected Float32Array"),
        ("{ x: new Float32Array(432), z: 1 }", "there is no input 'z'; there are x"),
        (
            "{ x: { data: new Float32Array(432), dims: [1, 3, 12, 13] } }",
            "'x' has 432 elements, and dims 1 x 3 x 12 x 13",
        ),
        ("{ x: { data: new Float32Array(468), dims: [1, 3, 12, 13] } }", "'x': dim 3 is 13, expected 12"),
        ("{ x: null }", "input 'x' is missing"),
        ("{ x: { data: new Float32Array(432), dims: [-1, -3, 12, 12] } }", "'x' has the dims -1 x -3 x 12 x 12"),
        ("{ x: { data: new Float32Array(432), dims: [0.5, 6, 12, 12] } }", "'x' has the dims 0.5 x 6 x 12 x 12"),
    ],
)
def test_feeds_that_do_not_fit(package: Path, feed: str, reason: str) -> None:
    code = f"""
        const model = await load();
        try {{ await model.run({feed}); }} catch (error) {{
          console.log(JSON.stringify([error instanceof ModelError, error.name, error.message]));
        }}
    """
    assert in_node(package, code) == [True, "ModelError", reason]


LARGE = {
    "output": ("'y': no memory has room for its dims", [helper.make_node("Mul", ["column", "x"], ["y"])]),
    "arena": (
        "there are no 34359738",
        [
            helper.make_node("Mul", ["column", "x"], ["a"]), helper.make_node("CumSum", ["a", "axis"], ["b"]),
            helper.make_node("ReduceMax", ["b"], ["y"]),
        ],
    ),
    "data": (
        "there is no memory for a tensor whose size depends on data",
        [
            helper.make_node("NonZero", ["x"], ["i"]), helper.make_node("Transpose", ["i"], ["j"]),
            helper.make_node("Mul", ["i", "j"], ["y"]),
        ],
    ),
}  # fmt: skip


RELAXED = "--experimental-wasm-relaxed-simd"
"""The flag of versions of Node.js before 22."""


def test_an_engine_that_lacks_relaxed_simd_says_so(tmp_path: Path) -> None:
    made = classifier()
    target = "llvm{cpu=generic triple=wasm32-unknown-unknown features=+simd128,+relaxed-simd}"
    package, x = compiled(made, tmp_path, "--target", target), RNG.standard_normal((1, 3, 12, 12), np.float32)
    version = subprocess.run([str(NODE), "--version"], capture_output=True, text=True, check=True).stdout
    has_flag = int(version.removeprefix("v").partition(".")[0]) < 22
    found = in_node(package, CALL.replace("FEEDS", feeds({"x": x})), flags=[RELAXED] if has_flag else [])
    np.testing.assert_allclose(found["y"]["data"], expected(made, {"x": x})[0].reshape(-1), rtol=1e-4, atol=1e-5)
    if not has_flag:
        return
    error = in_node(package, "await load();", check=False)
    assert "this engine does not compile the module, which needs relaxed-simd, simd128" in error


@pytest.mark.parametrize("where", LARGE)
def test_sizes_of_more_than_32_bits_are_an_error(tmp_path: Path, where: str) -> None:
    """65536 x 65536 elements of 4 or 8 bytes: the count is 0 modulo 2^32."""
    reason, nodes = LARGE[where]
    first = helper.make_node("Unsqueeze", ["x", "axes"], ["column"])
    kinds = {"y": TensorProto.INT64} if where == "data" else {}
    weights = {"axes": np.array([1]), "axis": np.array(1)}
    made = model(nodes if where == "data" else [first, *nodes], {"x": ["n"]}, ["y"], weights, kinds)
    code = """
        const model = await load();
        const call = (n) => model.run({ x: new Float32Array(n).fill(1) }).then(() => "", (error) => error.message);
        console.log(JSON.stringify([await call(3), await call(65536), await call(3)]));
    """
    before, message, after = in_node(compiled(made, tmp_path), code)
    assert before == "" and reason in message and after == ""


@pytest.mark.parametrize(
    ("size", "reason"), [(10, "the weights have 10 bytes, expected"), (1 << 20, "the weights have more than")]
)
def test_weights_that_do_not_fit(package: Path, size: int, reason: str) -> None:
    assert reason in in_node(package, f"await load({{ weights: new Uint8Array({size}) }});", check=False)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--weights", "embed"], "packages of npm have their weights in a file"),
        (["--target", "llvm"], "packages of npm are WebAssembly: leave out --target"),
        (
            ["--threads", "2", "--target", "llvm{cpu=generic triple=wasm32-unknown-unknown features=+simd128}"],
            "threads need the features atomics and bulk-memory: name them in --target",
        ),
    ],
)
def test_flags_that_do_not_fit(tmp_path: Path, flags: list[str], reason: str) -> None:
    onnx.save(classifier(), tmp_path / "model.onnx")
    words = ["compile", str(tmp_path / "model.onnx"), "--emit", "npm", "-o", str(tmp_path / "package"), *flags]
    done = subprocess.run(
        [sys.executable, "-m", "mirlo.tools.cli", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and reason in done.stderr


@pytest.fixture
def address(package: Path) -> Iterator[str]:
    with served(package) as address:
        yield address


def test_weights_that_break_off_go_on_where_they_ended(package: Path, address: str) -> None:
    code = CALL.replace("load()", f'load({{ weights: "{address}/model.weights" }})')
    assert in_node(package, code.replace("FEEDS", "{ x: new Float32Array(432) }"))["y"]["dims"] == [1, 10]
    assert Handler.broken


@pytest.mark.parametrize("browser", BROWSERS)
def test_a_browser_computes_the_same_in_a_page_and_in_a_worker(package: Path, address: str, browser: str) -> None:
    x = RNG.standard_normal((2, 3, 12, 12), np.float32)
    page = """<script type="module">
        import { load, loadInWorker } from "./index.js";
        const send = (value) => fetch("/result", { method: "POST", body: JSON.stringify(value) });
        try {
            let steps = 0;
            const feed = FEEDS;
            const here = await (await load()).run(feed);
            const worker = await loadInWorker({ onProgress: () => ++steps });
            const there = await worker.run(feed);
            const wrong = await worker.run({}).catch((error) => error.message);
            worker.close();
            await send({ here: Array.from(here.y.data), there: Array.from(there.y.data), steps, wrong });
        } catch (error) { await send({ error: error.stack }); }
    </script>"""
    result = in_browser(browser, package, address, page.replace("FEEDS", feeds({"x": x})))
    wanted = expected(onnx.load(package.parent / "model.onnx"), {"x": x})[0].reshape(-1)
    assert "error" not in result, result
    np.testing.assert_allclose(result["here"], wanted, rtol=1e-4, atol=1e-5)
    assert result["here"] == result["there"] and result["steps"] > 1 and result["wrong"] == "input 'x' is missing"


@pytest.mark.parametrize("browser", BROWSERS)
def test_the_demo_page_runs(package: Path, address: str, browser: str) -> None:
    page = (package / "demo.html").read_text()
    click = """<script type="module">
        while (!document.body.dataset.ready) await new Promise((resolve) => setTimeout(resolve, 50));
        document.getElementById("run").click();
        const table = document.getElementById("table");
        while (table.rows.length < 4) await new Promise((resolve) => setTimeout(resolve, 50));
        await fetch("/result", { method: "POST", body: JSON.stringify(table.innerText) });
    </script>"""
    text = in_browser(browser, package, address, page + click)
    assert "x\tf32\t1 x 3 x 12 x 12" in text and "best\ti64\t1" in text
