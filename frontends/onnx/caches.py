"""Inputs that are caches of attentions.

Those of layers with a sliding window may become rings, which hold the rows of the window only. `PagedAttention` reads
caches in pages, and inputs that locate the rows of each sequence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx.graph import MICROSOFT, GraphDef, NodeDef
from mirlo.runtime.kinds import Kind
from mirlo.runtime.names import PAGE_ROLES
from mirlo.runtime.records import dataclass

WINDOWED = "GroupQueryAttention"
PAST, PRESENT = (3, 4), (1, 2)
"""Inputs and outputs that are caches of keys and of values."""
BIAS, SCORES = 10, 3
"""Input and output with an element for each token of the sequence: they need a cache of all."""
AXIS, RANK = 2, 4
PAGED = "PagedAttention"
OPERANDS = dict(zip((3, 4, 5, 6, 7, 10, 16), ("cache", "cache", *PAGE_ROLES[1:]), strict=True))
"""What an operand is, by its number."""
_VIEWS = ("Cast", "Identity")
"""Operators whose result says what their operand says."""


@dataclass(frozen=True)
class WindowedCaches:
    """The caches of keys and of values of an attention with a sliding window."""

    inputs: tuple[str, ...]
    window: int
    """The tokens of a window."""


def find_windows(graph: GraphDef) -> list[WindowedCaches]:
    """Return the caches that may become rings: inputs of attentions with `local_window_size` that nothing else reads.

    An attention with a bias or with scores as an output, whose elements belong to positions, keeps all rows.
    """
    uses = Counter(_used(graph))
    names = {value.name for value in graph.inputs}
    outputs = {value.name for value in graph.outputs}
    windows = []
    for node in graph.nodes:
        window = _window_of(node)
        if window is None or len(node.inputs) <= max(PAST) or len(node.outputs) <= max(PRESENT):
            continue
        past, present = (tuple(values[i] for i in at) for values, at in ((node.inputs, PAST), (node.outputs, PRESENT)))
        is_whole = any(len(values) > i and values[i] for values, i in ((node.inputs, BIAS), (node.outputs, SCORES)))
        is_own = all(name in names and uses[name] == 1 for name in past)
        if is_own and not is_whole and all(name in outputs and not uses[name] for name in present):
            windows.append(WindowedCaches(past, window))
    return windows


def with_rings(
    types: Mapping[str, TensorType | Kind], windowed: Iterable[WindowedCaches]
) -> tuple[dict[str, TensorType | Kind], dict[str, int]]:
    """Return the types of inputs, in which rings have a number of rows of their own, and the windows of the rings.

    Caches with fixed rows are rings if a window fits into them.
    """
    changed, windows = dict(types), {}
    tensors = [each for each in types.values() if isinstance(each, TensorType)]
    taken = {name for each in tensors for dim in each.shape for name in D.symbols_of(dim)}
    for caches in windowed:
        declared = [changed.get(name) for name in caches.inputs]
        kinds = [each for each in declared if isinstance(each, TensorType) and each.rank == RANK]
        if len(kinds) < len(declared):
            continue
        rows = [each.shape[AXIS] for each in kinds]
        fixed = [count for count in rows if isinstance(count, int)]
        if fixed and (len(fixed) < len(rows) or len(set(fixed)) > 1 or fixed[0] < caches.window):
            continue
        symbol = f"window_{caches.window}_rows"
        while symbol in taken:
            symbol += "_"
        for name, kind in zip(caches.inputs, kinds, strict=True):
            own: Dim = fixed[0] if fixed else D.symbol(symbol)
            changed[name] = kind.with_shape((*kind.shape[:AXIS], own, kind.shape[AXIS + 1]))
            windows[name] = caches.window
    return changed, windows


def _window_of(node: NodeDef) -> int | None:
    """Return the tokens of the window of an attention; None if it has none."""
    if node.operator != WINDOWED or node.domain != MICROSOFT:
        return None
    values = {attribute.name: attribute.value for attribute in node.attributes if not attribute.reference}
    window = values.get("local_window_size")
    return window if isinstance(window, int) and window > 0 and values.get("causal", 1) == 1 else None


def _used(graph: GraphDef) -> Iterator[str]:
    """Yield the name of each value that a node reads, in subgraphs too, as often as it does."""
    for node in graph.nodes:
        yield from node.inputs
        for inner in node.graphs:
            yield from _used(inner)
            yield from (value.name for value in inner.outputs)


def find_paged_inputs(graph: GraphDef) -> dict[str, str]:
    """Return the roles of inputs in attentions with caches in pages, by name: one of `PAGE_ROLES`.

    An input that is two of these is left out.
    """
    inputs = {value.name for value in graph.inputs}
    sources = {node.outputs[0]: node.inputs[0] for node in graph.nodes if node.operator in _VIEWS and node.inputs}
    roles: dict[str, set[str]] = {}
    for node in graph.nodes:
        if node.operator != PAGED or node.domain != MICROSOFT:
            continue
        for place, role in OPERANDS.items():
            name = node.inputs[place] if place < len(node.inputs) else ""
            passed = set[str]()  # the nodes of a hostile file may form a cycle
            while name in sources and name not in inputs | passed:
                passed.add(name)
                name = sources[name]
            if name in inputs:
                roles.setdefault(name, set()).add(role)
    return {name: its.pop() for name, its in roles.items() if len(its) == 1}
