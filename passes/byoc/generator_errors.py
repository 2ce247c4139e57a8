"""Errors of code generators: crashes, exceptions, and artifacts that do not fit their module."""

from __future__ import annotations

import json
import os
import traceback

from mirlo.passes.byoc.codegen import DeclinedRegions, ExternalModule
from mirlo.passes.rules import Decline
from mirlo.runtime.errors import MirloError
from mirlo.runtime.external import ExternalArtifact
from mirlo.runtime.native import NativeCode


class Crash(Exception):
    """How the generator's process ended, as the end of a sentence whose subject is the generator."""

    def __init__(self, how: str, stderr: str = ""):
        super().__init__(how)
        self.said = stderr
        """What it wrote to standard error, where that was kept."""


def as_artifact(
    output: ExternalArtifact | NativeCode | DeclinedRegions, view: ExternalModule
) -> ExternalArtifact | DeclinedRegions:
    """Return a code generator's result as an artifact; an error says what is wrong with native code.

    Reasons are texts here: they may come from another process.
    """
    if isinstance(output, DeclinedRegions):
        return DeclinedRegions({name: Decline(str(reason)) for name, reason in output.reasons.items()})
    if not isinstance(output, NativeCode):
        return output
    problem = output.problem(view.names)
    if problem is not None:
        raise MirloError(f"it returned NativeCode {problem}")
    return output.artifact(view.names)


def artifact_problem(output: ExternalArtifact | DeclinedRegions, view: ExternalModule) -> str | None:
    """Return what is wrong with a code generator's result, or None."""
    if isinstance(output, DeclinedRegions):
        unknown = [name for name in output.reasons if name not in view.names]
        if unknown:
            return f"declined a region '{unknown[0]}', which the module does not have"
        return None if output.reasons else "declined no region: return an artifact"
    if isinstance(output, Decline):
        return f"declined: {output}"
    if not isinstance(output, ExternalArtifact):
        return f"gave a {type(output).__name__}: expected NativeCode or an Artifact"
    if not isinstance(output.format, str) or not output.format:
        return f"gave an artifact whose format, the name of its loader, is {output.format!r}: expected text"
    if not isinstance(output.data, (bytes, bytearray)):
        return f"gave an artifact whose data is a {type(output.data).__name__}: expected bytes"
    missing = [name for name in view.names if name not in output.functions]
    if missing:
        return f"gave an artifact without the function '{missing[0]}'; it has: {', '.join(output.functions) or 'none'}"
    unknown = [name for name in output.functions if name not in view.names]
    if unknown:
        return f"gave an artifact with a function '{unknown[0]}', which the module does not have"
    lost = [name for name in output.params if name not in view.constants]
    if lost:
        return f"gave an artifact that asks for the constant '{lost[0]}', which the module does not have"
    return _metadata_problem(output)


def _metadata_problem(artifact: ExternalArtifact) -> str | None:
    try:
        json.dumps(dict(artifact.metadata))
    except (TypeError, ValueError) as error:
        return f"gave an artifact whose metadata cannot be JSON: {error}"
    return None


def describe_error(error: BaseException) -> str:
    """Describe the exception that a code generator raised, and where."""
    if isinstance(error, MirloError):
        return f"failed: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    text = f": {error}" if str(error) else ""
    return f"raised {type(error).__name__}{at}{text}"
