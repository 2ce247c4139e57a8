"""Programs with annotated layouts, which are divided by the sharding rules of operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mirlo.extend.passes import (
    OPS,
    RankLayout,
    ShardingRule,
    Split,
    TensorType,
    Trait,
    blocks,
    captured,
    count_parts,
    emit_constant,
    erase_dead,
    ir,
    is_pure_relax,
    is_regular,
    names_of,
    rebuilt,
    replace_inside,
    sharding_rule_of,
    tile_layout,
    traits_of,
    whole,
)
from mirlo_ranks.shard import plan as plans
from mirlo_ranks.shard.constants import AxisRange, ConstantParts, sliced
from mirlo_ranks.shard.conversions import LayoutConverter
from mirlo_ranks.shard.exchanges import note_exchange
from mirlo_ranks.shard.plan import DividedNode, ShardingRecord

TO_PARTS, FROM_PARTS = "relax.to_parts", "relax.from_parts"
PARTITIONED = (TO_PARTS, FROM_PARTS)
"""Operations that convert between tensors of the program and parts of ranks."""


def has_layouts(function: ir.OpView) -> bool:
    """Return whether a function annotates the layouts of its tensors."""
    return any(op.operation.name in PARTITIONED for block in blocks(function) for op in block.operations)


@dataclass
class LayoutDivider:
    """A function that is being divided by its annotated layouts.

    A value of the program has a layout, in which the rank has a part of it. Values between `to_parts` and `from_parts`
    belong to the rank and have no layout.
    """

    function: ir.OpView
    converter: LayoutConverter
    constants: ConstantParts
    record: ShardingRecord
    _known: dict[ir.Value, tuple[ir.Value, RankLayout]] = field(default_factory=dict)
    _converted: dict[tuple[ir.Value, RankLayout], ir.Value] = field(default_factory=dict)
    _own: set[ir.Value] = field(default_factory=set)
    """Values of the rank."""

    def run(self) -> None:
        """Divide all operations."""
        block = self.function.operation.regions[0].blocks[0]
        self._own.update(use.owner.operands[0] for argument in block.arguments for use in _from_parts(argument))
        self._divide_block(block)
        for each in reversed(blocks(self.function)):
            erase_dead(each, is_pure_relax)

    def _divide_block(self, block: ir.Block) -> None:
        for op in [each.operation for each in block.operations]:
            if block == self.function.operation.regions[0].blocks[0] and self.constants.note(op):
                continue
            with ir.InsertionPoint(op), op.location:
                self._divide(op)

    def _divide(self, op: ir.Operation) -> None:
        if op.name == TO_PARTS:
            self._own.add(op.results[0])
            self._known[op.results[0]] = self._convert(op.operands[0], _layout_of(op)), whole(0)
        elif op.name == FROM_PARTS:
            self._known[op.results[0]] = self._value(op.operands[0]), _layout_of(op)
        elif self._is_own(op):
            self._compute_own(op)
        elif len(op.regions):
            if any(not self._layout(value).is_whole for value in (*op.operands, *captured(op))):
                self._note(op, plans.REPLICATE, "branches and loops are computed whole", 1)
            self._read_whole(op)
            for region in op.regions:
                for block in region.blocks:
                    self._divide_block(block)
        else:
            self._propagate(op)

    def _is_own(self, op: ir.Operation) -> bool:
        """Return whether an operation computes on values of the rank."""
        reads = [*op.operands, *(captured(op) if len(op.regions) else ())]
        is_terminator = op.name == "func.return"
        return not is_terminator and (Trait.COLLECTIVE in traits_of(op) or any(value in self._own for value in reads))

    def _compute_own(self, op: ir.Operation) -> None:
        """Keep an operation on values of the rank; operands from the program are whole."""
        self._read_whole(op)
        self._own.update(op.results)
        if Trait.COLLECTIVE in traits_of(op) and len(op.operands):
            note_exchange(op, op.location, self.record)
        for region in op.regions:
            for block in region.blocks:
                self._own.update(block.arguments)
                for inner in block.operations:
                    self._own.update(inner.operation.results)

    def _propagate(self, op: ir.Operation) -> None:
        """Compute an operation on parts in the layout of its operands, or on whole operands."""
        present = [self._layout(value) for value in op.operands]
        if all(layout.is_whole for layout in present) or not len(op.results):
            self._read_whole(op)
            return
        rule = sharding_rule_of(op.opview)
        if rule is None:
            self._note(op, plans.REPLICATE, "there is no rule for the operator", 1)
            self._read_whole(op)
            return
        summed = _kept_sum(rule, present)
        splits = self._splits(op, rule, present, summed)
        if not splits and summed is None:
            if any(split is not None for layout in present for split in layout.dims):
                self._note(op, plans.REPLICATE, "its rule divides no dim that its operands divide", 1)
            self._read_whole(op)
            return
        self._compute_divided(op, rule, splits, summed)

    def _splits(
        self, op: ir.Operation, rule: ShardingRule, present: Sequence[RankLayout], summed: Split | None
    ) -> dict[str, Split]:
        """Return the division of labels: that of the operands, the largest parts first, if all dims allow it."""
        candidates: list[tuple[int, str, Split]] = []
        for layout, labels in zip(present, rule.operands, strict=True):
            for split, label in zip(layout.dims, labels, strict=True):
                if split is not None and label:
                    candidates.append((count_parts(split), label, split))
        chosen: dict[str, Split] = {}
        for count, label, split in sorted(candidates, key=lambda each: -each[0]):
            is_free = label not in chosen and is_regular((*chosen.values(), split, summed))
            if is_free and _divides(op, rule, label, count):
                chosen[label] = split
        return chosen

    def _compute_divided(
        self, op: ir.Operation, rule: ShardingRule, splits: dict[str, Split], summed: Split | None
    ) -> None:
        operands = []
        for value, labels in zip(op.operands, rule.operands, strict=True):
            own_sum = summed if self._layout(value).summed == summed else None
            operands.append(self._convert(value, RankLayout(tuple(map(splits.get, labels)), own_sum)))
        reduced = [splits[label] for label in sorted(rule.reduced) if label in splits]
        sums = _product([*reduced, *([] if summed is None else [summed])])
        layouts = [RankLayout(tuple(map(splits.get, labels)), sums) for labels in rule.results]
        first = TensorType.from_mlir(op.results[0].type)
        assert first is not None
        results = rebuilt(op, operands, rule, layouts[0].shape(first.shape))
        for old, new, layout in zip(op.results, results, layouts, strict=True):
            self._known[old] = new, layout
        if Trait.CONTRACTION in traits_of(op):
            strategy = plans.ROW if reduced else plans.COLUMN
            self._note(op, strategy, "", max(map(count_parts, splits.values()), default=1))

    def _read_whole(self, op: ir.Operation) -> None:
        """Replace the operands of an operation and of its regions by whole values."""
        for i, value in enumerate(op.operands):
            op.operands[i] = self._value(value)
        for value in list(captured(op)) if len(op.regions) else ():
            other = self._value(value)
            if other != value:
                replace_inside(op, value, other)

    def _value(self, value: ir.Value) -> ir.Value:
        """Return a value of the rank, or a whole value of the program."""
        if value in self._own:
            return self._known[value][0] if value in self._known else value
        return self._convert(value, whole(len(self._layout(value).dims)))

    def _layout(self, value: ir.Value) -> RankLayout:
        if value in self._known:
            return self._known[value][1]
        kind = TensorType.from_mlir(value.type)
        return whole(0 if kind is None else kind.rank)

    def _convert(self, value: ir.Value, wanted: RankLayout) -> ir.Value:
        present = self._layout(value)
        own = self._known[value][0] if value in self._known else value
        if present == wanted or (present.is_whole and wanted.is_whole):
            return own
        key = value, wanted
        block = ir.InsertionPoint.current.block
        if key not in self._converted or _block_of(self._converted[key]) != block:
            self._converted[key] = self.converter.convert(value, own, present, wanted, self._take)
        return self._converted[key]

    def _take(self, value: ir.Value, part: AxisRange, split: Split) -> ir.Value:
        kind = TensorType.from_mlir(value.type)
        if value in self.constants.known and kind is not None and kind.dtype.is_bool:
            return self._take_when_run(value, kind, part.axis, split)
        if value in self.constants.known and self.constants.can_take(value, part):
            return self.constants.take(value, part)
        return sliced(value, part)

    def _take_when_run(self, value: ir.Value, kind: TensorType, axis: int, split: Split) -> ir.Value:
        """Return a part of constant bools that is only known at run time.

        What they choose between would be dead on a rank whose part has one value, and its collectives with it: the
        ranks would have others.
        """
        session, ranks = self.constants.session, self.converter.ranks
        places = emit_constant(np.array(split), TensorType.of((ranks,), "i64"), session, "parts")
        rank = OPS["cast"].make(OPS["rank_id"].make(ranks=ranks), dtype="i64")
        place = OPS["gather"].make(places, rank, axis=0)
        dims, count = kind.shape, count_parts(split)
        tiles = (*dims[:axis], count, dims[axis] // count, *dims[axis + 1 :])
        result: ir.Value = OPS["gather"].make(OPS["reshape"].make(value, shape=tiles), place, axis=axis)
        return result

    def _note(self, op: ir.Operation, strategy: str, reason: str, parts: int) -> None:
        names = names_of(op.location)
        nbytes = sum(self.constants.nbytes(value) for value in op.operands)
        row = DividedNode(names[0] if names else "", op.name, strategy, reason, nbytes, nbytes // parts)
        self.record.nodes.append(row)


def _from_parts(value: ir.Value) -> list[ir.OpOperand]:
    return [use for use in value.uses if use.owner.operation.name == FROM_PARTS]


def _block_of(value: ir.Value) -> ir.Block:
    owner = value.owner
    return owner if isinstance(owner, ir.Block) else owner.operation.block


def _layout_of(op: ir.Operation) -> RankLayout:
    return tile_layout(op.opview.parts, op.opview.order)


def _divides(op: ir.Operation, rule: ShardingRule, label: str, count: int) -> bool:
    """Return whether all dims with a label are multiples of the number of parts."""
    for value, labels in (*zip(op.operands, rule.operands, strict=True), *zip(op.results, rule.results, strict=True)):
        kind = TensorType.from_mlir(value.type)
        for axis, each in enumerate(labels):
            dim = None if kind is None else kind.shape[axis]
            if each == label and not (isinstance(dim, int) and dim % count == 0):
                return False
    return True


def _kept_sum(rule: ShardingRule, present: Sequence[RankLayout]) -> Split | None:
    """Return which operands and results are partial sums, for an operator that is linear in them."""
    partial = frozenset(i for i, layout in enumerate(present) if layout.summed is not None)
    sums = {present[i].summed for i in partial}
    return sums.pop() if partial in rule.linear and len(sums) == 1 else None


def _product(splits: Sequence[Split]) -> Split | None:
    """Return the index of each rank's part over all splits; None without splits."""
    if not splits:
        return None
    total = [0] * len(splits[0])
    for split in splits:
        total = [place * count_parts(split) + part for place, part in zip(total, split, strict=True)]
    return tuple(total)
