"""The page of a placement in a browser: 2,000 nodes, some with hostile names, in narrow windows and in dark mode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from commands import mirlo, output_of
from onnx import TensorProto, helper

from mirlo.runtime.names import html_json
from mirlo.testing.browser import measured, needs_browser

pytestmark = needs_browser

PLUGIN = Path(__file__).parent / "Inputs" / "units.py"
HOSTILE = (
    "<script>window.taken=1</script>",
    "\"'><img src=x onerror=window.taken=1>",
    "</script><script>window.taken=1</script>",
    "\u202edesrever\u202c \u05d0\u05d1\u05d2",
    "two\nlines",
    "{{data}} ${1} `",
    "long" * 2500,
)
NODES = 2000
MAX_SECONDS = 20.0
"""Seconds in which the page is there: ten times those of an idle machine."""
OPERATORS = ("Exp", "Log", "Sigmoid", "Neg")
WIDTH = """
  const wide = (e) => e.scrollWidth - e.clientWidth;
  return { page: wide(document.documentElement), aside: wide(document.getElementById("detail")),
           window: document.documentElement.clientWidth };
"""
SHOWN = """
  const texts = [...Array(COUNT).keys()].map((i) => { pick(state.boxOf[i], false); return $("detail").textContent; });
  return { texts, taken: window.taken ?? 0, images: document.images.length, scripts: document.scripts.length,
           boxes: document.querySelectorAll(".box").length, seconds: performance.now() / 1000,
           wide: $("detail").scrollWidth - $("detail").clientWidth };
"""
REGIONS = """
  const rows = (e) => [...e.querySelectorAll(".region")].map((r) =>
    [r.querySelector("code").textContent, ...[...r.querySelectorAll("dd")].map((d) => d.textContent)]);
  const overview = rows($("detail")), first = data.nodes.findIndex((n) => n.region);
  pick(state.boxOf[first], false);
  return { overview, picked: rows($("detail")), region: data.nodes[first].region, images: document.images.length,
           wide: $("detail").scrollWidth - $("detail").clientWidth };
"""
CONTRAST = """
  const numbers = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, share, i) => {
    const v = c[i] / 255; return sum + share * (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); }, 0);
  const ground = (e) => {
    const parents = []; for (let p = e; p; p = p.parentElement) parents.push(p);
    const paint = (below, p) => over(numbers(getComputedStyle(p).backgroundColor), below);
    return parents.reverse().reduce(paint, [0, 0, 0, 1]);
  };
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  pick(state.boxOf[0], false);
  const found = [];
  for (const e of document.querySelectorAll("h1,h2,th,td,button,.soft,summary,code,.why,.tried li,.types,p,dt,dd")) {
    if (!e.textContent.trim() || !e.getClientRects().length) continue;
    found.push([ratio(numbers(getComputedStyle(e).color), ground(e)), e.outerHTML.slice(0, 80)]);
  }
  for (const e of [...document.querySelectorAll(".box text")].slice(0, 40)) {
    const rect = e.parentElement.querySelector("rect"), fill = numbers(getComputedStyle(rect).fill);
    const below = over([...fill.slice(0, 3), 0.2], ground(e.closest("section")));
    found.push([ratio(numbers(getComputedStyle(e).fill), below), e.outerHTML.slice(0, 80)]);
  }
  return found;
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("large")
    nodes = []
    for i in range(NODES):
        name = HOSTILE[i] if i < len(HOSTILE) else f"node {i}"
        nodes.append(helper.make_node(OPERATORS[i % len(OPERATORS)], [f"v{i}"], [f"v{i + 1}"], name=name))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in ("v0", f"v{NODES}"))
    graph = helper.make_graph(nodes, "large", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), folder / "m.onnx")
    page = folder / "page.html"
    output_of(mirlo("partition", folder / "m.onnx", "--targets", "unit,far,llvm", "--plugin", PLUGIN, "--report", page))
    return page.read_text(encoding="utf-8")


@pytest.mark.sample(0)
@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_scrolls_sideways(text: str, width: int, tmp_path: Path) -> None:
    found = measured(text, WIDTH, tmp_path, width)
    assert found["window"] >= width - 20  # less a scroll bar
    assert (found["page"], found["aside"]) == (0, 0)


@pytest.mark.sample(0)
def test_names_are_text_and_the_page_is_there_soon(text: str, tmp_path: Path) -> None:
    found = measured(text, SHOWN.replace("COUNT", str(len(HOSTILE))), tmp_path, 1200)
    assert (found["taken"], found["images"], found["wide"]) == (0, 0, 0)
    assert found["scripts"] == 3  # the data, the page's own, and this test's
    for name, shown in zip(HOSTILE, found["texts"], strict=True):
        words = name.replace("\u202e", "").replace("\u202c", "").split()
        assert all(word[:200] in shown for word in words), name[:80]
    assert found["boxes"] >= NODES // 2
    assert found["seconds"] < MAX_SECONDS


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.sample(0)
def test_regions_name_loaders_and_needs(text: str, width: int, tmp_path: Path) -> None:
    hostile = '<img src=x onerror="window.taken=1">' + "need" * 500
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    data["described"]["rows"][0][5] = hostile
    before, _, rest = text.partition('id="data">')
    changed = f'{before}id="data">{html_json(data)}</script>{rest.partition("</script>")[2]}'
    found = measured(changed, REGIONS, tmp_path, width)
    assert found["overview"] == data["described"]["rows"] and found["overview"][0][5] == hostile
    assert found["overview"][-1][:2] == ["main", "llvm"] and found["overview"][-1][4] == "llvm"
    assert [row[0] for row in found["picked"]] == [found["region"]]
    assert (found["images"], found["wide"]) == (0, 0)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.sample(0)
def test_contrast(text: str, dark: bool, tmp_path: Path) -> None:
    """Text has the contrast of WCAG's level AA."""
    found: list[Any] = measured(text, CONTRAST, tmp_path, 1200, dark=dark)
    assert len(found) > 20
    assert [row for row in found if row[0] < 4.5] == []
