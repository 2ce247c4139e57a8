"""Random numbers are drawn first: operators that need only the shape of a tensor do not wait for its values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from mirlo_torch.draws import RESTORING, SAVING, called, is_random
from mirlo_torch.graph import target_name
from mirlo_torch.sizes import SizeExpression

if TYPE_CHECKING:
    import torch

BY_FORM = (
    "aten.rand_like.default", "aten.randn_like.default", "aten.randint_like.default", "aten.randint_like.low_dtype",
    "aten.bernoulli.p", "aten.normal_functional.default", "aten.uniform.default", "aten.exponential.default",
)  # fmt: skip
"""Operators that read only sizes and strides of their first operand."""
DROPOUT = "aten.native_dropout.default"
"""The operator that multiplies its operand by random numbers of the same shape."""


def draw_first(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """Replace the operands of operators that draw by shape alone by empty tensors; return these and masks of dropout.

    They depend on no computation then. The empty tensor has the strides too: kernels of PyTorch draw in their order.
    """
    import torch

    sizes, nodes = _Sizes(graph), []
    for node in list(graph.nodes):
        target, args = called(node) if node.op == "call_function" and is_random(node) else (None, ())
        name = target_name(target)
        if name not in (*BY_FORM, DROPOUT):
            continue
        operand = args[0]
        assert isinstance(operand, torch.fx.Node), operand
        example = operand.meta["val"]
        form = [sizes.node_of(size) for size in (*example.shape, *example.stride())]
        if None in form:
            continue
        options = {"dtype": torch.bool if name == DROPOUT else example.dtype, "device": example.device}
        with graph.inserting_before(node):
            shape = form[: example.ndim], form[example.ndim :]
            empty = _added(graph, torch.ops.aten.empty_strided.default, shape, options, example)
        nodes.append(empty)
        if name == DROPOUT:
            nodes.append(_separate(graph, node, empty))
        else:
            before = node.args[: len(node.args) - len(args)]
            node.args = (*before, empty, *args[1:])
    return nodes


def _separate(graph: torch.fx.Graph, node: torch.fx.Node, empty: torch.fx.Node) -> torch.fx.Node:
    """Replace a dropout by a random mask and a product; return the mask."""
    import torch

    aten = torch.ops.aten
    _, (x, chance, *_) = called(node)
    assert isinstance(chance, (int, float)), chance
    is_saving = target_name(node.target) == SAVING
    result, drawn = _value(node)
    draw = torch.ops.aten.bernoulli_.float, (empty, 1 - chance)
    with graph.inserting_before(node):
        if node.target is aten.native_dropout.default:
            drawing = mask = _added(graph, *draw, {}, drawn)
        else:
            before = node.args[: len(node.args) - len(called(node)[1]) - 1]
            drawing = mask = _added(graph, node.target, (*before, draw[0], *draw[1]), {}, drawn)
            if is_saving:
                mask = _added(graph, operator.getitem, (drawing, 1), {}, drawn)
        kept = _added(graph, aten.mul.Tensor, (x, mask), {}, result)
        scaled = _added(graph, aten.mul.Tensor, (kept, 1 / (1 - chance) if chance < 1 else 0.0), {}, result)
    for part in list(node.users):
        if is_saving and part.args[1] == 0:
            part.replace_input_with(node, drawing)
            continue
        for each in list(part.users) if is_saving else [part]:
            each.replace_all_uses_with((scaled, mask)[each.args[1]])
            graph.erase_node(each)
        if is_saving:
            graph.erase_node(part)
    graph.erase_node(node)
    return drawing


def without_states(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """Remove the generator state from operators that draw nothing; return the nodes that replace the states."""
    import torch

    states = []
    for node in list(graph.nodes):
        if node.op != "call_function" or target_name(node.target) not in (SAVING, RESTORING) or is_random(node):
            continue
        target, args = called(node)
        assert isinstance(target, torch._ops.OpOverload), target
        is_saving = target_name(node.target) == SAVING
        with graph.inserting_before(node):
            call = _added(graph, target, args, node.kwargs, _value(node))
        if not is_saving:
            node.replace_all_uses_with(call)
        for part in list(node.users):
            if part.args[1] == 1:
                part.replace_all_uses_with(call)
            else:
                with graph.inserting_before(node):
                    options = {"dtype": torch.uint8}
                    state = _added(graph, torch.ops.aten.empty.memory_format, ([0],), options, part.meta.get("val"))
                states.append(state)
                part.replace_all_uses_with(state)
            graph.erase_node(part)
        graph.erase_node(node)
    return states


def _value(node: torch.fx.Node) -> Any:
    """Compute the traced value of a node, since dividing a graph drops the values of some nodes."""
    import torch

    target, args = called(node)
    assert isinstance(target, torch._ops.OpOverload), target
    fakes, options = torch.fx.node.map_arg((tuple(args), node.kwargs), lambda each: each.meta["val"])
    return target(*fakes, **options)


def _added(
    graph: torch.fx.Graph,
    target: Callable[..., Any],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    value: object,
) -> torch.fx.Node:
    node = graph.call_function(target, tuple(args), dict(kwargs))
    node.meta["val"] = value
    return node


class _Sizes:
    """Nodes that compute sizes from those of a graph's inputs."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self._graph = graph
        self._places: dict[str, tuple[torch.fx.Node, int | None, object]] = {}
        self._known: dict[SizeExpression, torch.fx.Node] = {}
        self._last = next(iter(graph.nodes))
        for node in graph.nodes:
            if node.op != "placeholder":
                break
            self._last = node
            value = node.meta.get("val")
            for axis, size in enumerate(getattr(value, "shape", ())):
                self._places.setdefault(str(size), (node, axis, size))
            if not hasattr(value, "shape"):
                self._places.setdefault(str(value), (node, None, value))

    def node_of(self, size: torch.SymInt | int) -> torch.fx.Node | int | None:
        """Return a size as a number or a node; None if it depends on data."""
        return size if isinstance(size, int) else self._of_expression(size.node.expr, size)

    def _of_expression(self, expression: SizeExpression, size: torch.SymInt) -> torch.fx.Node | int | None:
        if expression.is_Integer:
            return int(expression)
        if expression not in self._known:
            node = self._new(expression, size)
            if node is None:
                return None
            self._known[expression] = node
        return self._known[expression]

    def _new(self, expression: SizeExpression, size: torch.SymInt) -> torch.fx.Node | None:
        import torch

        place = self._places.get(str(expression))
        if place is not None:
            node, axis, value = place
            return node if axis is None else self._call(torch.ops.aten.sym_size.int, (node, axis), value)
        function = _FUNCTIONS.get(type(expression).__name__)
        if function is None:
            return None
        parts = [self._of_expression(part, size) for part in expression.args]
        if None in parts:
            return None
        return reduce(lambda left, right: self._call(function, (left, right), size), parts)

    def _call(self, function: Callable[..., Any], args: Sequence[object], value: object) -> torch.fx.Node:
        with self._graph.inserting_after(self._last):
            self._last = _added(self._graph, function, args, {}, value)
        return self._last


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"Add": operator.add, "Mul": operator.mul}
"""Functions of sizes by the name of their class."""
