"""The options of `mirlo.compile` for models on several ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirlo.extend.options import (
    MOST_RANKS,
    OptionFlag,
    compile_option,
    integer,
    is_list,
    is_text,
    optional,
    values_that,
)


@dataclass(frozen=True, kw_only=True)
class RankOptions:
    """Options that divide a model among ranks."""

    ranks: int = compile_option(
        1,
        "The number of ranks, processes that compute the model together: each has a part of the weights, and a model "
        "of its own. In a process that is a rank the result is that of this rank, in others those of all of them.",
        OptionFlag("--ranks", "N", help="divide the model among N processes, each with its part of the weights"),
        own_pass="shard",
        kind=integer(1, MOST_RANKS),
    )
    rank: int | None = compile_option(
        None,
        "The rank to compile for; by default the one that this process is, as its environment says, or all.",
        OptionFlag("--rank", "R", help="compile for this rank only (default: that of the environment, or all ranks)"),
        own_pass="shard",
        kind=optional(integer(0, MOST_RANKS)),
    )
    rank_plan: Sequence[str] = compile_option(
        (),
        "How nodes are divided among ranks, by patterns of their names, the first that fits: "
        '`["*/mlp/*=replicate", "*/experts.*=expert"]`. A strategy is "auto", "column", "row", "expert", "vocabulary" '
        'or "replicate".',
        OptionFlag(
            "--rank-plan",
            "PATTERN=STRATEGY",
            form="append",
            help="how to divide the nodes whose names match a pattern: column, row, expert, vocabulary or replicate; "
            "may be repeated",
        ),
        key=tuple,
        own_pass="shard",
        kind=values_that("a list of texts such as '*/mlp/*=replicate'", lambda value: is_list(value, is_text)),
    )
