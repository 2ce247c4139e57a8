"""The runner of code generators on external modules, in this or a separate process, with error reports."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.passes.byoc.bundle import Bundle, write_bundle
from mirlo.passes.byoc.codegen import CodeGenerator, DeclinedRegions, ExternalModule
from mirlo.passes.byoc.generator_errors import Crash, artifact_problem, as_artifact, describe_error
from mirlo.passes.byoc.guard import guarded
from mirlo.passes.byoc.isolate import codegen_in_process
from mirlo.passes.byoc.read_external import Constants, read_external
from mirlo.passes.locations import describe
from mirlo.passes.registry import PassError
from mirlo.passes.session import Session
from mirlo.passes.targets import where_from
from mirlo.runtime.external import ExternalArtifact

REGIONS_NAMED = 3


class GeneratorFailed(PassError):
    """A code generator raised, returned an invalid artifact, or crashed."""

    error_code = "MIR0411"
    remedy = "Correct the code generator; the message has its own error."


def run_generator(
    generator: CodeGenerator, nested: ir.Operation, options: str, session: Session, folder: str | None
) -> tuple[ExternalArtifact | DeclinedRegions, Constants]:
    """Return the artifact of an external module, validated, and the module's constants; or what was declined."""
    view = read_external(nested, session)
    assert isinstance(view.constants, Constants)
    if generator.isolated:
        bundle = write_bundle(nested, view, options, folder)
        try:
            artifact = codegen_in_process(bundle, view.target, options)
        except Crash as crash:
            raise _failed(view, str(crash), bundle) from None
        problem = artifact_problem(artifact, view)
        if problem is None:
            bundle.remove()
            return _of_target(artifact, view), view.constants
        raise _failed(view, problem, bundle)
    try:
        artifact = guarded(partial(_generate, generator, view)) if generator.guarded else _generate(generator, view)
    except Crash as crash:
        raise _failed(view, str(crash), write_bundle(nested, view, options, folder)) from None
    except Exception as error:
        raise _failed(view, describe_error(error), write_bundle(nested, view, options, folder)) from error
    problem = artifact_problem(artifact, view)
    if problem is not None:
        raise _failed(view, problem, write_bundle(nested, view, options, folder))
    return _of_target(artifact, view), view.constants


def _generate(generator: CodeGenerator, view: ExternalModule) -> ExternalArtifact | DeclinedRegions:
    return as_artifact(generator.codegen(view), view)


def _of_target(
    artifact: ExternalArtifact | DeclinedRegions, view: ExternalModule
) -> ExternalArtifact | DeclinedRegions:
    if isinstance(artifact, DeclinedRegions):
        return artifact
    return replace(artifact, target=view.target, functions=tuple(artifact.functions), params=tuple(artifact.params))


def _failed(view: ExternalModule, what: str, bundle: Bundle) -> GeneratorFailed:
    who = f"the code generator of target '{view.target}' ({where_from(view.target)})"
    return GeneratorFailed(
        f"{who} {what}; it was given {_regions(view)}; '{bundle.command}' runs it again", view.operation.location
    )


def _regions(view: ExternalModule) -> str:
    """Return a short description of the regions, `c_0 (relax.conv "/layer1/Conv", ...)`."""
    shown = []
    for function in view.functions[:REGIONS_NAMED]:
        first = function.nodes[0] if function.nodes else None
        what = f" (from {first.op} {describe(first.operation.location)})" if first is not None else ""
        shown.append(f"'{function.name}'{what}")
    more = len(view.functions) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
