"""Forms of code in which users read kernels: LLVM IR, assembly, PTX, or another form of a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.runtime.callbacks import check_callbacks, each_is, required_callback
from mirlo.runtime.errors import MirloError
from mirlo.runtime.names import c_comment
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.runtime.artifact import Artifact
    from mirlo.runtime.params import ParameterStore


@dataclass(frozen=True)
class CodeForm:
    """A form of code: its name in `--emit`, and the suffix of its files."""

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
class LibraryForm:
    """A form of a whole model that programs link or load: its name in `--emit`, and the function that writes it.

    A package declares one as an entry point of the group `mirlo.library_forms`.
    """

    name: str
    help: str
    write: Callable[[Artifact, ParameterStore, Path, str, str], Sequence[Path]] = required_callback(
        "a list of the Paths of files that exist",
        each_is(lambda each: isinstance(each, Path) and each.exists()),
    )
    """Writes a compiled model, its parameters, to a folder, under a name, with its weights `auto`, `embed` or
    `beside`; returns the files."""
    source: bool = False
    """Whether the model is compiled to source, by the target; otherwise to LLVM IR."""
    as_loaded: bool = False
    """Whether the model is compiled to what the target's loader takes, instead."""
    target: str = ""
    """The target if the command line names none."""

    def __post_init__(self) -> None:
        check_callbacks(self, f"form of libraries '{self.name}'", MirloError)


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
