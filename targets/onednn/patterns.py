"""What of a model the library computes: patterns, and why it does not compute what they match.

Each composite is one operation and a chain of elementwise ones that follow it. The library applies the chain to the
result before it is stored, or where it has no such implementation, right after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mirlo.passes.byoc.helpers import repeat
from mirlo.passes.byoc.operators import is_op, wildcard
from mirlo.passes.byoc.pattern import Pattern
from mirlo.passes.byoc.search import Match
from mirlo.targets.onednn import checks
from mirlo.targets.onednn.post_ops import BINARY, ELTWISE

MAX_CHAIN = 6

NORMS = {
    "relax.layer_norm": checks.layer_norm,
    "relax.batch_norm": checks.any_match,
    "relax.instance_norm": checks.instance_norm,
    "relax.group_norm": checks.any_match,
    "relax.lrn": checks.lrn,
}
REDUCTIONS = ("relax.reduce_mean", "relax.reduce_sum", "relax.reduce_max", "relax.reduce_min", "relax.reduce_prod")
VIEWS = ("relax.reshape", "relax.permute", "relax.expand_dims", "relax.squeeze", "relax.split")


def patterns() -> list[tuple[str, Pattern, Callable[[Match], Any]]]:
    """Return the patterns, contractions first, so that they get their epilogues."""
    rows: list[tuple[str, Pattern, Callable[[Match], Any]]] = [
        ("conv", _chain(is_op("relax.conv")), checks.chain(checks.convolution)),
        ("conv_transpose", _chain(is_op("relax.conv_transpose")), checks.chain(checks.deconvolution)),
        ("matmul", _chain(is_op("relax.matmul")), checks.chain(checks.matmul)),
        ("attention", is_op("relax.attention"), checks.single_operation(checks.attention)),
        ("pool", is_op("relax.max_pool", "relax.avg_pool"), checks.single_operation(checks.pool)),
    ]
    rows += [(op.partition(".")[2], is_op(op), checks.single_operation(check)) for op, check in NORMS.items()]
    rows += [
        ("softmax", is_op("relax.softmax", "relax.log_softmax"), checks.single_operation(checks.any_match)),
        ("binary", _chain(is_op(*BINARY)), checks.light_operator(checks.chain(checks.binary))),
        ("eltwise", is_op(*ELTWISE), checks.light_operator(checks.single_operation(checks.any_match))),
        ("reduce", is_op(*REDUCTIONS), checks.light_operator(checks.single_operation(checks.reduction))),
        ("concat", is_op("relax.concat"), checks.light_operator(checks.single_operation(checks.any_match))),
        ("slice", is_op("relax.strided_slice"), checks.light_operator(checks.single_operation(checks.strided_slice))),
        ("pick", is_op("relax.gather"), checks.light_operator(checks.single_operation(checks.pick, operands=1))),
        ("view", is_op(*VIEWS), checks.light_operator(checks.single_operation(checks.view))),
    ]
    return rows


def _chain(start: Pattern) -> Pattern:
    def step(before: Pattern) -> Pattern:
        # `subtract` and `divide` are not commutative: the chain can be either operand.
        either = is_op(*BINARY)(before, wildcard()) | is_op("relax.subtract")(wildcard(), before)
        return is_op(*ELTWISE)(before).has_dtype("f32") | either

    return repeat(start, step, most=MAX_CHAIN)
