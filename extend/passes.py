"""Passes over graphs: operations and their replacement, constants, how operators are divided into parts."""

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims
from mirlo.dialects.core.dim_algebra import substitute
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import sharding_rule_of
from mirlo.dialects.core.rank_layout import (
    RankGroups,
    RankLayout,
    Split,
    count_parts,
    group_attributes,
    groups_along,
    is_regular,
    read_groups,
    tile_layout,
    whole,
)
from mirlo.dialects.core.sharding import PARTIAL, WHOLE, Sharding, ShardingRule, divided, parts_of, view_labels
from mirlo.dialects.core.surgery import blocks, captured, erase_dead, operations, replace_inside, replace_op
from mirlo.dialects.core.traits import Trait, traits_of
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.collectives import COLLECTIVES, Collective
from mirlo.passes.entry import is_model
from mirlo.passes.graph.constants import (
    constant_name,
    constant_value,
    emit_constant,
    emit_deferred_constant,
    is_constant,
)
from mirlo.passes.graph.dce import is_pure_relax
from mirlo.passes.graph.row_loop import rebuilt
from mirlo.passes.locations import names_of
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.report_section import ReportSection
from mirlo.passes.rules import Decline, decline
from mirlo.passes.session import Session
from mirlo.runtime.extenders import record_extenders
from mirlo.tools.tables import bytes_text, columns

__all__ = [
    "COLLECTIVES",
    "Collective",
    "Decline",
    "Dim",
    "OPS",
    "PARTIAL",
    "Pass",
    "PassError",
    "RankGroups",
    "RankLayout",
    "ReportSection",
    "Session",
    "Sharding",
    "ShardingRule",
    "Split",
    "TensorType",
    "Trait",
    "WHOLE",
    "blocks",
    "bytes_text",
    "captured",
    "columns",
    "constant_name",
    "constant_value",
    "count_parts",
    "decline",
    "dims",
    "divided",
    "emit_constant",
    "emit_deferred_constant",
    "erase_dead",
    "group_attributes",
    "groups_along",
    "ir",
    "is_constant",
    "is_model",
    "is_pure_relax",
    "is_regular",
    "names_of",
    "operations",
    "option",
    "parts_of",
    "read_groups",
    "rebuilt",
    "register_pass",
    "replace_inside",
    "replace_op",
    "sharding_rule_of",
    "substitute",
    "tile_layout",
    "traits_of",
    "view_labels",
    "whole",
]

record_extenders(__name__)
