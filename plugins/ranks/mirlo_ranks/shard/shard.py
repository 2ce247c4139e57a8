"""The pass `shard`: turn a model into one rank's part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirlo.extend.passes import (
    PARTIAL,
    WHOLE,
    Decline,
    Pass,
    PassError,
    Sharding,
    ShardingRule,
    TensorType,
    Trait,
    captured,
    decline,
    divided,
    erase_dead,
    ir,
    is_model,
    is_pure_relax,
    names_of,
    operations,
    option,
    parts_of,
    rebuilt,
    register_pass,
    replace_inside,
    sharding_rule_of,
    traits_of,
)
from mirlo_ranks.shard import plan as plans
from mirlo_ranks.shard.annotated import LayoutDivider, has_layouts
from mirlo_ranks.shard.constants import ConstantParts
from mirlo_ranks.shard.conversions import LayoutConverter
from mirlo_ranks.shard.exchanges import record_exchanges
from mirlo_ranks.shard.experts import Experts
from mirlo_ranks.shard.follow import Follower, divided_results, refusal_of, state_of
from mirlo_ranks.shard.fused import separate_products
from mirlo_ranks.shard.lookups import look_up
from mirlo_ranks.shard.plan import DividedNode, RankPlan, ShardingRecord
from mirlo_ranks.shard.values import RankValues

if TYPE_CHECKING:
    from mirlo.extend.passes import Session


@register_pass
@dataclass(frozen=True)
class Shard(Pass):
    """Turn a model into one rank's part: weights are divided, and collectives inserted.

    What is divided follows from rules of the operators' classes (`sharding`). A product with weights is divided by
    columns if what follows keeps that, up to a product that sums over it (rows), or to the model's outputs; heads of
    attention, their caches, and elementwise operators in between are divided with it. Tables of which an input, such
    as tokens, selects rows are divided by rows. `plan` names strategies by nodes, `/layers.0/*=replicate`. All ranks
    get the same collectives in the same order; all else is computed by each rank. A function other than the model stays
    as it is, as does one that has collectives already. A function with `relax.to_parts` and `relax.from_parts` is
    divided as these say, by the same rules, whatever `plan` says.
    """

    name = "shard"
    contained = True
    anchor = "func.func"
    ranks: int = option(2, "the number of ranks")
    rank: int = option(0, "the rank whose part this is")
    plan: tuple[str, ...] = option((), "strategies of nodes, PATTERN=STRATEGY")

    def run(self, op: ir.OpView, session: Session) -> None:
        if self.ranks < 1 or not 0 <= self.rank < self.ranks:
            raise PassError(f"rank must be from 0 to {self.ranks - 1} of {self.ranks} ranks, got {self.rank}")
        if not is_model(op):
            return
        try:
            plan = RankPlan.parse(self.plan)
        except ValueError as error:
            raise PassError(f"plan: {error}") from None
        record = ShardingRecord(self.ranks, self.rank)
        session.notes.append(record)
        if self.ranks == 1:
            return
        if has_layouts(op):
            converter = LayoutConverter(self.rank, self.ranks, record)
            LayoutDivider(op, converter, ConstantParts(session), record).run()
            return
        if record_exchanges(op, record):
            return
        divider = GraphDivider(op, self.rank, self.ranks, plan, record, session)
        divider.run()


class GraphDivider:
    """A function that is being divided, operation by operation."""

    def __init__(
        self, function: ir.OpView, rank: int, ranks: int, plan: RankPlan, record: ShardingRecord, session: Session
    ) -> None:
        self.function, self.ranks, self.plan, self.record, self.session = function, ranks, plan, record, session
        self.block = function.operation.regions[0].blocks[0]
        self.constants = ConstantParts(session)
        self.values = RankValues(rank, ranks, self.constants, record)

    def run(self) -> None:
        """Divide all operations, and set the types of the function's arguments and results."""
        separate_products(self.function, self.constants)
        self._check_plan()
        experts = Experts(self.function, self.values, self.plan)
        for op in operations(self.function):
            if self.constants.note(op):
                continue
            if op.name == "func.return":
                self._return(op)
            elif not experts.divide(op):
                with ir.InsertionPoint(op), op.location:
                    self._divide(op, experts.owns(op))
        types = [argument.type for argument in self.block.arguments]
        terminator = operations(self.function)[-1]
        kind = ir.FunctionType.get(types, [value.type for value in terminator.operands])
        self.function.attributes["function_type"] = ir.TypeAttr.get(kind)
        erase_dead(self.block, is_pure_relax)

    def _check_plan(self) -> None:
        names = [name for op in operations(self.function) for name in names_of(op.location)]
        for pattern in self.plan.unused(names):
            self.session.warning(f"plan: no node is named like '{pattern}'", self.function.location)

    def _divide(self, op: ir.Operation, is_own: bool) -> None:
        rule = None if len(op.regions) else sharding_rule_of(op.opview)
        if rule is None:
            self._compute_whole(op)
            return
        weights = [i for i, value in enumerate(op.operands) if value in self.constants.known]
        if rule.looked_up is not None and rule.looked_up[0] in weights:
            if self._look_up(op, rule):
                return
        elif Trait.CONTRACTION in traits_of(op) and weights and not is_own:
            self._divide_product(op, rule, weights)
            return
        self._propagate(op, rule)

    def _divide_product(self, op: ir.Operation, rule: ShardingRule, weights: Sequence[int]) -> None:
        """Divide a product by columns, or by its summed dim if its operand is divided so."""
        asked = self.plan.strategy(names_of(op.location))
        label, parts = self._label(op, rule)
        if asked == plans.REPLICATE:
            self._note(op, plans.REPLICATE, "the plan replicates it", weights, WHOLE)
            self._compute_whole(op)
            return
        if not label and asked == plans.ROW:
            label, parts = min(rule.reduced, default=""), self.ranks
        refused: Decline | None
        if label:
            refused = refusal_of(op, rule, label, parts, self.ranks)
            strategy = plans.ROW if label in rule.reduced else plans.COLUMN
        elif asked == plans.ROW:
            strategy = plans.REPLICATE
            refused = decline("no dim that it sums over can be divided", operator=op.name)
        else:
            label, parts, refused, strategy = self._column(op, rule, weights, asked == plans.COLUMN)
        if refused is None and not self._weights_divide(op, rule, label, parts):
            refused = decline("its weights are packed across the edges of the parts", parts=parts)
        if refused is not None:
            self._note(op, plans.REPLICATE, str(refused), weights, WHOLE)
            self._compute_whole(op)
            return
        self._note(op, strategy, "", weights, Sharding(None, parts))
        self._compute_divided(op, rule, label, parts)

    def _column(
        self, op: ir.Operation, rule: ShardingRule, weights: Sequence[int], is_asked: bool
    ) -> tuple[str, int, Decline | None, str]:
        """Return the label of the columns, the number of parts or the reason for none, and the strategy."""
        columns = [each for i in weights for each in rule.operands[i] if each and each in rule.results[0]]
        if not columns:
            return "", 1, decline("no dim of the weights is a dim of the result"), plans.REPLICATE
        label, first = columns[-1], None
        for parts in [n for n in range(self.ranks, 1, -1) if self.ranks % n == 0]:
            refused = refusal_of(op, rule, label, parts, self.ranks)
            follower = Follower(self.ranks, self.block, self._weights_divide)
            if refused is None and not is_asked:
                ((value, sharding),) = divided_results(op, rule, label, parts)
                refused = follower.refusal(value, sharding)
            if refused is None:
                return label, parts, None, plans.HEAD if follower.heads else plans.COLUMN
            first = first or refused
        return label, 1, first, plans.REPLICATE

    def _weights_divide(self, op: ir.Operation, rule: ShardingRule, label: str, parts: int) -> bool:
        """Return whether all weights of an operation can be divided along a label."""
        for value, labels in zip(op.operands, rule.operands, strict=True):
            if value in self.constants.known and label in labels:
                axis = labels.index(label)
                size = TensorType.from_mlir(value.type).static_shape[axis]  # type: ignore[union-attr]
                if not self.constants.can_take(value, self.values.range_of(divided(axis, parts), size)):
                    return False
        return True

    def _look_up(self, op: ir.Operation, rule: ShardingRule) -> bool:
        """Divide the rows of a table; return whether it was possible."""
        assert rule.looked_up is not None
        number, axis = rule.looked_up
        asked = self.plan.strategy(names_of(op.location))
        table = op.operands[number]
        size = TensorType.from_mlir(table.type).shape[axis]  # type: ignore[union-attr]
        sharding = divided(axis, self.ranks)
        refused = None
        if asked == plans.REPLICATE:
            refused = decline("the plan replicates it")
        elif asked == "auto" and not self._is_input(op.operands[rule.positions]):
            refused = decline("its positions are computed: no vocabulary")
        elif not isinstance(size, int) or size % self.ranks:
            refused = decline("the rows are no multiple of the ranks", rows=str(size), ranks=self.ranks)
        elif op.results[0].type.element_type != table.type.element_type:
            refused = decline("the rows have another element type than the table")
        elif not self.constants.can_take(table, self.values.range_of(sharding, size)):
            refused = decline("its rows are packed across the edges of the parts")
        if refused is not None or not isinstance(size, int):
            self._note(op, plans.REPLICATE, str(refused), [number], WHOLE)
            return False
        own = look_up(op, rule, self.values, self.values.range_of(sharding, size))
        self.values.put(op.results[0], own, PARTIAL)
        self._note(op, plans.VOCABULARY, "", [number], sharding)
        return True

    def _is_input(self, value: ir.Value) -> bool:
        """Return whether a value is an argument of the function, possibly reshaped or cast."""
        while isinstance(value, ir.OpResult) and value.owner.name in ("relax.reshape", "relax.cast"):
            value = value.owner.operands[0]
        return isinstance(value.owner, ir.Block) and value.owner == self.block

    def _propagate(self, op: ir.Operation, rule: ShardingRule) -> None:
        """Compute an operation on its divided operands: as partial sums, in parts, or whole."""
        present = [self.values.sharding(value) for value in op.operands]
        partial = frozenset(i for i, each in enumerate(present) if each.is_partial)
        if partial:  # zeros are partial sums of zeros as they are
            zeros = frozenset(i for i, value in enumerate(op.operands) if self.constants.is_zero(value))
            partial = next((each for each in rule.linear if partial <= each <= partial | zeros), partial)
        if partial in rule.linear and all(each.is_whole for i, each in enumerate(present) if i not in partial):
            operands = [self.values.own(value) for value in op.operands]
            (own,) = rebuilt(op, operands, rule) if len(op.results) == 1 else (None,)
            if own is not None:
                self.values.put(op.results[0], own, PARTIAL)
                return
        label, parts = self._label(op, rule)
        if label and refusal_of(op, rule, label, parts, self.ranks) is None:
            self._compute_divided(op, rule, label, parts)
        else:
            self._compute_whole(op)

    def _label(self, op: ir.Operation, rule: ShardingRule) -> tuple[str, int]:
        """Return the label that divides the operands, and the number of parts; an empty label if there is none."""
        best = "", 1
        for value, labels in zip(op.operands, rule.operands, strict=True):
            sharding = self.values.sharding(value)
            label = labels[sharding.axis] if sharding.axis is not None else ""
            if label and sharding.parts > best[1]:
                best = label, sharding.parts
        return best

    def _compute_divided(self, op: ir.Operation, rule: ShardingRule, label: str, parts: int) -> None:
        operands = []
        for i, (value, labels) in enumerate(zip(op.operands, rule.operands, strict=True)):
            wanted = WHOLE
            if label in labels:
                axis = labels.index(label)
                kind = TensorType.from_mlir(value.type)
                own = parts_of(kind.shape[axis], parts, label in rule.shared) if kind is not None else None
                assert own is not None
                wanted = divided(axis, own)
            operands.append(self._state(value, wanted) if rule.state == i else self.values.convert(value, wanted))
        shardings = dict(divided_results(op, rule, label, parts))
        first = TensorType.from_mlir(op.results[0].type)
        assert first is not None
        shape = shardings.get(op.results[0], WHOLE).shape(first.shape)
        for old, new in zip(op.results, rebuilt(op, operands, rule, shape), strict=True):
            self.values.put(old, new, PARTIAL if label in rule.reduced else shardings.get(old, WHOLE))

    def _state(self, value: ir.Value, wanted: Sharding) -> ir.Value:
        """Return a cache with the rows of this rank: the function's argument itself, if nothing else reads it.

        What is read may be a reshape of the argument.
        """
        reshaped = self._reshaped_state(value, wanted)
        if reshaped is not None:
            return reshaped
        if not self._is_state(value) or wanted.is_whole:
            return self.values.convert(value, wanted)
        kind = TensorType.from_mlir(value.type)
        assert kind is not None
        value.set_type(kind.with_shape(wanted.shape(kind.shape)).to_mlir())
        self.values.put(value, value, wanted)
        return value

    def _reshaped_state(self, value: ir.Value, wanted: Sharding) -> ir.Value | None:
        """Return the reshape of a rank's rows, if nothing else reads it and its operand is a state."""
        op = value.owner.operation if isinstance(value, ir.OpResult) else None
        rule = sharding_rule_of(op.opview) if op is not None and op.name == "relax.reshape" else None
        label = "" if rule is None or wanted.axis is None else rule.results[0][wanted.axis]
        if op is None or rule is None or not label or len(list(value.uses)) > 1:
            return None
        before, kind = op.operands[0], TensorType.from_mlir(value.type)
        if kind is None or not self._is_state(before) or refusal_of(op, rule, label, wanted.parts, self.ranks):
            return None
        own = self._state(before, divided(rule.operands[0].index(label), wanted.parts))
        (result,) = rebuilt(op, [own], rule, wanted.shape(kind.shape))
        self.values.put(value, result, wanted)
        return result

    def _is_state(self, value: ir.Value) -> bool:
        is_argument = isinstance(value.owner, ir.Block) and value.owner == self.block
        return is_argument and self.values.sharding(value).is_whole and len(list(value.uses)) == 1

    def _compute_whole(self, op: ir.Operation) -> None:
        """Compute an operation on each rank from whole operands, including those that its regions read."""
        for i, value in enumerate(op.operands):
            op.operands[i] = self.values.convert(value, WHOLE)
        for value in list(captured(op)) if len(op.regions) else ():
            whole = self.values.convert(value, WHOLE)
            if whole != value:
                replace_inside(op, value, whole)

    def _return(self, op: ir.Operation) -> None:
        """Return whole values, and this rank's rows of caches."""
        with ir.InsertionPoint(op), op.location:
            for i, value in enumerate(op.operands):
                keeps = self._is_kept(value) and self.values.sharding(value).axis is not None
                op.operands[i] = self.values.own(value) if keeps else self.values.convert(value, WHOLE)

    def _is_kept(self, value: ir.Value) -> bool:
        """Return whether a value is the next state of an argument that is divided as well."""
        before = state_of(value, self.block)
        return before is not None and not self.values.sharding(before).is_whole

    def _note(self, op: ir.Operation, strategy: str, reason: str, weights: Sequence[int], sharding: Sharding) -> None:
        nbytes = sum(self.constants.nbytes(op.operands[i]) for i in weights)
        names = names_of(op.location)
        row = DividedNode(names[0] if names else "", op.name, strategy, reason, nbytes, nbytes // sharding.parts)
        self.record.nodes.append(row)
