"""The messages of the `mirlo` command for exceptions: users' errors, and internal errors marked as such."""

from __future__ import annotations

import sys

from mirlo.runtime.errors import MirloError


class CommandError(MirloError):
    """A request of the command line that cannot be executed."""

    error_code = "MIR0701"
    remedy = "Change the command line as the message says."


class NotAFile(CommandError):
    """A file of the command line that does not exist."""

    error_code = "MIR0715"
    remedy = "Name a file that exists."


class CompiledAlready(CommandError):
    """A compiled model, where the model before compilation is needed."""

    error_code = "MIR0716"
    remedy = "Name the model that it was compiled from."


class NodesRefused(CommandError):
    """A model with nodes that cannot be compiled."""

    error_code = "MIR0717"
    remedy = "See the reason of each node: attach a converter or a rule, or export the model without it."


class PlacedOtherwise(CommandError):
    """A model whose parts are placed otherwise than in the file of `--expect`."""

    error_code = "MIR0718"
    remedy = "Correct what changed, or write the report again with `--report`."


class MissingParts(CommandError):
    """An installation without parts that compiling and running models needs."""

    error_code = "MIR0719"
    remedy = "Run the commands that `mirlo doctor` prints."


FILES, MEMORY, INTERNAL = "MIR0002", "MIR0003", "MIR0009"
"""The codes of errors that are not Mirlo's: of files, of memory, and all others."""


def code_of(error: BaseException) -> str:
    """Return the code of an error; that of a pass which failed is the code of its cause."""
    cause, passes = error.__cause__, sys.modules.get("mirlo.passes.instrumentation")
    if isinstance(error, MirloError) and getattr(error, "internal", False):
        return INTERNAL
    # Not imported: it would import the whole compiler. Where it is not, no pass failed.
    if passes is not None and type(error) is passes.PassFailed and hasattr(cause, "error_code"):
        return code_of(cause) if cause is not None else INTERNAL
    if hasattr(error, "error_code"):
        return str(error.error_code)
    return FILES if isinstance(error, OSError) else MEMORY if isinstance(error, MemoryError) else INTERNAL


def explain(error: Exception) -> str:
    """Return the text after `mirlo: error[CODE]: `."""
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
