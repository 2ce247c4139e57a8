"""Targets: their definition and lookup. `passes` names no target; all come through entry points."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from mirlo.dialects.core.installed import GROUPS
from mirlo.passes.figures import Figures, KernelExpectation
from mirlo.runtime.callbacks import (
    CheckedCallback,
    CheckedMethods,
    Expected,
    checked,
    describe_value,
    each_is,
    is_a,
    is_count,
    is_flag,
    is_integer,
    is_text,
    is_time,
    maps,
    optional,
)
from mirlo.runtime.entry_points import EntryPoint, declared_groups, offered
from mirlo.runtime.errors import MirloError, nearest, nearest_name
from mirlo.runtime.known_packages import install_command
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.dialects.bindings import ir
    from mirlo.passes.code_forms import CodeForm, KernelText
    from mirlo.passes.instrumentation import Preparation
    from mirlo.passes.rules import Rule
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
    lowered: dict[object, str] | None = None
    """Where an emitter keeps what code of each level of optimization is made from, by its source; None is for one
    level."""


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


class DeclaredInstruction(Protocol):
    """A tensor intrinsic, a command intrinsic or a `CommandProgram`."""

    @property
    def name(self) -> str: ...


_PIPELINE = Expected("the text of a pass pipeline, such as convert-layout,legalize", is_text)


def _is_class(value: object) -> bool:
    return isinstance(value, type)


def _is_instruction(value: object) -> bool:
    names = (f"{_PRIMITIVES}.tensorize:Instruction", f"{_PRIMITIVES}.commands:CommandProgram")
    return any(is_a(each)(value) for each in names)


_PRIMITIVES = "mirlo.passes.schedule.primitives"
INSTRUCTIONS = Expected("a list of tensor intrinsics, command intrinsics and CommandPrograms", each_is(_is_instruction))
METHODS = CheckedMethods(
    {
        "pipeline": _PIPELINE,
        "emit": Expected("an Artifact", is_a("mirlo.runtime.artifact:Artifact")),
        "prepare": Expected("a Preparation, or None", optional(is_a("mirlo.passes.instrumentation:Preparation"))),
        "saves_memory": Expected("True or False", is_flag),
        "fingerprint": Expected("a text", is_text),
        "invariant_options": Expected("the options in braces, a text", is_text),
        "space": Expected("a list of choices, each a dict of integers by name", each_is(maps(is_text, is_integer))),
        "operator_choices": Expected(
            "a dict from names of operators to dataclasses of choices", maps(is_text, _is_class)
        ),
        "definitions": Expected("a dict from names of operators to classes of definitions", maps(is_text, _is_class)),
        "expected": Expected("a time, a number that is not negative, or None", optional(is_time)),
        "expectation": Expected(
            "a KernelExpectation, or None", optional(is_a("mirlo.passes.figures:KernelExpectation"))
        ),
        "pipelines": Expected(
            "a dict from names of stages to functions that return pipelines", maps(is_text, callable)
        ),
        "precision_options": Expected("a text: options of to-mixed-precision", is_text),
        "fastest_precision": Expected("the name of an element type, or None", optional(is_text)),
        "lanes": Expected("a number of lanes, an integer of at least 1", is_count),
        "code": Expected("a list of KernelText", each_is(is_a("mirlo.passes.code_forms:KernelText"))),
        "has_device": Expected("True or False", is_flag),
        "instructions": INSTRUCTIONS,
        "requirements": Expected("a list of texts", each_is(is_text)),
        "speed": Expected("Figures, or None", lambda value: value is None or isinstance(value, Figures)),
    },
    TargetError,
)
"""What the methods of a target return."""


class _TargetType(type):
    """Makes a class of its own for a target whose methods are given as functions, as they were until 0.1."""

    def __call__(cls, *values: Any, **named: Any) -> Any:
        if len(values) > len(_FORMER_ORDER):
            raise TypeError(f"Target takes {len(_FORMER_ORDER)} positional arguments, found {len(values)}")
        named = {**dict(zip(_FORMER_ORDER, values, strict=False)), **named}
        functions = {name: named.pop(name) for name in METHODS.expected if name in named}
        if callable(named.get("figures")):
            functions["speed"] = named.pop("figures")
        functions = {name: function for name, function in functions.items() if function is not None}
        if not functions:
            return super().__call__(**named)
        owner = f"target '{named.get('name', '')}'"
        warnings.warn(
            f"{owner}: {', '.join(functions)}: functions of a target are methods of a subclass of Target now",
            DeprecationWarning,
            stacklevel=2,
        )
        pipelines = functions.get("pipelines")
        if isinstance(pipelines, Mapping):
            stages = {name: checked(each, _PIPELINE, owner, TargetError) for name, each in pipelines.items()}
            functions["pipelines"] = lambda: stages
        for name, function in functions.items():
            if not callable(function):
                raise TargetError(
                    f"{owner}: '{name}' is {describe_value(function)}: expected a function that returns "
                    f"{METHODS.expected[name].text}"
                )
        methods = {
            name: staticmethod(checked(each, METHODS.expected[name], owner, TargetError))
            for name, each in functions.items()
        }
        return type(cls)(f"{cls.__name__}OfFunctions", (cls,), methods)(**named)


_FORMER_ORDER = ("name", "help", "parent", "rule_modules", "pipeline", "emit")
"""The arguments that may be positional."""


@dataclass(frozen=True)
class Target(metaclass=_TargetType):
    """A target: its place in the chain, the modules with its rules, its pipeline, and its emitter.

    A target that compiles whole models is a subclass with `pipeline` and `emit`; one that takes parts of models has a
    code generator. Other methods that a subclass does not have mean that the target makes no use of them; `has(name)`
    says which it has. They are called when they are needed, and import their modules then: a process that loads a
    compiled model, or lists targets, loads no compiler.
    """

    name: str
    help: str
    parent: str | None = None
    """The target whose rules are tried after this one's; the default rules always come last."""
    rule_modules: tuple[str, ...] = ()
    """Modules that register the target's rules when imported."""
    codegen: type | str | None = None
    """Its code generator for parts of models: a subclass of `CodeGenerator`, or its address, `"module:Class"`."""
    takes_options: bool | None = None
    """Whether its name may be followed by options in braces, passed as `options.target_options`; None is for the
    answer of its parent, and no without one."""
    symbolic_dims: bool | None = None
    """Whether it supports dynamic dims; None is for the answer of its parent, and no without one."""
    threads: ThreadLimits | None = None
    """The limits of the threads that run its kernels, for GPUs; None is for the answer of its parent, and without one
    for kernels that are functions of a CPU."""
    has_vectors: bool = True
    """Whether its kernels may have operations on vectors; else loops that a schedule vectorizes are left to a compiler
    that reads what it makes."""
    aliases: tuple[str, ...] = ()
    """Other words that users may look for it by ("cuda" for `nvvm`); errors about unknown targets mention it."""
    chooses_at_load: bool = False
    """Whether options may list alternatives, `cpu=haswell|znver4`, of which loading takes the last that fits."""
    forms: tuple[CodeForm, ...] = ()
    """Forms of code in which its kernels can be read, from the compiler's end to the machine's."""
    makes_libraries: bool | None = None
    """Whether `emit` makes LLVM IR with the option `form="llvm-ir"`, which libraries are linked of; None is for the
    answer of a parent with the same `emit`, and no without one."""
    makes_source: bool | None = None
    """Whether `emit` makes the source of a whole model in C with the option `form="source"`; None is as before."""
    loader: str = ""
    """The loader of its code, which reports name before there is code; empty is for the answer of a parent with
    the same `emit`."""
    figures: Figures | None = None
    """The speed of its code, for placement by estimated cost. A code generator declares its own."""

    def __init_subclass__(cls) -> None:
        """Wrap the methods of targets of other packages so that their results are checked."""
        super().__init_subclass__()
        METHODS.add_to(cls, f"target class {cls.__name__}")

    def pipeline(self, options: CompileOptions) -> str:
        """Return the text of the pass pipeline from relax to the input of `emit`."""
        raise TargetError(f"target '{self.name}' compiles no whole models")

    def emit(self, module: ir.Module, options: CompileOptions) -> Artifact:
        """Compile a module that went through the pipeline to a run-time artifact."""
        raise TargetError(f"target '{self.name}' compiles no whole models")

    def prepare(self, options: CompileOptions) -> Preparation | None:
        """Start early, before the pipeline runs on a large model, what `emit` needs.

        The result observes the passes, and is `options.prepared` for `emit`.
        """
        return None

    def saves_memory(self, options: CompileOptions) -> bool:
        """Return whether options ask for little memory in place of speed.

        Kernels are then compiled in one process, and the weights that passes transform are in a file.
        """
        return False

    def invariant_options(self, options: str) -> str:
        """Return options in braces with which the results of a row of a batch have the same bits in any batch.

        A target without this method does not promise that: compiling with `invariant` is an error.
        """
        raise TargetError(
            f"invariant: target '{self.name}' does not promise equal bits in batches of any size; leave 'invariant' out"
        )

    def fingerprint(self, options: str) -> str:
        """Return the properties of the machine that code depends on, for the options in braces.

        Compiled models of a target without this method are not cached.
        """
        return ""

    def space(self, function: ir.Operation | ir.OpView, options: CompileOptions) -> list[dict[str, int]]:
        """Return the search space of an operator, or of a prim function in tensor form whose rule declares no values.

        Each entry has values by the names of choices, likeliest candidates first.
        """
        return []

    def operator_choices(self) -> Mapping[str, type]:
        """Return the choices for operators before they become prim functions: a dataclass of `Choice`s for each."""
        return {}

    def definitions(self) -> Mapping[str, type]:
        """Return the definitions of kernels that its passes write as loops, for `verify-schedule`.

        They are subclasses of `DescribedDefinition`, by the name of the operator, which begins with the target's.
        """
        return {}

    def expected(
        self, function: ir.Operation | ir.OpView, values: Mapping[str, int], options: CompileOptions
    ) -> float | None:
        """Return the expected time of a prim function for a candidate, in any unit; None if it is unknown.

        `mirlo tune` measures candidates that are expected to be fast first, and skips those expected to be slow.
        """
        return None

    def expectation(
        self, function: ir.Operation | ir.OpView, values: Mapping[str, int], options: CompileOptions
    ) -> KernelExpectation | None:
        """Return the expected time of a prim function, its parts, and the compared choices, for `mirlo explain`.

        Without this method, that ranks the choices of `space` by `expected`.
        """
        return None

    def instructions(self) -> Sequence[DeclaredInstruction]:
        """Return the instructions that its schedules use, and programs of commands for a simulator.

        `mirlo check-target` compares them with what they mean, exactly.
        """
        return ()

    def pipelines(self) -> Mapping[str, Callable[[CompileOptions], str]]:
        """Return other pipelines by name: stages of the main one."""
        return {}

    def precision_options(self, dtype: str, options: CompileOptions) -> str:
        """Return the options of `to-mixed-precision`, besides `dtype`, for the type named by `precision`."""
        return "operands=all"

    def fastest_precision(self, options: CompileOptions) -> str | None:
        """Return the narrowest type whose products are faster than those of f32, or None if there is none."""
        return None

    def lanes(self, machine: str | None, element_bytes: int) -> int:
        """Return how many elements of a size a vector has, on the machine that the pass `schedule` names.

        None is for the target's own machine. A target without this method has its parent's.
        """
        return 1

    def code(self, module: ir.Module, options: CompileOptions) -> Sequence[KernelText]:
        """Compile a module as `emit` does, to the code of each kernel in `options.form`."""
        raise TargetError(f"target '{self.name}' generates no code to read")

    def has_device(self) -> bool:
        """Return whether this machine has the device that runs its code.

        Code of a target without this method is for the machine's own processor.
        """
        return True

    def requirements(self, options: str) -> Sequence[str]:
        """Return the requirements of its code on a machine, for reports: instructions, libraries, drivers."""
        return ()

    def speed(self, options: str) -> Figures | None:
        """Return the speed of its code for the options in braces; by default `figures`."""
        return self.figures

    def has(self, method: str) -> bool:
        """Return whether its class has a method of its own."""
        return getattr(type(self), method) is not getattr(Target, method)

    @property
    def compiles_models(self) -> bool:
        """Return whether it compiles whole models."""
        return self.has("pipeline") and self.has("emit")

    def emits_as(self, other: Target) -> bool:
        """Return whether both have one `emit`."""
        return _plain(type(self).emit) is _plain(type(other).emit)

    def runs_here(self) -> bool:
        """Return whether this machine can run the target's code."""
        return self.has_device()


def _plain(function: Any) -> object:
    """Return a method without the check of its results, as a plain function."""
    plain = inspect.unwrap(function)
    plain = plain.function if isinstance(plain, CheckedCallback) else plain
    return getattr(plain, "__func__", plain)


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
    from mirlo.passes.rules import RULE_BOOKS  # eight modules, which a cached model does not need, here and below

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
    from mirlo.passes.rules import RULE_BOOKS

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
    """Return why an entry point would never be read, as the end of a sentence, or None."""
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
    from mirlo.passes.rules import DEFAULT, RULE_BOOKS

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
        choices = {**find_target(target).operator_choices(), **choices}
    return choices


def chain(name: str) -> tuple[str, ...]:
    """Return the target, its parents, and `default`: the order in which rules are tried."""
    from mirlo.passes.rules import DEFAULT

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
