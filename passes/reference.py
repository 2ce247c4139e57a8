"""The reference of all passes, generated from their classes and from the rules of the graph.

python -m mirlo.passes.reference > docs/passes.md
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator

from mirlo.dialects.core.installed import import_modules
from mirlo.passes.options import options_of
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.registry import Pass, load_all
from mirlo.passes.rules import COMBINE, DEFAULT, LAYOUT, RECOGNIZE, SIMPLIFY, Rule, RuleBook

HEAD = """# Passes

Written by `python -m mirlo.passes.reference`; do not edit.

{steps}

Those not described here are MLIR's own. `mirlo-opt` runs each by its name ([how](mirlo-opt.md)); what stands behind
the equals sign of an option is its default.
"""
PIPELINE = "llvm"


def reference() -> str:
    """Return the page as Markdown."""
    own = {name: cls for name, cls in load_all().items() if cls.__module__.startswith("mirlo.")}
    order = list(dict.fromkeys(str(step).split("{")[0] for step in Pipeline.named(PIPELINE).steps))
    steps = "A model on its way to the CPU goes through " + ", ".join(f"`{name}`" for name in order) + "."
    lines = [HEAD.format(steps=textwrap.fill(steps, 120, break_on_hyphens=False))]
    for name in sorted(own, key=lambda n: (order.index(n) if n in order else len(order), n)):
        lines += _pass(own[name])
    import_modules("mirlo.passes.graph.rules")
    lines += _rules("simplify, recognition", RECOGNIZE)
    lines += _rules("simplify, combination", COMBINE)
    lines += _rules("simplify", SIMPLIFY)
    lines += _rules("convert-layout", LAYOUT)
    return "\n".join(lines) + "\n"


def _pass(cls: type[Pass]) -> Iterator[str]:
    yield f"## {cls.name}\n"
    yield inspect.cleandoc(cls.__doc__ or "") + "\n"
    for option in options_of(cls).values():
        default = "" if option.default is None else f"={option.kind.print(option.default)}"
        yield f"- `{option.name}{default}` ({option.kind.label}): {option.help}"
    if options_of(cls):
        yield ""


def _rules(name: str, book: RuleBook) -> Iterator[str]:
    """Yield a table of the rules of a pass, each with the operators that it rewrites."""
    subjects: dict[str, tuple[Rule, list[str]]] = {}
    for subject in sorted(book.subjects()):
        for rule in book.candidates(subject, (DEFAULT,)):
            if rule.function.__module__.startswith("mirlo."):
                subjects.setdefault(rule.name, (rule, []))[1].append(subject.removeprefix("relax."))
    yield f"## Rules of {name}\n"
    yield "| rule | operators | what it does |"
    yield "| --- | --- | --- |"
    for rule, operators in sorted(subjects.values(), key=lambda entry: entry[0].name):
        what = (inspect.getdoc(rule.function) or "").split("\n")[0]
        yield f"| {rule.name.replace('_', ' ')} | {_some(operators)} | {what} |"
    yield ""


def _some(operators: list[str]) -> str:
    shown = operators if len(operators) <= 6 else [*operators[:3], "..."]
    return ", ".join(shown)


if __name__ == "__main__":
    sys.stdout.write(reference())
