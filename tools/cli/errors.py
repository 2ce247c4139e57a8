"""The messages of the `mirlo` command for exceptions: users' errors, and internal errors marked as such."""

from __future__ import annotations

from mirlo.runtime.errors import MirloError


class CommandError(MirloError):
    """A request of the command line that cannot be executed."""


def explain(error: Exception) -> str:
    """Return the text after `mirlo: error: `."""
    if type(error).__name__ == "DialectError":  # not imported: it would import the whole compiler
        return str(error)
    if isinstance(error, MirloError):
        culprit = getattr(error, "bug_of", "pass")
        hint = f"this is a bug of the {culprit}, not of the model; --debug shows where it happened"
        return f"{error}\n{hint}" if getattr(error, "internal", False) else str(error)
    if isinstance(error, OSError):
        return f"cannot use '{error.filename}': {error.strerror}" if error.filename else str(error)
    if isinstance(error, MemoryError):
        return "not enough memory for this model"
    return f"internal error: {type(error).__name__}: {error} (--debug shows where it happened)"
