"""The errors of the runtime: each message names the user's file, input or function and what to do."""

from __future__ import annotations


class MirloError(Exception):
    """Base of the errors that users can fix; tools print them without a traceback."""


class ParameterError(MirloError, ValueError):
    """An invalid parameter or parameter file."""


class ArtifactError(MirloError, ValueError):
    """A compiled model, or its `.mirlo` file, that cannot be saved, loaded or run on this machine."""


class NotForThisMachine(ArtifactError):
    """A model that was compiled for another kind of machine."""


class NoDevice(ArtifactError):
    """Raised where this machine lacks the device, or the driver, that a model runs on."""


class OutOfMemoryError(ArtifactError, MemoryError):
    """A call or a model that needs more memory than is available."""


class InputError(MirloError, ValueError):
    """An argument of an executable that does not match its input."""


class OutOfPagesError(InputError):
    """A call that needs more pages for caches than there may be."""


class UnmetAssumption(MirloError, ValueError):
    """Data or sizes for which a model was not compiled, such as a size of 1 where the rank depends on it."""


class PackedFunctionError(MirloError, RuntimeError):
    """A packed function that failed or is not registered."""
