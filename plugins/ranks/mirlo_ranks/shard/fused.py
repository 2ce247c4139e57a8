"""Fused products whose columns are split afterwards, such as query, key and value, become separate products."""

from __future__ import annotations

from mirlo.extend.passes import TensorType, Trait, ir, operations, rebuilt, replace_op, sharding_rule_of, traits_of
from mirlo_ranks.shard.constants import AxisRange, ConstantParts


def separate_products(function: ir.OpView, constants: ConstantParts) -> None:
    """Divide products whose results are split, since a rank's parts are not contiguous in the fused weights."""
    for op in operations(function):
        if constants.note(op) or op.name != "relax.split":
            continue
        chain = _products_before(op, constants)
        if chain is not None:
            _separate(op, chain, constants)


def _products_before(split: ir.Operation, constants: ConstantParts) -> list[tuple[ir.Operation, int]] | None:
    """Return the product before a split, and bias additions in between, with the indices of their weights."""
    chain: list[tuple[ir.Operation, int]] = []
    value = split.operands[0]
    while isinstance(value, ir.OpResult) and len(list(value.uses)) == 1:
        op = value.owner.operation
        weights = [i for i, operand in enumerate(op.operands) if operand in constants.known]
        is_product = Trait.CONTRACTION in traits_of(op)
        if len(weights) != 1 or len(op.operands) != 2 or not (is_product or op.name == "relax.add"):
            return None
        chain.append((op, weights[0]))
        if is_product:
            return chain
        value = op.operands[1 - weights[0]]
    return None


def _separate(split: ir.Operation, chain: list[tuple[ir.Operation, int]], constants: ConstantParts) -> None:
    kind = TensorType.from_mlir(split.operands[0].type)
    assert kind is not None
    axis = split.opview.axis % kind.rank
    sizes = split.opview.sizes
    begin, columns = 0, list[list[tuple[int, AxisRange]]]()
    for size in sizes:
        parts = (
            [_weights_range(op, number, axis, AxisRange(axis, begin, size)) for op, number in chain]
            if isinstance(size, int)
            else [None]
        )
        chosen = [part for part in parts if part is not None]
        if len(chosen) != len(chain) or not all(
            constants.can_take(op.operands[number], part) for (op, number), part in zip(chain, chosen, strict=True)
        ):
            return
        columns.append([(number, part) for (_, number), part in zip(chain, chosen, strict=True)])
        begin += size
    results = []
    with ir.InsertionPoint(split):
        for parts_of_column in columns:
            value = None
            for (op, number), (_, part) in zip(reversed(chain), reversed(parts_of_column), strict=True):
                value = _product_of(op, number, part, value, constants)
            assert value is not None
            results.append(value)
    replace_op(split, results)


def _product_of(
    op: ir.Operation, number: int, part: AxisRange, value: ir.Value | None, constants: ConstantParts
) -> ir.Value:
    operands = list(op.operands)
    operands[number] = constants.take(op.operands[number], part)
    constants.known.add(operands[number])
    if value is not None:
        operands[1 - number] = value
    rule = sharding_rule_of(op.opview)
    assert rule is not None
    with op.location:
        return rebuilt(op, operands, rule)[0]


def _weights_range(op: ir.Operation, number: int, axis: int, part: AxisRange) -> AxisRange | None:
    """Return the range of an operation's weights for a range of its result."""
    rule = sharding_rule_of(op.opview)
    label = rule.results[0][axis] if rule is not None else ""
    if rule is None or not label or label not in rule.operands[number] or label in rule.operands[1 - number]:
        is_bias = rule is not None and op.name == "relax.add" and label and label in rule.operands[number]
        if not is_bias or rule is None:
            return None
    return AxisRange(rule.operands[number].index(label), part.begin, part.count)
