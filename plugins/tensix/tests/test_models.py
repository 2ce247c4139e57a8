"""Models: their results, how much of them the core computes, and the command of the page with its picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from mirlo_tensix import simulator
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.benchmarks.models import tiny
from mirlo.extend.command import main
from mirlo.testing import placement_of

needs_simulator = pytest.mark.skipif(simulator.missing() is not None, reason=f"simulator: {simulator.missing()}")
HEADS, WIDTH = 2, 128
Inputs = dict[str, np.ndarray]


def model_of(name: str, nodes: list[Any], shapes: tuple[Any, Any], weights: Inputs) -> onnx.ModelProto:
    ends = [
        [helper.make_tensor_value_info(end, TensorProto.FLOAT, shape)] for end, shape in zip("xy", shapes, strict=True)
    ]
    constants = [numpy_helper.from_array(value.astype(np.float32), end) for end, value in weights.items()]
    graph = helper.make_graph(nodes, name, *ends, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def resnet_8() -> tuple[Any, Inputs]:
    return tiny.resnet_8(), {"x": tiny.samples("resnet_8", 1)}


def bert(layers: int, rows: int) -> tuple[Any, Inputs]:
    """Return encoder layers of BERT-tiny with drawn weights, some keys masked, and inputs."""
    rng, nodes, weights = np.random.default_rng(0), list[Any](), dict[str, np.ndarray]()

    def add(operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator.lower()}_{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def constant(value: Any) -> str:
        name = f"w{len(weights)}"
        weights[name] = np.asarray(value)
        return name

    def dense(x: str, inputs: int, outputs: int) -> str:
        weight = constant(rng.standard_normal((inputs, outputs)) / inputs**0.5)
        return add("Add", add("MatMul", x, weight), constant(0.1 * rng.standard_normal(outputs)))

    def norm(x: str) -> str:
        return add("LayerNormalization", x, constant(np.ones(WIDTH)), constant(np.zeros(WIDTH)))

    def shaped(x: str, *shape: int) -> str:
        nodes.append(helper.make_node("Constant", [], [f"s{len(nodes)}"], value_ints=shape))
        return add("Reshape", x, nodes[-1].output[0])

    x, mask = "x", np.zeros((1, 1, 1, rows))
    mask[..., -5:] = -1e4
    for _ in range(layers):
        orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        q, k, v = (
            add("Transpose", shaped(dense(x, WIDTH, WIDTH), 1, rows, HEADS, WIDTH // HEADS), perm=order)
            for order in orders
        )
        scores = add("Mul", add("MatMul", q, k), constant(np.float32((WIDTH / HEADS) ** -0.5)))
        mixed = add("MatMul", add("Softmax", add("Add", scores, constant(mask)), axis=-1), v)
        mixed = shaped(add("Transpose", mixed, perm=[0, 2, 1, 3]), 1, rows, WIDTH)
        x = norm(add("Add", x, dense(mixed, WIDTH, WIDTH)))
        x = norm(add("Add", x, dense(add("Gelu", dense(x, WIDTH, 4 * WIDTH)), 4 * WIDTH, WIDTH)))
    nodes.append(helper.make_node("Identity", [x], ["y"], name="end"))
    model = model_of("bert", nodes, ((1, rows, WIDTH),) * 2, weights)
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", 20))
    return model, {"x": rng.standard_normal((1, rows, WIDTH)).astype(np.float32)}


def error_of(model: Any, inputs: Inputs, target: str) -> float:
    """Return the greatest difference to the CPU, relative to the greatest result."""
    found = mirlo.compile(model, f"{target},llvm", cache=False)(**inputs)
    expected = mirlo.compile(model, cache=False)(**inputs)
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def share_of(model: Any, target: str) -> float:
    """Return the share of operations that the core computes."""
    placement = placement_of(model, f"{target},llvm").placement
    taken = {number for region in placement.regions if region.kept for number in region.nodes}
    return sum(placement.nodes[i].flops for i in taken) / sum(node.flops for node in placement.nodes)


@pytest.mark.usefixtures("unit_in_numpy")
@pytest.mark.parametrize(
    ("made", "target"),
    [(resnet_8, "tensix{phases=3}"), (lambda: bert(1, 24), "tensix{dtype=tf32 phases=3}")],
    ids=("resnet_8", "bert"),
)
def test_bits_of_models_are_near_those_of_the_cpu(made: Any, target: str) -> None:
    model, inputs = made()
    assert share_of(model, target) >= 0.95
    assert error_of(model, inputs, target) <= 1e-2


@needs_simulator
@pytest.mark.parametrize(
    ("made", "target"),
    [(resnet_8, "tensix{phases=3}"), (lambda: bert(2, 32), "tensix{dtype=tf32 phases=3}")],
    ids=("resnet_8", "bert_tiny"),
)
def test_models_run_on_the_core(made: Any, target: str) -> None:
    model, inputs = made()
    assert error_of(model, inputs, target) <= 1e-2


@needs_simulator
def test_the_command_of_the_page_runs_a_model_and_draws_its_time_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).parents[1].joinpath("README.md").read_text()
    (command,) = (line for line in page.splitlines() if line.startswith("mirlo run ") and "--timeline" in line)
    weight = np.random.default_rng(0).standard_normal((64, 64)) / 8
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="up"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("Softmax", ["r"], ["y"], name="softmax"),
    ]
    monkeypatch.chdir(tmp_path)
    onnx.save(model_of("block", nodes, ((32, 64),) * 2, {"w": weight}), "model.onnx")
    assert main(command.replace("'", "").split()[1:]) == 0
    printed = capsys.readouterr().out
    assert "cycles" in printed and "matrix" in printed and "wrote time.svg" in printed
    picture = Path("time.svg").read_text()
    assert all(name in picture for name in ("unpackers", "matrix", "vector", "packers", "relu", "softmax"))
