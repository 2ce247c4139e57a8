"""`mirlo targets`: the installed targets."""

from __future__ import annotations

from mirlo.passes.targets import TargetError, chain, describe_inert_rules, find_target, target_names
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.tables import columns


def execute(arguments: Arguments) -> None:
    """List the installed targets; one that does not load is listed with the reason, and rules for others."""
    rows = [("target", "rules of", "what it is")]
    for name in target_names():
        try:
            target = find_target(name)
            whole = target.has("emit") or target.codegen is None
            rows.append((name, " → ".join(chain(name)) if whole else "(parts of models)", target.help))
        except TargetError as error:
            rows.append((name, "-", f"broken: {error}"))
    print("\n".join([*columns(rows), *describe_inert_rules()]))
