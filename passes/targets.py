"""Targets: their definition and lookup. `passes` names no target; all come through entry points."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING

from mirlo.dialects.core.installed import GROUPS
from mirlo.passes.expectations import KernelExpectation
from mirlo.passes.figures import Figures
from mirlo.passes.rules import DEFAULT, RULE_BOOKS, Rule
from mirlo.runtime.callbacks import (
    Expected,
    callback,
    check_callbacks,
    checked,
    each_is,
    is_a,
    is_count,
    is_flag,
    is_integer,
    is_same_function,
    is_text,
    is_time,
    maps,
    optional,
)
from mirlo.runtime.entry_points import EntryPoint, declared_groups, offered
from mirlo.runtime.errors import MirloError
from mirlo.runtime.known_packages import install_command
from mirlo.runtime.nearest import nearest, nearest_name
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.dialects.bindings import ir
    from mirlo.passes.code_forms import CodeForm, KernelText
    from mirlo.passes.instrumentation import Preparation
    from mirlo.runtime.artifact import Artifact
    from mirlo.runtime.cache import Cache

GROUP = "mirlo.targets"
RULES_GROUP = "mirlo.rules"
HOST = "llvm"
"""The target where none is named."""
EXTERNAL = "relax.external"
"""Attribute of a nested module: the target that its functions are for."""


class TargetError(MirloError, ValueError):
    """Raised for a target that is unknown, broken or registered twice."""

    error_code = "MIR0404"
    remedy = "Name a target that `mirlo targets` lists, with options that it has, or install its package."


@dataclass(frozen=True)
class CompileOptions:
    """The checked options of a target's pipeline and emitter."""

    target: str = "llvm"
    threads: int = 1
    opt_level: int = 2
    target_options: str = ""
    """The options in braces after the name of the target: `nvvm{chip=sm_90a}`."""
    jobs: int | None = None
    """Processes that compile kernels in parallel; None chooses the number."""
    cache: Cache | None = None
    """The cache of compiled kernels."""
    while_compiling: Callable[[Iterable[str]], None] | None = None
    """A callback for the names of the weights, run while workers compile; emitters need not call it."""
    form: str = ""
    """The form of code, of the target's `forms`; empty for what its loader takes."""
    kernel: str = ""
    """The kernel whose code is wanted, with `form`; empty for all. `Target.code` may make that of others too."""
    prepared: Preparation | None = None
    """What `Target.prepare` returned, for the emitter."""


@dataclass(frozen=True)
class ThreadLimits:
    """The limits of a GPU's threads: their resources and their number."""

    max_threads: int = 1024
    """Most threads of a block."""
    max_block: tuple[int, int, int] = (1024, 1024, 64)
    """Most threads of a block along `threadIdx.x`, `y` and `z`."""
    max_grid: tuple[int, int, int] = (65535, 65535, 65535)
    """Most blocks along `blockIdx.x`, `y` and `z`."""
    max_lanes: int = 4
    """Most elements of a vector, a power of two."""
    max_shared: int = 32 * 1024
    """Most bytes of memory that the threads of a block share; nearly every GPU has those of the default."""


_PIPELINE = Expected("the text of a pass pipeline, such as convert-layout,legalize", is_text)
_FIGURES = Expected("Figures", lambda value: isinstance(value, Figures))


def _is_class(value: object) -> bool:
    return isinstance(value, type)


@dataclass(frozen=True)
class Target:
    """A target: its place in the chain, the modules with its rules, its pipeline, and its emitter."""

    name: str
    help: str
    parent: str | None = None
    """The target whose rules are tried after this one's; the default rules always come last."""
    rule_modules: tuple[str, ...] = ()
    """Modules that register the target's rules when imported."""
    pipeline: Callable[[CompileOptions], str] | None = callback(*_PIPELINE)
    """Returns the text of the pass pipeline from relax to the input of `emit`, for given options."""
    emit: Callable[[ir.Module, CompileOptions], Artifact] | None = callback(
        "an Artifact", is_a("mirlo.runtime.artifact:Artifact")
    )
    """Compiles a module (`ir.Module`) that went through the pipeline to a run-time artifact."""
    prepare: Callable[[CompileOptions], Preparation | None] | None = callback(
        "a Preparation, or None", optional(is_a("mirlo.passes.instrumentation:Preparation"))
    )
    """Called with the options before the pipeline runs on a large model, to start early what `emit` needs.

    What it returns observes the passes, and is `options.prepared` for `emit`.
    """
    saves_memory: Callable[[CompileOptions], bool] | None = callback("True or False", is_flag)
    """Returns whether options ask for little memory in place of speed: kernels are compiled in one process, and the
    weights that passes transform are in a file."""
    fingerprint: Callable[[str], str] | None = callback("a text", is_text)
    """Returns the properties of the machine that code depends on, as text, for the options in braces; without it
    compiled models are not cached."""
    space: Callable[[ir.Operation | ir.OpView, CompileOptions], list[dict[str, int]]] | None = callback(
        "a list of choices, each a dict of integers by name", each_is(maps(is_text, is_integer))
    )
    """Returns the search space of an operator that has choices, or of a prim function in tensor form whose rule
    declares no values to try: values by the names of choices, likeliest candidates first."""
    operator_choices: Callable[[], Mapping[str, type]] | None = callback(
        "a dict from names of operators to dataclasses of choices", maps(is_text, _is_class)
    )
    """Returns what is chosen for operators before they become prim functions: by operator, a dataclass of `Choice`s."""
    definitions: Callable[[], Mapping[str, type]] | None = callback(
        "a dict from names of operators to classes of definitions", maps(is_text, _is_class)
    )
    """Returns the definitions of kernels that its passes write as loops, for `verify-schedule`: by the name of the
    operator, which begins with the target's, subclasses of `DescribedDefinition`."""
    expected: Callable[[ir.Operation | ir.OpView, Mapping[str, int], CompileOptions], float | None] | None = callback(
        "a time, a number that is not negative, or None", optional(is_time)
    )
    """Returns the expected time of a prim function for a candidate, in any unit; None if it is unknown.

    `mirlo tune` measures candidates that are expected to be fast first, and skips those expected to be slow.
    """
    expectation: (
        Callable[[ir.Operation | ir.OpView, Mapping[str, int], CompileOptions], KernelExpectation | None] | None
    ) = callback("a KernelExpectation, or None", optional(is_a("mirlo.passes.expectations:KernelExpectation")))
    """Returns the expected time of a prim function in tensor form with these choices, what takes it, and what its rule
    compared, for `mirlo explain`; without it, that ranks the choices of `space` by `expected`."""
    pipelines: dict[str, Callable[[CompileOptions], str]] = field(default_factory=dict)
    """Other named pipelines (stages of the main one)."""
    codegen: type | str | None = None
    """Its code generator for parts of models: a subclass of `CodeGenerator`, or its address, `"module:Class"`."""
    narrow_operands: Callable[[str, CompileOptions], str] | None = callback("a text: all or constants", is_text)
    """Returns what products read in a type that `precision` names, an option of the pass `to-mixed-precision`: all
    operands, or constants only; without it, all."""
    fastest_precision: Callable[[CompileOptions], str | None] | None = callback(
        "the name of an element type, or None", optional(is_text)
    )
    """Returns the narrowest type whose products are faster than those of f32, or None if there is none."""
    lanes: Callable[[str | None, int], int] | None = callback("a number of lanes, an integer of at least 1", is_count)
    """Returns how many elements of a size in bytes a vector has, on the machine that the pass `schedule` names, or None
    for the target's own; without it, its parent's."""
    takes_options: bool | None = None
    """Whether its name may be followed by options in braces, passed as `options.target_options`; None is for the
    answer of its parent, and no without one."""
    symbolic_dims: bool | None = None
    """Whether it supports dynamic dims; None is for the answer of its parent, and no without one."""
    threads: ThreadLimits | None = None
    """The limits of the threads that run its kernels, for GPUs; None is for the answer of its parent, and without one
    for kernels that are functions of a CPU."""
    has_vectors: bool = True
    """Whether its kernels may have operations on vectors; else loops that words vectorize are left to a compiler that
    reads what it makes."""
    aliases: tuple[str, ...] = ()
    """Other words that users may look for it by ("cuda" for `nvvm`); errors about unknown targets mention it."""
    chooses_at_load: bool = False
    """Whether options may list alternatives, `cpu=haswell|znver4`, of which loading takes the last that fits."""
    forms: tuple[CodeForm, ...] = ()
    """Forms of code in which its kernels can be read, from the compiler's end to the machine's."""
    code: Callable[[ir.Module, CompileOptions], Sequence[KernelText]] | None = callback(
        "a list of KernelText", each_is(is_a("mirlo.passes.code_forms:KernelText"))
    )
    """Compiles a module as `emit` does, to the code of each kernel in `options.form`."""
    makes_libraries: bool | None = None
    """Whether `emit` makes LLVM IR with the option `form="llvm-ir"`, which libraries are linked of; None is for the
    answer of a parent with the same `emit`, and no without one."""
    makes_source: bool | None = None
    """Whether `emit` makes the source of a whole model in C with the option `form="source"`; None is as before."""
    has_device: Callable[[], bool] | None = callback("True or False", is_flag)
    """Returns whether this machine has the device that runs its code; None is for the machine's own processor."""
    loader: str = ""
    """The loader of its code, which reports name before there is code; empty is for the answer of a parent with
    the same `emit`."""
    requirements: Callable[[str], Sequence[str]] | None = callback("a list of texts", each_is(is_text))
    """Returns what a machine needs to run its code, for the options in braces: instructions, libraries, drivers; as
    reports print them."""
    figures: Figures | Callable[[str], Figures] | None = None
    """The speed of its code, for placement by estimated cost, or a function of the options in braces that returns
    it. A code generator declares its own."""

    def __post_init__(self) -> None:
        owner = f"target '{self.name}'"
        check_callbacks(self, owner, TargetError)
        pipelines = {name: checked(each, _PIPELINE, owner, TargetError) for name, each in self.pipelines.items()}
        object.__setattr__(self, "pipelines", pipelines)
        if callable(self.figures):
            object.__setattr__(self, "figures", checked(self.figures, _FIGURES, owner, TargetError))

    def emits_as(self, other: Target) -> bool:
        """Return whether both have one `emit`."""
        return is_same_function(self.emit, other.emit)

    def runs_here(self) -> bool:
        """Return whether this machine has what runs the target's code."""
        return self.has_device is None or self.has_device()


_REGISTERED: dict[str, tuple[Target, str, str]] = {}
"""Targets that no installed package provides, each with the file and the module that registered it."""


def register_target(target: Target) -> Target:
    """Register a target that no package provides: one in a script, or in a file loaded with `--plugin`.

    Registering one again replaces it; a name that a package provides is an error.
    """
    if target.name in _entry_points():
        raise TargetError(f"target '{target.name}' is offered by an installed package: choose another name")
    registrant = sys._getframe(1).f_globals
    _REGISTERED[target.name] = target, registrant.get("__file__", ""), registrant.get("__name__", "")
    find_target.cache_clear()
    return target


def forget_targets(module: str) -> None:
    """Remove the targets that a module registered."""
    for name in [name for name, (_, _, registrant) in _REGISTERED.items() if registrant == module]:
        del _REGISTERED[name]
    find_target.cache_clear()


def plugin_of(name: str) -> str | None:
    """Return the file that registers a target which no package provides; None for others."""
    return os.path.abspath(_REGISTERED[name][1]) if name in _REGISTERED else None


def where_from(name: str) -> str:
    """Return the origin of a target for messages: `package 'mirlo'`, `file my.py`."""
    if name in _REGISTERED:
        return f"file {_REGISTERED[name][1] or '?'}"
    entry = _entry_points()[name]
    return f"package '{entry.package}'"


@cache
def _entry_points() -> dict[str, EntryPoint]:
    points: dict[str, EntryPoint] = {}
    for entry in offered(GROUP):
        other = points.get(entry.name)
        if other is not None and other.value != entry.value:
            packages = " and ".join(f"'{e.package}'" for e in (other, entry))
            raise TargetError(f"target '{entry.name}' is offered by two packages: {packages}; uninstall one")
        points[entry.name] = entry
    return points


def target_names() -> list[str]:
    """Return the names of the installed targets."""
    return sorted({*_entry_points(), *_REGISTERED})


@cache
def find_target(name: str) -> Target:
    """Return the target with this name, with its rules registered."""
    target = declared_target(name)
    try:
        for module in target.rule_modules if name not in _REGISTERED else ():
            importlib.import_module(module)
    except Exception as error:
        raise TargetError(f"target '{name}' of {where_from(name)} does not load: {error}") from error
    load_installed_rules()
    return target


_loaded_rules: set[str] = set()
"""Modules of the entry point group `mirlo.rules` that were imported, or are being imported."""


def load_installed_rules() -> None:
    """Import the modules of rules that installed packages declare in the entry point group `mirlo.rules`.

    An entry in a group that is not read, or of a form that its group does not have, is a warning.
    """
    entries = [entry for entry in offered(RULES_GROUP) if entry.value not in _loaded_rules]
    _loaded_rules.update(entry.value for entry in entries)
    _warn_of_useless_entries(tuple(sys.path))
    for entry in entries:
        where = f"entry point '{entry.name}' of package '{entry.package}' in group {RULES_GROUP}"
        before = sum(len(list(book.imported())) for book in RULE_BOOKS)
        try:
            importlib.import_module(entry.value)
        except Exception as error:
            _loaded_rules.discard(entry.value)
            raise TargetError(f"{where} does not load: {type(error).__name__}: {error}") from error
        if sum(len(list(book.imported())) for book in RULE_BOOKS) == before and not _has_rules(entry.value):
            raise TargetError(
                f"{where} registers no rule: expected a module with rules, such as functions with @schedule(target=...)"
            )


def _has_rules(module: str) -> bool:
    """Return whether a module, or one in it, has registered a rule."""
    modules = {str(getattr(rule.function, "__module__", "")) for book in RULE_BOOKS for rule in book.imported()}
    return any(f"{name}.".startswith(f"{module}.") for name in modules)


def _useless_entries() -> list[str]:
    """Return the problems of entry points in groups `mirlo.*`, such as those that are never read."""
    messages: list[str] = []
    for group in declared_groups():
        for entry in offered(group):
            problem = _problem_of(entry, group)
            if problem is not None:  # to name the package, all that it says of itself is parsed
                messages.append(f"entry point '{entry.name}' of package '{entry.package}' {problem}")
    return messages


def _problem_of(entry: EntryPoint, group: str) -> str | None:
    """Return why nothing would read an entry point, as the end of a sentence, or None."""
    if group not in GROUPS:
        hint = nearest(group, GROUPS) or f"; the groups are {', '.join(GROUPS)}"
        return f"is in group {group}, which Mirlo does not read{hint}"
    if GROUPS[group] == "module:NAME" and ":" not in entry.value:
        return (
            f"in group {group} is the module '{entry.value}': expected '{entry.value}:NAME'. Modules "
            "that register rules are in group mirlo.rules, those that register passes in group mirlo.passes"
        )
    return None


@cache
def _warn_of_useless_entries(path: tuple[str, ...]) -> None:
    """Warn about entry points that nothing reads, once for an import path."""
    for text in _useless_entries():
        warnings.warn(text, stacklevel=2)


def declared_target(name: str) -> Target:
    """Return the target with this name, without its rules, whose modules are slow to import."""
    if name in _REGISTERED:
        return _checked(_REGISTERED[name][0], name)
    entry = _entry_points().get(name)
    if entry is None:
        raise TargetError(unknown_target(name))
    try:
        target = entry.load()
    except Exception as error:
        raise TargetError(f"target '{name}' of {where_from(name)} does not load: {error}") from error
    return _checked(target, name)


def rules_target(named: str, module: ir.OpView) -> str:
    """Return the target whose rules a pass uses: the named one, else that of an external module, else the host's."""
    if named:
        return named
    marked = module.operation.attributes
    return str(marked[EXTERNAL].value) if EXTERNAL in marked else HOST


def unknown_target(name: str) -> str:
    """Return the message for a name that is not a target, with the target that was probably meant."""
    known = target_names()
    hint = ""
    for other in known:
        try:
            aliases = declared_target(other).aliases
        except TargetError:
            continue  # a broken target is an error where it is used
        if name.lower() in aliases:
            hint = f"'{other}' is the one for '{name}'; "
    near = nearest_name(name, known)
    if near and not hint:
        hint = f"did you mean '{near}'? "
    command = install_command(GROUP, name)
    if command is not None:
        hint = f"its package is not installed: {command}; "
    return f"unknown target '{name}'; {hint}installed: {', '.join(known) or 'none'}"


_PARTIAL: set[str] = set()
"""Names for which only tables of patterns are registered: they stand for parts of models, and may have rules."""


def register_partial(name: str) -> None:
    """Register a name that tables of patterns are for: rules may name it, and external modules."""
    _PARTIAL.add(name)


def forget_partial(name: str) -> None:
    """Remove a name that was registered for tables of patterns."""
    _PARTIAL.discard(name)


def is_target(name: str) -> bool:
    """Return whether there is a target of this name, or a table of patterns for it."""
    return name in _PARTIAL or name in _REGISTERED or name in _entry_points()


def inert_rules() -> list[Rule]:
    """Return the rules for targets that are not installed: no compilation tries them."""
    return [
        rule for book in RULE_BOOKS for rule in book.imported() if rule.target != DEFAULT and not is_target(rule.target)
    ]


def describe_inert_rules() -> list[str]:
    """Return a line for each rule that no compilation tries, with the target that was probably meant."""
    return [
        f"{rule.kind} rule '{rule}' at {rule.place} is not tried: {unknown_target(rule.target)}"
        for rule in inert_rules()
    ]


def code_target(target: Target) -> Target:
    """Return the target that makes code for users to read: this one, or the parent with whose `emit` it emits."""
    while not target.forms and target.parent is not None and target.emits_as(find_target(target.parent)):
        target = find_target(target.parent)
    return target


def code_form(target: Target, name: str) -> CodeForm:
    """Return the form of code of a target with this name."""
    known = {form.name: form for form in code_target(target).forms}
    if name not in known:
        listed = ", ".join(known) or "none"
        raise TargetError(
            f"target '{target.name}' does not generate code of the form '{name}'{nearest(name, known)}; "
            f"its forms: {listed}"
        )
    return known[name]


def takes_dynamic_dims(name: str) -> bool:
    """Return whether a target supports dynamic dims: as it declares, or else as its parents do."""
    answers = (member.symbolic_dims for member in _members(name))
    return next((answer for answer in answers if answer is not None), False)


def takes_options(name: str) -> bool:
    """Return whether the name of a target may be followed by options: as it declares, or else as its parents do."""
    answers = (member.takes_options for member in _members(name))
    return next((answer for answer in answers if answer is not None), False)


def makes_libraries(name: str) -> bool:
    """Return whether libraries are made of a target's code: as it declares, or a parent with whose `emit` it emits."""
    answers = (member.makes_libraries for member in _members(name) if member.emits_as(find_target(name)))
    return next((answer for answer in answers if answer is not None), False)


def makes_source(name: str) -> bool:
    """Return whether a target writes whole models as C: as it declares, or a parent with whose `emit` it emits."""
    answers = (member.makes_source for member in _members(name) if member.emits_as(find_target(name)))
    return next((answer for answer in answers if answer is not None), False)


def loader_of(name: str) -> str:
    """Return the loader of a target's code: as it declares, or a parent with whose `emit` it emits; or ''."""
    return next((m.loader for m in _members(name) if m.loader and m.emits_as(find_target(name))), "")


def thread_limits(name: str) -> ThreadLimits | None:
    """Return the limits of the threads that run a target's kernels; None if they run as functions of a CPU."""
    return next((member.threads for member in _members(name) if member.threads is not None), None)


def has_vectors(name: str) -> bool:
    """Return whether kernels of a target may have operations on vectors."""
    return all(member.has_vectors for member in _members(name))


def _members(name: str) -> Iterator[Target]:
    """Yield a target and its parents."""
    return (find_target(member) for member in chain(name)[:-1] if not is_partial(member))


def is_partial(name: str) -> bool:
    """Return whether there are only tables of patterns for this name, and no target."""
    return name in _PARTIAL and name not in _REGISTERED and name not in _entry_points()


def _checked(target: Target, name: str) -> Target:
    # The origin is looked up for an error only: that reads and parses package metadata.
    if not isinstance(target, Target):
        raise TargetError(f"target '{name}' of {where_from(name)} is a {type(target).__name__}, not a mirlo Target")
    if target.name != name:
        raise TargetError(f"target '{name}' of {where_from(name)} calls itself '{target.name}': both names must be one")
    if target.parent is not None and target.parent not in target_names():
        where = where_from(name)
        raise TargetError(f"target '{name}' of {where} has a parent '{target.parent}', which is not installed")
    return target


def operator_choices(name: str) -> dict[str, type]:
    """Return the choices for operators on a target or its parents: by operator, a dataclass."""
    choices: dict[str, type] = {}
    for target in () if is_partial(name) else chain(name)[:-1]:
        declared = find_target(target).operator_choices
        choices = {**(declared() if declared is not None else {}), **choices}
    return choices


def chain(name: str) -> tuple[str, ...]:
    """Return the target, its parents, and `default`: the order in which rules are tried."""
    if is_partial(name):
        return (name, DEFAULT)
    names: list[str] = []
    current: str | None = name
    while current is not None and current != DEFAULT:
        if current in names:
            raise TargetError(f"the parents of target '{name}' form a cycle: {' → '.join([*names, current])}")
        names.append(current)
        current = find_target(current).parent
    return (*names, DEFAULT)
