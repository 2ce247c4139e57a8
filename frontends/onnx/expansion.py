"""The size of a model whose functions are copied at each call, checked where it is opened: before anything copies them.

A few functions that call each other twice reach millions of nodes, in the import as in the inference and the evaluator
of the `onnx` package.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.frontends.onnx.graph import FunctionDef, ModelDef, NodeDef

EXPANSION_DEPTH = 32
"""Deepest nesting of functions; deeper ones are considered recursive."""

EXPANDED_NODES = 50_000
"""Most nodes beyond those of the main graph: a few functions that call each other twice, or nested loops, reach
millions. This number takes about half a minute to compile."""

Key = tuple[str, str, str]


def require_expandable(model: ModelDef, what: str) -> None:
    """Refuse a model whose functions, copied at each call, have too many nodes, or are nested without end."""
    nodes, calls = _contents(model.graph.nodes, model.functions)
    sizes: dict[Key, int] = {}
    heights: dict[Key, int] = {}
    for key in _callees_first(calls, model.functions, what):
        own, inner = _contents(model.functions[key].nodes, model.functions)
        sizes[key] = own + sum(sizes[callee] * count for callee, count in inner.items())
        heights[key] = 1 + max((heights[callee] for callee in inner), default=0)
        if heights[key] > EXPANSION_DEPTH:
            raise _too_deep(key, what)
    copied = sum(sizes[callee] * count for callee, count in calls.items())
    if copied <= EXPANDED_NODES:
        return
    large = [key for key, size in sizes.items() if size > EXPANDED_NODES // 2]
    key = min(large, key=sizes.__getitem__) if large else max(sizes, key=sizes.__getitem__)
    raise OnnxImportError(
        f"{what}: the functions of the model, copied at each call, come to {nodes + copied} nodes, more than "
        f"{EXPANDED_NODES}: a call of '{key[1]}' alone to {sizes[key]}; functions that call each other "
        "several times multiply: have the exporter write such a part as a Loop"
    )


def _contents(nodes: Sequence[NodeDef], defined: Mapping[Key, FunctionDef]) -> tuple[int, Counter[Key]]:
    """Return how many nodes a graph and those in it have, and how often they call each function."""
    count, calls = len(nodes), Counter[Key]()
    for node in nodes:
        key = (node.domain, node.operator, node.overload)
        if key in defined:
            calls[key] += 1
        for graph in node.graphs:
            inner, inner_calls = _contents(graph.nodes, defined)
            count += inner
            calls.update(inner_calls)
    return count, calls


def _callees_first(calls: Mapping[Key, int], defined: Mapping[Key, FunctionDef], what: str) -> list[Key]:
    """Return the functions that are reached by calls, each after those that it calls; refuse recursive ones."""
    order: dict[Key, None] = {}
    active: set[Key] = set()
    waiting = [(key, False) for key in calls]
    while waiting:
        key, is_left = waiting.pop()
        if is_left:
            active.discard(key)
            order[key] = None
        elif key in active:
            raise _too_deep(key, what)
        elif key not in order:
            active.add(key)
            waiting.append((key, True))
            waiting += [(callee, False) for callee in _contents(defined[key].nodes, defined)[1] if callee not in order]
    return list(order)


def _too_deep(key: Key, what: str) -> OnnxImportError:
    return OnnxImportError(f"{what}: functions are nested more than {EXPANSION_DEPTH} deep: '{key[1]}' calls itself?")
