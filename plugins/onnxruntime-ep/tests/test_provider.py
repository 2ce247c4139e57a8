"""Mirlo as an execution provider: results, claims, caches, context models, errors, compared with ONNX Runtime."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ort = pytest.importorskip("onnxruntime", minversion="1.23")

import mirlo_onnxruntime_ep  # noqa: E402
from mirlo_onnxruntime_ep import NAME, compiler  # noqa: E402
from mirlo_onnxruntime_ep.build import SOURCES, BuildError  # noqa: E402

PAGE = Path(__file__).parents[1] / "README.md"
PROVIDERS = [NAME, "CPUExecutionProvider"]
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def registered() -> None:
    try:
        mirlo_onnxruntime_ep.register()
    except BuildError as error:
        pytest.skip(str(error))


def model(
    nodes: Sequence[onnx.NodeProto], inputs: dict[str, Sequence[Any]], outputs: Sequence[str],
    weights: dict[str, np.ndarray] | None = None, kinds: dict[str, int] | None = None,
) -> bytes:  # fmt: skip
    """Return a model; values that are not in `kinds` are f32, and sizes of outputs are inferred."""
    kinds = kinds or {}
    values = [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), s) for n, s in inputs.items()]
    results = [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), None) for n in outputs]
    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "model", values, results, tensors)
    opsets = [helper.make_opsetid(name, version) for name, version in (("", 18), ("com.other", 1))]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return onnx.shape_inference.infer_shapes(made).SerializeToString()


def session(content: bytes | Path, options: dict[str, str] | None = None, **entries: str) -> Any:
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    for name, value in entries.items():
        settings.add_session_config_entry(name.replace("_", ".", 1), value)
    # A session with providers by name runs without those that fail; with devices it says what failed.
    devices = [device for device in ort.get_ep_devices() if device.ep_name == NAME]
    settings.add_provider_for_devices(devices, options or {})
    return ort.InferenceSession(str(content) if isinstance(content, Path) else content, settings)


def compare(content: bytes, feed: dict[str, np.ndarray], **options: str) -> Any:
    """Compare the results with those of ONNX Runtime's own provider; return the session."""
    made = session(content, options)
    expected = ort.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feed)
    for found, other in zip(made.run(None, feed), expected, strict=True):
        assert found.dtype == other.dtype and found.shape == other.shape
        np.testing.assert_allclose(found, other, rtol=1e-4, atol=1e-5)
    return made


def claims(content: bytes, folder: Path, **options: str) -> dict[str, int | None]:
    """Return the parts of nodes by their names."""
    session(content, {"report": str(folder / "report.json"), **options})
    return {each["name"]: each["part"] for each in json.loads((folder / "report.json").read_text())["nodes"]}


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def small(rows: int | str = "rows") -> bytes:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "product"),
        helper.make_node("Add", ["a", "b"], ["s"], "bias"),
        helper.make_node("Softmax", ["s"], ["y"], "classes", axis=-1),
    ]
    return model(nodes, {"x": [rows, 8]}, ["y"], {"w": f32(8, 5), "b": f32(5)})


def test_the_provider_has_a_device() -> None:
    assert [device.device.type for device in ort.get_ep_devices() if device.ep_name == NAME]
    assert NAME in ort.get_available_providers()
    made = ort.InferenceSession(small(), providers=PROVIDERS)
    assert made.get_providers() == PROVIDERS


@pytest.mark.parametrize("rows", [1, 3, 0])
def test_sizes_of_each_call(rows: int) -> None:
    compare(small(), {"x": f32(rows, 8)})


def test_calls_of_several_threads() -> None:
    content = small()
    made, feeds = session(content), [f32(rows, 8) for rows in range(1, 9)]
    expected = [ort.InferenceSession(content).run(None, {"x": x})[0] for x in feeds]
    found: list[list[np.ndarray]] = [[] for _ in feeds]

    def call(index: int) -> None:
        for _ in range(30):
            found[index].append(made.run(None, {"x": feeds[index]})[0])

    threads = [threading.Thread(target=call, args=(index,)) for index in range(len(feeds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for arrays, wanted in zip(found, expected, strict=True):
        for array in arrays:
            np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=1e-5)


def test_threads_are_those_of_the_session() -> None:
    weights = f32(256, 512)
    content = model([helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])],
                    {"x": ["n", 256]}, ["y"], {"w": weights})  # fmt: skip
    compare(content, {"x": f32(300, 256)}, threads="2")


def test_sizes_that_depend_on_data() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["i"], "places"),
        helper.make_node("Transpose", ["i"], ["t"], "rows"),
        helper.make_node("GatherND", ["x", "t"], ["y"], "found"),
    ]
    content = model(nodes, {"x": ["n", 4]}, ["y", "t"], kinds={"t": TensorProto.INT64})
    for rows in (3, 0, 5):
        compare(content, {"x": np.where(RNG.random((rows, 4)) < 0.5, f32(rows, 4), 0).astype(np.float32)})


def test_branches_and_loops_are_taken_with_their_graphs(tmp_path: Path) -> None:
    def graph(name: str, operator: str) -> onnx.GraphProto:
        node = helper.make_node(operator, ["x"], [f"{name}_y"])
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(f"{name}_y", 1, ["n", 4])])

    body = helper.make_graph(
        [
            helper.make_node("Mul", ["state", "half"], ["next"]), helper.make_node("Add", ["next", "x"], ["row"]),
            helper.make_node("Identity", ["goes_on"], ["still"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", 1, ["n", 4]),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", 1, ["n", 4]), helper.make_tensor_value_info("row", 1, ["n", 4]),
        ],
    )  # fmt: skip
    nodes = [
        helper.make_node(
            "If", ["c"], ["a"], "branch", then_branch=graph("then", "Exp"), else_branch=graph("other", "Neg")
        ),
        helper.make_node("Loop", ["three", "", "a"], ["last", "rows"], "loop", body=body),
        helper.make_node("Relu", ["last"], ["y"], "relu"),
    ]
    weights = {"three": np.array(3, np.int64), "half": np.array(0.5, np.float32)}
    content = model(nodes, {"x": ["n", 4], "c": []}, ["y", "rows"], weights, {"c": TensorProto.BOOL})
    for taken in (True, False):
        compare(content, {"x": f32(2, 4), "c": np.array(taken)})
    assert set(claims(content, tmp_path).values()) == {0}


def test_element_types() -> None:
    for kind in (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT16,
                 TensorProto.DOUBLE, TensorProto.UINT16):  # fmt: skip
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        nodes = [
            helper.make_node("Cast", ["x"], ["a"], to=TensorProto.FLOAT),
            helper.make_node("Cast", ["a"], ["y"], to=kind),
        ]
        content = model(nodes, {"x": ["n"]}, ["y"], kinds={"x": kind, "y": kind})
        compare(content, {"x": np.arange(20).astype(dtype)})


def mixed() -> bytes:
    """Return a model with strings in the middle, which are left to ONNX Runtime."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["a"], "square"),
        helper.make_node("Add", ["a", "x"], ["b"], "sum"),
        helper.make_node("Cast", ["b"], ["s"], "text", to=TensorProto.STRING),
        helper.make_node("Concat", ["s", "s"], ["t"], "twice", axis=0),
        helper.make_node("Cast", ["t"], ["c"], "number", to=TensorProto.FLOAT),
        helper.make_node("Neg", ["c"], ["d"], "minus"),
        helper.make_node("Exp", ["d"], ["e"], "exp"),
        helper.make_node("Mul", ["e", "c"], ["y"], "product"),
    ]
    return model(nodes, {"x": [4]}, ["y"], kinds={"s": TensorProto.STRING, "t": TensorProto.STRING})


def test_what_is_not_taken_has_a_reason(tmp_path: Path) -> None:
    content = model(
        [
            helper.make_node("Relu", ["x"], ["a"], "before"), helper.make_node("Abs", ["a"], ["b"], "abs"),
            helper.make_node("Unknown", ["b"], ["c"], "foreign", domain="com.other"),
            helper.make_node("Exp", ["c"], ["d"], "exp"), helper.make_node("Mul", ["d", "a"], ["y"], "after"),
        ],
        {"x": [2, 4]}, ["y"],
    )  # fmt: skip
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    parsed = {each.name: each for each in compiler.claim(path)}
    assert parsed["foreign"].part == -1 and "Unknown" in parsed["foreign"].reason
    assert parsed["before"].part == parsed["abs"].part == 0
    assert parsed["exp"].part == parsed["after"].part != 0


def test_strings_stay_with_onnx_runtime(tmp_path: Path) -> None:
    compare(mixed(), {"x": np.array([1, 2, -3, 0.5], np.float32)})
    parts = claims(mixed(), tmp_path)
    others = dict.fromkeys(("text", "twice", "number"))
    assert parts == {"square": 0, "sum": 0, **others, "minus": 1, "exp": 1, "product": 1}


def test_what_an_import_assumes_stays_with_onnx_runtime(tmp_path: Path) -> None:
    """Without axes, the rank of the result depends on sizes of the call, so later parts are left too."""
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], "exp"), helper.make_node("Neg", ["a"], ["b"], "minus"),
        helper.make_node("Squeeze", ["b"], ["s"], "squeeze"), helper.make_node("Abs", ["s"], ["c"], "abs"),
        helper.make_node("Relu", ["c"], ["y"], "relu"),
    ]  # fmt: skip
    content = model(nodes, {"x": ["n", 1, 4]}, ["y"])
    assert claims(content, tmp_path) == {"exp": 0, "minus": 0, "squeeze": None, "abs": None, "relu": None}
    for rows in (3, 1):
        compare(content, {"x": f32(rows, 1, 4)})


def test_one_node_is_a_part_if_it_has_weights(tmp_path: Path) -> None:
    product = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    for columns, part in ((8, None), (512, 0)):
        content = model([product], {"x": ["n", 8]}, ["y"], {"w": f32(8, columns)})
        assert claims(content, tmp_path) == {"product": part}
        compare(content, {"x": f32(3, 8)})


@pytest.mark.parametrize(
    ("edges", "reasons", "parts"),
    [
        ([[], [0], [1]], [None, None, None], [0, 0, 0]),
        ([[], [0], [1]], [None, "no", None], [0, -1, 1]),
        ([[], [0], [0, 1]], [None, "no", None], [0, -1, 1]),
        ([[], [], [0], [1, 2]], [None, "no", None, None], [0, -1, 0, 1]),
        ([[], [0], [1], [2], [0, 3]], [None, "no", None, "no", None], [0, -1, 1, -1, 2]),
        ([[], [0], [1]], ["no", "no", None], [-1, -1, 1]),
    ],
)
def test_parts_do_not_surround_other_nodes(edges: list[list[int]], reasons: list[str | None], parts: list[int]) -> None:
    assert compiler.parts_of(edges, reasons) == parts


def test_no_path_leaves_a_part_and_comes_back() -> None:
    for _ in range(200):
        count = int(RNG.integers(2, 14))
        edges = [
            sorted(set(RNG.integers(0, i, RNG.integers(0, min(i, 3) + 1)).tolist())) if i else [] for i in range(count)
        ]
        reasons = ["no" if RNG.random() < 0.3 else None for _ in range(count)]
        parts = compiler.parts_of(edges, reasons)
        behind = [set[int]() for _ in range(count)]  # parts that were left before a node
        for node in range(count):
            for maker in edges[node]:
                behind[node] |= behind[maker]
                if parts[maker] >= 0 and parts[maker] != parts[node]:
                    behind[node].add(parts[maker])
            assert parts[node] not in behind[node]
            assert (parts[node] == -1) == (reasons[node] is not None)


def test_equal_models_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = small(int(RNG.integers(100, 10**6)))
    path = tmp_path / "model"
    path.mkdir()
    (path / "model.onnx").write_bytes(content)
    (path / "weights.bin").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    request = compiler.Request("compile", path)
    library = compiler.library(request)
    assert library.exists()
    monkeypatch.setattr(compiler, "_compile", lambda *_: pytest.fail("it is compiled again"))
    assert compiler.library(request) == library
    with pytest.raises(pytest.fail.Exception):
        compiler.library(compiler.Request("compile", path, threads="2"))


def left_over() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("mirlo-onnxruntime-*"))


@pytest.mark.parametrize("embeds", ["0", "1"])
def test_context_models(tmp_path: Path, embeds: str) -> None:
    before = left_over()
    content, path = small(), tmp_path / "model_ctx.onnx"
    session(content, **{"ep_context_enable": "1", "ep_context_embed_mode": embeds, "ep_context_file_path": str(path)})
    nodes = onnx.load(path).graph.node
    assert [node.op_type for node in nodes] == ["EPContext"]
    with pytest.raises(
        Exception, match="set the provider's option 'trust' to 1 if you trust where the model comes from"
    ):
        session(path)
    x = f32(3, 8)
    # Nothing is compiled: the interpreter that would do it does not exist.
    made = session(path, {"trust": "1", "python": str(tmp_path / "none")})
    expected = ort.InferenceSession(content).run(None, {"x": x})[0]
    np.testing.assert_allclose(made.run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-5)
    assert left_over() <= before


def test_a_context_model_names_a_file_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "model_ctx.onnx"
    session(small(), **{"ep_context_enable": "1", "ep_context_file_path": str(path)})
    made = onnx.load(path)
    (attribute,) = (each for each in made.graph.node[0].attribute if each.name == "ep_cache_context")
    attribute.s = b"../other.so"
    onnx.save(made, path)
    with pytest.raises(Exception, match=r"the model names the file '\.\./other\.so', expected one beside it"):
        session(path, {"trust": "1"})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"thread": "2"}, "MirloExecutionProvider has no option 'thread'; its options are python, threads, target"),
        ({"threads": "many"}, "argument --threads: .*'many'"),
        ({"target": "llwm"}, "llwm"),
        ({"target": "a\tb"}, "option 'target' of MirloExecutionProvider has a tab"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, str], reason: str) -> None:
    with pytest.raises(Exception, match=reason):
        session(small(int(RNG.integers(100, 10**6))), options)


def test_a_missing_interpreter_is_named() -> None:
    before = left_over()
    code = (
        "import onnxruntime as ort, mirlo_onnxruntime_ep as ep, sys\n"
        "ep.register()\n"
        f"ort.InferenceSession(sys.stdin.buffer.read(), providers={PROVIDERS}, "
        "provider_options=[{'python': '/none/python'}, {}])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], input=small(), capture_output=True, check=False)
    assert b"set the option 'python' to a Python that has the package" in done.stderr
    assert left_over() <= before


def test_inputs_that_do_not_fit_are_errors() -> None:
    nodes = [helper.make_node("Add", ["x", "z"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    made = session(model(nodes, {"x": ["n"], "z": ["m"]}, ["y"]))
    np.testing.assert_array_equal(made.run(None, {"x": f32(1) * 0, "z": np.ones(5, np.float32)})[0], np.ones(5))
    with pytest.raises(Exception, match="'z'|sizes|broadcast"):
        made.run(None, {"x": f32(3), "z": f32(4)})


def build_c(folder: Path, runtime: Path) -> list[str]:
    """Return the command of `program.c`."""
    program, source = folder / "program", Path(__file__).with_name("program.c")
    words = ["cc", "-O1", f"-I{SOURCES}", str(source), str(runtime), "-o", str(program)]
    subprocess.run(words, check=True)
    return [str(program)]


def build_csharp(folder: Path, runtime: Path) -> list[str]:
    """Return the command of `program.cs`, which uses ONNX Runtime's own interface for C#."""
    del runtime  # it is loaded by its name
    dotnet = shutil.which("dotnet")
    if not dotnet:
        pytest.skip("needs dotnet, the .NET SDK")
    version = subprocess.run([dotnet, "--version"], capture_output=True, text=True, check=False)
    if version.returncode:
        pytest.skip(f"needs the .NET SDK: {version.stdout}{version.stderr}")
    for name in ("program.cs", "program.csproj"):
        shutil.copy(Path(__file__).with_name(name), folder)
    framework = "netcoreapp" + ".".join(version.stdout.split(".")[:2])
    words = [dotnet, "build", "-v:q", f"-p:TargetFramework={framework}", "-o", "built", "program.csproj"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if "NU1101" in done.stdout or "NU1301" in done.stdout:
        pytest.skip("needs the package Microsoft.ML.OnnxRuntime.Managed")
    assert done.returncode == 0, done.stdout
    return [dotnet, str(folder / "built" / "program.dll")]


@pytest.mark.parametrize("build", [build_c, build_csharp])
def test_programs_of_other_languages(build: Callable[[Path, Path], list[str]], tmp_path: Path) -> None:
    """They run a model, and a context model without Python and without a compiler."""
    (runtime,) = (Path(ort.__file__).parent / "capi").glob("libonnxruntime.so.*")
    command = build(tmp_path, runtime)
    content, context = small(), tmp_path / "model_ctx.onnx"
    (tmp_path / "model.onnx").write_bytes(content)
    session(content, **{"ep_context_enable": "1", "ep_context_file_path": str(context)})
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
        os.symlink(runtime, tmp_path / name)
    x = (np.arange(16, dtype=np.float32) / 16).reshape(2, 8)
    expected = ort.InferenceSession(content).run(None, {"x": x})[0].reshape(-1)
    for path, variables in ((tmp_path / "model.onnx", dict(os.environ)), (context, {"PATH": ""})):
        done = subprocess.run(
            [*command, str(mirlo_onnxruntime_ep.library_path()), str(path)],
            env={**variables, "LD_LIBRARY_PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        np.testing.assert_allclose(np.array(done.stdout.split(), np.float32), expected, rtol=1e-4, atol=1e-5)


def test_the_page(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(small())
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ran = 0
    for language, block in blocks:
        if language == "python":
            done = subprocess.run(
                [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{block}\n{done.stderr}"
            ran += 1
        elif block.startswith("# run\n"):
            for line in block.splitlines()[1:]:
                words = [sys.executable if word == "python" else word for word in shlex.split(line)]
                done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
                assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
                ran += 1
    assert ran >= 4
