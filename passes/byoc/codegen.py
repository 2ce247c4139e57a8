"""Code generators: what a target brings that compiles parts of a model outside Mirlo.

    @dataclass(frozen=True)
    class MyGenerator(CodeGenerator):
        name = "mine"
        fast_math: bool = option(False, "reassociate sums")

        def patterns(self):
            return [("conv_relu", pattern, check)]

        def codegen(self, module):
            return Artifact("mine", module.names, data=..., params=tuple(module.constants))

    TARGET = Target("mine", "my library", codegen=MyGenerator)

Its options are fields of the dataclass, given where targets are named: `mine{fast-math}`. docs/code-generators.md tells
the whole way.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from mirlo.passes.byoc.view import Composite, ExternalFunction, ExternalModule, Node, Value
from mirlo.passes.figures import Figures
from mirlo.passes.options import OptionError, RegistrationError, make_from_options
from mirlo.passes.registry import option
from mirlo.passes.targets import TargetError, find_target, where_from
from mirlo.runtime.external import ExternalArtifact as Artifact

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Artifact",
    "CodeGenerator",
    "Composite",
    "ExternalFunction",
    "ExternalModule",
    "Node",
    "Value",
    "generator_of",
    "option",
]


@dataclass(frozen=True)
class CodeGenerator:
    """Base of code generators; subclasses are frozen dataclasses, their fields are options."""

    name: ClassVar[str] = ""
    """The target's."""
    pipeline: ClassVar[str] = ""
    """Passes for the external module before `codegen`: any of Mirlo's, `convert-layout,fold-constant`."""
    layouts: ClassVar[Mapping[str, Any]] = {}
    """The layouts that operators are wanted in: `{"relax.conv": ("N*C", "O*I")}`."""
    driver: ClassVar[str] = ""
    """Of a generator that leaves code to Mirlo: the loader that defines what this code calls, before it is loaded."""
    copies: ClassVar[bool] = False
    """Whether tensors are copied to a memory of its own and back when a region is called; told in reports."""
    figures: ClassVar[Figures | None] = None
    """How fast it is, for placement by estimated cost."""
    guarded: ClassVar[bool] = True
    """Whether `codegen` runs in a fork of the compiler, where there are forks, so that a crash is an error. What it
    leaves behind other than the artifact is lost."""
    isolated: ClassVar[bool] = False
    """Whether `codegen` runs in a process of its own, which it may take down."""

    def patterns(self) -> Sequence[Any]:
        """What it takes: names of composites, patterns and checks, those that come first are tried first."""
        return ()

    def codegen(self, module: ExternalModule) -> Artifact:
        """Compile the regions of a module.

        A generator without this method leaves its regions to Mirlo, which compiles what they became in its pipeline;
        where that calls functions of a driver, `driver` names the loader that defines them.
        """
        raise NotImplementedError

    def files(self, artifact: Artifact, params: Mapping[str, np.ndarray]) -> Mapping[str, bytes]:
        """What a user can leave with, by file name: source, models. `params` are those that the artifact asks for."""
        return {}

    def figures_beside(self, host: str, options: str) -> Figures | None:
        """How fast it is beside the target that compiles the rest, with its options: where that tells the machine."""
        return self.figures

    def fingerprint(self) -> str:
        """What its speed depends on beside its options: the version of a library, say. Other text: measured anew."""
        return ""

    @property
    def makes_artifacts(self) -> bool:
        """Whether it compiles itself."""
        return type(self).codegen is not CodeGenerator.codegen


def generator_of(target: str, options: str = "") -> CodeGenerator:
    """The code generator of a target, with options as text, `provider=cpu threads=2`."""
    declared = find_target(target).codegen
    if declared is None:
        raise TargetError(
            f"target '{target}' ({where_from(target)}) has no code generator: it compiles whole models only"
        )
    who = f"the code generator of target '{target}' ({where_from(target)})"
    made_by = _class_of(declared, who)
    if made_by.name != target:
        raise TargetError(f"{who} calls itself '{made_by.name}': both names must be one")
    try:
        return make_from_options(made_by, options, f"target '{target}'")
    except (OptionError, RegistrationError) as error:
        raise TargetError(str(error)) from error


def _class_of(declared: Any, who: str) -> type[CodeGenerator]:
    if isinstance(declared, str):
        module, _, attribute = declared.partition(":")
        try:
            declared = getattr(importlib.import_module(module), attribute)
        except Exception as error:
            raise TargetError(f"{who} does not load: {error}") from error
    if not isinstance(declared, type) or not issubclass(declared, CodeGenerator):
        kind = declared.__name__ if isinstance(declared, type) else type(declared).__name__
        raise TargetError(f"{who} is a {kind}: expected a subclass of mirlo's CodeGenerator")
    return declared
