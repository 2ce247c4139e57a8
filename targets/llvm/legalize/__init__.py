"""Legalization rules that target `llvm` has for itself."""

from mirlo.dialects.core.installed import ModuleIndex
from mirlo.passes.rules import LEGALIZE

INDEX = """
fused_attention: relax.attention relax.attention_with_scales relax.attention_with_sinks relax.paged_attention
joins: relax.concat relax.stack
sorting: relax.argsort relax.sort
trees: relax.tree_ensemble
"""
"""The modules by the operators that the rules of each file are for."""

LEGALIZE.defer(ModuleIndex(__name__))
