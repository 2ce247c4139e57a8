"""Search through the users of a value for a division that they keep, up to a sum or a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mirlo.extend.passes import (
    Decline,
    Sharding,
    ShardingRule,
    TensorType,
    decline,
    divided,
    ir,
    parts_of,
    sharding_rule_of,
)

MAX_VALUES = 1000
"""Most values that a search visits."""


@dataclass
class Follower:
    """A search through the users of a value."""

    ranks: int
    block: ir.Block
    weights_divide: Callable[[ir.Operation, ShardingRule, str, int], bool]
    """Returns whether the weights of an operation can be divided along a label into this number of parts."""
    heads: bool = False
    """Whether the search has passed an attention."""
    _seen: set[ir.Value] = field(default_factory=set)

    def refusal(self, value: ir.Value, sharding: Sharding) -> Decline | None:
        """Return why a value is not divided in this way; None if all of its users accept it."""
        waiting = [(value, sharding)]
        while waiting:
            each, present = waiting.pop()
            if each in self._seen:
                continue
            self._seen.add(each)
            if len(self._seen) > MAX_VALUES:
                return decline("too many operators follow", limit=MAX_VALUES)
            for use in each.uses:
                after = self._used(use.owner, use.operand_number, present)
                if isinstance(after, Decline):
                    return after
                waiting += after
        return None

    def _used(
        self, user: ir.Operation | ir.OpView, number: int, present: Sharding
    ) -> list[tuple[ir.Value, Sharding]] | Decline:
        op = user.operation
        if op.name == "func.return":
            is_taken = present.parts == self.ranks or state_of(op.operands[number], self.block) is not None
            return [] if is_taken else decline("an output is whole", parts=present.parts)
        rule = sharding_rule_of(op.opview) if op.block == self.block else None
        assert present.axis is not None
        label = rule.operands[number][present.axis] if rule is not None else ""
        if rule is None or not label:
            return decline("what follows needs it whole", operator=op.name)
        parts = self.ranks if label in rule.shared else present.parts
        refused = refusal_of(op, rule, label, parts, self.ranks)
        if refused is not None:
            return refused
        kind = TensorType.from_mlir(op.operands[number].type)
        assert kind is not None
        if parts_of(kind.shape[present.axis], parts, label in rule.shared) != present.parts:
            return decline("its users divide it otherwise", operator=op.name)
        if not self.weights_divide(op, rule, label, parts):
            return decline("the weights of what follows are packed across the edges of the parts", parts=parts)
        self.heads |= label in rule.shared
        if label in rule.reduced:
            return []
        return list(divided_results(op, rule, label, parts))


def state_of(value: ir.Value, block: ir.Block) -> ir.Value | None:
    """Return the argument that a result replaces in the next call; None if there is none.

    It may have another shape, such as rows of pages in one sequence.
    """
    written = _unshaped(value)
    op = written.owner.operation if isinstance(written, ir.OpResult) else None
    rule = sharding_rule_of(op.opview) if op is not None else None
    if op is None or rule is None or rule.state is None:
        return None
    before = _unshaped(op.operands[rule.state])
    return before if isinstance(before.owner, ir.Block) and before.owner == block else None


def _unshaped(value: ir.Value) -> ir.Value:
    """Return the value before reshapes."""
    while isinstance(value, ir.OpResult) and value.owner.name == "relax.reshape":
        value = value.owner.operands[0]
    return value


def refusal_of(op: ir.Operation, rule: ShardingRule, label: str, parts: int, ranks: int) -> Decline | None:
    """Return why a label of an operation cannot be divided in these parts, None if it can."""
    for value, labels in (*zip(op.operands, rule.operands, strict=True), *zip(op.results, rule.results, strict=True)):
        kind = TensorType.from_mlir(value.type)
        for axis, each in enumerate(labels):
            dim = kind.shape[axis] if kind is not None else 0
            if each == label and parts_of(dim, parts, label in rule.shared) is None:
                return decline("a dim is no multiple of the parts", operator=op.name, dim=str(dim), parts=parts)
    if label in rule.reduced and parts != ranks:
        return decline("ranks with the same part would add it twice", operator=op.name, parts=parts)
    return None


def divided_results(op: ir.Operation, rule: ShardingRule, label: str, parts: int) -> list[tuple[ir.Value, Sharding]]:
    """Return the results of an operation that have a label, with their shardings."""
    results = list[tuple[ir.Value, Sharding]]()
    for value, labels in zip(op.results, rule.results, strict=True):
        kind = TensorType.from_mlir(value.type)
        if label in labels and kind is not None:
            axis = labels.index(label)
            own = parts_of(kind.shape[axis], parts, label in rule.shared)
            assert own is not None
            results.append((value, divided(axis, own)))
    return results
