"""Planning of regions: the work of each operator, and the place of each value in L1.

A value stays in L1 from the operator that computes it to the last one that reads it there. Where there is no room, or
an operator needs another layout, it is stored in DRAM and loaded again.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mirlo.extend.codegen import (
    ExternalNode,
    ExternalValue,
    Scratchpad,
    ScratchpadFull,
    ScratchpadTensor,
    graph_operations,
)
from mirlo_tensix.cores import MOVER_BYTES, SharedProduct
from mirlo_tensix.instructions import FORMATS, TILE, Format
from mirlo_tensix.kernels import LEAST, REDUCTIONS, ROWWISE, Move, VectorWork
from mirlo_tensix.layouts import (
    Image,
    Item,
    Load,
    Matrix,
    Ones,
    Rearrange,
    Run,
    RunShared,
    Store,
    Tensor,
    Weights,
    tiles_of,
)
from mirlo_tensix.products import Planes, Product
from mirlo_tensix.simulator import FIRST, L1_TENSORS, PROGRAMS
from mirlo_tensix.unit import KEPT
from mirlo_tensix.work import Work

KERNELS = {
    "relax.add": "add", "relax.subtract": "sub", "relax.multiply": "mul", "relax.divide": "div", "relax.maximum": "max",
    "relax.minimum": "min",
    **{
        f"relax.{name}": name
        for name in (
            "relu", "clip", "gelu", "exp", "tanh", "sigmoid", "reciprocal", "softmax", "layer_norm", "reduce_sum",
            "reduce_mean", "reduce_max", "reduce_min",
        )
    },
}  # fmt: skip
"""The kernels of operators."""
KEEP_ZEROS = ("add", "sub", "mul", "max", "min", "relu", "gelu", "gelu_tanh", "tanh")
"""Kernels of which zeros around pixels remain zeros; those with bounds on both sides of zero do, too."""


class Misfit(Exception):
    """An operator whose tensors do not fit into L1."""


def _too_large(work: Work) -> Misfit:
    return Misfit(f"{work} takes {sum(work.tensor_bytes)} bytes of L1, of which {L1_TENSORS} are for tensors")


@dataclass(frozen=True)
class Options:
    """Options of the target: number format, phases of products, and the cores that share a product."""

    format: str
    phases: int
    cores: int = 1
    blocks: Callable[[Product], tuple[int, int] | None] = lambda product: None
    """The tuned blocks of products."""

    @property
    def kind(self) -> Format:
        return FORMATS[self.format]


class Planner:
    """Plans the items of a region, and tracks the tensors in L1."""

    def __init__(self, options: Options, reads: Counter[str], images: Mapping[str, Image]) -> None:
        """Begin with an empty L1; `images` are the layouts in which convolutions read values."""
        self.options, self.images, self.items = options, images, list[Item]()
        self.l1 = Scratchpad[Any](FIRST, PROGRAMS, reads, self._store)
        self.step, self.number = "", 0

    def _store(self, name: str, found: ScratchpadTensor[Any]) -> None:
        self.items.append(Store(name, found.layout, found.at))

    def operand(self, sources: Sequence[Tensor], layout: Any, whole: Sequence[int] = ()) -> int:
        """Return the place of an operand in L1, loading it if needed; its sizes are whole tiles."""
        name = sources[0].key if sources else f"generated {layout}"
        found = self.l1.find(name)
        if found is not None and _serves(found.layout, layout) and not any(size % TILE for size in whole):
            self.l1.used.add(name)
            return found.at
        if name in self.l1.used and found is not None:  # the operator reads it in two layouts
            self.l1.store(name)
            name = f"{name} as {layout}"
        self.l1.drop(name)
        return self._load(name, sources, layout, layout.size(self.options.kind))

    def weights(self, sources: Sequence[Tensor], layout: Weights, size: int) -> int:
        return self._load(sources[0].key, sources, layout, size)

    def _load(self, name: str, sources: Sequence[Tensor], layout: Any, size: int) -> int:
        at = self.l1.place(name, layout, size, True)
        self.items.append(Load(tuple(sources), layout, at))
        return at

    def result(self, name: str, layout: Any, is_temporary: bool = False) -> int:
        """Return the place of a result; a temporary result is never stored."""
        return self.l1.place(name, layout, layout.size(self.options.kind), is_temporary)

    def run(self, work: Any, places: Sequence[int]) -> None:
        self.items.append(Run(self.step, self.number, replace(work, format=self.options.format), tuple(places)))

    def fits(self, work: Work) -> bool:
        return sum(replace(work, format=self.options.format).tensor_bytes) <= L1_TENSORS


def _serves(found: Any, wanted: Any) -> bool:
    """Return whether a tensor in L1 has the layout that an operator reads, except for rounding and padding."""
    if not isinstance(found, Matrix) or not isinstance(wanted, Matrix):
        return bool(found == wanted or (isinstance(found, Image) and found == replace(wanted, kept=found.kept)))
    sizes = [
        (each.groups, each.rows, each.columns, each.transposed, each.part, each.causal) for each in (found, wanted)
    ]
    return sizes[0] == sizes[1] and math.prod(found.shape) == math.prod(wanted.shape)


def plan(nodes: Sequence[Sequence[ExternalNode]], outputs: Sequence[str], options: Options) -> list[Item]:
    """Return the items of a region: of each step the operators that it was matched from."""
    operands = [{v.name for node in step for v in node.inputs if v is not None} for step in nodes]
    planner = Planner(options, Counter(name for names in operands for name in names), wanted_images(nodes, options))
    for number, step in enumerate(nodes):
        first, last = step[0], step[-1]
        planner.step, planner.number = last.name or last.op, number
        try:
            planner.l1.plan(functools.partial(LOWERINGS.get(first.op, vector), planner, step), planner.items)
        except ScratchpadFull as error:
            raise Misfit(f"{error}, those of L1 for tensors") from error
        if last.output.name in outputs:
            planner.l1.store(last.output.name)
        planner.l1.finish(operands[number], lambda name: name.startswith("generated "))
    return planner.items


def tensor(value: ExternalValue) -> Tensor:
    return Tensor(value.constant or value.name, tuple(value.shape), bool(value.constant))


def natural(shape: Sequence[int], kept: int = 24, fill: float = 0.0) -> Matrix:
    """Return the matrices of the last two dims."""
    rows, columns = (1, 1, *shape)[-2:]
    return Matrix(tuple(shape), math.prod(shape[:-2]), rows, columns, kept, fill)


def function_of(node: ExternalNode) -> str:
    """Return the kernel of an operator."""
    if node.op == "relax.clip":
        bounds = (node["min"], -math.inf), (node["max"], math.inf)
        return " ".join(["clip", *(str(default if each is None else each) for each, default in bounds)])
    is_tanh = node.op == "relax.gelu" and node["approximate"] == "tanh"
    return "gelu_tanh" if is_tanh else KERNELS[node.op]


def keeps_zeros(nodes: Sequence[ExternalNode]) -> bool:
    """Return whether the result of an operator and of the function that follows is zero where all operands are."""
    names = [function_of(node).split() if node.op in KERNELS else [""] for node in (nodes[0], nodes[-1])]
    return all(float(bounds[0]) <= 0 <= float(bounds[1]) if bounds else kind in KEEP_ZEROS for kind, *bounds in names)


def _activation(nodes: Sequence[ExternalNode]) -> str | None:
    return None if nodes[-1].op in ("relax.matmul", "relax.add", "relax.conv") else function_of(nodes[-1])


def dense(nodes: Sequence[ExternalNode], options: Options) -> tuple[Product, Matrix]:
    """Return the product of a step in tiles, and the layout of its left operand."""
    x, weight = nodes[0]["lhs"].shape, nodes[0]["rhs"].shape
    batch, rows = (1, math.prod(x[:-1])) if len(weight) == 2 else (math.prod(x[:-2]), x[-2])
    left = Matrix(tuple(x), batch, rows, x[-1], KEPT[options.phases][0])
    product = Product(
        tiles_of(rows), tiles_of(weight[-1]), tiles_of(x[-1]), options.phases, _activation(nodes),
        has_bias=any(node.op == "relax.add" for node in nodes), format=options.format,
    )  # fmt: skip
    return replace(product, block=options.blocks(product)), left


def matmul(p: Planner, nodes: Sequence[ExternalNode]) -> None:
    """Plan products of matrices with a bias and a function of the sums."""
    x, weight, y = tensor(nodes[0]["lhs"]), tensor(nodes[0]["rhs"]), nodes[-1].output
    product, left = dense(nodes, p.options)
    if not weight.is_constant or len(weight.shape) != 2:
        _two_tensors(p, x, weight, y, product, left)
        return
    bias = [tensor(v) for node in nodes if node.op == "relax.add" for v in node.inputs if v is not None and v.constant]
    kept, columns = KEPT[p.options.phases][1], weight.shape[-1]
    out = Matrix(tuple(y.shape), 1, left.rows, columns)
    if 1 < p.options.cores <= product.m:

        def part_of(rows: int) -> _Part:
            part = replace(product, m=rows, has_panels=True)

            def at(first: int) -> tuple[Matrix, Matrix]:
                row, count = TILE * first, min(TILE * rows, left.rows - TILE * first)
                a, b = (replace(each, part=(0, 1, row, count, 0, each.columns)) for each in (left, out))
                return a, b

            return replace(part, block=p.options.blocks(part)), at

        right = Load((weight, *bias), Weights(0, columns, kept), 0)
        if _runs_on_cores(p, x, y.name, product.m, part_of, right):
            return
    ones = p.operand((), Ones(False)) if bias else 0

    def right_of(group: int, column: int, width: int) -> int:
        size = product.depth * tiles_of(width) * p.options.kind.tile_bytes
        return p.weights((weight, *bias), Weights(column, width, kept), size)

    found = p.l1.find(x.key)
    if found is not None and isinstance(found.layout, Matrix) and found.layout.columns == left.columns:
        here = replace(found.layout, kept=left.kept)  # its rows may be those of several matrices
        whole = replace(product, m=here.groups * tiles_of(here.rows), block=None)
        if p.fits(whole):
            left, product, out = here, whole, replace(out, groups=here.groups, rows=here.rows)
    if p.fits(product):
        places = p.operand((x,), left), right_of(0, 0, columns), ones
        p.run(product, (*places, p.result(y.name, out)))
    else:
        _in_parts(p, product, (x, left), (weight.key, right_of), ones, (y.name, out))


_Part = tuple[Product, Callable[[int], tuple[Any, Any]]]
"""The product of a core, and what returns the layouts of its left operand and of its result for a first row."""


def _runs_on_cores(
    p: Planner, x: Tensor, y: str, rows: int, part_of: Callable[[int], _Part], right: Load
) -> bool:  # fmt: skip
    """Plan a product on several cores, of as many rows at a time as fit into their L1; return whether any do."""
    each, cores = -(-rows // p.options.cores), p.options.cores
    while True:
        part, layouts = part_of(each)
        parts = (replace(part, block=block) for block in ([part.block] if part.block else part.blocks()))
        fitting = [every for every in parts if sum(every.tensor_bytes) + MOVER_BYTES <= L1_TENSORS]
        if fitting:
            break
        if each == 1:
            return False
        each = -(-each // 2)
    p.l1.drop(*p.l1.tensors)
    places = [layouts(first) for first in range(0, rows, each)]
    for chosen in (places[i : i + cores] for i in range(0, len(places), cores)):
        left, results = zip(*chosen, strict=True)
        loads, stores = tuple(Load((x,), end, 0) for end in left), tuple(Store(y, end, 0) for end in results)
        p.items.append(RunShared(p.step, p.number, SharedProduct(fitting[0], len(chosen)), loads, right, stores))
    return True


def _two_tensors(p: Planner, x: Tensor, weight: Tensor, y: ExternalValue, product: Product, left: Matrix) -> None:
    """Plan products of two tensors."""
    right = replace(natural(weight.shape, KEPT[p.options.phases][1]), groups=left.groups)
    out = Matrix(tuple(y.shape), left.groups, left.rows, right.columns)

    def right_of(group: int, column: int, width: int) -> int:
        return p.operand((weight,), replace(right, part=(group, 1, 0, right.rows, column, width)))

    if left.groups * sum(product.tensor_bytes) > L1_TENSORS:
        _in_parts(p, product, (x, left), (weight.key, right_of), 0, (y.name, out))
        return
    places = [
        p.operand((x,), left, (left.columns,)),
        p.operand((weight,), right, (right.rows, right.columns)),
        p.result(y.name, out),
    ]
    for i in range(left.groups):
        sizes = (layout.size(p.options.kind) // left.groups for layout in (left, right, out))
        a, b, c = (at + i * size for at, size in zip(places, sizes, strict=True))
        p.run(product, (a, b, 0, c))


def _in_parts(
    p: Planner, product: Product, x: tuple[Tensor, Matrix], right: tuple[str, Callable[[int, int, int], int]],
    ones: int, y: tuple[str, Matrix],
) -> None:  # fmt: skip
    """Plan products whose tensors do not fit into L1 at once, by rows and columns of the result."""
    (value, left), (name, out) = x, y
    down, across = product.m, product.n
    while not p.fits(part := replace(product, m=down, n=across, block=None)):
        if max(down, across) == 1:
            raise _too_large(part)
        down, across = (-(-down // 2), across) if down * product.k > across * product.depth else (down, -(-across // 2))
    p.l1.drop(value.key, right[0])
    for group in range(left.groups):
        for row in range(0, left.rows, TILE * down):
            rows = min(TILE * down, left.rows - row)
            at = p.operand((value,), replace(left, part=(group, 1, row, rows, 0, left.columns)))
            for column in range(0, out.columns, TILE * across):
                width = min(TILE * across, out.columns - column)
                one = replace(part, m=tiles_of(rows), n=tiles_of(width))
                target = p.result(name, replace(out, part=(group, 1, row, rows, column, width)))
                p.run(one, (at, right[1](group, column, width), ones, target))
                p.l1.drop(name, right[0])
            p.l1.drop(value.key)


def _groups(layout: Matrix, first: int, count: int) -> Matrix:
    if count == layout.groups:
        return layout
    return replace(layout, part=(first, count, 0, layout.rows, 0, layout.columns))


def attention(p: Planner, nodes: Sequence[ExternalNode]) -> None:
    """Plan the attention of each head: a product, a softmax of its rows, and another product.

    Keys and values may serve several heads. A causal mask is added to the scores as any other one.
    """
    (node,) = nodes
    y, options, kind = node.output, p.options, p.options.kind
    heads, rows, depth = math.prod(node["query"].shape[:-2]), *node["query"].shape[-2:]
    keys, width = node["value"].shape[-2:]
    each, kept = heads // math.prod(node["key"].shape[:-2]), KEPT[options.phases]
    scale = depth**-0.5 if node["scale"] is None else node["scale"]
    table, masks = _mask(node, heads, rows, keys)
    softmax = VectorWork(
        "softmax", tiles_of(rows), tiles_of(keys), (False,) * (1 if table is None else 2), keys,
        has_bias=table is not None, scale=scale, format=options.format,
    )  # fmt: skip
    scores, sums = (
        Product(tiles_of(rows), tiles_of(n), tiles_of(k), options.phases, format=options.format)
        for n, k in ((keys, depth), (width, keys))
    )
    query, value = natural(node["query"].shape, kept[0]), natural(node["value"].shape, kept[1])
    key, out, middle = natural(node["key"].shape, kept[1]), natural(y.shape), natural((rows, keys))
    count = heads if heads * (sum(scores.tensor_bytes) + sum(softmax.tensor_bytes)) <= L1_TENSORS else 1
    for head in range(0, heads, count):
        q, o = (_groups(layout, head, count) for layout in (query, out))
        k, v = (_groups(layout, head // each, max(1, count // each)) for layout in (key, value))
        query_at = p.operand((tensor(node["query"]),), q, (depth,))
        value_at = p.operand((tensor(node["value"]),), v, (keys,))
        found = p.l1.find(tensor(node["key"]).key)
        is_there = found is not None and _serves(found.layout, key) and not (keys % TILE or depth % TILE)
        if is_there and count == heads:
            source = p.operand((tensor(node["key"]),), key)
            key_at = p.result("transposed keys", key, True)
            p.run(_transposes(key.groups, scores.n, scores.k), (source, key_at))
        else:
            key_at = p.operand((tensor(node["key"]),), replace(k, transposed=True))
        mask_at = [] if table is None else [p.operand(masks, _groups(table, head, min(count, table.groups)), (keys,))]
        one, two = (p.result(name, middle, True) for name in ("scores", "weights"))
        result_at = p.result(y.name, o)
        for i in range(count):
            p.run(scores, (query_at + i * scores.tensor_bytes[0], key_at + i // each * scores.tensor_bytes[1], 0, one))
            p.run(softmax, (one, *(at + i % table.groups * middle.size(kind) for at in mask_at if table), two))
            place = result_at + i * sums.tensor_bytes[3]
            p.run(sums, (two, value_at + i // each * sums.tensor_bytes[1], 0, place))
        if count < heads:
            p.l1.drop(*sorted(p.l1.used))
            p.l1.used.clear()


def _mask(node: ExternalNode, heads: int, rows: int, keys: int) -> tuple[Matrix | None, tuple[Tensor, ...]]:
    """Return the layout of masks, one for all heads or one for each, and the tensor that has them."""
    mask, causal = node["mask"], (keys - rows) * node["at_end"] if node["causal"] else None
    if mask is None:
        return None if causal is None else replace(natural((rows, keys), fill=LEAST), causal=causal), ()
    is_common = math.prod(mask.shape[:-2]) == 1
    shape = (rows, keys) if is_common else (*node["query"].shape[:-2], rows, keys)
    return replace(natural(shape, fill=LEAST), causal=causal), (tensor(mask),)


def _transposes(groups: int, rows: int, columns: int) -> Move:
    """Return the work that transposes matrices of this many tiles."""
    order = np.arange(groups * rows * columns).reshape(groups, rows, columns).transpose(0, 2, 1)
    return Move(tuple(int(i) for i in order.reshape(-1)), True)


def wanted_images(nodes: Sequence[Sequence[ExternalNode]], options: Options) -> dict[str, Image]:
    """Return the planes that suit values: those that convolutions read, of them or of what they are combined with."""
    images = dict[str, Image]()
    combined = [step for step in nodes if keeps_zeros(step)]
    for step in reversed(nodes):
        image = images.get(step[-1].output.name)
        if step[0].op == "relax.conv":
            images[step[0]["x"].name] = conv_image(step[0], options, image)
        elif step in combined and image is not None and image.strides == (1, 1):
            for value in step[0].inputs:
                if tuple(value.shape) == image.shape:
                    images.setdefault(value.name, image)
    for step in combined:
        found = [images[value.name] for value in step[0].inputs if value.name in images]
        for value in step[0].inputs:
            if found and tuple(value.shape) == found[0].shape and found[0].strides == (1, 1):
                images.setdefault(value.name, found[0])
    return images


def conv_image(
    conv: ExternalNode, options: Options, result: Image | None, part: tuple[int, int] | None = None
) -> Image:
    """Return how a convolution reads its operand, with the width of the planes that are wanted of its result.

    A plane has 16 channels of all padded pixels. With strides there are planes for each remainder of the positions.
    Where a row of the image ends, results are computed that are no pixels; they are left out, or become zero.
    `part` is the first row of the result that is computed, and how many.
    """
    x, strides = conv["x"].shape, conv["strides"] or (1, 1)
    above, left, below, right = conv["padding"] or (0,) * 4
    plane = -(-(x[2] + above + below) // strides[0]), -(-(x[3] + left + right) // strides[1])
    if result is not None and result.strides == (1, 1):
        plane = plane[0], max(plane[1], result.plane[1])
    first, height = part or (0, conv.output.shape[2])
    down, shift = (max(shifts) for shifts in zip(*_shifts(conv, plane[1]), strict=True))
    rows = TILE * tiles_of((height - 1) * plane[1] + conv.output.shape[3]) + shift
    if part is None and tuple(strides) == (1, 1):  # as a result of another convolution
        rows = max(rows, above * plane[1] + left + TILE * tiles_of((x[2] - 1) * plane[1] + x[3]))
    if part is not None:
        plane = height + down, plane[1]
    return Image(tuple(x), plane, above, left, rows, tuple(strides), KEPT[options.phases][0], first)


def _shifts(conv: ExternalNode, across: int) -> list[tuple[int, int]]:
    """Return for each place of the window how many rows, and how many pixels of a plane, it is from the first one."""
    (down, right), dilations = conv["strides"] or (1, 1), conv["dilations"] or (1, 1)
    window = ((i * dilations[0], j * dilations[1]) for i, j in np.ndindex(*conv["weight"].shape[2:]))
    return [(i // down, i // down * across + j // right) for i, j in window]


@dataclass(frozen=True)
class _Convolution:
    """Rows of a convolution: its planes, and the product of all tiles of channels of the result."""

    x: Image
    y: Image
    work: Product
    firsts: tuple[int, ...]
    """For each tile of channels of the result, the first tile of channels that it reads."""

    @classmethod
    def of(
        cls, nodes: Sequence[ExternalNode], options: Options, wanted: Image | None, part: tuple[int, int] | None = None
    ) -> _Convolution:
        """Plan all rows, as planes that are wanted of the result if these have the same width, or some rows."""
        node, (height, width) = nodes[0], nodes[-1].output.shape[2:]
        x = conv_image(node, options, wanted, part)
        across, (first, rows) = x.plane[1], part or (0, height)
        is_wanted = wanted is not None and wanted.plane[1] == across and wanted.strides == (1, 1)
        m = tiles_of((rows - 1) * across + width)
        own = Image(tuple(nodes[-1].output.shape), (rows, across), 0, 0, TILE * m, first=first)
        y = wanted if wanted is not None and is_wanted else own
        begin = y.above * across + y.left
        end = begin + (rows - 1) * across + width
        gaps = (
            (0, begin, 0, 1), (begin + width, across - width, across, rows - 1),
            (end, min(y.plane[0] * across, y.rows) - end, 0, 1),
        )  # fmt: skip
        chosen = tuple(gap for gap in gaps if is_wanted and gap[1] > 0 and gap[3])
        firsts, count = _channels(node)
        windows = _windows(node, x, count)
        work = Product(
            m, len(firsts), len(windows), options.phases, _activation(nodes), has_bias=node["bias"] is not None,
            windows=windows, x=Planes(x.rows), y=Planes(y.rows, begin, chosen),
            format=options.format,
        )  # fmt: skip
        return cls(x, y, work, firsts)

    def room(self, kind: Format) -> int:
        """Return the bytes that the planes and the ones leave for weights."""
        return L1_TENSORS - self.x.size(kind) - self.y.size(kind) - kind.tile_bytes


def _channels(conv: ExternalNode) -> tuple[tuple[int, ...], int]:
    """Return for each tile of channels of a result the first tile of its group's channels, and how many tiles."""
    outputs, depth = conv["weight"].shape[:2]
    each = outputs // (conv["groups"] or 1)
    firsts = [first // each * depth // TILE for first in range(0, outputs, TILE)]
    lasts = [(min(first + TILE, outputs) - 1) // each * depth + depth - 1 for first in range(0, outputs, TILE)]
    count = max(last // TILE + 1 - first for first, last in zip(firsts, lasts, strict=True))
    return tuple(min(first, tiles_of(conv["x"].shape[1]) - count) for first in firsts), count


def _windows(conv: ExternalNode, image: Image, count: int) -> tuple[tuple[int, int], ...]:
    """Return the plane and the pixel at which each step of the reduction begins: places of the window, then tiles."""
    (down, right), dilations = image.strides, conv["dilations"] or (1, 1)
    found = list[tuple[int, int]]()
    for (i, j), (_, shift) in zip(np.ndindex(*conv["weight"].shape[2:]), _shifts(conv, image.plane[1]), strict=True):
        remainder = i * dilations[0] % down * right + j * dilations[1] % right
        found += [(2 * (tiles_of(image.shape[1]) * remainder + tile), shift) for tile in range(count)]
    return tuple(found)


def conv(p: Planner, nodes: Sequence[ExternalNode]) -> None:
    """Plan a convolution: a product whose left operand is planes of pixels, shifted for each place of the window.

    The result is the planes that the next convolution reads, if these have the same width. If tensors do not fit, as
    many rows of the result as fit are computed at a time.
    """
    node, y, kind = nodes[0], nodes[-1].output, p.options.kind
    whole = part = _Convolution.of(nodes, p.options, p.images.get(y.name))
    column, rows = whole.work.depth * kind.tile_bytes, y.shape[2]
    if (
        1 < p.options.cores <= rows
        and y.shape[0] == 1
        and len(set(whole.firsts)) == 1
        and _convolves_on_cores(p, nodes)
    ):
        return
    while part.room(kind) < column:
        if rows == 1:
            raise _too_large(part.work)
        rows = -(-rows // 2)
        part = _Convolution.of(nodes, p.options, None, (0, rows))
    if rows == y.shape[2]:
        _convolve(p, nodes, whole)
        return
    p.l1.drop(*p.l1.tensors)
    for first in range(0, y.shape[2], rows):
        part = _Convolution.of(nodes, p.options, None, (first, min(rows, y.shape[2] - first)))
        _convolve(p, nodes, part)
        p.l1.drop(tensor(node["x"]).key, y.name)


def _convolves_on_cores(p: Planner, nodes: Sequence[ExternalNode]) -> bool:
    """Plan the convolution of an image on several cores, each with rows of pixels; return whether these fit."""
    node, y = nodes[0], nodes[-1].output

    def part_of(rows: int) -> _Part:
        band = _Convolution.of(nodes, p.options, None, (0, rows))
        return (
            replace(band.work, has_panels=True),
            lambda first: (replace(band.x, first=first), replace(band.y, first=first)),
        )

    sources = tuple(tensor(value) for value in (node["weight"], node["bias"]) if value is not None)
    channels = TILE * part_of(1)[0].k // math.prod(node["weight"].shape[2:])
    weights = Weights(0, y.shape[1], KEPT[p.options.phases][1], node["groups"] or 1, 0, channels)
    return _runs_on_cores(p, tensor(node["x"]), y.name, y.shape[2], part_of, Load(sources, weights, 0))


def _convolve(p: Planner, nodes: Sequence[ExternalNode], part: _Convolution) -> None:
    """Plan rows of a convolution, by tiles of channels that read the same channels and whose weights have room."""
    node, y, kind, work = nodes[0], nodes[-1].output, p.options.kind, part.work
    count, outputs = y.shape[:2]
    column, plane = work.depth * kind.tile_bytes, 16 * kind.bytes
    sizes = [image.size(kind) for image in (part.x, part.y)]
    sources = [tensor(value) for value in (node["weight"], node["bias"]) if value is not None]
    ones, x_at = p.operand((), Ones(True)) if work.has_bias else 0, p.operand((tensor(node["x"]),), part.x)
    y_at = p.result(y.name, replace(part.y, kept=24))
    across = max(1, p.l1.largest // column)
    begin = 0
    while begin < work.n:
        first, end = part.firsts[begin], begin + 1
        while end < work.n and part.firsts[end] == first and end - begin < across:
            end += 1
        weights = Weights(
            TILE * begin, min(TILE * end, outputs) - TILE * begin, KEPT[p.options.phases][1], node["groups"] or 1,
            TILE * first, TILE * work.k // math.prod(node["weight"].shape[2:]),
        )  # fmt: skip
        right = p.weights(sources, weights, (end - begin) * column)
        one = replace(work, n=end - begin)
        source, target = x_at + 2 * first * plane * part.x.rows, y_at + 2 * begin * plane * part.y.rows
        for i in range(count):
            p.run(one, (source + i * sizes[0] // count, right, ones, target + i * sizes[1] // count))
        p.l1.drop(sources[0].key)
        begin = end


def vector(p: Planner, nodes: Sequence[ExternalNode]) -> None:
    """Plan a function of elements or of rows.

    Elements are computed in the layout in which an operand is in L1. Operands of one shape are else one matrix of 32
    columns, so that tiles are full, unless the last dim is of whole tiles; others have the columns of the last dim.
    """
    node, y = nodes[0], nodes[-1].output
    kernel, operands = function_of(node), [value for value in node.inputs if value is not None]
    shape = tuple(operands[0].shape if kernel in ROWWISE else node.output.shape)
    if kernel in REDUCTIONS:  # the last dims are one
        axes = list(node["axes"] or range(len(shape)))
        shape = (*shape[: len(shape) - len(axes)], math.prod(shape[len(shape) - len(axes) :]))
    is_rowwise, is_equal = kernel in ROWWISE, all(tuple(each.shape) == shape for each in operands)
    are_rows = [
        (is_rowwise and i > 0) or (not is_rowwise and not is_equal and _is_row(each.shape, shape))
        for i, each in enumerate(operands)
    ]
    has_norm = kernel == "layer_norm"
    work = VectorWork(
        kernel, 1, 1, tuple(are_rows), shape[-1] if shape else 1, node["epsilon"] if has_norm else 0.0,
        has_norm and node["scale"] is not None, has_norm and node["bias"] is not None,
        activation=None if nodes[-1] is node else function_of(nodes[-1]), format=p.options.format,
    )  # fmt: skip
    layout: Any = natural(shape, fill=work.kernel.fill)
    if is_equal and not is_rowwise:
        layout = replace(layout, fill=0.0)
        if layout.columns % TILE:
            layout = Matrix(shape, 1, -(-math.prod(shape) // TILE), TILE)
        keeps = keeps_zeros(nodes)
        found = [x.layout for x in (p.l1.find(tensor(each).key) for each in operands) if x is not None]
        found = [each for each in found if isinstance(each, Matrix) or keeps]
        layout = replace(found[0], shape=shape, kept=24) if found else p.images.get(y.name, layout) if keeps else layout
    out = replace(layout, kept=24)
    if kernel in REDUCTIONS:
        out = replace(out, shape=tuple(y.shape), columns=1, fill=0.0)
    elif isinstance(out, Matrix):
        out = replace(out, shape=tuple(y.shape), fill=0.0)
    _in_turns(p, work, operands, are_rows, layout, out, y)


def _is_row(operand: Sequence[int], shape: Sequence[int]) -> bool:
    return tuple(operand)[-1:] == tuple(shape[-1:]) == (math.prod(operand),)


def _in_turns(
    p: Planner, work: VectorWork, operands: Sequence[ExternalValue], are_rows: Sequence[bool], layout: Any, out: Any,
    y: ExternalValue,
) -> None:  # fmt: skip
    """Plan work on all rows at once, or on as many at a time as fit into L1."""
    kind, is_flat = p.options.kind, not isinstance(layout, Matrix) or (work.name not in ROWWISE and not any(are_rows))
    tiles = layout.size(kind) // kind.tile_bytes
    n = 1 if is_flat else tiles_of(layout.columns)
    work = replace(work, m=tiles // n, n=n, columns=work.columns if work.name in ROWWISE else 0)
    parts = [(layout, out, work.m)]
    if not p.fits(work):
        if not isinstance(layout, Matrix):
            raise _too_large(work)
        p.l1.drop(*(tensor(each).key for each in operands))
        every, across = layout.groups * layout.rows, tiles_of(layout.columns) if is_flat else 1
        layout, out = (replace(each, groups=1, rows=every) for each in (layout, out))  # as rows of one matrix
        one, two = (sum(replace(work, m=m).tensor_bytes) for m in (1, 2))
        most = max(1, ((L1_TENSORS - one) // (two - one) + 1) // across)
        parts = []
        for row in range(0, every, TILE * most):
            rows = min(TILE * most, every - row)
            windows = (replace(each, part=(0, 1, row, rows, 0, each.columns)) for each in (layout, out))
            parts.append((*windows, tiles_of(rows) * across))
    for source, target, m in parts:
        whole = (source.columns,) if work.name in ROWWISE else ()
        places = [
            p.operand((tensor(each),), Matrix((TILE, layout.columns), 1, TILE, layout.columns))
            if is_row
            else p.operand((tensor(each),), source, whole)
            for each, is_row in zip(operands, are_rows, strict=True)
        ]
        p.run(replace(work, m=m), (*places, p.result(y.name, target)))
        if len(parts) > 1:
            wide = [each for each, is_row in zip(operands, are_rows, strict=True) if not is_row]
            p.l1.drop(y.name, *(tensor(each).key for each in wide))


Shape = Sequence[int]
Step = tuple[str, Shape, Mapping[str, Any]]
"""An operator that moves elements, the shape of its operand, and its attributes."""
MOVES = {"relax.reshape": (), "relax.permute": ("axes",), "relax.strided_slice": ("axes", "begin", "end", "strides")}
"""Operators that move elements, and their attributes."""


def moved_elements(steps: Sequence[Step]) -> Any:
    """Return which element of an operand each one of a result is, before the reshapes that come last."""
    numbers = np.arange(math.prod(steps[0][1]))
    for operator, shape, attributes in steps:
        if operator != "relax.reshape":
            numbers = graph_operations()[operator].meaning(numbers.reshape(shape), **attributes)
    return numbers


def moved_tiles(steps: Sequence[Step], result: Shape) -> Move | None:
    """Return the work that moves whole tiles; None if others are moved."""
    x = steps[0][1]
    if any(size % TILE for shape in (x, result) for size in (1, 1, *shape)[-2:]):
        return None
    old, new = _tiles(np.arange(math.prod(x)), x), _tiles(moved_elements(steps), result)
    firsts = {int(tile[0, 0]): i for i, tile in enumerate(old)}
    sources = [firsts.get(int(tile[0, 0]), -1) for tile in new]
    for transposes in (False, True):
        if -1 not in sources and np.array_equal(old[sources].swapaxes(1, 2) if transposes else old[sources], new):
            return Move(tuple(sources), transposes)
    return None


def moved_in_dram(steps: Sequence[Step]) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
    """Return the first element that is read, the sizes of the loops that read others, and their strides."""
    numbers = moved_elements(steps)
    if numbers.size == 0:
        return None
    first, expected, strides = int(numbers.flat[0]), np.zeros((1,) * numbers.ndim, np.int64), list[int]()
    for axis, size in enumerate(numbers.shape):
        strides.append(int(numbers.take(1, axis).flat[0]) - first if size > 1 else 0)
        expected = expected + np.expand_dims(
            strides[-1] * np.arange(size), [*range(axis), *range(axis + 1, numbers.ndim)]
        )
    return (first, numbers.shape, tuple(strides)) if np.array_equal(numbers, first + expected) else None


def _tiles(numbers: Any, shape: Sequence[int]) -> Any:
    rows, columns = shape[-2:]
    split = numbers.reshape(-1, rows // TILE, TILE, columns // TILE, TILE).transpose(0, 1, 3, 2, 4)
    return split.reshape(-1, TILE, TILE)


def move(p: Planner, nodes: Sequence[ExternalNode]) -> None:
    """Plan a movement of elements: of whole tiles in L1, of others from DRAM to DRAM."""
    x, y = nodes[0]["x"], nodes[-1].output
    steps = [(node.op, node["x"].shape, {name: node[name] for name in MOVES[node.op]}) for node in nodes]
    if (work := moved_tiles(steps, y.shape)) is not None:
        place = p.operand((tensor(x),), natural(x.shape))
        p.run(work, (place, p.result(y.name, natural(y.shape))))
        return
    loops = moved_in_dram(steps)
    assert loops is not None
    p.l1.store(x.name)
    p.items.append(Rearrange(tensor(x), y.name, *loops))


LOWERINGS = {
    "relax.matmul": matmul, "relax.conv": conv, "relax.attention": attention, **dict.fromkeys(MOVES, move),
}  # fmt: skip
"""How steps become work, by their first operator; others are the vector unit's."""
