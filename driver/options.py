"""The options of a compilation, each declared once: as a field of `CoreArguments`, or of a dataclass of a package.

A field says what the option means, which values it takes, which flag of the command line sets it, and whether compiled
models of other values are other models (the cache key). The signature and the documentation of `mirlo.compile`, the
flags of commands, the options of `torch.compile` and docs/options.md derive from the fields. Nothing here imports the
compiler: the command line reads this file to parse its arguments.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, ParamSpec, TypeAlias, TypeVar, Union

from mirlo.driver.compile_option import FRAMEWORKS, WITH_CACHES, CompileOption, CompileOptionError, unkeyed
from mirlo.driver.compile_option import compile_option as option
from mirlo.driver.package_options import PackageOptions, require_package_of
from mirlo.runtime.names import ACTIVATIONS, AUTO, CACHE_DTYPES
from mirlo.runtime.options import (
    ANYTHING,
    BOOLEAN,
    FUNCTION,
    PATH,
    TEXT,
    OptionFlag,
    ValueKind,
    check_options,
    declared_options,
    either,
    instance_of,
    integer,
    is_list,
    is_text,
    mapping,
    number,
    one_of,
    optional,
    parse_integer,
    refuse_unknown,
    values_that,
)
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from mirlo.dialects.bindings import ir
    from mirlo.driver.strategies import Measured
    from mirlo.driver.tune.database import Database
    from mirlo.passes.pipeline import Pipeline
    from mirlo.passes.schedule.primitives.schedule import Schedule
    from mirlo.passes.schedule.primitives.trace import Trace
    from mirlo.runtime.cache import Cache
    from mirlo.runtime.params import ParameterStore

MEASURE = ("measure", "")
"""The strategy that measures all of an operator."""


def size_of_dim(text: str) -> tuple[str, int]:
    """Parse the size of a dim: batch=8."""
    name, equals, size = text.rpartition("=")
    if not equals or not name:
        raise ValueError(f"expected NAME=N, found '{text}'")
    return name, parse_integer(size, 0)


def shape_of_input(text: str) -> tuple[str, tuple[int | str, ...]]:
    """Parse the shape of an input: x=1x3x224x224."""
    name, equals, dims = text.rpartition("=")
    # Commas separate dims with an 'x' in their name.
    words = [word.strip() for word in dims.split("," if "," in dims else "x")]
    if not equals or not name:
        raise ValueError(f"expected NAME=1x3x224x224, found '{text}'")
    return name, tuple(_dim(word, text) for word in words) if dims else ()


def _dim(word: str, text: str) -> int | str:
    if word.isdecimal():
        return int(word)
    if word.isidentifier():
        return word
    raise ValueError(f"expected NAME=1x3x224x224, found the dim '{word}' in '{text}'")


def sizes_of_dims(text: str) -> dict[str, int]:
    """Parse sizes of dims: batch=8,sequence=128."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = part.partition("=")
        if not name.strip() or not size.strip().isdecimal():
            raise ValueError(f"expected DIM=N,..., found '{text}'")
        if name.strip() in sizes:
            raise ValueError(f"'{name.strip()}' is given twice in '{text}'")
        sizes[name.strip()] = int(size)
    return sizes


def kernel_and_schedule(text: str) -> tuple[str, str]:
    """Parse a kernel and the file of its schedule."""
    return _pair(text, "KERNEL=FILE")


def tuning_database(text: str) -> str:
    """Parse the file of a tuning database, which must exist: otherwise the option would have no effect."""
    if not os.path.isfile(text):
        raise ValueError(f"there is no file '{text}'; 'mirlo tune MODEL --database {text}' writes it")
    return text


def operator_and_rule(text: str) -> tuple[str, str]:
    """Parse an operator and the name of its rule, or `MEASURE`."""
    return MEASURE if text == MEASURE[0] else _pair(text, "OP=NAME or 'measure'")


def strategies_of(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str] | str | None:
    """Return the option `strategies` from the values of flags."""
    pairs = tuple(pairs)
    return MEASURE[0] if MEASURE in pairs else dict(pairs) or None


def _pair(text: str, expected: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ValueError(f"expected {expected}, found '{text}'")
    return name, value


P = ParamSpec("P")
A = TypeVar("A")
R = TypeVar("R")

Shapes: TypeAlias = Mapping[str, Sequence[int | str] | None]
"""Shapes of inputs by name."""
Progress = Callable[[str], None]
"""Called with a name before each step of a compilation: `cache`, `import`, the passes, `emit`, `keep`, `load`.
Commands add `save`."""
Strategies = Mapping[str, "str | Callable[[ir.OpView], str | None]"]
"""By operator, the name of the requested rule, or a function from the operator to that name."""
RuleFunction = Callable[..., object]
"""A rule that a caller gives: of an operator, a node or an intrinsic."""
GivenSchedule = Union[
    "Schedule", "Trace", str, "os.PathLike[str]", Callable[["Schedule"], object], Sequence[Callable[..., object]]
]
"""A schedule that a caller gives for a prim function."""
DEFAULT_TARGET = "llvm"
"""The target of compilations that name none: this machine's CPU."""
FASTEST = "fastest"
PRECISIONS = ("bf16", "f16", FASTEST)
"""Element types that products may be computed from instead of f32."""
PLACEMENTS = ("priority", "estimated", "measured")
"""How several targets share a model."""


def _refuse_schedules(value: object) -> str | None:
    if not isinstance(value, Mapping):
        return "a dictionary of schedules by the name of a prim function"
    if not all(isinstance(name, str) for name in value):
        return "the names of prim functions"
    for name, schedule in value.items():
        if isinstance(schedule, (list, tuple)) and not all(map(callable, schedule)):
            return f"rules, functions of a kernel and its context, in the list for '{name}'"
        if name == "*" and not isinstance(schedule, (list, tuple)):
            return "a list of rules, functions of a kernel and its context, for '*', which is every prim function"
    missing = [name for name, schedule in value.items() if schedule is None]
    return f"a Schedule, its trace, a file of one, or a function for '{missing[0]}'" if missing else None


def _is_rules(value: object) -> bool:
    return is_list(value, callable) or callable(value)


RULES = mapping("functions, or lists of functions, by name", _is_rules)
TARGETS = values_that(
    "the name of a target, or a list of names",
    # Data in this place are those of an estimator.
    lambda value: isinstance(value, str) or hasattr(value, "shape") or is_list(value, is_text),
)
SHAPES = mapping("shapes by the names of inputs, such as {'x': [1, 3, 224, 224]}", lambda v: v is None or is_list(v))
SIZES = mapping("sizes by the names of dims, such as {'batch': 8}")
STRATEGIES = values_that(
    "names by operator, or 'measure'",
    lambda value: (
        value == "measure"
        or callable(value)
        or hasattr(value, "chooser")
        or (isinstance(value, Mapping) and all(isinstance(each, str) or callable(each) for each in value.values()))
    ),
)
NODES = mapping("numbers of nodes by code generator", is_list)


@dataclass(frozen=True)
class CoreArguments:
    """The arguments of `mirlo.compile` that Mirlo has without packages."""

    model: object = option(
        dataclasses.MISSING,
        "An ONNX or IR file, its bytes, an `onnx.ModelProto`, an MLIR module (which is not changed), or a model of "
        "PyTorch, JAX or scikit-learn.",
        kind=ANYTHING,
        key=None,
        of_model=True,
    )
    target: str | Sequence[str] = option(
        DEFAULT_TARGET,
        'What generates the code. Of several targets, `["onednn", "llvm"]` or `"onednn,llvm"`, the first ones take the '
        "parts of the model that their patterns match, and the last one compiles the rest.",
        OptionFlag(
            "--target",
            "NAME,...",
            aliases=("--targets",),
            help="the target (default: llvm, this machine's CPU), or several, such as 'onednn,llvm': the code "
            "generators of the first ones compile the parts that they support, the last one the rest. Options are in "
            "braces: 'c{compiler=clang},llvm'",
        ),
        kind=TARGETS,
    )
    _: KW_ONLY
    threads: int = option(
        1,
        "Threads of a call.",
        OptionFlag("--threads", "N", help="number of threads of a run (default: 1)"),
        kind=integer(1),
    )
    shapes: Shapes | None = option(
        None,
        "Shapes of inputs by name: dynamic dims are fixed input by input. An input of ONNX that has a default value is "
        "a constant unless it is named here, with None for the shape that the model declares.",
        OptionFlag(
            "--shape",
            "NAME=1x3x224x224",
            shape_of_input,
            "pairs",
            help="the shape of an input with dynamic dims; a name in it keeps a dim dynamic; may be repeated",
            convert=dict,
            dest="shape",
        ),
        of_model=True,
        kind=optional(SHAPES),
    )
    dims: Mapping[str, int] | None = option(
        None,
        'Sizes of dynamic dims by name, in all inputs: `{"batch": 1, "seq": 128}`.',
        OptionFlag(
            "--dim",
            "NAME=N",
            size_of_dim,
            "pairs",
            help="the size of a dynamic dim in all inputs; may be repeated",
            convert=dict,
            dest="dim",
        ),
        key=None,  # shapes that follow from it are in the key
        of_model=True,
        kind=optional(SIZES),
    )
    pipeline: Pipeline | str | None = option(
        None,
        "Passes in the place of the target's.",
        OptionFlag("--pipeline", "TEXT", help="passes to run instead of the target's"),
        kind=optional(either(TEXT, instance_of("mirlo.passes.pipeline", "Pipeline", "a Pipeline"))),
    )
    legalize: Mapping[str, RuleFunction] | None = option(
        None,
        'Rules that come before all registered ones, by operator (`"relax.softmax"`) or by the name of a node in the '
        'model (`"node:/encoder/softmax"`).',
        kind=optional(RULES),
    )
    intrinsics: Mapping[str, RuleFunction] | None = option(
        None, 'Rules of intrinsics (`"exp"`) that come before all registered ones.', kind=optional(RULES)
    )
    strategies: Strategies | Measured | str | None = option(
        None,
        'Which of several rules of an operator to use: `{"relax.conv": "im2col"}`, or a function of the operator in '
        'the place of the name. "measure" compiles each of them for the shapes at hand and takes the fastest.',
        OptionFlag(
            "--strategy",
            "OP=NAME",
            operator_and_rule,
            "pairs",
            help="use this rule for an operator, such as relax.conv=im2col; 'measure' selects the fastest one; may be "
            "repeated",
            convert=strategies_of,
        ),
        kind=optional(STRATEGIES),
    )
    schedules: Mapping[str, GivenSchedule] | None = option(
        None,
        "Schedules of prim functions by name: a `Schedule`, its trace, a file of one, or a function that takes a "
        "`Schedule`. A list holds rules, functions of a kernel and its context, which are tried before those of the "
        'target; `"*"` stands for the name of every prim function.',
        OptionFlag(
            "--schedule",
            "KERNEL=FILE",
            kernel_and_schedule,
            "pairs",
            help="the schedule of a kernel: a trace of 'explain --save-trace'; may be repeated",
            convert=dict,
        ),
        key=unkeyed,  # a saved schedule is in a file of its own
        of_model=True,
        kind=ValueKind(lambda value: None if value is None else _refuse_schedules(value)),
    )
    opt_level: int = option(2, "The level of optimization of LLVM, or of the C compiler, 0 to 3.", kind=integer(0, 3))
    save_ir: str | Path | None = option(
        None,
        "A folder for the IR of every stage; each file can be continued with `mirlo-opt --run-reproducer FILE`, or "
        "compiled.",
        OptionFlag("--save-ir", "DIR", help="write the IR after each pass to this folder"),
        key=unkeyed,
        kind=optional(PATH),
    )
    progress: Progress | None = option(
        None, "A function that is called with the name of each step.", key=None, kind=optional(FUNCTION)
    )
    load: bool = option(
        True,
        "Whether the model will be called here. With False it may be one that can only be saved: weights are then "
        "rearranged while they are written, one after the other, which takes less memory and time.",
        key=None,
        kind=BOOLEAN,
    )
    params: ParameterStore | None = option(
        None,
        "The arrays that a module names.",
        of_model=True,
        kind=optional(instance_of("mirlo.runtime.params", "ParameterStore", "a ParameterStore")),
    )
    cache: Cache | bool | str | os.PathLike[str] = option(
        True,
        "Whether to use the cache on disk, or its folder.",
        OptionFlag("--cache-dir", "DIR", help="the folder of the cache (default: see 'mirlo cache path')"),
        OptionFlag("--no-cache", form="constant", constant=False, help="do not read or write the cache"),
        key=None,
        kind=either(BOOLEAN, instance_of("mirlo.runtime.cache", "Cache", "a Cache"), PATH),
    )
    jobs: int | None = option(
        None,
        "The most processes that compile at once.",
        OptionFlag("--jobs", "N", help="number of processes that compile (default: one per core)"),
        key=None,
        kind=optional(integer(1)),
    )
    tune: Database | bool | float | str | os.PathLike[str] = option(
        True,
        "The database of `mirlo tune` to use: True for the usual file if it exists, False for none. A number searches "
        "for this many seconds before.",
        OptionFlag(
            "--database",
            "FILE",
            tuning_database,
            help="use the tuning results of this file, of 'mirlo tune --database' (default: the one beside the cache)",
        ),
        OptionFlag("--no-tuning", form="constant", constant=False, help="use no tuning results"),
        kind=either(BOOLEAN, number(0), instance_of("mirlo.driver.tune.database", "Database", "a Database"), PATH),
    )
    precision: str | None = option(
        None,
        '"bf16" or "f16" to store weights in half of the memory and to compute products of such numbers, with sums in '
        'f32; "fastest" for the narrowest of these whose products are faster than those of f32 where the model runs, '
        "if there is one.",
        OptionFlag(
            "--precision",
            help="store weights in this type and compute products from it, with sums in f32; fastest: the type that "
            "this machine multiplies faster than f32, if any (default: the types of the model)",
        ),
        own_pass="to-mixed-precision",
        kind=optional(one_of(*PRECISIONS)),
    )
    activations: str | None = option(
        None,
        'How rows are represented in products with weights of 2, 4 or 8 bits: "exact", "i8", "i8x2" or "bf16"; by '
        'default as the model permits (`accuracy_level`). "bf16" rounds the rows of products with bf16 weights, too. '
        '"auto" is what the machine multiplies fastest: "i8", and "bf16" for bf16 weights, where it has instructions '
        "for them. `metadata` of the artifact has what was chosen, and the error that it permits.",
        OptionFlag(
            "--activations",
            help="the type of activations in products with weights of 2, 4 or 8 bits, and in bf16; auto: what this "
            "machine multiplies fastest (default: as the model permits)",
        ),
        kind=optional(one_of(*ACTIVATIONS, AUTO)),
    )
    kv_cache_dtype: str | None = option(
        None,
        '"bf16" or "f16" to store f32 caches of keys and values in half of the memory, "i8" in about a quarter: '
        "new rows are rounded, and attention computes in f32. Each row of i8 has a scale, in further inputs and "
        'outputs, "NAME.scale".',
        OptionFlag(
            "--kv-cache-dtype",
            help="store f32 caches of keys and values in this type: half of the memory, i8 a quarter (default: f32)",
        ),
        own_pass="narrow-caches",
        kind=optional(one_of(*CACHE_DTYPES)),
        only_for=WITH_CACHES,
    )
    last_rows: str | None = option(
        None,
        "The name of an output [batch, rows, columns] of which calls need the last rows only, such as logits: as many "
        "as a new input, `last_rows`, has elements. Products before it compute no others. A model without this output, "
        "or with a fixed number of rows in it, gets no such input.",
        OptionFlag(
            "--last-rows",
            "OUTPUT",
            help="compute only the last rows of this output, such as logits: as many as the elements of a new input, "
            "last_rows",
        ),
        own_pass="keep-last-rows",
        of_model=True,
        kind=optional(TEXT),
        only_for=WITH_CACHES,
    )
    ring_caches: bool = option(
        False,
        "Whether the caches of attentions with a sliding window (`local_window_size`) hold the rows of the window "
        "only, beside those of a call's new tokens: `mirlo.caches.windows` lists them, and the row of a token is its "
        "position modulo the rows. `mirlo.caches.state` and `pool` make them. Targets that update caches in place.",
        of_model=True,
        kind=BOOLEAN,
        only_for=WITH_CACHES,
    )
    placement: str | Mapping[str, Sequence[int]] = option(
        "priority",
        'How several targets share the model: by "priority", the order of the list; by cost, "estimated" from their '
        'figures or "measured" here, where what is slower than one target alone is not taken; or the numbers of the '
        "nodes that each code generator may have.",
        OptionFlag(
            "--cost",
            help="how to divide the model among several targets: by their order (priority, the default), by their "
            "declared costs (estimated), or by measurements on this machine, which are cached (measured)",
        ),
        own_pass="partition",
        kind=either(one_of(*PLACEMENTS), NODES),
    )
    specialize: Sequence[Mapping[str, int]] | None = option(
        None,
        'Sizes of symbolic dims, `[{"batch": 1}, {"batch": 8, "sequence": 128}]`: the result has builds for these '
        "beside the one for any, and counts the shapes of its calls.",
        OptionFlag(
            "--specialize",
            "DIM=N,...",
            sizes_of_dims,
            "append",
            help="add a build for these sizes of dynamic dims, which calls with these sizes use; may be repeated",
        ),
        key=None,  # each build has a key of its own
        of_model=True,
        kind=optional(
            values_that(
                "a list such as [{'batch': 1}]", lambda value: is_list(value, lambda each: isinstance(each, Mapping))
            )
        ),
    )
    verify: bool = option(
        False,
        "Whether to compare each kernel with its definition, exactly, at its sizes: one that computes something else "
        "is an error that names its nodes, its schedule and the first wrong element. It takes a few times as long as "
        "the passes.",
        OptionFlag(
            "--verify",
            form="constant",
            help="compare each kernel with its definition, exactly, and fail if one differs",
        ),
        own_pass="verify-schedule",
        kind=BOOLEAN,
    )
    invariant: bool = option(
        False,
        "Whether the results of a row of a batch have the same bits whatever the size of the batch, the position in "
        "it and the number of threads, and those of a token however its prompt is divided into calls. Sums then have "
        "one order for each size of K, which takes a few percent more time (docs/invariant-results.md).",
        OptionFlag(
            "--invariant",
            form="constant",
            help="compute the same bits for a row of a batch in batches of any size, at any position",
        ),
        own_pass="schedule",
        kind=BOOLEAN,
    )
    trust_file: bool = option(
        False,
        "Whether a file of IR may name passes that reach outside of the module, and hold code of code generators.",
        OptionFlag(
            "--trust-file",
            form="constant",
            help="accept IR with passes that access files or processes, and with code of code generators",
        ),
        kind=BOOLEAN,
    )
    args: tuple[object, ...] | None = option(
        None,
        "Example arguments of the `forward` of a PyTorch module, or rows of data for an estimator of scikit-learn, "
        "which may also be in the place of `target`: `mirlo.compile(estimator, X[:1])`.",
        key=None,
        of_model=True,
        kind=optional(values_that("a tuple of arguments", is_list)),
        only_for=FRAMEWORKS,
    )
    kwargs: Mapping[str, object] | None = option(
        None,
        "Example keyword arguments of `forward`.",
        key=None,
        of_model=True,
        only_for=FRAMEWORKS,
        kind=optional(mapping("arguments by name")),
    )
    dynamic_shapes: object = option(
        None, "The dynamic shapes of `torch.export`.", key=None, of_model=True, only_for=FRAMEWORKS, kind=ANYTHING
    )

    def __post_init__(self) -> None:
        check_options(self, CompileOptionError)
        for name, declared in OPTIONS.items() if self.pipeline is not None else ():
            if declared.own_pass and getattr(self, name) != DEFAULTS[name]:
                raise CompileOptionError(
                    f"{name}: a pipeline of your own says so itself, with the pass {declared.own_pass}"
                )


if TYPE_CHECKING:
    CompileArguments = CoreArguments
else:

    @dataclass(frozen=True)
    class CompileArguments(PackageOptions, CoreArguments):
        """The arguments of `mirlo.compile`, those of installed packages included."""

        __post_init__ = CoreArguments.__post_init__


OPTIONS: Mapping[str, CompileOption] = declared_options(CompileArguments)
"""All options by name."""
DEFAULTS: dict[str, object] = {each.name: each.default for each in dataclasses.fields(CompileArguments)}
"""The defaults of all options; that of the model is `dataclasses.MISSING`."""


def takes_fields_of(declared: Callable[P, A]) -> Callable[[Callable[[A], R]], Callable[P, R]]:
    """Turn a function of a dataclass into one of its fields, with their signature and documentation."""
    fields = dataclasses.fields(declared)  # type: ignore[arg-type]

    def decorate(function: Callable[[A], R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            known = [each.name for each in fields]
            require_package_of(name for name in kwargs if name not in known)
            refuse_unknown(f"mirlo.{function.__name__}", list(kwargs), known)
            return function(declared(*args, **kwargs))

        parameters = signature(declared).parameters.values()
        returned = signature(function).return_annotation
        call.__signature__ = signature(function).replace(  # type: ignore[attr-defined]
            parameters=[each for each in parameters if each.kind is not Parameter.VAR_KEYWORD],
            return_annotation=returned,
        )
        lines = [f"        {each.name}: {each.metadata['option'].help}" for each in fields]
        call.__doc__ = "\n".join([f"{(function.__doc__ or '').rstrip()}", "", "    Args:", *lines])
        return call

    return decorate
