"""The errors of generation: each message names the file and the key, or the argument."""

from __future__ import annotations

from mirlo.extend.runtime import Executable, MirloError, UnloadedModel


class ModelFolderError(MirloError, ValueError):
    """A folder of a language model with missing, damaged or unsupported files."""


class GenerationError(MirloError, ValueError):
    """An invalid argument of a generator, or a model without an output that generation needs."""


class FormError(GenerationError):
    """A constraint on answers that cannot be compiled or cannot be continued."""


def require_executable(compiled: object, path: object) -> Executable:
    """Return a compiled model that generation can call; raise an error that names its file for another one."""
    if isinstance(compiled, UnloadedModel):
        raise ModelFolderError(f"{path}: generation needs code for this machine: {compiled.reason}")
    if not isinstance(compiled, Executable):
        raise ModelFolderError(
            f"{path}: expected a model of tensors of tokens, found one of sequences or strings: export a decoder"
        )
    return compiled
