"""The parts of a model that are compiled as one: composites of code generators, and single nodes.

A search that cuts a composite takes the code generator's part away from it, and finds it right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mirlo.driver.models import open_model
from mirlo.frontends.onnx.order import read_names
from mirlo.passes.byoc.records import Placement
from mirlo.passes.byoc.target_list import PREPARING, Targets
from mirlo.passes.pipeline import Pipeline
from mirlo.runtime import processes
from mirlo.runtime.records import dataclass
from mirlo.tools.bisect.submodel import cut

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import onnx

    from mirlo.frontends.onnx.model import LoadedModel
    from mirlo.tools.bisect.compare import ModelValue
    from mirlo.tools.bisect.trial import TrialOptions


@dataclass(frozen=True)
class NodeGroup:
    """Nodes that one pattern takes, or one node that none takes."""

    nodes: tuple[int, ...]
    pattern: str = ""
    """`target.pattern` of the composite; empty for a node of the host."""


@dataclass(frozen=True)
class DividedModel:
    """A model whose nodes stand in the order of its units."""

    model: LoadedModel
    units: tuple[NodeGroup, ...]

    def nodes(self, first: int, last: int) -> list[int]:
        """Return the nodes of a range of units."""
        return [node for unit in self.units[first : last + 1] for node in unit.nodes]


def divide(model: LoadedModel, values: Mapping[str, ModelValue], settings: TrialOptions) -> DividedModel:
    """Return the model with the nodes of each composite together, in an order in which it can be computed."""
    nodes = model.content.graph.nodes
    groups = _composites(model, values, settings)
    order = _sorted_groups(model, groups)
    while order is None:  # a composite and nodes outside of it read each other: the search may cut it
        groups = groups[:-1]
        order = _sorted_groups(model, groups)
    content = model.content
    ordered = tuple(nodes[index] for unit in order for index in unit.nodes)
    units, start = [], 0
    for unit in order:
        units.append(NodeGroup(tuple(range(start, start + len(unit.nodes))), unit.pattern))
        start += len(unit.nodes)
    return DividedModel(
        replace(model, content=replace(content, graph=replace(content.graph, nodes=ordered))), tuple(units)
    )


def _sorted_groups(model: LoadedModel, groups: Sequence[NodeGroup]) -> list[NodeGroup] | None:
    """Return groups and single nodes in topological order; None if there is none."""
    nodes = model.content.graph.nodes
    owner = {index: unit for unit in groups for index in unit.nodes}
    units = list(dict.fromkeys(owner.get(index, NodeGroup((index,))) for index in range(len(nodes))))
    place = {index: i for i, unit in enumerate(units) for index in unit.nodes}
    producer = {name: place[index] for index, node in enumerate(nodes) for name in node.outputs if name}
    reads = [
        {producer[name] for index in unit.nodes for name in read_names(nodes[index]) if name in producer} - {i}
        for i, unit in enumerate(units)
    ]
    done: dict[int, None] = {}
    for first in range(len(units)):
        stack = [first]
        waiting: set[int] = set()
        while stack:
            current = stack[-1]
            missing = [other for other in sorted(reads[current]) if other not in done]
            if not missing:
                done[stack.pop()] = None
            elif current in waiting:
                return None
            else:
                waiting.add(current)
                stack += reversed(missing)
            while stack and stack[-1] in done:
                stack.pop()
    return [units[i] for i in done]


def _composites(model: LoadedModel, values: Mapping[str, ModelValue], settings: TrialOptions) -> list[NodeGroup]:
    """Return the nodes of each composite that the targets' patterns make of the model."""
    targets = Targets.parse(settings.target)
    if settings.pipeline is not None or not targets.of_operators:
        return []
    graph = model.content.graph
    whole = cut(model, range(len(graph.nodes)), [value.name for value in graph.outputs], values)
    placement = _placement(whole.model, ",".join(map(str, targets.of_operators)))
    if placement is None:
        return []
    index = {node.name: i for i, node in enumerate(graph.nodes)}
    result, seen = [], set[int]()
    for taken in placement.taken:
        names = [name for at in taken.nodes for name in placement.nodes[at].names]
        members = tuple(sorted({index[name] for name in names if name in index} - seen))
        if members:
            seen |= set(members)
            result.append(NodeGroup(members, f"{taken.target}.{taken.pattern}"))
    return sorted(result, key=lambda unit: unit.nodes)


def _placement(model: onnx.ModelProto, targets: str) -> Placement | None:
    """Return the placement of a model's operators; None if it fails, which the trials report."""
    context = processes.process_context()
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_place, args=(sender, model, targets), daemon=True)
    child.start()
    sender.close()
    try:
        answer: Placement | None = receiver.recv()
    except EOFError:
        answer = None
    child.join()
    return answer


def _place(sender: Connection, model: onnx.ModelProto, targets: str) -> None:
    """Send the placement from the child process."""
    processes.silence(2)
    opened = open_model(model)
    Pipeline(f"{PREPARING},partition{{targets={targets}}}").run(opened.module, opened.session)
    sender.send(next(note for note in opened.session.notes if isinstance(note, Placement)))
