"""Experts: joined branches with separate weights, each computed by one rank."""

from __future__ import annotations

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


@dataclass
class Experts:
    """The joined branches of a function that a plan assigns to ranks as whole branches."""

    function: ir.OpView
    values: RankValues
    plan: RankPlan
    _joins: dict[ir.Operation, list[list[ir.Operation]]] = field(default_factory=dict)
    _owned: set[ir.Operation] = field(default_factory=set)

    def __post_init__(self) -> None:
        for op in operations(self.function) if any(s == plans.EXPERT for _, s in self.plan.rows) else ():
            branches = self._branches(op) if op.name == "relax.concat" else []
            asked = [self.plan.strategy(names_of(each.location)) for branch in branches for each in branch]
            if branches and plans.EXPERT in asked:
                self._joins[op] = branches
                self._owned.update(each for branch in branches for each in branch)

    def owns(self, op: ir.Operation) -> bool:
        """Return whether an operation belongs to an expert that one rank computes."""
        return op in self._owned

    def divide(self, op: ir.Operation) -> bool:
        """Join this rank's experts with zeros for the others; return whether the operation joins experts."""
        branches = self._joins.get(op)
        if branches is None:
            return False
        values, operands = self.values, []
        with ir.InsertionPoint(op), op.location:
            for i, (value, branch) in enumerate(zip(op.operands, branches, strict=True)):
                is_own = i * values.ranks // len(branches) == values.rank
                operands.append(values.own(value) if is_own else _zeros(value))
                nbytes = sum(values.constants.nbytes(each) for member in branch for each in member.operands)
                names = names_of(branch[0].location)
                row = DividedNode(names[0] if names else "", op.name, plans.EXPERT, "", nbytes, nbytes * is_own)
                values.record.nodes.append(row)
            rule = sharding_rule_of(op.opview)
            assert rule is not None
            values.put(op.results[0], rebuilt(op, operands, rule)[0], PARTIAL)
        return True

    def _branches(self, op: ir.Operation) -> list[list[ir.Operation]]:
        """Return the products with weights that each operand alone depends on; empty if one has none."""
        products = [_products_of(value) for value in op.operands]
        shared = {
            each for i, own in enumerate(products) for other in products[i + 1 :] for each in own if each in other
        }
        own = [[each for each in branch if each not in shared] for branch in products]
        return own if len(own) >= self.values.ranks and all(own) else []


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
