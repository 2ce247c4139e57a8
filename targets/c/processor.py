"""Processors without an operating system, for which target `c` writes models that need no run time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.passes.code_forms import CodeForm, KernelText
from mirlo.passes.targets import CompileOptions, Target, TargetError, declared_target, find_target, target_names
from mirlo.runtime.errors import nearest
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirlo.dialects.bindings import ir
    from mirlo.runtime.artifact import Artifact


@dataclass(frozen=True)
class CProcessor(Target):
    """A target with the rules of one processor, `c{cpu=NAME}`, and the prelude of its C files.

    Its parent is `c`, or a target that derives from it. `--emit source` writes a model that has no heap, no descriptor
    and no run time; in Python the same kernels run on this machine, with the definitions of `prelude`.
    """

    parent: str | None = "c"
    forms: tuple[CodeForm, ...] = (CodeForm("c", ".c", "//", "C99"),)
    loader: str = "llvm"
    has_vectors: bool = False
    makes_source: bool | None = True
    symbolic_dims: bool | None = False
    prelude: str = ""
    """C text at the start of each file: headers of the processor, and inline functions that the rules' kernels call."""
    functions: tuple[str, ...] = ()
    """The functions that the prelude defines or includes: kernels call them without a prototype."""
    passes: tuple[str, ...] = ()
    """Passes of its own between fusion and scheduling, such as one that stores weights in another order."""
    flags: tuple[str, ...] = ()
    """Flags that the processor's compiler takes, which the header of a model names."""

    def pipeline(self, options: CompileOptions) -> str:
        """Return the passes of target `c`."""
        return declared_target("c").pipeline(options)

    def emit(self, module: ir.Module, options: CompileOptions) -> Artifact:
        """Return the artifact of target `c`, for this machine."""
        return declared_target("c").emit(module, options)

    def code(self, module: ir.Module, options: CompileOptions) -> Sequence[KernelText]:
        """Return the C of the kernels."""
        return declared_target("c").code(module, options)


def find_processor(name: str) -> CProcessor:
    """Return a processor by name, with its rules registered."""
    known = processor_names()
    if name not in known:
        raise TargetError(
            f"target 'c' has no processor '{name}'{nearest(name, known)}; installed: {', '.join(known) or 'none'}. "
            "A processor is a target of an installed package, see docs/c-source.md"
        )
    processor = find_target(name)
    assert isinstance(processor, CProcessor)
    return processor


def processor_names() -> list[str]:
    """Return the names of the installed processors."""

    def is_processor(name: str) -> bool:
        try:
            return isinstance(declared_target(name), CProcessor)
        except TargetError:
            return False  # a broken target is an error where it is used

    return [name for name in target_names() if is_processor(name)]
