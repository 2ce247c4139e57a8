"""The text that a tool reads: named, split into chunks, quoted under diagnostics."""

from __future__ import annotations

import re
import sys
from functools import cached_property

from mirlo.frontends.files import BYTECODE_PREFIX
from mirlo.passes.files import FileError
from mirlo.runtime.files import read_regular
from mirlo.runtime.names import shell_word
from mirlo.runtime.records import dataclass

SPLIT_MARKER = "// -----"
"""The line between parts of a file, unless another one is given."""


@dataclass(frozen=True)
class SourceFile:
    """One input file."""

    name: str
    content: bytes

    @cached_property
    def text(self) -> str:
        is_model = self.name.lower().endswith(".onnx")
        try:
            # Small models may be UTF-8 by chance; each begins with the tag of a field, a control character.
            if not is_model or self.content[:1] >= b"\t":
                return self.content.decode("utf-8")
        except UnicodeDecodeError as error:
            if not is_model:
                why = f"neither text nor MLIR bytecode: byte {error.start} is not UTF-8"
                raise FileError(f"{self.name}: {why}") from None
        command = f"mirlo import {shell_word(self.name)}"
        raise FileError(f"{self.name}: not IR, but an ONNX model by its name: '{command}' prints the IR of one")

    @property
    def is_bytecode(self) -> bool:
        return self.content.startswith(BYTECODE_PREFIX)

    @cached_property
    def lines(self) -> list[str]:
        return [] if self.is_bytecode else self.text.split("\n")

    def chunks(self, marker: str | None) -> list[Chunk]:
        """Return the sections between lines with a marker; without a marker, everything is one section."""
        if self.is_bytecode:
            if marker is not None:
                raise FileError(f"{self.name}: bytecode cannot be split; leave out --split-input-file")
            return [Chunk(self, 0, self.content)]
        if marker is None:
            return [Chunk(self, 0, self.text)]
        chunks, line = [], 0
        for part in re.split(rf"^{re.escape(marker)}[ \t]*\r?$", self.text, flags=re.MULTILINE):
            chunks.append(Chunk(self, line, part))
            line += part.count("\n")
        return chunks


@dataclass(frozen=True)
class Chunk:
    """A part of a source that is parsed by itself."""

    source: SourceFile
    first_line: int
    """How many lines of the source come before."""
    content: str | bytes

    @property
    def padded(self) -> str | bytes:
        """Return the text with empty lines before it, so that locations are those in the whole file."""
        return self.content if isinstance(self.content, bytes) else "\n" * self.first_line + self.content

    @property
    def with_line_numbers(self) -> list[tuple[int, str]]:
        if isinstance(self.content, bytes):
            return []
        return list(enumerate(self.content.split("\n"), self.first_line + 1))


def read_source(path: str) -> SourceFile:
    """Read a file, or standard input for `-`."""
    if path == "-":
        return SourceFile("<stdin>", sys.stdin.buffer.read())
    try:
        return SourceFile(path, read_regular(path))
    except OSError as error:
        raise FileError(f"cannot read '{path}': {error.strerror or error}") from None
