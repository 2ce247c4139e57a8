"""Parts of a schedule: blocks that rules of the target schedule, and those whose loops primitives arrange."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.index_expr import loop_index
from mirlo.dialects.tir.view import NAMES, PrimView
from mirlo.passes.fuse.inline import inline_block, is_identity
from mirlo.passes.rule_choices import ChoiceError
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.primitives.trace import PrimitiveCallRecord, Trace
from mirlo.passes.schedule.primitives.tree import (
    SERIAL,
    BlockLeaf,
    Loop,
    Root,
    RuleClaim,
    ScheduleError,
    around,
    leaves_of,
    loop_names,
)
from mirlo.runtime.names import unique_names
from mirlo.runtime.records import dataclass

PRIMITIVES_RULE = "schedule"
"""The name, among rules of parts, of the primitives that arrange loops."""
ANY_RULE = "any"
"""The name of the first rule of the target that takes a part."""


@dataclass(frozen=True)
class TreePart:
    """Consecutive nodes of the tree that one rule schedules, or that primitives arrange."""

    rule: str
    nodes: tuple[Loop | BlockLeaf, ...]

    @property
    def blocks(self) -> tuple[str, ...]:
        """Return the names of the function's blocks in it."""
        return tuple(leaf.name for node in self.nodes for leaf in leaves_of(node) if leaf.view is not None)


def claim(root: Root, rule: str, names: Sequence[str]) -> None:
    """Mark blocks as scheduled by a rule: consecutive ones, whose loops no primitive has changed."""
    leaves = {leaf.name: leaf for leaf in root.leaves()}
    missing = [name for name in names if name not in leaves]
    if missing:
        raise ScheduleError(f"apply_rule: there is no block '{missing[0]}'; there are {', '.join(leaves)}")
    claimed = [leaves[name] for name in names]
    for leaf in claimed:
        if leaf.rule:
            raise ScheduleError(f"apply_rule: rule '{leaf.rule}' schedules '{leaf.name}' already")
        if not _is_untouched(leaf):
            raise ScheduleError(
                f"apply_rule: other primitives have changed '{leaf.name}', whose loops a rule arranges itself: it "
                "comes before them, or for blocks that they leave alone"
            )
    tops = [around(leaf)[0] if around(leaf) else leaf for leaf in claimed]
    at = [root.body.index(top) for top in tops]
    if at != list(range(at[0], at[0] + len(at))):
        raise ScheduleError(
            f"apply_rule: expected blocks that follow one another, found {', '.join(names)}; "
            f"the order is {', '.join(leaves)}"
        )
    own = RuleClaim(rule)
    for leaf in claimed:
        leaf.form = own


def unclaimed(root: Root) -> list[list[str]]:
    """Return the blocks that no primitive has arranged, in groups of those that follow one another."""
    at = {id(block): position for position, block in enumerate(root.view.blocks)}
    groups: list[list[str]] = []
    last = None
    for node in root.body:
        leaf = leaves_of(node)[0]
        if leaf.rule or not _is_untouched(leaf):
            last = None
            continue
        position = at[id(leaf.view)]
        if last is None or position != last + 1:
            groups.append([])
        groups[-1].append(leaf.name)
        last = position
    return groups


def _is_untouched(leaf: BlockLeaf) -> bool:
    """Return whether a block is in loops of its own, one for each axis, and uses the function's own buffers."""
    chain = around(leaf)
    names = loop_names(leaf.name, len(leaf.domain))
    plain = all(loop.kind == SERIAL and len(loop.body) == 1 and loop.form is None for loop in chain)
    own = all(
        access.buffer.value is not None
        and not access.buffer.tiles
        and not access.buffer.scope
        and access.buffer.padding is None
        and access.buffer.order == tuple(range(len(access.buffer.shape)))
        for access in (*leaf.reads, *leaf.writes)
    )
    in_order = [loop.name for loop in chain] == names and leaf.at == [loop_index(name) for name in names]
    return plain and own and in_order and leaf.view is not None and leaf.is_whole and not leaf.guards


def parts_of_tree(root: Root) -> list[TreePart]:
    """Return the parts in order; nodes next to each other that primitives arrange are one."""
    parts: list[TreePart] = []
    last: RuleClaim | None = None
    for node in root.body:
        # Two parts of the same rule may follow one another: each `apply_rule` is one.
        form = leaves_of(node)[0].form
        claimed = form if isinstance(form, RuleClaim) else None
        if parts and claimed is last:
            parts[-1] = TreePart(parts[-1].rule, (*parts[-1].nodes, node))
        else:
            parts.append(TreePart(PRIMITIVES_RULE if claimed is None else claimed.rule, (node,)))
        last = claimed
    return parts


def find_blocks(view: PrimView, names: Sequence[str]) -> tuple[int, int]:
    """Return where the blocks of a part begin and end among those of a function."""
    order = unique_names([block.name for block in view.blocks])
    start = order.index(names[0]) if names[0] in order else 0
    end = start + len(names)
    if order[start:end] != list(names):
        raise ChoiceError(
            f"apply_rule: expected blocks that follow one another, found {', '.join(names)}; "
            f"the order is {', '.join(order)}"
        )
    return start, end


class ScheduleParts:
    """The parts of a schedule after the passes over its tree; a rule of the target emits them in order."""

    def __init__(self, root: Root) -> None:
        from mirlo.passes.schedule.primitives.emit import PartEmitter

        self._emitter = PartEmitter(root)
        self.parts = parts_of_tree(root)

    def emit(self, position: int, memory: TensorBuffers) -> None:
        """Emit a part whose loops primitives arrange."""
        self._emitter.emit(memory, self.parts[position].nodes)


@dataclass(frozen=True)
class LoopPrimitives:
    """The stage of a function whose loops the user's primitives arrange."""

    parts: ScheduleParts
    position: int
    name = PRIMITIVES_RULE

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the loops at the insertion point."""
        self.parts.emit(self.position, memory)


def inline_for_rules(function: ir.OpView | ir.Operation, names: Sequence[str]) -> None:
    """Inline blocks of a prim function in tensor form, by their names in schedules."""
    view = PrimView(function)
    for name, block in zip(unique_names([block.name for block in view.blocks]), view.blocks, strict=True):
        block.op.attributes["name"] = ir.StringAttr.get(name)
    for producer in PrimView(function).blocks:
        if producer.name in names and (len(producer.outputs) != 1 or not is_identity(producer.outputs[0].map)):
            raise ScheduleError(
                f"compute_inline: '{producer.name}' does not write its elements in the order of its axes, which rules "
                "need; arrange the loops of its readers with primitives"
            )
    for name in names:
        view = PrimView(function)
        producer = next(block for block in view.blocks if block.name == name)
        _forget_name(view, producer.outputs[0].value)
        inline_block(producer, view)


def _forget_name(view: PrimView, value: ir.Value) -> None:
    """Remove a value from the names that the author gave."""
    attribute = view.op.attributes.get(NAMES)
    if not isinstance(attribute, ir.ArrayAttr):
        return
    values = [*view.arguments, *(result for op in view.entry.operations for result in op.operation.results)]
    kept = [name for name, other in zip(attribute, values, strict=False) if other != value]
    view.op.attributes[NAMES] = ir.ArrayAttr.get(kept)


def require_room_for_rule(trace: Trace, applied: Sequence[PrimitiveCallRecord], for_blocks: bool) -> None:
    """Require that the primitives before a rule leave the blocks that it schedules unchanged."""
    others = [call.primitive for call in trace if call.primitive != "compute_inline"]
    if applied and (not for_blocks or len(applied[0].arguments) < 2):
        raise ScheduleError(f"apply_rule: a rule schedules the whole function, after '{others[-1]}'")
    if others and not for_blocks:
        raise ScheduleError(
            f"apply_rule: a rule schedules the whole function, after '{others[-1]}'; name the blocks that it "
            f"schedules, apply_rule(rule, [...]), and arrange the loops of the others"
        )
    first = next((i for i, call in enumerate(trace) if call.primitive != "compute_inline"), len(trace.calls))
    late = [call for call in trace.calls[first:] if call.primitive == "compute_inline"]
    if late:
        raise ScheduleError(
            f"apply_rule: inline '{late[0].arguments[0]}' before '{others[0]}': rules see the inlined blocks"
        )
