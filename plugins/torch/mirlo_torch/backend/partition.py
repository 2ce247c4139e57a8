"""Division of a graph into stages: those that are compiled, and those that PyTorch runs.

Stages alternate. A node's stage is the first of its kind in which its operands are known, so there are as few as the
graph allows, and no cycles. Nodes that draw random numbers, or have effects, stay in order.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from mirlo_torch.backend.strides import hint
from mirlo_torch.draws import is_random
from mirlo_torch.graph import target_name

if TYPE_CHECKING:
    import torch

MIN_OPERATORS = 2
"""Fewest operators of a stage beside other compiled ones; a single one is no faster than PyTorch's kernel."""

MAX_ROWS = 64
"""Rows or columns of matrices whose eigenvalues or singular values are compiled: of larger ones LAPACK, which PyTorch
calls, takes a tenth of the time."""
OF_MATRICES = ("aten._linalg_eigh.default", "aten._linalg_svd.default")
"""Operators that are left to PyTorch for larger matrices."""


@dataclass(frozen=True)
class Stage:
    """A part of a graph, as a graph of its own."""

    module: torch.fx.GraphModule
    inputs: tuple[torch.fx.Node, ...]
    """The nodes of the whole graph that the stage reads."""
    outputs: tuple[torch.fx.Node, ...]
    """The nodes of the whole graph that the stage returns."""
    origins: Mapping[str, torch.fx.Node]
    """The nodes of the whole graph, by the stage's node names."""
    is_compiled: bool

    @property
    def key(self) -> tuple[tuple[torch.fx.Node, ...], ...]:
        """Return a key that is equal for stages that compute the same."""
        return tuple(self.origins.values()), self.outputs


def partition(
    graph: torch.fx.Graph,
    root: torch.nn.Module,
    eager: Collection[torch.fx.Node],
    freed_inputs: Collection[torch.fx.Node] = (),
) -> list[Stage]:
    """Return the stages of a graph, in order, of which those of the nodes in `eager` are PyTorch's.

    Only the graph refers to the inputs `freed_inputs`: stages are divided where freeing them in between saves memory.
    """
    results = set(_output(graph).all_input_nodes)
    members: dict[int, list[torch.fx.Node]] = {}
    levels = compute_late(_levels(graph, eager), eager)
    for node, level in levels.items():
        if node in results or not is_size(node):
            members.setdefault(level, []).append(node)
    is_only = sum(level % 2 == 0 for level in members) == 1
    stages = [(level, own, _extended(own)) for level, own in _divided(members, levels, freed_inputs)]
    used_by = [{each for node in nodes for each in node.all_input_nodes} - set(nodes) for *_, nodes in stages]
    parts = []
    for position, (level, own, nodes) in enumerate(stages):
        wanted = results.union(*used_by[position + 1 :])
        outputs = [node for node in own if node in wanted]
        is_compiled = level % 2 == 0 and (is_only or _computes(nodes) >= MIN_OPERATORS)
        if outputs or any(map(_has_effect, nodes)):
            parts.append(_stage(root, nodes, outputs, is_compiled))
    return parts


def base_of(node: torch.fx.Node) -> torch.fx.Node | None:
    """Return the operand whose memory an operator's result shares; None if it has its own."""
    if target_name(node.target) == "_operator.getitem":
        return base_of(node.all_input_nodes[0])
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.is_mutable:
        return None
    for argument, value in zip(schema.arguments, node.args, strict=False):
        if argument.alias_info is not None:
            return next((each for each in node.all_input_nodes if each is value), None)
    return None


def is_left(node: torch.fx.Node) -> bool:
    """Return whether PyTorch runs an operator, given as its node or as a node of its results."""
    if node.op != "call_function":
        return False
    name = target_name(operator_of(node).target)
    return name in OF_MATRICES and _is_large(operator_of(node).all_input_nodes[0].meta["val"])


def _is_large(matrices: torch.Tensor) -> bool:
    return any(not isinstance(size, int) or size > MAX_ROWS for size in matrices.shape[-2:])


def operator_of(node: torch.fx.Node) -> torch.fx.Node:
    """Return the operator of a node, which is the node itself or its producer if it is one of several results."""
    return node.all_input_nodes[0] if target_name(node.target) == "_operator.getitem" else node


def without_tokens(graph: torch.fx.Graph) -> None:
    """Remove the effect tokens of operators: stages keep the order of effects."""
    for node in list(graph.nodes):
        if node.op != "call_function" or target_name(node.target) != "higher_order.with_effects":
            continue
        token, target, *rest = node.args
        with graph.inserting_before(node):
            call = graph.call_function(target, tuple(rest), node.kwargs)
        values = list(node.meta["val"])[1:]
        call.meta = {**node.meta, "val": values[0] if len(values) == 1 else tuple(values) or None}
        for user in list(node.users):
            index = user.args[1]
            if index and len(values) > 1:
                with graph.inserting_before(user):
                    part = graph.call_function(operator.getitem, (call, index - 1))
                part.meta = dict(user.meta)
                user.replace_all_uses_with(part)
            else:
                user.replace_all_uses_with(call if index else token)
            graph.erase_node(user)
        graph.erase_node(node)


def _has_effect(node: torch.fx.Node) -> bool:
    """Return whether a node has effects besides its results; a check has none."""
    returns = getattr(getattr(node.target, "_schema", None), "returns", None)
    return node.is_impure() or (returns is not None and not returns)


def is_size(node: torch.fx.Node) -> bool:
    """Return whether a node computes a size or number from sizes; each stage that needs it recomputes it."""
    import torch

    if node.op == "get_attr":
        return True
    name = target_name(node.target) if node.op == "call_function" else ""
    if not isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)):
        return False
    if name.startswith(("aten.sym_size", "aten.sym_numel", "aten.sym_stride")):
        return True
    return name.startswith(("_operator.", "torch.sym_", "math.")) and all(
        each.op == "placeholder" or is_size(each) for each in node.all_input_nodes
    )


def is_given(node: torch.fx.Node) -> bool:
    """Return whether a node computes a size from sizes of the graph's inputs, which each stage can compute."""
    return is_size(node) and all(each.op == "placeholder" or is_given(each) for each in node.all_input_nodes)


def _levels(graph: torch.fx.Graph, eager: Collection[torch.fx.Node]) -> dict[torch.fx.Node, int]:
    """Return the stage of each node: even ones are compiled, odd ones are PyTorch's."""
    levels: dict[torch.fx.Node, int] = {}
    last = -1
    for node in graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        before = [levels[each] for each in node.all_input_nodes if each in levels and not is_given(each)]
        first = max(before, default=-1)
        if target_name(node.target) == "_operator.getitem" and node.all_input_nodes[0] in levels:
            levels[node] = levels[node.all_input_nodes[0]]
            continue
        if node not in eager:
            levels[node] = first + first % 2
            continue
        if is_random(node) or _has_effect(node):
            first = last = max(first, last) | 1
        levels[node] = first | 1
    return levels


MAX_WAITING = 0.5
"""Bytes of operands by those of results up to which an operator is computed late: memory that is filled with zeros, or
an expanded mask. Of equal ones neither is kept less, and the first stage may use what it computes, too."""


def compute_late(levels: Mapping[torch.fx.Node, int], eager: Collection[torch.fx.Node]) -> dict[torch.fx.Node, int]:
    """Return the stages of nodes; compiled nodes are moved to later stages where this needs less memory.

    What the graph's inputs determine would be computed in the first stage otherwise, and wait for its reader.
    """
    late = dict(levels)
    for node in reversed(list(levels)):
        is_part = target_name(node.target) == "_operator.getitem" and node.all_input_nodes[0] in levels
        if node in eager or is_part or is_size(node):
            continue
        parts = [user for user in node.users if target_name(user.target) == "_operator.getitem"]
        readers = [user for each in (node, *parts) for user in each.users if user not in parts]
        if not readers or any(user not in late for user in readers):
            continue
        level = min(late[user] for user in readers)
        level -= level % 2
        waiting = [each for each in node.all_input_nodes if _last_read(each, late) < level]
        if level > late[node] and sum(map(_bytes, waiting)) <= MAX_WAITING * _bytes(node):
            late.update(dict.fromkeys((node, *parts), level))
    return late


MIN_FREED = 1 << 20
"""Fewest bytes that a part of a divided stage frees and that a division saves; a call costs 50 microseconds."""
MAX_PARTS = 4
"""Most parts of a stage; with n parts, a step needs one n-th of the saved tensors besides all gradients."""


def _divided(
    members: Mapping[int, Sequence[torch.fx.Node]],
    levels: Mapping[torch.fx.Node, int],
    freed_inputs: Collection[torch.fx.Node],
) -> list[tuple[int, list[torch.fx.Node]]]:
    """Return the nodes of stages with their levels, in order; a stage is divided if this needs less memory."""
    rows = [(level, list(members[level])) for level in sorted(members)]
    held = most_held([own for _, own in rows], freed_inputs)
    for level in [level for level in members if level % 2 == 0]:
        freed = {node for node in freed_inputs if _last_read(node, levels) <= level}
        parts = [(level, part) for part in divide(members[level], freed)]
        position = next(i for i, row in enumerate(rows) if row[0] == level)
        changed = [*rows[:position], *parts, *rows[position + 1 :]]
        needed = most_held([own for _, own in changed], freed_inputs) if len(parts) > 1 else held
        if held - needed >= MIN_FREED:
            rows, held = changed, needed
    return rows


def most_held(stages: Sequence[Sequence[torch.fx.Node]], freed: Collection[torch.fx.Node]) -> int:
    """Return the largest number of bytes that are alive at the end of a stage: operands, and values read later."""
    stage_of = {node: position for position, nodes in enumerate(stages) for node in nodes}
    changes = [0] * (max(len(stages), 1) + 1)  # a graph without operators holds its inputs
    for node in {*freed, *stage_of}:
        first = stage_of.get(node, 0)
        # A stage's own values are gone at its end, its operands are not yet; results of the graph stay.
        last = max((stage_of.get(user, len(stages) - 1) for user in node.users), default=-1)
        if last > first or node in freed or any(user not in stage_of for user in node.users):
            changes[first] += _bytes(node)
            changes[max(first, last) + 1] -= _bytes(node)
    return max(accumulate(changes))


def divide(nodes: Sequence[torch.fx.Node], freed: Collection[torch.fx.Node]) -> list[list[torch.fx.Node]]:
    """Return parts of a stage; each part is the last reader of some of the inputs that are then freed.

    Cuts are where the fewest bytes are passed to the next part.
    """
    last_read = {each: position for position, node in enumerate(nodes) for each in node.all_input_nodes}
    read_last: dict[int, list[torch.fx.Node]] = {}
    for each, position in last_read.items():
        read_last.setdefault(position, []).append(each)
    total = sum(_bytes(each) for each in last_read if each in freed)
    count = min(MAX_PARTS, total // MIN_FREED)
    best: dict[int, tuple[float, int]] = {}
    done = 0
    crossing: dict[torch.fx.Node, float] = {}
    for position, node in enumerate(nodes[:-1]):
        for each in read_last.get(position, ()):
            done += _bytes(each) if each in freed else 0
            crossing.pop(each, None)
        if node in last_read:
            crossing[node] = _bytes(node) if _is_tensor(node) else math.inf
        share = round(done * count / total) if count else 0
        if 0 < share < count:
            best[share] = min(best.get(share, (math.inf, 0)), (sum(crossing.values()), position + 1))
    cuts = [0, *(cut for size, cut in best.values() if size <= total / count / 2), len(nodes)]
    return [list(nodes[start:end]) for start, end in pairwise(cuts)]


def _is_tensor(node: torch.fx.Node) -> bool:
    return hasattr(node.meta.get("val"), "element_size")


def _last_read(node: torch.fx.Node, levels: Mapping[torch.fx.Node, int]) -> float:
    """Return the last stage that reads a value; for a result of the graph, a number after all stages."""
    return max((levels.get(user, math.inf) for user in node.users), default=-1)


def _bytes(node: torch.fx.Node) -> int:
    """Return the bytes of an operator's results for the sizes that the graph was captured for."""
    import torch

    values = node.meta.get("val")
    tensors = values if isinstance(values, (tuple, list)) else [values]
    return sum(
        math.prod(map(hint, each.shape)) * each.element_size() for each in tensors if isinstance(each, torch.Tensor)
    )


def _extended(nodes: Sequence[torch.fx.Node]) -> list[torch.fx.Node]:
    """Return the nodes of a stage, after the computations of sizes that they use."""
    result: dict[torch.fx.Node, None] = {}

    def add(node: torch.fx.Node) -> None:
        for each in node.all_input_nodes:
            if each not in result and is_size(each):
                add(each)
        result[node] = None

    for node in nodes:
        add(node)
    return list(result)


def _computes(nodes: Iterable[torch.fx.Node]) -> int:
    """Return the number of these nodes that are operators on tensors."""
    return sum(
        not is_size(node) and base_of(node) is None and target_name(node.target) != "_operator.getitem"
        for node in nodes
    )


def _stage(
    root: torch.nn.Module, nodes: Sequence[torch.fx.Node], outputs: Sequence[torch.fx.Node], is_compiled: bool
) -> Stage:
    import torch

    graph = torch.fx.Graph()
    inside = set(nodes)
    inputs = list(dict.fromkeys(each for node in nodes for each in node.all_input_nodes if each not in inside))
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        copies[node].meta.pop("from_node", None)
    graph.output(tuple(copies[node] for node in outputs))
    origins = {copies[node].name: node for node in nodes}
    return Stage(torch.fx.GraphModule(root, graph), tuple(inputs), tuple(outputs), origins, is_compiled)


def _output(graph: torch.fx.Graph) -> torch.fx.Node:
    return next(node for node in reversed(graph.nodes) if node.op == "output")


def views_of_results(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """Replace results that share memory by views of one tensor, computed last; return their nodes.

    Views that the graph computes with stay where they are.
    """
    output = _output(graph)
    results = list(dict.fromkeys(output.all_input_nodes))
    roots: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node in results:
        roots.setdefault(_root(node), []).append(node)
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for root, group in roots.items():
        if len(group) > 1:
            for node in group:
                _copy_views(node, root, copies, graph, output)
    output.args = _mapped(output.args, lambda node: copies.get(node, node))
    return list(copies.values())


def _root(node: torch.fx.Node) -> torch.fx.Node:
    base = base_of(node)
    return node if base is None else _root(base)


def _copy_views(
    node: torch.fx.Node, root: torch.fx.Node, copies: dict[torch.fx.Node, torch.fx.Node], graph: torch.fx.Graph,
    output: torch.fx.Node,
) -> torch.fx.Node:  # fmt: skip
    """Return a copy, before the output, of a view and of the views between it and its root."""
    if node is root:
        return node
    if node not in copies:
        operands = {each: _copy_views(each, root, copies, graph, output) for each in _viewed(node)}
        with graph.inserting_before(output):
            copies[node] = graph.node_copy(node, lambda each: operands.get(each, each))
    return copies[node]


def _viewed(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Return the operand that a node is a view of; for one of several views, the operator that returns them."""
    if target_name(node.target) == "_operator.getitem":
        return [node.all_input_nodes[0]]
    base = base_of(node)
    return [] if base is None else [base]


def _mapped(value: object, function: Callable[[torch.fx.Node], torch.fx.Node]) -> tuple[object, ...]:
    import torch

    mapped: tuple[object, ...] = torch.fx.node.map_arg(value, function)
    return mapped
