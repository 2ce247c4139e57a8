"""Inspection of programs for tools: diagnostics with their locations, names, rules, and the code of each line."""

import mirlo.passes.schedule.schedule  # noqa: F401  (registers its rules)
from mirlo.dialects.context import operation_class
from mirlo.dialects.core.locations import node_of
from mirlo.dialects.relax.reference import signature
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.driver.diagnostics import Diagnostic, Diagnostics
from mirlo.driver.modules import is_script, load_params
from mirlo.driver.source import SPLIT_MARKER, Chunk, SourceFile
from mirlo.driver.type_sizes import TypeSizeError, require_type_sizes
from mirlo.frontends.script.check import check_scripts, is_definition
from mirlo.frontends.script.errors import ScriptError
from mirlo.frontends.script.symbols import ScriptName
from mirlo.frontends.script.syntax import dotted
from mirlo.passes.legalize.legalize import load_default_rules
from mirlo.passes.locations import SourcePosition, find_source_position
from mirlo.passes.rules import Rule
from mirlo.passes.session import Session
from mirlo.runtime.extenders import record_extenders
from mirlo.runtime.former_names import former_names
from mirlo.tools.explain.locations import locations_in
from mirlo.tools.explain.model import ExplainedKernel, Explanation, explain_model
from mirlo.tools.explain.report import text_lines
from mirlo.tools.explain.rules import UnknownSubject, rule_chains

__all__ = [
    "Chunk",
    "Diagnostic",
    "Diagnostics",
    "ExplainedKernel",
    "Explanation",
    "INTRINSICS",
    "Rule",
    "SPLIT_MARKER",
    "ScriptError",
    "ScriptName",
    "Session",
    "SourceFile",
    "SourcePosition",
    "TypeSizeError",
    "UnknownSubject",
    "check_scripts",
    "dotted",
    "explain_model",
    "find_source_position",
    "is_definition",
    "is_script",
    "load_default_rules",
    "load_params",
    "locations_in",
    "node_of",
    "operation_class",
    "require_type_sizes",
    "rule_chains",
    "signature",
    "text_lines",
]

__getattr__ = former_names(__name__, {"Word": f"{__name__}:ScriptName"})
record_extenders(__name__)
