"""The errors of generation: each message names the file and the key, or the argument."""

from __future__ import annotations

from mirlo.extend.runtime import MirloError


class ModelFolderError(MirloError, ValueError):
    """A folder of a language model with missing, damaged or unsupported files."""


class GenerationError(MirloError, ValueError):
    """An invalid argument of a generator, or a model without an output that generation needs."""


class FormError(GenerationError):
    """A constraint on answers that cannot be compiled or cannot be continued."""
