"""Patterns of the parts of a model that the library computes, with the checks that explain refusals.

Each composite is one operation and a chain of elementwise ones that follow it. The library applies the chain to the
result before it is stored or, if it has no such implementation, in separate steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirlo.extend.codegen import MatchCheck, Pattern, Trait, graph_operations, is_op, repeat, wildcard
from mirlo_onednn import checks
from mirlo_onednn.post_ops import BINARY, ELTWISE

MAX_CHAIN = 6

VIEW_COPIES = ("relax.permute", "relax.split")
"""Data movement that copies, in contrast to views."""


@dataclass(frozen=True)
class PatternRow:
    """The first operators of a composite, and the check that accepts or declines them."""

    name: str
    operators: Sequence[str]
    check: checks.Check = checks.any_match
    has_epilogue: bool = False
    is_light: bool = False
    """Whether compiled kernels, which fuse several such operators, compute it better."""
    operands: int = checks.MAX_OPERANDS
    """The most computed operands."""


def rows() -> list[PatternRow]:
    """Return the table of patterns, contractions first, so that they get their epilogues."""
    views = [name for name, op in graph_operations().items() if Trait.VIEW in op.TRAITS]
    reductions = [f"relax.reduce_{kind}" for kind in ("mean", "sum", "max", "min", "prod")]
    return [
        PatternRow("conv", ["relax.conv"], checks.convolution, has_epilogue=True),
        PatternRow("conv_transpose", ["relax.conv_transpose"], checks.deconvolution, has_epilogue=True),
        PatternRow("matmul", ["relax.matmul"], checks.matmul, has_epilogue=True),
        PatternRow("attention", ["relax.attention"], checks.attention),
        PatternRow("pool", ["relax.max_pool", "relax.avg_pool"], checks.pool),
        PatternRow("layer_norm", ["relax.layer_norm"], checks.layer_norm),
        PatternRow("batch_norm", ["relax.batch_norm"]),
        PatternRow("instance_norm", ["relax.instance_norm"], checks.instance_norm),
        PatternRow("group_norm", ["relax.group_norm"]),
        PatternRow("lrn", ["relax.lrn"], checks.lrn),
        PatternRow("softmax", ["relax.softmax", "relax.log_softmax"]),
        PatternRow("binary", list(BINARY), checks.binary, has_epilogue=True, is_light=True),
        PatternRow("eltwise", list(ELTWISE), is_light=True),
        PatternRow("reduce", reductions, checks.reduction, is_light=True),
        PatternRow("concat", ["relax.concat"], is_light=True),
        PatternRow("slice", ["relax.strided_slice"], checks.strided_slice, is_light=True),
        PatternRow("pick", ["relax.gather"], checks.pick, is_light=True, operands=1),
        PatternRow("view", [*views, *VIEW_COPIES], checks.view, is_light=True),
    ]


def patterns() -> list[tuple[str, Pattern, MatchCheck]]:
    """Return the patterns of all rows; light operators are matched only next to heavy ones."""
    listed = rows()
    heavy = frozenset(name for row in listed if not row.is_light for name in row.operators)
    light = {name: (row.check, row.operands) for row in listed if row.is_light for name in row.operators}
    result = []
    for row in listed:
        start = is_op(*row.operators)
        whole = checks.chain(row.check) if row.has_epilogue else checks.single_operation(row.check, row.operands)
        check = checks.light_operator(whole, heavy, light) if row.is_light else whole
        result.append((row.name, _chain(start) if row.has_epilogue else start, check))
    return result


def _chain(start: Pattern) -> Pattern:
    def step(before: Pattern) -> Pattern:
        # `subtract` and `divide` are not commutative: the chain can be either operand.
        either = is_op(*BINARY)(before, wildcard()) | is_op("relax.subtract")(wildcard(), before)
        return is_op(*ELTWISE)(before).has_dtype("f32") | either

    return repeat(start, step, most=MAX_CHAIN)
