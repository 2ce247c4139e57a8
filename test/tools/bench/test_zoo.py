"""The zoo: its entries, the comparison of one exported model, and the page of results."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import output_of, python, run_script
from onnx import TensorProto, helper

from mirlo.benchmarks.zoo.entry import CONVERTED, DYNAMO, TORCHSCRIPT
from mirlo.benchmarks.zoo.families import FAMILIES, entries
from mirlo.benchmarks.zoo.judge import difference
from mirlo.benchmarks.zoo.report import write_page

LISTED = "import sys, benchmarks.zoo.families as f; print(len(list(f.entries())), 'torch' in sys.modules)"


def test_listing_imports_no_framework() -> None:
    count, imported = output_of(python("-c", LISTED)).split()
    assert int(count) >= 600 and imported == "False"


@pytest.mark.sample(0)
def test_entries() -> None:
    every = list(entries())
    names = [variant.name for variant in every]
    assert len(names) == len(set(names)) and {variant.entry.family for variant in every} == set(FAMILIES)
    assert len({(variant.entry.family, variant.entry.name) for variant in every}) >= 150
    assert {variant.exporter for variant in every} == {TORCHSCRIPT, DYNAMO, CONVERTED}
    for variant in every:
        shapes = [[array.shape for array in variant.entry.arrays(index, 0).values()] for index in range(3)]
        assert (
            len({str(each) for each in shapes}) == 3 or not variant.entry.dynamic_axes() or variant.shapes == "static"
        )


def _save(folder: Path, operator: str, rows: tuple[int, int, int]) -> Path:
    """Write a model of one operator on `n` rows, and its inputs."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], "g", [x], [y])
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    for index, count in enumerate(rows):
        values = np.random.default_rng(index).standard_normal((count, 3), dtype=np.float32)
        np.savez(path.with_suffix(f".{index}.npz"), x=values, unused=values)
    return path


def test_judge_and_page(tmp_path: Path) -> None:
    printed = output_of(run_script("-m", "benchmarks.zoo.judge", _save(tmp_path, "Relu", (2, 1, 5))))
    first, last = printed.splitlines()
    assert first == "reference done"
    row = json.loads(last)
    assert row["status"] == "right" and row["shapes"] == [[[2, 3]], [[1, 3]], [[5, 3]]] and len(row["mirlo_ms"]) == 3
    name = {"family": "f", "exporter": "torchscript", "variant": "dynamic"}
    failed = {"status": "wrong", "reason": "a|b <c>"}
    rows = [{**name, "model": "f/a", "entry": "a", **failed}, {**name, "model": "f/a", "entry": "a", **row},
            {**name, "model": "f/b", "entry": "b", **failed},
            {**name, "model": "f/c", "entry": "c", "status": "not exported", "reason": "why"}]  # fmt: skip
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    write_page(tmp_path / "results.jsonl", tmp_path / "zoo.md")
    page = (tmp_path / "zoo.md").read_text()
    assert "2 architectures, 2 exported models. ONNX Runtime runs 2" in page and "(50.0 %)" in page
    assert "| f/b | wrong | a\\|b &lt;c&gt; |" in page and "| f/c | why |" in page


def test_judge_of_what_onnxruntime_does_not_run(tmp_path: Path) -> None:
    row = json.loads(output_of(run_script("-m", "benchmarks.zoo.judge", _save(tmp_path, "NoSuchOperator", (1, 1, 1)))))
    assert row["status"] == "not run by ONNX Runtime" and "NoSuchOperator" in row["reason"]


@pytest.mark.parametrize(
    ("found", "expected", "result"),
    [
        (np.float32([1, 2]), np.float32([1, 2]), 0.0),
        (np.float32([1, np.nan, np.inf]), np.float32([1, np.nan, np.inf]), 0.0),
        (np.float32([1, 3]), np.float32([1, 4]), 0.25),
        (np.float32([1, np.nan]), np.float32([1, 4]), np.inf),
        (np.float32([1]), np.float32([[1]]), np.inf),
        (np.float64([1]), np.float32([1]), np.inf),
        (np.int64([1, 2]), np.int64([1, 3]), 0.5),
        (np.array(["a"], object), np.array(["a"], object), 0.0),
        ([{0: 0.5, 1: 0.5}], [{0: 0.5, 1: 0.5}], 0.0),
        ([{0: 0.5}], [{1: 0.5}], np.inf),
        (np.float32([1]), [{1: 0.5}], np.inf),
    ],
)
def test_difference(found: object, expected: object, result: float) -> None:
    assert difference(found, expected) == result
