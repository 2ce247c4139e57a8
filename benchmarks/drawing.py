"""Layered drawings of graphs, by Mirlo and by libraries: `python -m benchmarks.drawing [MODEL...]`.

Draws the nodes of sample models, and a random graph of 1,000 boxes, as the page of a placement does. Printed are
processor seconds, pairs of edges that cross, boxes that overlap, the length of all edges beside that of Mirlo's
drawing, and the sizes of the picture. Libraries are `grandalf` and `fast-sugiyama`, and dagre
for Node.js, where they are installed.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from mirlo.tools import samples
from mirlo.tools.place.layout import GAP, LAYER, Box, Drawing, draw

HEIGHT = 38.0
RANDOM = "random"
Reads = Sequence[Sequence[int]]


def model_graph(name: str) -> tuple[list[Box], list[list[int]]]:
    """Return a box for each node of a sample model, as wide as its operator's name."""
    import onnx

    nodes = onnx.load(samples.path(name), load_external_data=False).graph.node
    maker = {value: i for i, node in enumerate(nodes) for value in node.output}
    boxes = [Box(max(64.0, 6.7 * len(node.op_type) + 20), HEIGHT) for node in nodes]
    return boxes, [sorted({maker[value] for value in node.input if value in maker}) for node in nodes]


def random_graph(count: int) -> tuple[list[Box], list[list[int]]]:
    """Return a graph whose boxes read up to three recent ones, and one in twenty also any."""
    rng = random.Random(1)
    reads = [
        sorted(
            {max(0, i - rng.randint(1, 6)) for _ in range(rng.randint(0, 3)) if i}
            | ({rng.randrange(i)} if i and rng.random() < 0.05 else set())
        )
        for i in range(count)
    ]
    return [Box(rng.uniform(60, 200), HEIGHT) for _ in range(count)], reads


def by_grandalf(boxes: list[Box], reads: Reads) -> Drawing:
    """Draw each component with `SugiyamaLayout`, side by side."""
    from grandalf.graphs import Edge, Graph, Vertex
    from grandalf.layouts import SugiyamaLayout, VertexViewer
    from grandalf.routing import EdgeViewer, route_with_lines

    vertices = [Vertex(i) for i in range(len(boxes))]
    edges = {(a, b): Edge(vertices[a], vertices[b]) for b, sources in enumerate(reads) for a in sources}
    for vertex, box in zip(vertices, boxes, strict=True):
        vertex.view = VertexViewer(box.width, box.height)
    for edge in edges.values():
        edge.view = EdgeViewer()
    left = 0.0
    for part in Graph(vertices, list(edges.values())).C:
        layout = SugiyamaLayout(part)
        layout.xspace, layout.yspace, layout.route_edge = GAP, LAYER, route_with_lines
        layout.init_all()
        layout.draw()
        shift = left - min(v.view.xy[0] - v.view.w / 2 for v in part.sV)
        for vertex in part.sV:
            box, (x, y) = boxes[vertex.data], vertex.view.xy
            box.x, box.y = x + shift, y - HEIGHT / 2
        for edge in part.sE:
            edge.view._pts = [(x + shift, y) for x, y in edge.view._pts]
        left = max(boxes[v.data].x + boxes[v.data].width / 2 for v in part.sV) + GAP
    return Drawing(boxes, [(a, b, list(edge.view._pts[1:-1])) for (a, b), edge in edges.items()])


def by_fast_sugiyama(boxes: list[Box], reads: Reads) -> Drawing:
    """Draw with the spacing of the widest box: the library knows no sizes of boxes, and says no way of long edges."""
    from fast_sugiyama import from_edges

    spacing = max(box.width for box in boxes) + GAP
    layouts = from_edges([(a, b) for b, sources in enumerate(reads) for a in sources], vertex_spacing=spacing)
    placed = layouts.dot_layout().to_dict()
    alone = max(x for x, _ in placed.values())
    for i, box in enumerate(boxes):
        if i in placed:
            x, y = placed[i]
            box.x, box.y = x, -y / spacing * (HEIGHT + LAYER)
        else:
            alone += box.width + GAP
            box.x, box.y = alone, 0.0
    return Drawing(boxes, [(a, b, []) for b, sources in enumerate(reads) for a in sources])


def by_dagre(boxes: list[Box], reads: Reads) -> Drawing:
    """Draw with dagre in Node.js, as a page could in a browser; the seconds include the start of Node.js."""
    graph = {
        "boxes": [box.width for box in boxes],
        "edges": [(a, b) for b, sources in enumerate(reads) for a in sources],
    }
    done = subprocess.run(["node", "-e", DAGRE], input=json.dumps(graph), capture_output=True, text=True)
    if done.returncode:
        raise ImportError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "node failed")
    data = json.loads(done.stdout)
    for box, (x, y) in zip(boxes, data["boxes"], strict=True):
        box.x, box.y = x, y - HEIGHT / 2
    edges = [(a, b, list(map(tuple, points))) for a, b, points in data["edges"]]
    return Drawing(boxes, edges)


DAGRE = (
    f"""
const gaps = {{nodesep: {GAP}, ranksep: {LAYER}}}, height = {HEIGHT};
"""
    + """
const {graphlib, layout} = require('@dagrejs/dagre'), given = JSON.parse(require('fs').readFileSync(0));
const g = new graphlib.Graph(); g.setGraph(gaps); g.setDefaultEdgeLabel(() => ({}));
given.boxes.forEach((width, i) => g.setNode(i, {width, height}));
given.edges.forEach(([a, b]) => g.setEdge(a, b));
layout(g);
const boxes = given.boxes.map((_, i) => [g.node(i).x, g.node(i).y]);
const edges = given.edges.map(([a, b]) => [a, b, g.edge(a, b).points.slice(1, -1).map(p => [p.x, p.y])]);
console.log(JSON.stringify({boxes, edges}));
"""
)


WAYS: dict[str, Callable[[list[Box], Reads], Drawing]] = {
    "mirlo": draw, "grandalf": by_grandalf, "fast_sugiyama": by_fast_sugiyama, "dagre": by_dagre,
}  # fmt: skip


def segments(drawing: Drawing) -> np.ndarray:
    """Return the lines of all edges as rows of x, y, x, y; what edges of one box share counts once."""
    unique: set[tuple[float, ...]] = set()
    for first, last, points in drawing.edges:
        a, b = drawing.boxes[first], drawing.boxes[last]
        way = [(a.x, a.y + a.height), *points, (b.x, b.y)]
        unique.update((*start, *end) for start, end in pairwise(way))
    lines: np.ndarray = np.array(sorted(unique)).reshape(-1, 4)
    return lines


def crossings(lines: np.ndarray) -> int:
    """Return the number of pairs of lines that cross inside of both."""
    p, q = lines[:, :2], lines[:, 2:]
    count = 0
    for i in range(len(lines)):
        near = np.flatnonzero(
            (np.minimum(p[i + 1 :, 1], q[i + 1 :, 1]) < max(p[i, 1], q[i, 1]))
            & (np.maximum(p[i + 1 :, 1], q[i + 1 :, 1]) > min(p[i, 1], q[i, 1]))
        )
        r, s = p[i + 1 :][near], q[i + 1 :][near]
        one = _side(p[i], q[i], r) * _side(p[i], q[i], s)
        other = _side(r, s, p[i]) * _side(r, s, q[i])
        count += int(((one < 0) & (other < 0)).sum())
    return count


def _side(p: np.ndarray, q: np.ndarray, at: np.ndarray) -> np.ndarray:
    d, e = q - p, at - p
    side: np.ndarray = d[..., 0] * e[..., 1] - d[..., 1] * e[..., 0]
    return np.where(np.abs(side) < 1e-6, 0.0, side)


def overlaps(boxes: Sequence[Box]) -> int:
    """Return the number of pairs of boxes that share area."""
    x, y = np.array([box.x for box in boxes]), np.array([box.y for box in boxes])
    w, h = np.array([box.width for box in boxes]), np.array([box.height for box in boxes])
    return sum(
        int(
            (
                (np.abs(x[i + 1 :] - x[i]) < (w[i + 1 :] + w[i]) / 2 - 1e-6)
                & (np.abs(y[i + 1 :] - y[i]) < (h[i + 1 :] + h[i]) / 2 - 1e-6)
            ).sum()
        )
        for i in range(len(boxes))
    )


def _cpu_seconds() -> float:
    return sum(os.times()[:4])


def _rows(graph: Callable[[], tuple[list[Box], list[list[int]]]]) -> Iterator[str]:
    first = None
    for name, way in WAYS.items():
        boxes, reads = graph()
        start = _cpu_seconds()
        try:
            drawing = way(boxes, reads)
        except (ImportError, RecursionError) as error:
            yield f"  {name:14} {type(error).__name__}: {error}"
            continue
        seconds = _cpu_seconds() - start
        lines = segments(drawing)
        length = float(np.hypot(lines[:, 2] - lines[:, 0], lines[:, 3] - lines[:, 1]).sum())
        first = first or length
        width = max(box.x + box.width / 2 for box in boxes) - min(box.x - box.width / 2 for box in boxes)
        height = max(box.y for box in boxes) - min(box.y for box in boxes) + HEIGHT
        yield (
            f"  {name:14} {seconds:8.2f} {crossings(lines):9} {overlaps(boxes):8} {length / first:7.2f} "
            f"{width:8.0f} {height:8.0f}"
        )


def main() -> None:
    print("                  seconds crossings overlaps  length    width   height")
    for name in sys.argv[1:] or ("mobilenetv2", "bert_base", "gpt2", RANDOM):
        graph = partial(random_graph, 1000) if name == RANDOM else partial(model_graph, name)
        boxes, reads = graph()
        print(f"{name}: {len(boxes)} boxes, {sum(map(len, reads))} edges")
        for row in _rows(graph):
            print(row, flush=True)


if __name__ == "__main__":
    main()
