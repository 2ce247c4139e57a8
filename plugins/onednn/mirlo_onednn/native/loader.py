"""The loader of artifacts with format `onednn`."""

from __future__ import annotations

from mirlo.extend.runtime import ArtifactError, ExternalArtifact, ExternalFunctions, LoadContext
from mirlo_onednn.native import api
from mirlo_onednn.native.library import OneDnnError
from mirlo_onednn.native.program import OneDnnProgram
from mirlo_onednn.native.trampoline import NO_TABLE, NO_THREAD, WRONG_COUNT
from mirlo_onednn.plan import read


def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """Make the primitives of a plan for the threads of the model, with its constants in their layouts."""
    try:
        fpmath = artifact.metadata.get("fpmath", "strict")
        if fpmath not in api.FPMATH:
            raise ArtifactError(f"metadata 'fpmath': expected one of {', '.join(api.FPMATH)}, found {fpmath!r}")
        program = OneDnnProgram(read(artifact.data), context.params, context.threads, fpmath)
    except OneDnnError as problem:
        raise ArtifactError(str(problem)) from None

    def explain(function: str, code: int) -> str:
        if code == NO_TABLE:
            return program.failure(function)
        known = {
            WRONG_COUNT: f"'{function}' was called with another number of tensors than it was compiled for",
            NO_THREAD: "the system has no thread for it",
        }
        status = api.STATUS[code] if 0 <= code < len(api.STATUS) else f"status {code}"
        return known.get(code, f"oneDNN says: {status}")

    return ExternalFunctions(program.functions, keep=program, explain=explain)
