"""Output of code generators as files: `mirlo compile MODEL --targets onnx,llvm --emit source`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from mirlo.dialects.bindings import ir
from mirlo.driver.models import open_model
from mirlo.passes.byoc.artifacts import artifacts_of
from mirlo.passes.byoc.codegen import generator_of
from mirlo.passes.byoc.records import NodeRecord, Placement
from mirlo.passes.byoc.target_list import Chosen, Targets
from mirlo.passes.files import FileError
from mirlo.passes.locations import describe
from mirlo.passes.options import options_of
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.passes.targets import TargetError
from mirlo.runtime.errors import MirloError
from mirlo.runtime.files import write_regular

SHOWN = 5
"""How many operators that no target took are named."""
BETWEEN = ("relax.call_dps_packed", "relax.constant", "func.return")


class NotPlaced(MirloError, ValueError):
    """Some operators are supported by none of the targets."""

    error_code = "MIR0711"
    remedy = "Name a code generator that takes a part of the model; `mirlo partition` shows why none is taken."


def emit_source(
    model: object,
    target: str | Sequence[str],
    folder: str | os.PathLike[str],
    shapes: Mapping[str, Sequence[int | str] | None] | None = None,
) -> list[Path]:
    """Write the output of these targets' code generators for a model to a folder; return the files.

    If the last target is a code generator too, the code generators must take the whole model.
    """
    targets = Targets.parse(target)
    if not targets.generators:
        raise TargetError(f"target '{targets}' has no code generator whose source could be written")
    opened = open_model(model, shapes)
    with opened.module.context, ir.Location.unknown():
        Pipeline(_source_only(targets).steps()).run(opened.module, opened.session)
        artifacts = artifacts_of(opened.module)
        if targets.host is None:
            _require_all_placed(opened.module, opened.session, targets)
    files: dict[str, bytes] = {}
    for artifact in artifacts:
        params = {name: opened.session.params.get(name) for name in artifact.params}
        files.update(generator_of(artifact.target).files(artifact, params))
    if not files:
        names = ", ".join(f"'{artifact.target}'" for artifact in artifacts)
        raise TargetError(
            f"{names} made nothing to take along" if names else f"no part of the model is for '{targets}'"
        )
    return _write(files, Path(folder))


def _source_only(targets: Targets) -> Targets:
    """Set the option `source-only` of code generators that have it: they need no compiler then."""

    def changed(chosen: Chosen) -> Chosen:
        if "source-only" not in options_of(type(chosen.generator)) or "source-only" in chosen.options:
            return chosen
        return Chosen(chosen.name, f"{chosen.options} source-only".strip())

    return Targets(tuple(map(changed, targets.generators)), targets.host)


def _require_all_placed(module: ir.Module, session: Session, targets: Targets) -> None:
    left = [
        op.operation
        for function in module.body.operations
        if function.operation.name == "func.func"
        for op in function.operation.regions[0].blocks[0].operations
        if op.operation.name not in BETWEEN
    ]
    if not left:
        return
    reasons = _reasons(session, targets)
    shown = [f"  {op.name} {describe(op.location)}{reasons.get(describe(op.location), '')}" for op in left[:SHOWN]]
    more = f"\n  and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
    listed = "\n".join(shown)
    raise NotPlaced(
        f"target '{targets}' does not take {len(left)} of the model's operators:\n{listed}{more}\n"
        f"Name a target that compiles the rest, '{targets},llvm', to get the source of what it takes"
    )


def _reasons(session: Session, targets: Targets) -> dict[str, str]:
    """Return why operators were not taken, by source location."""
    reasons: dict[str, str] = {}
    for note in session.notes:
        if isinstance(note, Placement):
            for node in note.nodes:
                refusals = [f"{name}: {why}" for name in note.targets if (why := note.why_not(node.id, name))]
                reasons[_source_position(node)] = f" ({'; '.join(refusals)})" if refusals else ""
    return reasons


def _source_position(node: NodeRecord) -> str:
    names = ", ".join(f'"{name}"' for name in node.names)
    return str(node.place if not names or names in node.place else names)


def _write(files: Mapping[str, bytes], folder: Path) -> list[Path]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_regular(folder / name, content)
    except OSError as error:
        raise FileError(f"cannot write to '{folder}': {error.strerror or error}") from error
    return [folder / name for name in files]
