"""The code of a loaded model's kernels: its compiler compiles them again, since a loader's form is binary."""

from __future__ import annotations

from collections.abc import Callable

from mirlo.runtime.errors import MirloError

CodeSource = Callable[[str, "str | None"], "str | bytes"]
"""Returns the code of a kernel in a form; None stands for the form that is closest to the machine and text."""


class NoCode(MirloError):
    """The compiler of the model is not available."""

    error_code = "MIR0110"
    remedy = "Ask for a form of code that the target has; `mirlo targets` lists them."


class KernelCodeOwner:
    """A compiled model whose kernels can be read."""

    code_source: CodeSource | None = None
    """What compiles the code again; set where the model was compiled in this process."""

    def code(self, kernel: str, form: str | None = None) -> str | bytes:
        """Return the code of a kernel, with its name and its nodes as comments.

        `form` is one of the target's: "llvm-dialect", "llvm-ir", "asm" or "obj" of `llvm`, "nvvm-dialect", "llvm-ir"
        or "ptx" of `nvvm`, "spirv-dialect" or "spirv" of `spirv`; by default the last that is text. The kernel is
        compiled again from the model, with the options of the first time.
        """
        if self.code_source is None:
            raise NoCode(
                "only a model that was compiled in this process has the code of its kernels: a .mirlo file holds what "
                "a machine runs; 'mirlo compile MODEL --emit asm' writes the code"
            )
        return self.code_source(kernel, form)
