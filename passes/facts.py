"""The `relax.*` attributes of modules, functions, arguments and results.

Operations defined in Python cannot add structure to `func.func`, so these facts are discardable attributes, which
MLIR does not verify; `verify-calls` checks them against this table.
"""

from __future__ import annotations

from collections.abc import Iterator

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import ENTRY
from mirlo.passes.byoc.artifacts import artifact_problem
from mirlo.runtime.errors import nearest_name
from mirlo.runtime.names import is_printable
from mirlo.runtime.records import dataclass

PREFIX = "relax."
STRING, STRINGS, TYPE, UNIT = "a string", "a list of strings", "a type", "a unit attribute"
TYPES = "a list of types"
COUNT = "a number that is not negative"
ARTIFACTS = "a dictionary of artifacts with 'format', 'functions', 'params'"


@dataclass(frozen=True)
class Fact:
    """One attribute: its name, its possible owners, the type of its value."""

    name: str
    owners: tuple[str, ...]
    kind: str
    doc: str


FACTS = {
    fact.name: fact
    for fact in (
        Fact("relax.name", ("argument", "result"), STRING, "what the user calls this input or output"),
        Fact("relax.kind", ("argument", "result"), STRING, "what an object is, such as `sequence(f32[n])`"),
        Fact("relax.type", ("argument",), TYPE, "the tensor type that the buffer of this argument holds"),
        Fact("relax.alias", ("argument",), STRING, "the input whose memory this output may have"),
        Fact("relax.window", ("argument",), COUNT, "the tokens of the window whose rows this cache holds, as a ring"),
        Fact("relax.pages", ("argument",), STRING, "what this input is to attention with caches in pages"),
        Fact("relax.param", ("argument",), STRING, "the parameter of the store that this buffer is"),
        Fact("relax.arena", ("argument",), UNIT, "this buffer is where intermediate tensors live"),
        Fact(ENTRY, ("function",), UNIT, "this function is the model"),
        Fact("relax.inputs", ("function",), COUNT, "how many of the first arguments are the user's inputs"),
        Fact("relax.outputs", ("function",), COUNT, "how many arguments after the inputs are the user's outputs"),
        Fact("relax.functions", ("argument",), UNIT, "the pointers of the run-time functions that are called"),
        Fact("relax.record", ("argument",), UNIT, "where a call that fails is reported"),
        Fact("relax.packed", ("function",), STRINGS, "the run-time functions that the body calls"),
        Fact("relax.types", ("function",), TYPES, "the tensors that a call of a run-time function takes"),
        Fact("relax.written", ("function",), COUNT, "how many of these, the last ones, it writes"),
        Fact("relax.symbols", ("function",), STRINGS, "the dims of the inputs that are not numbers"),
        Fact("relax.sizes", ("function",), STRINGS, "the sizes that compiled code computes from them"),
        Fact("relax.late", ("function",), STRINGS, "those of the sizes that it knows while it runs only"),
        Fact("relax.checks", ("function",), STRINGS, "what is said where sizes do not fit"),
        Fact("relax.shown", ("function",), STRINGS, "the symbols whose values are shown with each of these texts"),
        Fact("relax.primitive", ("function",), UNIT, "the body is one group of calls, to become one prim function"),
        Fact("relax.params", ("module",), STRINGS, "the files with the parameters"),
        Fact("relax.external", ("module", "function"), STRING, "the code generator that this module or region is for"),
        Fact("relax.target", ("function",), STRING, "the target whose pattern took the body of this composite"),
        Fact("relax.composite", ("function",), STRING, "the pattern that took the body, `target.pattern`"),
        Fact("relax.external_artifacts", ("module",), ARTIFACTS, "what code generators made of parts of the model"),
    )
}


def wrong_facts(attributes: ir.Attribute | ir.OpAttributeMap, owner: str, what: str) -> Iterator[str]:
    """Yield errors in the `relax.*` attributes of an owner: 'module', 'function', 'argument' or 'result'."""
    for name, attribute in items(attributes):
        if not name.startswith(PREFIX):
            continue
        fact = FACTS.get(name)
        if fact is None or owner not in fact.owners:
            known = [fact.name.removeprefix(PREFIX) for fact in FACTS.values() if owner in fact.owners]
            near = nearest_name(name.removeprefix(PREFIX), known)
            others = ", ".join(f"'{PREFIX}{other}'" for other in known)
            hint = f"did you mean '{PREFIX}{near}'?" if near else f"it may have {others}"
            yield f"{what} cannot have the attribute '{name}'; {hint}"
        elif not _has_kind(fact.kind, attribute):
            yield f"attribute '{name}' of {what} must be {fact.kind}, got {attribute}"
        elif fact.kind in (STRING, STRINGS) and not all(
            map(is_text, [attribute] if fact.kind == STRING else attribute)
        ):
            yield f"attribute '{name}' of {what} must be {fact.kind} of printable characters, got {attribute}"


def items(attributes: ir.Attribute | ir.OpAttributeMap) -> Iterator[tuple[str, ir.Attribute]]:
    """Return names and attributes of an operation's attributes or of a dictionary attribute."""
    listed = attributes if isinstance(attributes, ir.OpAttributeMap) else ir.DictAttr(attributes)
    for named in listed:
        name = named if isinstance(named, str) else named.name
        yield name, listed[name]


def is_external(function: ir.OpView | ir.Operation) -> bool:
    """Return whether a function belongs to a code generator: a composite, or a region outside its module.

    Passes on the graph skip it; passes that run on the external module process it.
    """
    attributes = function.attributes
    if "relax.composite" not in attributes and "relax.external" not in attributes:
        return False
    parent = function.operation.parent
    return parent is None or "relax.external" not in parent.attributes


def _has_kind(kind: str, attribute: ir.Attribute) -> bool:
    if kind == ARTIFACTS:
        return artifact_problem(attribute) is None
    if kind == COUNT:
        return isinstance(attribute, ir.IntegerAttr) and attribute.value >= 0
    if kind == STRINGS:
        return isinstance(attribute, ir.ArrayAttr) and all(isinstance(entry, ir.StringAttr) for entry in attribute)
    if kind == TYPES:
        return isinstance(attribute, ir.ArrayAttr) and all(isinstance(entry, ir.TypeAttr) for entry in attribute)
    return isinstance(attribute, {STRING: ir.StringAttr, TYPE: ir.TypeAttr, UNIT: ir.UnitAttr}[kind])


def is_text(attribute: ir.Attribute) -> bool:
    """Return whether it is a printable string: names reach messages, terminals and generated sources."""
    try:
        return isinstance(attribute, ir.StringAttr) and is_printable(attribute.value)
    except (UnicodeDecodeError, RuntimeError):  # not UTF-8
        return False
