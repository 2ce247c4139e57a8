"""Notes of a compilation that `mirlo explain` prints as sections of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar


class ReportSection(ABC):
    """A note of a session that a pass of a package leaves for reports."""

    key: ClassVar[str]
    """The key of a list of such sections in the report as JSON."""

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """Yield the section as text."""

    @abstractmethod
    def to_json(self) -> object:
        """Return the section as a JSON value."""
