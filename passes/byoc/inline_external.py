"""The pass `inline-external`: inline regions and composites back into the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.passes.byoc.inline import Inliner, all_operations
from mirlo.passes.byoc.outline import COMPOSITE, EXTERNAL, TARGET, callee_of, functions_of, string_fact
from mirlo.passes.byoc.outline_external import external_modules
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class InlineExternal(Pass):
    """Put regions and composites back where they are called: the undo of all passes that made them.

    It takes nested modules, and regions and composites that are still functions of this module. The changes of the
    target's pipeline stay: a legalized region comes back as calls of its prim functions, which move along.
    """

    name = "inline-external"
    contained = True
    target: str = option("", "target whose regions come back; all when none is named")

    def run(self, op: ir.OpView, session: Session) -> None:
        module = op.operation
        inliner = Inliner(module)
        nested = {n: m for n, m in external_modules(module).items() if self._concerns(string_fact(m, EXTERNAL))}
        members = {name: functions_of(external) for name, external in nested.items()}
        local = functions_of(module)
        for function in local.values():
            if EXTERNAL in function.attributes or COMPOSITE in function.attributes:
                continue
            for inner in all_operations(function):
                if inner.name == "relax.call_external":
                    owner, _, name = inner.opview.callee.partition("::")
                    region = members.get(owner, {}).get(name)
                    if region is not None:
                        inliner.put_back(inner, region, nested[owner])
                else:
                    self._put_back_local(inner, module, local, inliner)
        for external in nested.values():
            if not _is_called(module, symbol_name(external)):
                external.erase()
        inliner.drop_unused()

    def _put_back_local(
        self, op: ir.Operation, module: ir.Operation, local: dict[str, ir.Operation], inliner: Inliner
    ) -> None:
        callee = local.get(callee_of(op) or "")
        if callee is not None and self._concerns(string_fact(callee, EXTERNAL) or string_fact(callee, TARGET)):
            inliner.put_back(op, callee, module)

    def _concerns(self, target: str | None) -> bool:
        return target is not None and self.target in ("", target)


def _is_called(module: ir.Operation, name: str) -> bool:
    """Return whether a function of this module calls one of a nested module."""
    return any(
        op.name == "relax.call_external" and op.opview.callee.startswith(f"{name}::")
        for function in functions_of(module).values()
        for op in all_operations(function)
    )
