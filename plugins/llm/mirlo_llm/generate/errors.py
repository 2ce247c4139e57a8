"""The errors of generation: each message names the file and the key, or the argument."""

from __future__ import annotations

from mirlo.extend.runtime import MirloError


class ModelFolderError(MirloError, ValueError):
    """A folder of a language model with files that are missing, damaged or not supported."""


class GenerationError(MirloError, ValueError):
    """An argument of a generator that cannot be, or a model that does not compute what generation needs."""


class FormError(GenerationError):
    """A form of answers that cannot be compiled, or that an answer cannot go on in."""
