"""Runs a code generator on an external module, here or in a process of its own, and tells what went wrong."""

from __future__ import annotations

import os
import traceback
from dataclasses import replace
from typing import Any

from mirlo.passes.byoc.bundle import Bundle, write_bundle
from mirlo.passes.byoc.codegen import CodeGenerator, ExternalModule
from mirlo.passes.byoc.guard import guarded
from mirlo.passes.byoc.isolate import Crash, codegen_in_process
from mirlo.passes.byoc.read_external import Constants, read_external
from mirlo.passes.locations import describe
from mirlo.passes.registry import PassError
from mirlo.passes.rules import Decline
from mirlo.passes.session import Session
from mirlo.passes.targets import where_from
from mirlo.runtime.errors import MirloError
from mirlo.runtime.external import ExternalArtifact

REGIONS_NAMED = 3


class GeneratorFailed(PassError):
    """A code generator raised, gave what is no artifact, or took its process down."""


def run_generator(
    generator: CodeGenerator, nested: Any, options: str, session: Session, folder: str | None
) -> tuple[ExternalArtifact, Constants]:
    """The artifact of an external module, checked, and the module's constants."""
    view = read_external(nested, session)
    assert isinstance(view.constants, Constants)
    if generator.isolated:
        bundle = write_bundle(nested, view, options, folder)
        try:
            made: Any = codegen_in_process(bundle, view.target, options)
        except Crash as crash:
            raise _failed(view, str(crash), bundle) from None
        problem = artifact_problem(made, view)
        if problem is None:
            bundle.remove()
            return _of_target(made, view), view.constants
        raise _failed(view, problem, bundle)
    try:
        made = guarded(lambda: generator.codegen(view)) if generator.guarded else generator.codegen(view)
    except Crash as crash:
        raise _failed(view, str(crash), write_bundle(nested, view, options, folder)) from None
    except Exception as error:
        raise _failed(view, told(error), write_bundle(nested, view, options, folder)) from error
    problem = artifact_problem(made, view)
    if problem is not None:
        raise _failed(view, problem, write_bundle(nested, view, options, folder))
    return _of_target(made, view), view.constants


def _of_target(made: ExternalArtifact, view: ExternalModule) -> ExternalArtifact:
    return replace(made, target=view.target, functions=tuple(made.functions), params=tuple(made.params))


def artifact_problem(made: Any, view: ExternalModule) -> str | None:
    """What is wrong with what a code generator gave, if anything."""
    if isinstance(made, Decline):
        return f"declined: {made}"
    if not isinstance(made, ExternalArtifact):
        return f"gave a {type(made).__name__}: expected an Artifact"
    if not isinstance(made.format, str) or not made.format:
        return f"gave an artifact whose format, the name of its loader, is {made.format!r}: expected text"
    if not isinstance(made.data, (bytes, bytearray)):
        return f"gave an artifact whose data is a {type(made.data).__name__}: expected bytes"
    missing = [name for name in view.names if name not in made.functions]
    if missing:
        return f"gave an artifact without the function '{missing[0]}'; it has: {', '.join(made.functions) or 'none'}"
    unknown = [name for name in made.functions if name not in view.names]
    if unknown:
        return f"gave an artifact with a function '{unknown[0]}', which the module does not have"
    lost = [name for name in made.params if name not in view.constants]
    if lost:
        return f"gave an artifact that asks for the constant '{lost[0]}', which the module does not have"
    return _metadata_problem(made)


def _metadata_problem(made: ExternalArtifact) -> str | None:
    import json

    try:
        json.dumps(dict(made.metadata))
    except (TypeError, ValueError) as error:
        return f"gave an artifact whose metadata cannot be JSON: {error}"
    return None


def told(error: BaseException) -> str:
    """What a code generator raised, and where."""
    if isinstance(error, MirloError):
        return f"failed: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    text = f": {error}" if str(error) else ""
    return f"raised {type(error).__name__}{at}{text}"


def _failed(view: ExternalModule, what: str, bundle: Bundle) -> GeneratorFailed:
    who = f"the code generator of target '{view.target}' ({where_from(view.target)})"
    return GeneratorFailed(
        f"{who} {what}; it was given {_regions(view)}; '{bundle.command}' runs it again", view.operation.location
    )


def _regions(view: ExternalModule) -> str:
    """`c_0 (relax.conv "/layer1/Conv", ...)` and so on: what it was given, shortly."""
    shown = []
    for function in view.functions[:REGIONS_NAMED]:
        first = function.nodes[0] if function.nodes else None
        what = f" (from {first.op} {describe(first.operation.location)})" if first is not None else ""
        shown.append(f"'{function.name}'{what}")
    more = len(view.functions) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
