"""Equal layers are traced once: the graph of the first is copied for the others, with their parameters.

Two layers of a list are equal if their modules have the same classes, parameter shapes and attributes, except for the
layer number, and get the same arguments. The first and the last of equal layers are traced between marker operators;
each of the others is one operator. If the graphs of the first and the last differ in more than parameter names, all
layers are traced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from mirlo_llm.generate.traced.cache import DecoderCache, LayerState
from mirlo_llm.generate.traced.interfaces import ExpertUse
from mirlo_llm.generate.traced.operators import layer_again, layer_begin, layer_end
from mirlo_llm.generate.traced.weights import WRAPPER

Tensor = Any
Module = Any
Node = Any
LEAST = 3
"""Fewest equal layers for which one is traced."""
PLAIN = (type(None), bool, int, float, str, torch.dtype)
"""Types of attributes and arguments that are compared by value."""


class LayersDifferError(Exception):
    """The graphs of seemingly equal layers differ."""

    def __init__(self, group: EqualLayers) -> None:
        super().__init__(group.name)
        self.group = group


@dataclass(eq=False)
class EqualLayers:
    """A group of equal layers of a list."""

    name: str
    """The name of the list."""
    modules: dict[int, Module]
    """The layers by number."""
    arguments: object = None
    """The arguments of the first layer: types and shapes of tensors, other values as they are."""
    returned: object = None
    """The results of the first layer, in the same form."""
    outputs: list[Tensor] = field(default_factory=list)
    """The tensors that the first layer returned and stored in the cache."""
    result: object = None
    """The structure of the first layer's results; `_Place` refers to tensors in `outputs`."""
    experts: list[str] = field(default_factory=list)
    """The names of the experts' modules within a layer."""
    is_traced: bool = False
    """Whether all layers are traced in this call."""

    @property
    def first(self) -> int:
        """Return the number of the layer that is copied."""
        return min(self.modules)

    @property
    def last(self) -> int:
        """Return the number of the layer that the first is compared with."""
        return max(self.modules)

    def start(self) -> None:
        """Reset the records of an earlier call."""
        self.arguments, self.returned, self.result, self.is_traced = None, None, None, False
        self.outputs, self.experts = [], []


def find_equal_layers(model: Module, states: Sequence[LayerState]) -> list[EqualLayers]:
    """Return the groups of equal layers of a model; lists within layers are traced with them."""
    found: list[EqualLayers] = []
    inside: set[int] = set()
    for name, each in model.named_modules():
        if not isinstance(each, torch.nn.ModuleList) or id(each) in inside:
            continue
        inside |= {id(part) for part in each.modules()}
        groups: list[tuple[list[object], EqualLayers]] = []
        for number, layer in enumerate(each):
            description = _description(layer, number, len(each), states)
            for other, group in groups:
                if _are_equal(other, group.first, description, number):
                    group.modules[number] = layer
                    break
            else:
                groups.append((description, EqualLayers(name, {number: layer})))
        found += [group for _, group in groups if len(group.modules) >= LEAST]
    return found


def _description(layer: Module, number: int, count: int, states: Sequence[LayerState]) -> list[object]:
    """Return a description that equal layers share; the layer number is replaced."""
    result: list[object] = [
        (state.kind, state.shape, state.dtype, state.index, state.window) for state in states if state.layer == number
    ]
    own = set(vars(torch.nn.Module()))
    for name, module in layer.named_modules():
        result += [name, type(module)]
        for key, tensor in (*module._parameters.items(), *module._buffers.items()):
            result.append((key, None if tensor is None else (tuple(tensor.shape), tensor.dtype)))
        buffers = [(key, each) for key, each in module._buffers.items() if each is not None]
        result += [(key, _digest(each)) for key, each in buffers if each.device.type != "meta"]
        for key, value in vars(module).items():
            if key not in own:
                result += [key, _comparable(value)]
        config = getattr(module, "config", None)
        if config is not None:  # `layer_types`, and what else there is of each layer
            lists = {key: each for key, each in vars(config).items() if isinstance(each, (list, tuple))}
            result += [(key, _comparable(each[number])) for key, each in lists.items() if len(each) == count]
    return result


def _digest(tensor: Tensor) -> bytes:
    return hashlib.sha256(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()).digest()


def _comparable(value: object) -> object:
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, (list, tuple)):
        return [_comparable(each) for each in value]
    if isinstance(value, dict):
        return [(key, _comparable(each)) for key, each in value.items()]
    return id(value)


def _are_equal(first: list[object], number: int, second: list[object], other: int) -> bool:
    def same(a: object, b: object) -> bool:
        if type(a) is not type(b):
            return False
        return a == b or (type(a) is int and (a, b) == (number, other))

    return len(first) == len(second) and all(map(same, first, second))


class LayerCalls:
    """The calls of equal layers while a model is traced."""

    def __init__(self, groups: Sequence[EqualLayers], use: ExpertUse) -> None:
        self.groups, self._use = groups, use
        self._cache: DecoderCache

    @contextmanager
    def replaced(self) -> Iterator[None]:
        """Call equal layers through this object in the block."""
        pairs = [(group, number, module) for group in self.groups for number, module in group.modules.items()]
        for group, number, module in pairs:
            module.forward = self._call(group, number, module, module.forward)
        try:
            yield
        finally:
            for _, _, module in pairs:
                del module.forward

    def start(self, cache: DecoderCache) -> None:
        """Begin a call of the model."""
        self._cache = cache
        for group in self.groups:
            group.start()

    def _call(
        self, group: EqualLayers, number: int, module: Module, original: Callable[..., object]
    ) -> Callable[..., object]:
        def forward(*args: object, **kwargs: object) -> object:
            given, index = (args, kwargs), self.groups.index(group)
            arguments = _signature((*args, *kwargs, *kwargs.values()), self._cache)
            if arguments is None:
                group.is_traced = True
            if group.is_traced or (number != group.first and arguments != group.arguments):
                return original(*args, **kwargs)
            inputs = [*_tensors(given), *self._cache.kept(number)]
            if number not in (group.first, group.last):
                self._use.modules += [module.get_submodule(each) for each in group.experts]
                return self._finish(group, number, layer_again(inputs, group.outputs, index, number))
            known = len(self._use.modules)
            others = self._cache.results()
            replaced = layer_begin(inputs, index, number)
            args, kwargs = self._replace(given, number, replaced)
            result = original(*args, **kwargs)
            returned = _signature(result, None)
            if returned is None or self._wrote_elsewhere(number, others):
                group.is_traced = True
                return result
            if number == group.last and returned != group.returned:
                raise LayersDifferError(group)
            outputs = layer_end([*_tensors(result), *self._cache.kept(number)], index, number)
            if number == group.first:
                names = {id(each): name for name, each in module.named_modules()}
                group.experts = [names[id(each)] for each in self._use.modules[known:]]
                places = iter(range(len(outputs)))
                group.result = tree_map_only(torch.Tensor, lambda _: _Place(next(places)), result)
                group.arguments, group.returned, group.outputs = arguments, returned, outputs
            return self._finish(group, number, outputs)

        return forward

    def _replace(self, given: Any, number: int, tensors: Sequence[Tensor]) -> Any:
        """Replace the tensors in arguments; the last ones are those of the cache."""
        rest = iter(tensors)
        result = tree_map_only(torch.Tensor, lambda _: next(rest), given)
        self._cache.keep(number, list(rest))
        return result

    def _finish(self, group: EqualLayers, number: int, outputs: Sequence[Tensor]) -> object:
        """Store the states of a layer in the cache, and return the layer's result."""
        states = len(self._cache.kept(number))
        self._cache.keep(number, outputs[len(outputs) - states :])
        return tree_map_only(_Place, lambda each: outputs[each.number], group.result)

    def _wrote_elsewhere(self, number: int, before: Sequence[Tensor]) -> bool:
        """Return whether a layer changed states of other layers."""
        pairs = zip(self._cache.states, before, self._cache.results(), strict=True)
        return any(state.layer != number and old is not new for state, old, new in pairs)


@dataclass(frozen=True)
class _Place:
    """A reference to a tensor among the outputs of a layer."""

    number: int


def _tensors(value: object) -> list[Tensor]:
    found: list[Tensor] = []
    tree_map_only(torch.Tensor, found.append, value)
    return found


def _signature(value: object, cache: DecoderCache | None) -> object:
    """Return a description of arguments that equal layers share; None for objects that a layer may write."""
    if isinstance(value, torch.Tensor):
        return "tensor", str(tuple(value.shape)), value.dtype
    if isinstance(value, PLAIN) or (cache is not None and value is cache):
        return "value", value
    if type(value) is not tuple:
        return None
    parts = [_signature(each, cache) for each in value]
    return None if None in parts else ("tuple", parts)


def with_all_layers(program: Any, groups: Sequence[EqualLayers]) -> Any:
    """Replace the operators of `LayerCalls` by the graphs of their layers.

    Raises `LayersDifferError` for equal layers whose graphs are not.
    """
    graph = program.graph_module.graph
    marks: dict[object, dict[tuple[int, int], Node]] = {layer_begin: {}, layer_end: {}, layer_again: {}}
    for node in graph.nodes:
        if node.op == "call_function" and node.target in marks:
            index, number = node.args[-2:]
            marks[node.target][index, number] = node
    for index, group in enumerate(groups):
        again = [(number, node) for (own, number), node in marks[layer_again].items() if own == index]
        if again:
            ends = [
                (marks[layer_begin].get((index, number)), marks[layer_end].get((index, number)))
                for number in (group.first, group.last)
            ]
            if any(node is None for both in ends for node in both):
                raise LayersDifferError(group)
            _LayerGraphs(program, group, ends[0]).copy_to(again, ends[1])
    for node in (*marks[layer_begin].values(), *marks[layer_end].values()):
        _replace_items(node, node.args[0])
    return program


def _replace_items(node: Node, values: Sequence[Node]) -> None:
    """Replace the items of a list that a node returns by values, and remove the node."""
    for item in list(node.users):
        item.replace_all_uses_with(values[item.args[1]])
        item.graph.erase_node(item)
    node.graph.erase_node(node)


class _LayerGraphs:
    """The graph of the first of equal layers."""

    def __init__(self, program: Any, group: EqualLayers, ends: tuple[Node, Node]) -> None:
        self._program, self._group, (self._begin, self._end) = program, group, ends
        specs, nodes = program.graph_signature.input_specs, program.graph.find_nodes(op="placeholder")
        self._names = {node: spec.target for node, spec in zip(nodes, specs, strict=True) if spec.target is not None}
        self._nodes = {name: node for node, name in self._names.items()}
        self._body = _nodes_between(*ends)

    def copy_to(self, calls: Sequence[tuple[int, Node]], last: tuple[Node, Node]) -> None:
        """Replace the operators of other layers by copies; raise an error unless they equal the last layer."""
        if not self._is_equal(*last):
            raise LayersDifferError(self._group)
        for number, call in calls:
            self._copy(number, call)

    def _copy(self, number: int, call: Node) -> None:
        """Replace the operator of a layer by a copy of the graph."""
        copies: dict[Node, Node] = {item: call.args[0][item.args[1]] for item in self._begin.users}

        def copied(node: Node) -> Node:
            return self._counterpart(node, number, copies)

        graph = self._program.graph
        with graph.inserting_before(call):
            for node in self._body:
                if node not in copies:
                    copies[node] = graph.node_copy(node, copied)
        _replace_items(call, list(map(copied, self._end.args[0])))

    def _counterpart(self, node: Node, number: int, copies: dict[Node, Node]) -> Node:
        """Return another layer's node for a node of the first; nodes outside of layers are shared."""
        if node in copies:
            return copies[node]
        name, own = self._names.get(node, ""), self._prefix(self._group.first)
        if not name.startswith(own):
            return node
        try:
            return self._nodes[self._prefix(number) + name.removeprefix(own)]
        except KeyError:
            raise LayersDifferError(self._group) from None

    def _prefix(self, number: int) -> str:
        return f"{WRAPPER}{self._group.name}.{number}."

    def _is_equal(self, begin: Node, end: Node) -> bool:
        """Return whether the graphs of the last and the first layer are equal except for parameters."""
        body = _nodes_between(begin, end)
        if len(body) != len(self._body):
            return False
        pairs: dict[Node, Node] = {}

        def equal(first: object, second: object) -> bool:
            if isinstance(first, torch.fx.Node) and isinstance(second, torch.fx.Node):
                if self._counterpart(first, self._group.last, pairs) is second:
                    return True
                return self._are_equal_values(first, second)
            if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
                return len(first) == len(second) and all(map(equal, first, second))
            return type(first) is type(second) and first == second

        places = {item.args[1]: item for item in begin.users}
        pairs |= {item: places.get(item.args[1], item) for item in self._begin.users}
        for first, second in zip(self._body, body, strict=True):
            if first in pairs:
                if pairs[first] is not second:
                    return False
                continue
            if (first.op, first.target) != (second.op, second.target) or not equal(first.args, second.args):
                return False
            if first.kwargs.keys() != second.kwargs.keys():
                return False
            if not all(equal(each, second.kwargs[key]) for key, each in first.kwargs.items()):
                return False
            pairs[first] = second
        return equal(self._end.args[0], end.args[0])

    def _are_equal_values(self, first: Node, second: Node) -> bool:
        """Return whether two nodes are equal sizes, or equal constants."""
        if not _is_tensor(first) and not _is_tensor(second):
            return str(first.meta.get("val")) == str(second.meta.get("val"))
        one, other = (self._program.constants.get(self._names.get(each)) for each in (first, second))
        return one is not None and other is not None and one.dtype == other.dtype and torch.equal(one, other)


def _nodes_between(begin: Node, end: Node) -> list[Node]:
    """Return the nodes of a layer that compute tensors, in the order of the graph."""
    found, node = [], begin.next
    while node is not end:
        if _is_tensor(node):
            found.append(node)
        node = node.next
    return found


def _is_tensor(node: Node) -> bool:
    """Return whether a node returns tensors; others are sizes, and checks of sizes."""
    return bool(_tensors(node.meta.get("val")))
