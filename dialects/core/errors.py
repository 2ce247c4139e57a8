"""Errors of operations and dialects."""

from __future__ import annotations

import traceback


def describe_raised(error: BaseException) -> str:
    """Return what an exception says, and the file and line that raised it."""
    text = f"{type(error).__name__}: {error}{_meant(error)}" if str(error) else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    return f"{text} (at {frames[-1].filename}:{frames[-1].lineno})" if frames else text


def _meant(error: BaseException) -> str:
    """Return a hint for an attribute that an object does not have."""
    if not isinstance(error, AttributeError) or error.obj is None or not error.name:
        return ""
    import difflib  # start-up does not need it

    known = [name for name in dir(error.obj) if not name.startswith("_")]
    near = difflib.get_close_matches(error.name, known, n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


class DialectError(ValueError):
    """Raised for a dialect that cannot be registered or loaded; names the package that provides it."""


class OpError(ValueError):
    """Raised by `infer` and `check` for an invalid operation, with one sentence that explains why."""


class OpMistake(OpError):
    """An exception that `infer` or `check` of an operation raised by mistake."""
