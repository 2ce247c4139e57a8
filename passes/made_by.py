"""Verification of rules' output: errors of invalid operations name the rule, not a later pass.

Operations of the llvm dialect may be unknown to LLVM only, which a target finds out when it makes code. They are marked
with the rule that emitted them (`tir.rule`), for the error.
"""

from __future__ import annotations

from collections.abc import Iterable

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.walk import walk, with_nested
from mirlo.passes.rules import Rule, RuleError

RULE = "tir.rule"
"""Attribute of operations of the llvm dialect: the rule of a user that emitted them."""
_LLVM = "llvm."


def previous_operation(op: ir.Operation) -> ir.Operation | None:
    """Return the operation before one in its block."""
    before = None
    for other in op.block:
        if other.operation == op:
            break
        before = other.operation
    return before


def operations_between(before: ir.Operation | None, after: ir.Operation) -> list[ir.Operation]:
    """Return the operations of a block between two of them; from its start if the first is None."""
    result = []
    block = iter(after.block)
    if before is not None:
        for op in block:
            if op.operation == before:
                break
    for op in block:
        if op.operation == after:
            break
        result.append(op.operation)
    return result


def check_emitted(rule: Rule, emitted: Iterable[ir.Operation]) -> None:
    """Verify the operations that a user's rule emitted, and mark those that only the back end can check."""
    for op in emitted:
        for inner in with_nested(op):
            is_llvm, context = inner.name.startswith(_LLVM), inner.context
            if not context.is_registered_operation(inner.name) and (is_llvm or not context.allow_unregistered_dialects):
                raise RuleError(f"rule '{rule}' at {rule.place} emitted '{inner.name}', which does not exist")
            if is_llvm:
                inner.attributes[RULE] = ir.StringAttr.get(f"{rule} at {rule.place}", inner.context)
        try:
            op.verify()
        except ir.MLIRError as error:
            messages = "; ".join(diagnostic.message for diagnostic in error.error_diagnostics) or str(error)
            raise RuleError(f"rule '{rule}' at {rule.place} emitted invalid IR: {messages}") from error


def take_marks(root: ir.Operation) -> dict[str, set[str]]:
    """Return the rules by the operations that they emitted, and drop the marks."""
    marks: dict[str, set[str]] = {}

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name.startswith(_LLVM) and RULE in op.attributes:
            name = op.attributes["intrin"] if "intrin" in op.attributes else ir.StringAttr.get(op.name)
            marks.setdefault(ir.StringAttr(name).value, set()).add(ir.StringAttr(op.attributes[RULE]).value)
            del op.attributes[RULE]
        return ir.WalkResult.ADVANCE

    walk(root, visit)
    return marks
