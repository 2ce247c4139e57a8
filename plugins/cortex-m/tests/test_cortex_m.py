"""Models for Cortex-M: as plain C on this machine, and on emulated boards if the tools are installed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from mirlo_cortex_m import FLAGS
from mirlo_cortex_m.board import BoardError, missing_tools, stack_bound
from mirlo_cortex_m.measure import measure
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.benchmarks.models import tiny
from mirlo.extend.command import main

needs_board = pytest.mark.skipif(bool(missing_tools()), reason=f"install {', '.join(missing_tools())}")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tiny.QuantizedFiles:
    return tiny.QuantizedFiles(tmp_path_factory.mktemp("models"))


def test_rules_take_products_and_depthwise_convolutions(models: tiny.QuantizedFiles, tmp_path: Path) -> None:
    words = ["compile", models / "ds_cnn.onnx", "--target", "c{cpu=cortex-m4}", "--emit", "source", "-o", tmp_path]
    assert main([*map(str, words)]) == 0
    text = (tmp_path / "ds_cnn.c").read_text()
    kernels = text[text.index("/* kernel") :]
    assert "mirlo_dot(" in kernels and "mirlo_taps(" in kernels


@pytest.mark.parametrize("name", ["wake_word", "ds_cnn"])
def test_this_machine_computes_the_same(models: tiny.QuantizedFiles, name: str) -> None:
    x = tiny.samples(name, 1, seed=1)
    found = mirlo.compile(models / f"{name}.onnx", "cortex-m4", cache=False)(x)
    np.testing.assert_array_equal(found, mirlo.compile(models / f"{name}.onnx", cache=False)(x))


@needs_board
@pytest.mark.parametrize("processor", FLAGS)
def test_boards_compute_the_same(models: tiny.QuantizedFiles, processor: str) -> None:
    found = measure(models / "wake_word.onnx", processor)
    assert found.is_equal
    assert found.products == 25 * 20 * 8 * 80 + 4000 * 4
    assert found.arena <= 1.1 * found.bound
    assert found.run.ram == found.arena
    assert found.run.flash - found.weights < 20_000
    assert found.run.stack <= found.run.stack_bound + 64  # what the C library takes


def _generated(seed: int) -> onnx.ModelProto:
    """Return an int8 model of one or two random layers: products, full or depthwise convolutions."""
    rng = np.random.default_rng(seed)
    nodes, weights, shape = [], {}, (1, int(rng.integers(1, 41)), *map(int, rng.integers(4, 12, 2)))
    value, channels = "x", shape[1]
    for i in range(int(rng.integers(1, 3))):
        alone = rng.random() < 0.5
        window = [int(rng.integers(1, 4)) for _ in range(2)]
        filters = channels if alone else int(rng.integers(1, 41))
        weights[f"w{i}"] = rng.standard_normal((filters, 1 if alone else channels, *window), dtype=np.float32)
        pads = [int(rng.integers(0, each)) for each in (*window, *window)]
        strides = [int(rng.integers(1, 3)) for _ in range(2)]
        attributes = {"pads": pads, "strides": strides, "group": channels if alone else 1}
        nodes.append(helper.make_node("Conv", [value, f"w{i}"], [f"c{i}"], **attributes))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        value, channels = f"r{i}", filters
    nodes.append(helper.make_node("GlobalAveragePool", [value], ["g"]))
    nodes.append(helper.make_node("Flatten", ["g"], ["f"]))
    nodes.append(helper.make_node("MatMul", ["f", "m"], ["y"]))
    weights["m"] = rng.standard_normal((channels, int(rng.integers(1, 30))), dtype=np.float32)
    graph = helper.make_graph(
        nodes, "generated", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return mirlo.quantize(model, rng.standard_normal((8, *shape[1:]), dtype=np.float32), whole=True).model


@needs_board
@pytest.mark.parametrize("seed", range(2 * len(FLAGS)))
def test_generated_layers(tmp_path: Path, seed: int) -> None:
    """Boards execute the instructions of the processor; this machine executes plain C."""
    processor = list(FLAGS)[seed % len(FLAGS)]
    path = tmp_path / "generated.onnx"
    path.write_bytes(_generated(seed).SerializeToString())
    found = measure(path, processor)
    assert found.is_equal
    assert found.run.stack <= found.run.stack_bound + 64


def test_the_longest_path_of_calls() -> None:
    graph = """
node: { title: "a.c:run" label: "run\\na.c:1:1\\n16 bytes (static)\\n0 dynamic objects" }
node: { title: "one" label: "one\\na.c:2:1\\n40 bytes (static)\\n0 dynamic objects" }
node: { title: "two" label: "two\\na.c:3:1\\n8 bytes (static)\\n0 dynamic objects" }
node: { title: "expf" label: "expf\\n<built-in>" shape : ellipse }
edge: { sourcename: "a.c:run" targetname: "one" label: "a.c:1:2" }
edge: { sourcename: "a.c:run" targetname: "two" label: "a.c:1:3" }
edge: { sourcename: "two" targetname: "expf" label: "a.c:1:3" }
"""
    assert stack_bound(graph, "run") == 56
    with pytest.raises(BoardError, match="two calls itself: its stack has no bound"):
        stack_bound(graph + 'edge: { sourcename: "two" targetname: "two" }', "run")
    with pytest.raises(BoardError, match="the frame of one has no size that is known"):
        stack_bound(graph.replace("40 bytes (static)", "40 bytes (dynamic)"), "run")


@needs_board
@pytest.mark.parametrize(("processor", "most"), [("cortex-m4", 4.5), ("cortex-m33", 4.5), ("cortex-m55", 3)])
def test_instructions_multiply_several_int8(models: tiny.QuantizedFiles, processor: str, most: float) -> None:
    found = measure(models / "wake_word.onnx", processor)
    assert found.run.instructions < most * found.products


@needs_board
def test_the_table(models: tiny.QuantizedFiles) -> None:
    command = [sys.executable, "-m", "mirlo_cortex_m.measure", "--cpu", "cortex-m4", str(models / "wake_word.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *_, row = done.stdout.splitlines()
    assert row.startswith("| wake_word | cortex-m4 | 336,000 |") and row.endswith("| yes |")


@needs_board
def test_the_page(models: tiny.QuantizedFiles, tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "README.md").read_text()
    blocks = re.findall(r"^```sh\n# run\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    (tmp_path / "wake_word.onnx").write_bytes((models / "wake_word.onnx").read_bytes())
    commands = {"mirlo": [sys.executable, "-m", "mirlo.tools.cli"], "python": [sys.executable]}
    for line in "".join(blocks).splitlines():
        program, *words = shlex.split(line)
        done = subprocess.run(
            [*commands.get(program, [program]), *words], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    assert "| yes |" in done.stdout
