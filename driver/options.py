"""The options of a compilation, each declared once: as a field of `CompileArguments`.

A field says what the option means, which values it takes, which flag of the command line sets it, and whether compiled
models of other values are other models (the cache key). The signature and the documentation of `mirlo.compile`, the
flags of commands, the options of `torch.compile` and docs/options.md derive from the fields. Nothing here imports the
compiler: the command line reads this file to parse its arguments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypeVar, Union

from mirlo.driver.option_values import (
    kernel_and_schedule,
    operator_and_rule,
    positive,
    shape_of_input,
    size_of_dim,
    sizes_of_dims,
    strategies_of,
)
from mirlo.passes.graph.activations import ACTIVATIONS
from mirlo.runtime.errors import MirloError
from mirlo.runtime.names import CACHE_DTYPES
from mirlo.runtime.nearest import nearest

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from mirlo.dialects.bindings import ir
    from mirlo.driver.strategies import Measured
    from mirlo.driver.tune.database import Database
    from mirlo.passes.pipeline import Pipeline
    from mirlo.passes.schedule.words.schedule import Schedule
    from mirlo.passes.schedule.words.trace import Trace
    from mirlo.runtime.cache import Cache
    from mirlo.runtime.params import ParameterStore

P = ParamSpec("P")
A = TypeVar("A")
R = TypeVar("R")

Shapes: TypeAlias = Mapping[str, Sequence[int | str] | None]
"""Shapes of inputs by name."""
Progress = Callable[[str], None]
"""Called with a name before each step of a compilation: `cache`, `import`, the passes, `emit`, `keep`, `load`."""
Strategies = Mapping[str, "str | Callable[[ir.OpView], str | None]"]
"""By operator, the name of the requested rule, or a function from the operator to that name."""
RuleFunction = Callable[..., object]
"""A rule that a caller gives: of an operator, a node or an intrinsic."""
GivenSchedule = Union["Schedule", "Trace", str, "os.PathLike[str]", Callable[["Schedule"], object]]
"""A schedule that a caller gives for a prim function."""
DEFAULT_TARGET = "llvm"
"""The target of compilations that name none: this machine's CPU."""
PRECISIONS = ("bf16", "f16")
"""Element types that products may be computed from instead of f32."""
PLACEMENTS = ("priority", "estimated", "measured")
"""How several targets share a model."""


class UnknownOption(MirloError, TypeError):
    """An argument of a compilation that is no option."""


class CompileOptionError(MirloError, ValueError):
    """An option with a value that it does not take."""


@dataclass(frozen=True)
class OptionFlag:
    """A flag of the command line that sets an option."""

    name: str
    metavar: str | None = None
    parse: Callable[[str], object] = str
    """Return the value of a text, or raise `ValueError` with what was expected."""
    form: Literal["value", "append", "pairs", "constant"] = "value"
    """Whether the flag takes one value, values, or pairs with names, or stands for `constant`."""
    constant: object = True
    help: str = ""
    """What `--help` says; empty for the first sentence of the option's."""
    aliases: tuple[str, ...] = ()
    convert: Callable[[Any], object] | None = None
    """Return the value of the option from what the flag collected; None for the same."""
    dest: str = ""
    """The name in the parsed arguments, where another than the option's."""


@dataclass(frozen=True)
class OptionDeclaration:
    """What is declared of an option beside its type and default."""

    help: str
    flags: tuple[OptionFlag, ...] = ()
    choices: tuple[str, ...] = ()
    """The texts that it takes; empty for any."""
    key: Callable[[Any], object] | None = lambda value: value
    """Return what stands for a value in cache keys, an `object` for what no key can hold; None where results are the
    same for all values."""
    own_pass: str = ""
    """The pass that does what the option asks for: pipelines of the caller name it themselves."""
    of_model: bool = False
    """Whether values name parts of one model, and cannot stand for many models."""
    since: str = "0.1"
    """The version that has it first."""


def option(default: object, help: str, *flags: OptionFlag, **details: Any) -> Any:
    """Declare a field of `CompileArguments`; `details` are those of `OptionDeclaration`."""
    metadata = {"option": OptionDeclaration(help, flags, **details)}
    return dataclasses.field(default=default, metadata=metadata, repr=details.get("key", True) is not None)


def unkeyed(value: object) -> object:
    """Return what makes a compilation with a value uncacheable."""
    return value and object()


@dataclass(frozen=True)
class CompileArguments:
    """The arguments of `mirlo.compile`."""

    model: object = dataclasses.field(
        metadata={
            "option": OptionDeclaration(
                "An ONNX or IR file, its bytes, an `onnx.ModelProto`, an MLIR module (which is not changed), or a "
                "model of PyTorch, JAX or scikit-learn.",
                key=None,
                of_model=True,
            )
        }
    )
    target: str | Sequence[str] = option(
        DEFAULT_TARGET,
        'What generates the code. Of several targets, `["onednn", "llvm"]` or `"onednn,llvm"`, the first ones take the '
        "parts of the model that their patterns match, and the last one compiles the rest.",
        OptionFlag(
            "--target",
            "NAME,...",
            aliases=("--targets",),
            help="what to make code for (default: llvm, this machine's CPU); with several, the first ones' code "
            "generators take what they can, the last one compiles the rest: 'onednn,llvm'. Options of one: "
            "'c{compiler=clang},llvm'",
        ),
    )
    _: KW_ONLY
    threads: int = option(
        1,
        "Threads of a call.",
        OptionFlag("--threads", "N", positive, help="threads that a run uses (default: 1)"),
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
            help="the shape of an input that leaves dims open; a name stands for a dim that stays open",
            convert=dict,
            dest="shape",
        ),
        of_model=True,
    )
    dims: Mapping[str, int] | None = option(
        None,
        'Sizes of dynamic dims by name, in all inputs: `{"batch": 1, "seq": 128}`.',
        OptionFlag(
            "--dim",
            "NAME=N",
            size_of_dim,
            "pairs",
            help="the size of a dynamic dim in all inputs; may be given for several dims",
            convert=dict,
            dest="dim",
        ),
        key=None,  # shapes that follow from it are in the key
        of_model=True,
    )
    pipeline: Pipeline | str | None = option(
        None,
        "Passes in the place of the target's.",
        OptionFlag("--pipeline", "TEXT", help="passes to run instead of the target's"),
    )
    legalize: Mapping[str, RuleFunction] | None = option(
        None,
        'Rules that come before all registered ones, by operator (`"relax.softmax"`) or by the name of a node in the '
        'model (`"node:/encoder/softmax"`).',
    )
    intrinsics: Mapping[str, RuleFunction] | None = option(
        None, 'Rules of intrinsics (`"exp"`) that come before all registered ones.'
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
            help="the rule that is wanted for an operator, such as relax.conv=im2col; 'measure' takes the fastest of "
            "all",
            convert=strategies_of,
        ),
    )
    schedules: Mapping[str, GivenSchedule] | None = option(
        None,
        "Schedules of prim functions by name: a `Schedule`, its trace, a file of one, or a function that takes a "
        "`Schedule`.",
        OptionFlag(
            "--schedule",
            "KERNEL=FILE",
            kernel_and_schedule,
            "pairs",
            help="the words that schedule a kernel, as 'explain --save-words' writes them",
            convert=dict,
        ),
        key=unkeyed,  # a saved schedule is in a file of its own
        of_model=True,
    )
    opt_level: int = option(2, "The level of optimization of LLVM, or of the C compiler, 0 to 3.")
    save_ir: str | Path | None = option(
        None,
        "A folder for the IR of every stage; each file can be continued with `mirlo-opt --run-reproducer FILE`, or "
        "compiled.",
        OptionFlag("--save-ir", "DIR", help="write the IR after each pass to this folder"),
        key=unkeyed,
    )
    progress: Progress | None = option(None, "A function that is called with the name of each step.", key=None)
    params: ParameterStore | None = option(None, "The arrays that a module names.", of_model=True)
    cache: Cache | bool | str | os.PathLike[str] = option(
        True,
        "Whether to use the cache on disk, or its folder.",
        OptionFlag("--cache-dir", "DIR", help="the folder of the cache (default: see 'mirlo cache path')"),
        OptionFlag("--no-cache", form="constant", constant=False, help="compile everything, and keep nothing"),
        key=None,
    )
    jobs: int | None = option(
        None,
        "The most processes that compile at once.",
        OptionFlag("--jobs", "N", positive, help="processes that compile (default: one a core)"),
        key=None,
    )
    tune: Database | bool | float | str | os.PathLike[str] = option(
        True,
        "The database of `mirlo tune` to use: True for the usual file if it exists, False for none. A number searches "
        "for so many seconds before.",
    )
    precision: str | None = option(
        None,
        '"bf16" or "f16" to store weights in half of the memory and to compute products of such numbers, with sums in '
        "f32.",
        OptionFlag(
            "--precision",
            help="store weights as such numbers and compute products from them, summed in f32 (default: as they are)",
        ),
        choices=PRECISIONS,
        own_pass="to-mixed-precision",
    )
    activations: str | None = option(
        None,
        'How rows are represented in products with weights of 2, 4 or 8 bits: "exact", "i8", "i8x2" or "bf16"; by '
        "default as the model permits (`accuracy_level`).",
        OptionFlag(
            "--activations",
            help="how rows are represented in products with weights of 2, 4 or 8 bits (default: as the model permits)",
        ),
        choices=ACTIVATIONS,
    )
    kv_cache_dtype: str | None = option(
        None,
        '"bf16" or "f16" to store the f32 caches of a language model in half of the memory, "i8" in about a quarter: '
        "new rows are rounded, and attention computes in f32. Each row of i8 has a scale, in further inputs and "
        'outputs, "NAME.scale".',
        OptionFlag(
            "--kv-cache-dtype",
            help="store the f32 caches of a language model in half of the memory, i8 in a quarter (default: as they "
            "are)",
        ),
        choices=CACHE_DTYPES,
        own_pass="narrow-caches",
    )
    last_rows: str | None = option(
        None,
        "The name of an output [batch, rows, columns] of which calls need the last rows only, such as the logits of a "
        "language model: as many as a new input, `last_rows`, has elements. Products before it compute no others. A "
        "model without this output, or with a fixed number of rows in it, gets no such input.",
        own_pass="keep-last-rows",
        of_model=True,
    )
    ring_caches: bool = option(
        False,
        "Whether the caches of attentions with a sliding window (`local_window_size`) hold the rows of the window "
        "only, beside those of a call's new tokens: `Executable.windows` lists them, and the row of a token is its "
        "position modulo the rows. `Executable.state` and `pool` make them. Targets that update caches in place.",
        of_model=True,
    )
    placement: str | Mapping[str, Sequence[int]] = option(
        "priority",
        'How several targets share the model: by "priority", the order of the list; by cost, "estimated" from their '
        'figures or "measured" here, where what is slower than one target alone is not taken; or the numbers of the '
        "nodes that each code generator may have.",
        OptionFlag(
            "--cost",
            help="how several targets share the model: by their order, priority (default), by the figures that they "
            "declare, or by what is measured here, which is kept with the cache",
        ),
        choices=PLACEMENTS,
        own_pass="partition",
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
            help="add a build for these sizes of symbolic dims, which calls of such shapes run; once for each build",
        ),
        key=None,  # each build has a key of its own
        of_model=True,
    )
    trust_file: bool = option(
        False,
        "Whether a file of IR may name passes that reach outside of the module, and hold code of code generators.",
        OptionFlag(
            "--trust-file",
            form="constant",
            help="let IR name passes that reach outside of the module, and hold code that code generators made",
        ),
    )
    args: tuple[object, ...] | None = option(
        None,
        "Example arguments of the `forward` of a PyTorch module, or rows of data for an estimator of scikit-learn, "
        "which may also be in the place of `target`: `mirlo.compile(estimator, X[:1])`.",
        key=None,
        of_model=True,
    )
    kwargs: Mapping[str, object] | None = option(
        None, "Example keyword arguments of `forward`.", key=None, of_model=True
    )
    dynamic_shapes: object = option(None, "The dynamic shapes of `torch.export`.", key=None, of_model=True)

    def __post_init__(self) -> None:
        for name, declared in OPTIONS.items():
            _check(name, declared, getattr(self, name), self.pipeline)
        if self.schedules is not None:
            _check_schedules(self.schedules)


def _check(name: str, declared: OptionDeclaration, value: object, pipeline: object) -> None:
    """Reject a value that is none of the choices, and what a pipeline of the caller does itself."""
    default = DEFAULTS[name]
    is_choice = bool(declared.choices) and value != default and (default is None or isinstance(value, str))
    if is_choice and value not in declared.choices:
        expected = f"{', '.join(declared.choices)}{' or None' if default is None else ''}"
        raise CompileOptionError(f"{name}: expected {expected}, found {value!r}")
    if declared.own_pass and pipeline is not None and value != default:
        raise CompileOptionError(f"{name}: a pipeline of your own says so itself, with the pass {declared.own_pass}")


def _check_schedules(found: object) -> None:
    """Reject what is no schedule by the name of a prim function; what the schedules say is read with the function."""
    if not isinstance(found, Mapping):
        raise CompileOptionError(
            f"schedules: expected a dictionary of schedules by the name of a prim function, found {found!r}"
        )
    for name, given in found.items():
        if not isinstance(name, str):
            raise CompileOptionError(f"schedules: expected the name of a prim function, found {name!r}")
        if given is None:
            raise CompileOptionError(
                f"schedules: expected a Schedule, its trace, a file of one, or a function for '{name}', found None"
            )


OPTIONS: dict[str, OptionDeclaration] = {
    each.name: each.metadata["option"] for each in dataclasses.fields(CompileArguments)
}
"""All options by name."""
DEFAULTS: dict[str, object] = {each.name: each.default for each in dataclasses.fields(CompileArguments)}
"""The defaults of all options; that of the model is `dataclasses.MISSING`."""


def refuse_unknown(caller: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Raise `UnknownOption` for the first name that is not known."""
    for name in names:
        if name not in known:
            raise UnknownOption(f"{caller} has no option '{name}'; options: {', '.join(known)}{nearest(name, known)}")


def takes_fields_of(declared: Callable[P, A]) -> Callable[[Callable[[A], R]], Callable[P, R]]:
    """Let a function of a dataclass be called with the fields themselves, which its signature and docstring list."""
    fields = dataclasses.fields(declared)  # type: ignore[arg-type]

    def decorate(function: Callable[[A], R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            refuse_unknown(f"mirlo.{function.__name__}", list(kwargs), [each.name for each in fields])
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
