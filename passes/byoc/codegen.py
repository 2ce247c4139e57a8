"""Code generators: the interface of targets that compile parts of a model outside Mirlo.

    @dataclass(frozen=True)
    class MyGenerator(CodeGenerator):
        name = "mine"
        fast_math: bool = option(False, "reassociate sums")

        def patterns(self):
            return [("conv_relu", pattern, check)]

        def codegen(self, module):
            return Artifact("mine", module.names, data=..., params=tuple(module.constants))

    TARGET = Target("mine", "my library", codegen=MyGenerator)

Its options are fields of the dataclass, given where targets are named: `mine{fast-math}`. See
docs/code-generators.md.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from mirlo.dialects.bindings import ir
from mirlo.passes.byoc.view import Composite, ExternalFunction, ExternalModule, ExternalNode, ExternalValue
from mirlo.passes.figures import Figures
from mirlo.passes.options import OptionError, RegistrationError, make_from_options
from mirlo.passes.registry import option
from mirlo.passes.rules import Decline
from mirlo.passes.targets import TargetError, find_target, where_from
from mirlo.runtime.callbacks import (
    CheckedMethods,
    Expected,
    check_callbacks,
    each_is,
    is_a,
    is_flag,
    is_integer,
    is_text,
    is_time,
    maps,
    optional,
    required_callback,
)
from mirlo.runtime.external import ExternalArtifact as Artifact
from mirlo.runtime.native import NativeCode
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Artifact",
    "CodeGenerator",
    "Composite",
    "DeclinedRegions",
    "ExternalFunction",
    "ExternalModule",
    "ExternalNode",
    "ExternalValue",
    "NativeCode",
    "Tunable",
    "generator_of",
    "option",
]


@dataclass(frozen=True)
class DeclinedRegions:
    """The result of `codegen` for regions that cannot be compiled: the name of each one, and the reason."""

    reasons: Mapping[str, Decline]


@dataclass(frozen=True)
class Tunable:
    """A part of a region whose code has choices, which `mirlo tune` tries."""

    key: str
    """Text of all that its time depends on; parts with the same text share what is found."""
    name: str
    """The name in reports: that of a node."""
    choices: Sequence[Mapping[str, int]]
    """What may be chosen, the likeliest first; without any of these, the code generator chooses itself."""
    microseconds: Callable[[Mapping[str, int]], float] = required_callback("a time in microseconds", is_time)
    """Return the time with a choice: of a simulator, a model or a device; `{}` is the code generator's own choice."""

    def __post_init__(self) -> None:
        check_callbacks(self, f"tunable '{self.name}'", TargetError)
        if not each_is(maps(is_text, is_integer))(self.choices):
            raise TargetError(f"tunable '{self.name}': expected a list of choices, each a dict of integers by name")


CHECKED_METHODS = CheckedMethods(
    {
        "accepts_region": Expected(
            "True, or decline('why')", lambda value: is_flag(value) or isinstance(value, (Decline, str))
        ),
        "times": Expected("a dict of microseconds by function", maps(is_text, is_time)),
        "tunables": Expected("a list of Tunables", each_is(lambda value: isinstance(value, Tunable))),
        "files": Expected(
            "a dict of bytes by name", maps(is_text, lambda value: isinstance(value, (bytes, bytearray)))
        ),
        "figures_beside": Expected("Figures, or None", optional(is_a("mirlo.passes.figures:Figures"))),
        "requirements": Expected("a list of texts", each_is(is_text)),
        "fingerprint": Expected("a text", is_text),
    },
    TargetError,
)
"""What methods return that are called outside of processes of their own; those of `patterns` and `codegen` are read
where these are called."""


@dataclass(frozen=True)
class CodeGenerator:
    """Base of code generators; subclasses are frozen dataclasses whose fields are options."""

    name: ClassVar[str] = ""
    """The name of the target."""
    pipeline: ClassVar[str] = ""
    """Passes to run on the external module before `codegen`, such as `convert-layout,fold-constant`."""
    after: ClassVar[str] = "legalize"
    """The pass of the host's pipeline after which patterns of prim functions are matched: `fuse-tir` to see them
    fused."""
    layouts: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The layouts that operators prefer: `{"relax.conv": ("N*C", "O*I")}`."""
    driver: ClassVar[str] = ""
    """For a generator that leaves code to Mirlo: the loader that defines the functions this code calls."""
    format: ClassVar[str] = ""
    """For a generator that compiles: the loader of its artifacts, which reports of placements name before there is
    code; empty if only the artifact says it."""
    static: ClassVar[bool] = False
    """Whether it takes parts of fixed sizes only: what has others is declined before its checks."""
    copies: ClassVar[bool] = False
    """Whether calling a region copies tensors to a separate memory and back; shown in reports."""
    figures: ClassVar[Figures | None] = None
    """Performance figures for placement by estimated cost: an attribute, a property or a method."""
    error: ClassVar[float] = 0.0
    """The largest error of an operator's floats, relative to the largest of the tensor, where it computes in fewer bits
    than their type: an attribute or a property. `check-target` and `bisect` allow it, and `check-target` what later
    operators of a pattern make of it."""
    guarded: ClassVar[bool] = True
    """Whether `codegen` runs in a forked process, where available, so that a crash becomes an error. Its side
    effects other than the artifact are lost."""
    compiled_to_place: ClassVar[bool] = False
    """Whether placements run `codegen`, because it may return `DeclinedRegions`, or because `times` knows what regions
    take."""
    isolated: ClassVar[bool] = False
    """Whether `codegen` runs in a separate process, so that a crash leaves the compiler running."""

    def __init_subclass__(cls, **named: object) -> None:
        super().__init_subclass__(**named)
        CHECKED_METHODS.add_to(cls, f"the code generator of target '{cls.name}'")

    def patterns(self) -> Sequence[object]:
        """Return the supported patterns in order of priority, as names of composites, patterns and checks."""
        return ()

    def accepts_region(self, region: ir.OpView) -> bool | Decline:
        """Return whether a region, a function that calls its composites, can be compiled, or why not.

        `partition` asks once composites are merged, and returns a declined region to the graph.
        """
        return True

    def codegen(self, module: ExternalModule) -> Artifact | NativeCode | DeclinedRegions:
        """Compile the regions of a module: to native code that C calls, or to an artifact for a loader in Python.

        If it returns `DeclinedRegions`, these go back to the graph, for the other operators' target, and it is called
        again with the rest.

        A generator without this method leaves its regions to Mirlo, which compiles them in its pipeline; if that
        code calls functions of a driver, `driver` names the loader that defines them.
        """
        raise NotImplementedError

    def times(self, artifact: Artifact) -> Mapping[str, float]:
        """Return the microseconds of a call by region, as far as its compiler estimates them."""
        return {}

    def tunables(self, module: ExternalModule) -> Sequence[Tunable]:
        """Return the parts of regions that `mirlo tune` may choose for.

        The results are in `module.tuned_values(key)` when `codegen` runs.
        """
        return ()

    def files(self, artifact: Artifact, params: Mapping[str, np.ndarray]) -> Mapping[str, bytes]:
        """Return files for the user by name: source, models. `params` are those that the artifact requests."""
        return {}

    def figures_beside(self, host: str, options: str) -> Figures | None:
        """Return the figures for a machine whose other operators run on target `host`, if they are known."""
        declared: Figures | Callable[[], Figures | None] | None = self.figures
        return declared() if callable(declared) else declared

    def requirements(self) -> Sequence[str]:
        """Return what a machine needs to run the code, as reports print it: libraries, drivers, instructions."""
        return ()

    def fingerprint(self) -> str:
        """Return a text of everything besides the options on which the speed depends, such as a library version.

        Another text invalidates measurements.
        """
        return ""

    @property
    def makes_artifacts(self) -> bool:
        """Return whether the generator compiles code itself."""
        return type(self).codegen is not CodeGenerator.codegen


def generator_of(target: str, options: str = "") -> CodeGenerator:
    """Return the code generator of a target, with options as text, `provider=cpu threads=2`."""
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


def _class_of(declared: str | type[CodeGenerator], who: str) -> type[CodeGenerator]:
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
