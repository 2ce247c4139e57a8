"""`mirlo explorer`: the page in a browser, and the graphs for other viewers."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import onnx
import pytest
from commands import mirlo, output_of
from onnx import TensorProto, helper

from mirlo.testing.browser import measured, needs_browser

HOSTILE = "<img src=x onerror=window.taken=1>"
LINKS = """
  const on = ([row]) => row.classList.contains("on");
  const rows = (i) => state.columns[i].rows.filter(on).map(([row]) => row.textContent);
  const node = (name) => data.nodes.findIndex((each) => each.name === name);
  document.querySelectorAll("#nodes button")[node("product")].click();
  const product = { kernel: data.kernels[state.kernel].name, rows: [0, 1, 2, 3].map(rows),
                    detail: $("detail").textContent,
                    shown: state.columns.map((column) => column.lines.textContent) };
  document.querySelectorAll("#nodes button")[node(HOSTILE)].click();
  const other = { kernel: data.kernels[state.kernel].name, detail: $("detail").textContent };
  // The other way: a line of loops says which nodes it computes.
  const line = state.columns[2].rows.find(([row, nodes]) => nodes.length);
  line[0].click();
  const back = { rows: rows(0), nodes: [...document.querySelectorAll("#nodes .on")].map((e) => e.textContent) };
  $("search").value = "relax.softmax"; $("search").oninput();
  const hits = $("hits").textContent;
  $("more").click();
  const select = state.columns[4].select;
  select.value = "graph: import"; select.onchange();
  const { scrollWidth, clientWidth } = document.documentElement;
  return { product, other, back, hits, columns: state.columns.length, taken: window.taken ?? 0,
           images: document.images.length, scripts: document.scripts.length, wide: scrollWidth - clientWidth };
""".replace("HOSTILE", json.dumps(HOSTILE))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explorer")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Relu", ["a"], ["b"], name="activation"),
        helper.make_node("Softmax", ["b"], ["y"], name=HOSTILE, axis=-1),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [4, 8]), ("y", [4, 16]))
    )
    weight = helper.make_tensor("w", TensorProto.FLOAT, [8, 16], [0.25] * 128)
    graph = helper.make_graph(nodes, "small", [x], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), folder / "m.onnx")
    text = output_of(
        mirlo("explorer", "m.onnx", "-o", "page.html", "--netron", "n.json", "--model-explorer", "m.json", cwd=folder)
    )
    assert [line.split(":")[0] for line in text.splitlines()] == ["wrote page.html", "wrote m.json", "wrote n.json"]
    return folder


@needs_browser
def test_nodes_loops_and_assembly_are_linked_both_ways(written: Path, tmp_path: Path) -> None:
    found: dict[str, Any] = measured((written / "page.html").read_text(encoding="utf-8"), LINKS, tmp_path, 1200)
    product = found["product"]
    assert "matmul" in product["kernel"]
    graph, calls, loops, _ = product["rows"]
    assert [row for row in graph if "relax.matmul" in row] and not [row for row in graph if "relax.softmax" in row]
    assert [row for row in calls if f"@{product['kernel']}" in row]
    assert loops and "func.func private @" in loops[0]
    assert ".text" in product["shown"][3]  # assembly
    for words in ("product", "relax.matmul: ", "time", "µs", "reads and writes at least", "schedule: "):
        assert words in product["detail"], words
    assert HOSTILE in found["other"]["detail"] and "softmax" in found["other"]["kernel"]
    assert any("relax.softmax" in row for row in found["back"]["rows"])
    assert any(HOSTILE in text for text in found["back"]["nodes"])
    assert found["hits"] == "1 of 3" and found["columns"] == 5
    assert (found["taken"], found["images"], found["scripts"], found["wide"]) == (0, 0, 3, 0)


def test_other_viewers_get_the_graph_of_kernels(written: Path) -> None:
    model = onnx.load(written / "n.json", format="json")
    assert len(model.graph.node) == 2
    produced = {name.name for name in model.graph.input}
    for node in model.graph.node:
        assert set(node.input) <= produced and node.domain == "mirlo"
        produced |= set(node.output)
    assert {output.name for output in model.graph.output} <= produced
    facts = {each.name: each.s.decode() for each in model.graph.node[0].attribute}
    assert facts["nodes"] == "product, activation" and float(facts["microseconds"]) > 0
    assert b64decode(json.loads((written / "n.json").read_text())["graph"]["node"][0]["attribute"][0]["s"])

    collection = json.loads((written / "m.json").read_text())
    assert [graph["id"] for graph in collection["graphs"]] == ["operators", "kernels"]
    for graph in collection["graphs"]:
        known = {node["id"]: {out["id"] for out in node["outputsMetadata"]} for node in graph["nodes"]}
        assert len(known) == len(graph["nodes"])
        for node in graph["nodes"]:
            for edge in node["incomingEdges"]:
                assert edge["sourceNodeOutputId"] in known[edge["sourceNodeId"]]
            assert all(attribute.keys() == {"key", "value"} for attribute in node["attrs"])
    operators = [node["label"] for node in collection["graphs"][0]["nodes"]]
    assert operators == ["input 0", "matmul", "relu", "softmax", "output 0"]


def test_errors(written: Path) -> None:
    done = mirlo("explorer", "m.onnx", "-o", "nowhere/page.html", cwd=written)
    assert done.returncode == 1 and "there is no folder 'nowhere'" in done.stderr
    done = mirlo("explorer", "m.onnx", "--no-times", "--target", "nothing", cwd=written)
    assert done.returncode == 1 and "nothing" in done.stderr


def test_a_target_that_does_not_run_here_is_shown_without_times(written: Path) -> None:
    output_of(mirlo("explorer", "m.onnx", "--target", "nvvm{chip=sm_90a}", "-o", "gpu.html", cwd=written))
    text = (written / "gpu.html").read_text(encoding="utf-8")
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    assert any(
        stage["title"].startswith("PTX") or "ptx" in stage["title"].lower() for stage in data["kernels"][0]["stages"]
    )
