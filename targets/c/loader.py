"""The loader of target `c`: opens the shared library, with the constants as the state of its functions."""

from __future__ import annotations

import ctypes
import os
import tempfile
from ctypes import CDLL

from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.external import ExternalArtifact, ExternalFunctions, LoadContext
from mirlo.runtime.loaders import llvm_host
from mirlo.runtime.system import can_remove_open_files, close_library
from mirlo.runtime.thunks import bind_state

OUT_OF_MEMORY, WRONG_SIZES = 1, 2


def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """Load the functions of the library; it is closed when they are released."""
    made_for, here = artifact.metadata.get("triple"), llvm_host()["triple"]
    if made_for != here:
        raise ArtifactError(f"it was compiled for {made_for}, this machine is {here}: compile the model again for it")
    library, path = _open(artifact.data, str(artifact.metadata.get("suffix", ".so")))
    arrays = [context.params[name] for name in artifact.params]
    addresses = [array.__array_interface__["data"][0] for array in arrays]
    state = (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
    symbols: dict[str, str] = artifact.metadata["symbols"]
    pairs = {name: (getattr(library, symbols[name]), state) for name in artifact.functions}
    functions, engine = bind_state(pairs)
    return ExternalFunctions(
        functions, keep=(library, state, arrays, engine), release=lambda: _close(library, path), explain=_explain
    )


def _explain(function: str, code: int) -> str | None:
    if code == OUT_OF_MEMORY:
        return f"there is no memory for the intermediate tensors of '{function}'"
    return (
        f"the sizes of the inputs of '{function}' do not fit each other, or any memory" if code == WRONG_SIZES else None
    )


def _open(data: bytes, suffix: str) -> tuple[CDLL, str]:
    # Each load uses a file of its own: libraries loaded from one path would share their memory.
    handle, path = tempfile.mkstemp(prefix="mirlo-c-", suffix=suffix)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        return ctypes.CDLL(path), path
    except OSError as error:
        os.unlink(path)
        raise ArtifactError(f"its library cannot be opened: {error}") from error
    finally:
        # Unlink the file while it is open where the system allows it, so that a killed process leaves nothing behind.
        if can_remove_open_files() and os.path.exists(path):
            os.unlink(path)


def _close(library: CDLL, path: str) -> None:
    close_library(library._handle)
    if os.path.exists(path):
        os.unlink(path)
