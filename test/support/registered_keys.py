"""python registered_keys.py: as JSON, what each module of packages with an index registers, by package and module."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from typing import Any

from mirlo.dialects.core.traits import Trait
from mirlo.frontends.onnx.registry import Registry
from mirlo.passes.rules import RuleBook

PACKAGES = (
    "mirlo.frontends.onnx.ops", "mirlo.passes.graph.rules", "mirlo.passes.legalize.rules",
    "mirlo.passes.lower.expansions", "mirlo.targets.llvm.intrinsics", "mirlo.targets.llvm.legalize",
)  # fmt: skip
FOUND: dict[str, dict[str, set[str]]] = {package: defaultdict(set) for package in PACKAGES}


def _note(key: str) -> None:
    """Note a key for the module that is being imported now."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        package, _, module = str(frame.f_globals.get("__name__", "")).rpartition(".")
        if frame.f_code.co_name == "<module>" and package in FOUND:
            FOUND[package][module].add(key)
            return
        frame = frame.f_back


def _rule(self: RuleBook, subject: str, *arguments: Any, **named: Any) -> Any:
    _note(subject.value if isinstance(subject, Trait) else subject)
    return add_rule(self, subject, *arguments, **named)


def _converter(self: Any, domain: str, operator: str, *arguments: Any) -> None:
    _note(self.key(domain, operator))
    add_converter(self, domain, operator, *arguments)


def _traits(self: Any, domain: str, operator: str, traits: Any) -> None:
    if traits:
        _note(self.key(domain, operator))
    declare(self, domain, operator, traits)


add_rule, add_converter, declare = RuleBook.add, Registry.add, Registry.declare
RuleBook.add, Registry.add, Registry.declare = _rule, _converter, _traits  # type: ignore[method-assign, assignment]

if __name__ == "__main__":
    from mirlo.dialects.core.installed import import_modules

    for each in PACKAGES:
        import_modules(each)
    json.dump(
        {package: {name: sorted(keys) for name, keys in found.items()} for package, found in FOUND.items()}, sys.stdout
    )
