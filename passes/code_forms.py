"""Forms of code in which users read kernels: LLVM IR, assembly, PTX, whatever a target makes on its way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirlo.runtime.names import c_comment


@dataclass(frozen=True)
class CodeForm:
    """A form of code: what `--emit` calls it, and how its files look."""

    name: str
    suffix: str
    """The end of a file's name."""
    comment: str = ""
    """What starts a line of comment; empty for a form that is not text."""
    help: str = ""

    @property
    def is_text(self) -> bool:
        """Return whether it is text."""
        return bool(self.comment)


@dataclass(frozen=True)
class KernelText:
    """The code of a kernel in one form."""

    symbol: str
    """What the code calls it."""
    function: str
    """The prim function that runs it, whose name reports give; a GPU may have several kernels for one."""
    code: bytes


def with_comments(kernel: KernelText, nodes: Sequence[str], form: CodeForm) -> bytes:
    """Return the code with the kernel's name and its nodes before it; a form that is not text stays as it is."""
    if not form.is_text:
        return kernel.code
    heads = [f"kernel {kernel.function}"] + [f"node {name}" for name in nodes]
    lines = "".join(f"{form.comment} {c_comment(head)}\n" for head in heads)
    return lines.encode() + kernel.code
