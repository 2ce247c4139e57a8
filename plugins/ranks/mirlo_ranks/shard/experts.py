"""Experts: joined branches with separate weights, each computed by one rank.

Branches are joined by one `relax.concat`, or each writes its rows to the result of those before (`relax.scatter_nd`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from mirlo.extend.passes import (
    OPS,
    PARTIAL,
    TensorType,
    Trait,
    ir,
    names_of,
    operations,
    rebuilt,
    sharding_rule_of,
    traits_of,
)
from mirlo_ranks.shard import plan as plans
from mirlo_ranks.shard.plan import DividedNode, RankPlan
from mirlo_ranks.shard.values import RankValues

CONCAT, WRITE = "relax.concat", "relax.scatter_nd"
WRITTEN, UPDATES = 0, 2
"""The operands of a write: what rows are written to, and the rows."""


@dataclass(frozen=True)
class Branch:
    """What computes one of the values that are joined."""

    number: int
    count: int
    """How many branches are joined."""
    products: list[ir.Operation]


@dataclass
class Experts:
    """The joined branches of a function that a plan assigns to ranks as whole branches."""

    function: ir.OpView
    values: RankValues
    plan: RankPlan
    _joins: dict[ir.Operation, list[Branch]] = field(default_factory=dict)
    """The branches that each operation joins: a write joins one to those before."""
    _owned: set[ir.Operation] = field(default_factory=set)

    def __post_init__(self) -> None:
        if all(strategy != plans.EXPERT for _, strategy in self.plan.rows):
            return
        for op in operations(self.function):
            joins = _joins_of(op)
            branches = self._branches([value for _, values in joins for value in values])
            asked = [self.plan.strategy(names_of(each.location)) for branch in branches for each in branch.products]
            if branches and plans.EXPERT in asked:
                rest = iter(branches)
                self._joins |= {join: [next(rest) for _ in values] for join, values in joins}
                self._owned.update(each for branch in branches for each in branch.products)

    def owns(self, op: ir.Operation) -> bool:
        """Return whether an operation belongs to an expert that one rank computes."""
        return op in self._owned

    def divide(self, op: ir.Operation) -> bool:
        """Join this rank's experts with zeros for the others; return whether the operation joins experts."""
        branches = self._joins.get(op)
        if branches is None:
            return False
        with ir.InsertionPoint(op), op.location:
            own = [self._is_own(op, branch) for branch in branches]
            if op.name == WRITE and not own[0]:
                result = self.values.own(op.operands[WRITTEN])
            else:
                operands = [self.values.own(value) for value in op.operands]
                if op.name == CONCAT:
                    pairs = zip(op.operands, operands, own, strict=True)
                    operands = [kept if is_own else _zeros(value) for value, kept, is_own in pairs]
                rule = sharding_rule_of(op.opview)
                assert rule is not None
                (result,) = rebuilt(op, operands, rule)
            self.values.put(op.results[0], result, PARTIAL)
        return True

    def _is_own(self, op: ir.Operation, branch: Branch) -> bool:
        """Return whether this rank computes a branch, and record that."""
        values = self.values
        is_own = branch.number * values.ranks // branch.count == values.rank
        nbytes = sum(values.constants.nbytes(each) for member in branch.products for each in member.operands)
        names = names_of(branch.products[0].location)
        row = DividedNode(names[0] if names else "", op.name, plans.EXPERT, "", nbytes, nbytes * is_own)
        values.record.nodes.append(row)
        return is_own

    def _branches(self, joined: list[ir.Value]) -> list[Branch]:
        """Return the products with weights that each value alone depends on; empty if one has none."""
        products = [_products_of(value) for value in joined]
        uses = Counter(each for own in products for each in dict.fromkeys(own))
        own = [[each for each in branch if uses[each] == 1] for branch in products]
        if len(own) < self.values.ranks or not all(own):
            return []
        return [Branch(number, len(joined), each) for number, each in enumerate(own)]


def _joins_of(op: ir.Operation) -> list[tuple[ir.Operation, list[ir.Value]]]:
    """Return the operations that join branches up to an operation that is the last of them, with what each joins."""
    if op.name == CONCAT:
        return [(op, list(op.operands))]
    if op.name != WRITE or _is_written_again(op.results[0]):
        return []
    joins = [(op, [op.operands[UPDATES]])]
    before = op.operands[WRITTEN]
    while isinstance(before, ir.OpResult) and before.owner.name == WRITE and _is_written_again(before):
        op = before.owner.operation
        joins.append((op, [op.operands[UPDATES]]))
        before = op.operands[WRITTEN]
    return joins[::-1]


def _is_written_again(value: ir.Value) -> bool:
    """Return whether all that reads a value is a write of more rows."""
    uses = list(value.uses)
    return len(uses) == 1 and uses[0].owner.operation.name == WRITE and uses[0].operand_number == WRITTEN


def _products_of(value: ir.Value) -> list[ir.Operation]:
    """Return the products that a value is computed from, up to those with other users."""
    products, waiting = list[ir.Operation](), [value]
    while waiting:
        each = waiting.pop()
        is_product = isinstance(each, ir.OpResult) and Trait.CONTRACTION in traits_of(each.owner)
        if not isinstance(each, ir.OpResult) or (len(list(each.uses)) != 1 and not is_product):
            continue
        if is_product:
            products.append(each.owner.operation)
        waiting += each.owner.operands
    return products


def _zeros(value: ir.Value) -> ir.Value:
    kind = TensorType.from_mlir(value.type)
    assert kind is not None
    result: ir.Value = OPS["full"].make(shape=kind.shape, value=0.0, dtype=kind.dtype)
    return result
