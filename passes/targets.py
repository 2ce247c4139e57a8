"""Targets: what one is, and how they are found. Nothing in `passes` names one; all come through entry points."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from mirlo.dialects.core.installed import offered
from mirlo.passes.figures import Figures
from mirlo.passes.rules import DEFAULT
from mirlo.runtime.errors import MirloError

if TYPE_CHECKING:
    from mirlo.runtime.artifact import Artifact
    from mirlo.runtime.cache import Cache

GROUP = "mirlo.targets"


class TargetError(MirloError, ValueError):
    """A target that is unknown, broken or claimed twice."""


@dataclass(frozen=True)
class CompileOptions:
    """The options of a target's pipeline and emitter, checked."""

    target: str = "llvm"
    threads: int = 1
    opt_level: int = 2
    target_options: str = ""
    """The options in braces after the name of the target: `nvvm{chip=sm_90a}`."""
    jobs: int | None = None
    """Processes that compile kernels at the same time; None for as many as help."""
    cache: Cache | None = None
    """Where compiled kernels are stored and looked up."""
    meanwhile: Callable[[Iterable[str]], None] | None = None
    """A callback for the names of the weights, run while workers compile; emitters need not call it."""

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise ValueError(f"jobs: expected 1 or more, found {self.jobs}")
        if self.threads < 1:
            raise ValueError(f"threads: expected 1 or more, found {self.threads}")
        if not 0 <= self.opt_level <= 3:
            raise ValueError(f"opt_level: expected 0 to 3, found {self.opt_level}")


@dataclass(frozen=True)
class Target:
    """A target: its place in the chain, the modules with its rules, its pipeline, and how it makes code."""

    name: str
    help: str
    parent: str | None = None
    """The target whose rules are tried after this one's; the default rules come last in any case."""
    rule_modules: tuple[str, ...] = ()
    """Modules that register the target's rules when imported."""
    pipeline: Callable[[CompileOptions], str] | None = None
    """Text of the pass pipeline from relax to what `emit` takes, for given options."""
    emit: Callable[[Any, CompileOptions], Artifact] | None = None
    """Make the run-time artifact of a module (`ir.Module`) that went through the pipeline."""
    prepare: Callable[[CompileOptions], None] | None = None
    """Called with the options before the pipeline runs on a large model: a chance to start what `emit` will need."""
    fingerprint: Callable[[], str] | None = None
    """What of this machine the code depends on, as text; without it compiled models are not kept in the cache."""
    space: Callable[[Any, Any], list[dict[str, int]]] | None = None
    """What can be chosen for a prim function in tensor form, the likeliest first: numbers by name, which its rules read
    from `tir.tuned`."""
    expected: Callable[[Any, Mapping[str, int], Any], float | None] | None = None
    """What a prim function is expected to take with some choices, in any unit; None where that is not known.

    `mirlo tune` measures first what is expected to be fast, and not at all what is expected to be slow."""
    pipelines: dict[str, Callable[[CompileOptions], str]] = field(default_factory=dict)
    """Other named pipelines (stages of the way)."""
    codegen: Any = None
    """Its code generator for parts of models: a subclass of `CodeGenerator`, or where one is, `"module:Class"`."""
    takes_options: bool = False
    """Whether its name may be followed by options in braces, which it is told as `options.target_options`."""
    symbolic_dims: bool = False
    """Whether it makes code for dims that are known when the model is called only."""
    figures: Figures | Callable[[str], Figures] | None = None
    """How fast its code is, for placement by estimated cost, or what says so by the options in braces; a code generator
    says that itself."""


_REGISTERED: dict[str, tuple[Target, str]] = {}
"""Targets that no installed package offers, each with the file that registered it."""


def register_target(target: Target) -> Target:
    """Make a target known that no package offers: one in a script, or in a file that is loaded with `--plugin`.

    Registering one again replaces it; a name that a package offers is an error.
    """
    if target.name in _entry_points():
        raise TargetError(f"target '{target.name}' is offered by an installed package: choose another name")
    _REGISTERED[target.name] = target, sys._getframe(1).f_globals.get("__file__", "")
    find_target.cache_clear()
    return target


def plugin_of(name: str) -> str | None:
    """The file that registers a target which no package offers; None for others."""
    return os.path.abspath(_REGISTERED[name][1]) if name in _REGISTERED else None


def where_from(name: str) -> str:
    """Where a target comes from, for messages: `package 'mirlo'`, `file my.py`."""
    if name in _REGISTERED:
        return f"file {_REGISTERED[name][1] or '?'}"
    entry = _entry_points()[name]
    return f"package '{entry.dist.name if entry.dist else entry.value}'"


@cache
def _entry_points() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in offered(GROUP):
        other = found.get(entry.name)
        if other is not None and other.value != entry.value:
            packages = " and ".join(f"'{e.dist.name if e.dist else e.value}'" for e in (other, entry))
            raise TargetError(f"target '{entry.name}' is offered by two packages: {packages}; uninstall one")
        found[entry.name] = entry
    return found


def target_names() -> list[str]:
    """Names of the installed targets."""
    return sorted({*_entry_points(), *_REGISTERED})


@cache
def find_target(name: str) -> Target:
    """The target of this name, with its rules registered."""
    target = declared_target(name)
    try:
        for module in target.rule_modules if name not in _REGISTERED else ():
            importlib.import_module(module)
    except Exception as error:
        raise TargetError(f"target '{name}' of {where_from(name)} does not load: {error}") from error
    return target


def declared_target(name: str) -> Target:
    """The target of this name, without its rules, whose modules take time to import."""
    if name in _REGISTERED:
        return _checked(_REGISTERED[name][0], name)
    entry = _entry_points().get(name)
    if entry is None:
        near = difflib.get_close_matches(name, target_names(), n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise TargetError(f"unknown target '{name}'; {hint}installed: {', '.join(target_names()) or 'none'}")
    try:
        target = entry.load()
    except Exception as error:
        raise TargetError(f"target '{name}' of {where_from(name)} does not load: {error}") from error
    return _checked(target, name)


def _checked(target: Any, name: str) -> Target:
    # Where it comes from is asked for in an error only: it takes reading, and parsing, what a package says of itself.
    if not isinstance(target, Target):
        raise TargetError(f"target '{name}' of {where_from(name)} is a {type(target).__name__}, not a mirlo Target")
    if target.name != name:
        raise TargetError(f"target '{name}' of {where_from(name)} calls itself '{target.name}': both names must be one")
    if target.parent is not None and target.parent not in target_names():
        where = where_from(name)
        raise TargetError(f"target '{name}' of {where} has a parent '{target.parent}', which is not installed")
    return target


def chain(name: str) -> tuple[str, ...]:
    """The target, its parents, and `default`: the order in which rules are tried."""
    names: list[str] = []
    current: str | None = name
    while current is not None and current != DEFAULT:
        if current in names:
            raise TargetError(f"the parents of target '{name}' form a circle: {' → '.join([*names, current])}")
        names.append(current)
        current = find_target(current).parent
    return (*names, DEFAULT)
