"""The page of the choices of schedule rules, generated from their declarations.

python -m mirlo.tools.explain.choices_page > docs/choices.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from mirlo.passes.rule_choices import Choice, choices_of_type
from mirlo.passes.targets import operator_choices
from mirlo.tools.explain.rules import SCHEDULES, rule_chains

TARGETS = ("llvm", "nvvm", "spirv")
"""The targets whose rules choose."""
HEAD = """# Choices of schedule rules

Written by `python -m mirlo.tools.explain.choices_page`; do not edit.

Read this page if you want another schedule than Mirlo's own. A rule chooses these values for each kernel. You may
choose instead: [`Schedule.apply_rule`](schedule-by-hand.md#start-from-a-built-in-rule) takes them as arguments, and
[`mirlo tune`](tuning.md) measures. `mirlo explain --kernel` prints what was chosen. *Measured* are the values that
tuning tries; for the others the target lists the values that fit a kernel.

Your own rules declare choices in the same way ([how](schedule-by-hand.md#in-a-rule))."""
TABLE = """
| choice | values | measured | meaning |
| --- | --- | --- | --- |"""


def page() -> str:
    """Return the page as Markdown."""
    lines = [HEAD]
    for target in TARGETS:
        lines += _target(target)
    return "\n".join(lines) + "\n"


def _target(target: str) -> Iterator[str]:
    yield f"\n## Target `{target}`"
    rules = [rule for chain in rule_chains(SCHEDULES, target) for rule in chain.rules if rule.choices]
    for rule in rules:
        yield f"\n### `{rule.name}`\n\n{rule.summary}"
        yield from _table(rule.choices)
    for operator, kind in operator_choices(target).items():
        yield f"\n### `{operator}`\n\nChosen for the operator, before it becomes a prim function."
        yield from _table(choices_of_type(kind))


def _table(choices: tuple[Choice, ...]) -> Iterator[str]:
    yield TABLE
    for choice in choices:
        listed = ", or one for each loop" if choice.is_per_loop else ""
        tried = ", ".join(map(str, choice.tried))
        yield f"| `{choice.name}` | {choice.range_text}{listed} | {tried} | {choice.summary} |"


if __name__ == "__main__":
    sys.stdout.write(page())
