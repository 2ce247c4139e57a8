"""The error of a script: the user's file, line and column, the line itself, and what is expected."""

from __future__ import annotations

from mirlo.runtime.errors import MirloError


class ScriptError(MirloError, ValueError):
    """A script that cannot be parsed; the message shows the position."""

    error_code = "MIR0312"
    remedy = "Correct the line of the script that the message names."

    def __init__(self, problem: str, place: str = "", line: str = "", column: int = 0, width: int = 1):
        self.problem = problem
        self.place = place
        self.named = line[column : column + width]
        """What it points at."""
        caret = " " * column + "^" * max(1, min(width, len(line) - column))
        super().__init__(f"{place}: error: {problem}\n  {line}\n  {caret}" if place else problem)


class NotRegular(Exception):
    """Why a function is not a sequence of structured blocks and is kept as loops."""
