"""The errors of the run time: each message names the user's file, input or function, and says what to do."""

from __future__ import annotations


class MirloError(Exception):
    """Base of the errors that are the user's to mend; tools print them without a traceback."""


class ParameterError(MirloError, ValueError):
    """A parameter, or a file that holds parameters, is not what it should be."""


class ArtifactError(MirloError, ValueError):
    """A compiled model, or its `.mirlo` file, cannot be saved, loaded or run here."""


class OutOfMemoryError(ArtifactError, MemoryError):
    """A call, or a model, needs more memory than there is."""


class InputError(MirloError, ValueError):
    """An array given to an executable does not fit."""


class PackedFunctionError(MirloError, RuntimeError):
    """A function that a model calls by name failed or is not registered."""
