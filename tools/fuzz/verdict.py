"""Verdicts on the inputs of seeds."""

from __future__ import annotations

from mirlo.runtime.errors import MirloError
from mirlo.runtime.records import dataclass

ACCEPTED, REFUSED, FAILED = "accepted", "refused", "failed"
STATES_OF_READERS = {
    ACCEPTED: "compiled: what was changed is not wrong",
    REFUSED: "an error that tells what is wrong",
    FAILED: "an error that is not the user's: a bug",
}
"""The states of input that is broken, of which all that it may do is raise an error."""


@dataclass(frozen=True)
class SeedVerdict:
    """The verdict on the input of a seed."""

    state: str
    text: str = ""
    used: tuple[str, ...] = ()
    """The operators, mutations or commands that the seed tries."""


def verdict_of_error(error: Exception, where: str = "", used: tuple[str, ...] = ()) -> SeedVerdict:
    """Return the verdict on an exception: an error of the user's refuses the input, all others are bugs.

    So is a kernel that differs from its definition, or whose accesses are not proven to be in bounds.
    """
    is_bug = not isinstance(error, MirloError)
    is_wrong = getattr(error, "pass_name", "") in ("verify-schedule", "verify-bounds")
    text = f"{type(error).__name__}: {error}" if is_bug else str(error)
    state = FAILED if is_bug or is_wrong or getattr(error, "internal", False) else REFUSED
    return SeedVerdict(state, f"{where}: {text}" if where else text, used)
