"""`mirlo.compile`: from a model to an executable.

`compile` makes a `CompileRequest` (request.py), and tunes or specializes where that is requested. `build` (build.py)
looks the request up in the model cache. The `Compiler` (compiler.py) imports the model, runs the passes of the target,
and its emitter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mirlo.driver.build import build
from mirlo.driver.garbage import FewerCollections
from mirlo.driver.model_cache import open_cache
from mirlo.driver.request import CompileRequest, GivenSchedule, Progress, Strategies, ignore_progress
from mirlo.frontends.foreign import CompiledModel, ConvertedModel, ExampleInputs, frontend_of

if TYPE_CHECKING:
    from mirlo.driver.strategies import Measured
    from mirlo.driver.tune.database import Database
    from mirlo.passes.pipeline import Pipeline
    from mirlo.runtime.cache import Cache
    from mirlo.runtime.executable import Executable
    from mirlo.runtime.params import ParameterStore
    from mirlo.runtime.program import Program
    from mirlo.runtime.unloaded import UnloadedModel


M = TypeVar("M")


@FewerCollections()
def compile(
    model: object,
    target: str | Sequence[str] = "llvm",
    *,
    threads: int = 1,
    shapes: Mapping[str, Sequence[int | str] | None] | None = None,
    dims: Mapping[str, int] | None = None,
    pipeline: Pipeline | str | None = None,
    legalize: Mapping[str, Callable[..., object]] | None = None,
    intrinsics: Mapping[str, Callable[..., object]] | None = None,
    strategies: Strategies | Measured | str | None = None,
    schedules: Mapping[str, GivenSchedule] | None = None,
    opt_level: int = 2,
    save_ir: str | Path | None = None,
    progress: Progress | None = None,
    params: ParameterStore | None = None,
    cache: Cache | bool | str | os.PathLike[str] = True,
    jobs: int | None = None,
    tune: Database | bool | float | str | os.PathLike[str] = True,
    precision: str | None = None,
    activations: str | None = None,
    kv_cache_dtype: str | None = None,
    last_rows: str | None = None,
    ring_caches: bool = False,
    placement: str | Mapping[str, Sequence[int]] = "priority",
    specialize: Sequence[Mapping[str, int]] | None = None,
    trust_file: bool = False,
    args: tuple[object, ...] | None = None,
    kwargs: Mapping[str, object] | None = None,
    dynamic_shapes: object = None,
) -> Any:
    """Compile a model and return an `Executable`, or a `Program` if the model works on more than tensors of numbers.

    Args:
        model: An ONNX or IR file, its bytes, an `onnx.ModelProto`, an MLIR module (which is not changed), or a model of
            PyTorch, JAX or scikit-learn.
        target: What makes the code. Of several targets, `["onednn", "llvm"]` or `"onednn,llvm"`, the first ones take
            the parts of the model that their patterns match, and the last one compiles the rest.
        threads: Threads of a call.
        shapes: Shapes of inputs by name: dynamic dims are fixed input by input. An input of ONNX that has a default
            value is a constant unless it is named here, with None for the shape that the model declares.
        dims: Sizes of dynamic dims by name, in all inputs: `{"batch": 1, "seq": 128}`.
        pipeline: Passes in the place of the target's.
        legalize: Rules that come before all registered ones, by operator (`"relax.softmax"`) or by the name of a node
            in the model (`"node:/encoder/softmax"`).
        intrinsics: The same for intrinsics (`"exp"`).
        strategies: Which of several rules of an operator to use: `{"relax.conv": "im2col"}`, or a function of the
            operator in the place of the name. "measure" compiles each of them for the shapes at hand and takes the
            fastest.
        schedules: Schedules of prim functions by name: a `Schedule`, its trace, a file of one, or a function that takes
            a `Schedule`.
        opt_level: the level of optimization of LLVM, or of the C compiler, 0 to 3.
        save_ir: A folder for the IR of every stage; each file can be continued with `mirlo-opt --run-reproducer FILE`,
            or compiled.
        progress: A function that is called with the name of each step.
        params: The arrays that a module names.
        cache: Whether to use the cache on disk, or its folder.
        jobs: The most processes that compile at once.
        tune: The database of `mirlo tune` to use: True for the usual file if it exists, False for none. A number
            searches for so many seconds before.
        precision: "bf16" or "f16" to store weights in half of the memory and to compute products of such numbers, with
            sums in f32.
        activations: How rows are represented in products with weights of 2, 4 or 8 bits: "exact", "i8", "i8x2" or
            "bf16"; by default as the model permits (`accuracy_level`).
        kv_cache_dtype: "bf16" or "f16" to store the f32 caches of a language model in half of the memory, "i8" in about
            a quarter: new rows are rounded, and attention computes in f32. Each row of i8 has a scale, in further
            inputs and outputs, "NAME.scale".
        last_rows: The name of an output [batch, rows, columns] of which calls need the last rows only, such as the
            logits of a language model: as many as a new input, `last_rows`, has elements. Products before it compute no
            others. A model without this output, or with a fixed number of rows in it, gets no such input.
        ring_caches: Whether the caches of attentions with a sliding window (`local_window_size`) hold the rows of the
            window only, beside those of a call's new tokens: `Executable.windows` lists them, and the row of a token is
            its position modulo the rows. `Executable.state` and `pool` make them. Targets that update caches in place.
        placement: How several targets share the model: by "priority", the order of the list; by cost, "estimated" from
            their figures or "measured" here, where what is slower than one target alone is not taken; or the numbers of
            the nodes that each code generator may have.
        specialize: Sizes of symbolic dims, `[{"batch": 1}, {"batch": 8, "sequence": 128}]`: the result has builds for
            these beside the one for any, and counts the shapes of its calls.
        trust_file: Whether a file of IR may name passes that reach outside of the module, and hold code of code
            generators.
        args: Example arguments of the `forward` of a PyTorch module, or rows of data for an estimator of scikit-learn,
            which may also be in the place of `target`: `mirlo.compile(estimator, X[:1])`.
        kwargs: Example keyword arguments of `forward`.
        dynamic_shapes: The dynamic shapes of `torch.export`.
    """
    from mirlo.driver.fat import alternatives
    from mirlo.driver.tune.database import open_database

    if args is None and not isinstance(target, str) and hasattr(target, "shape"):
        args, target = (target,), "llvm"
    model, params, wrap = _converted(model, params, ExampleInputs(args, kwargs or {}, dynamic_shapes))
    if dims:
        from mirlo.driver.models import fix_dims

        shapes = fix_dims(model, shapes, dims)
    request = CompileRequest(
        model, target, threads, shapes, pipeline, legalize, intrinsics, strategies, schedules, opt_level, save_ir,
        params, open_cache(cache), jobs, tuning=open_database(tune), tune_seconds=_seconds(tune), precision=precision,
        activations=activations, kv_cache_dtype=kv_cache_dtype, last_rows=last_rows,
        ring_caches=ring_caches,
        placement=placement, trust_file=trust_file, progress=progress or ignore_progress,
    )  # fmt: skip
    several = alternatives(request.single_target)
    if several:
        if specialize is not None:
            raise ValueError("specialize: a model has builds for sizes or for processors, found both")
        from mirlo.driver.fat import compile_fat

        return wrap(compile_fat(request, several, _tune_and_build))
    if specialize is not None:
        from mirlo.driver.specialize import compile_specialized

        return wrap(compile_specialized(request, specialize, _tune_and_build))
    return wrap(_tune_and_build(request))


def _converted(
    model: object, params: ParameterStore | None, example: ExampleInputs
) -> tuple[object, ParameterStore | None, Callable[[CompiledModel], object]]:
    """Return a model in a form that the compiler opens, its weights, and what wraps its executable."""
    frontend = None if isinstance(model, (str, os.PathLike, bytes)) else frontend_of(model)
    if frontend is None:
        if example.given:
            raise ValueError(
                f"args, kwargs and dynamic_shapes are for models of other frameworks, found a {type(model).__name__}"
            )
        return model, params, lambda executable: executable
    converted = frontend.convert(model, example)
    return converted.model, params, lambda made: _wrapped(converted, made)


def _wrapped(converted: ConvertedModel, made: CompiledModel) -> object:
    """Return what the front end puts around an executable; a model for another machine is saved as it is."""
    from mirlo.runtime.unloaded import UnloadedModel

    return made if converted.wrap is None or isinstance(made, UnloadedModel) else converted.wrap(made)


def _tune_and_build(request: CompileRequest) -> Executable | Program | UnloadedModel:
    if request.tune_seconds is not None:
        from mirlo.driver.tune.search import tuned_request

        request = tuned_request(request)
    return _with_code(build(request), request)


def _seconds(tune: object) -> float | None:
    """Return the time of a search that `compile(tune=...)` asks for."""
    return float(tune) if isinstance(tune, (int, float)) and not isinstance(tune, bool) else None


def _with_code(made: M, request: CompileRequest) -> M:
    """Let a compiled model compile the code of its kernels again; return it."""
    from mirlo.runtime.kernel_code import KernelCodeOwner

    if isinstance(made, KernelCodeOwner):
        made.code_source = partial(_code_of, replace(request, progress=ignore_progress))
    return made


def _code_of(request: CompileRequest, kernel: str, form: str | None) -> str | bytes:
    from mirlo.driver.code import code_of_kernel

    return code_of_kernel(request, kernel, form)
