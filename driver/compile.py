"""`mirlo.compile`: from a model to an executable.

`compile` makes a `CompileRequest` (request.py), and tunes or specializes where that is requested. `build` (build.py)
looks the request up in the model cache. The `Compiler` (compiler.py) imports the model, runs the passes of the target,
and its emitter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from mirlo.driver.build import build, load_built
from mirlo.driver.compile_strategy import requested_strategies, with_strategies
from mirlo.driver.options import DEFAULT_TARGET, CompileArguments, CompileOptionError, takes_fields_of
from mirlo.driver.request import CompileRequest, alternatives
from mirlo.frontends.foreign import (
    CompiledModel,
    ConvertedModel,
    ExampleInputs,
    FrontendError,
    frontend_of,
)
from mirlo.runtime.callbacks import Expected, check_result
from mirlo.runtime.interpreter import FewerCollections, keeping_interrupts, with_frame_space

if TYPE_CHECKING:
    from mirlo.runtime.executable import Executable
    from mirlo.runtime.params import ParameterStore
    from mirlo.runtime.program import Program
    from mirlo.runtime.unloaded import UnloadedModel


M = TypeVar("M")


@keeping_interrupts()
@FewerCollections()
@with_frame_space
@takes_fields_of(CompileArguments)
def compile(arguments: CompileArguments) -> Any:
    """Compile a model and return an `Executable`, or a `Program` if the model works on more than tensors of numbers."""
    request, wrap = _request(arguments)
    several = alternatives(request.single_target)
    strategies = requested_strategies(request)
    if strategies and request.invariant:
        raise CompileOptionError(f"{strategies[0].option}: cannot be used with invariant: parts of sums are added up")
    if strategies:
        if several or request.specialize is not None:
            raise CompileOptionError(
                f"{strategies[0].option}: a model that is compiled so has one build for all sizes and processors"
            )
        for strategy in strategies:
            request = replace(request, target=strategy.target(request.target))
        compiled = with_strategies(strategies, _tune_and_build)(request)
        return wrap(compiled) if callable(compiled) else compiled  # several models are in an object of the package
    if several or request.specialize is not None:
        request = replace(request, load=True)  # weights that builds share are compared in memory
    if several:
        if request.specialize is not None:
            raise CompileOptionError("specialize: a model has builds for sizes or for processors, found both")
        from mirlo.driver.fat import compile_fat

        return wrap(compile_fat(request, several, _tune_and_build))
    if request.specialize is not None:
        from mirlo.driver.specialize import compile_specialized

        return wrap(compile_specialized(request, request.specialize, _tune_and_build))
    return wrap(_tune_and_build(request))


def compile_levels(arguments: CompileArguments, levels: Sequence[int], merges: bool = False) -> Iterator[Any]:
    """Yield the model compiled at each of several levels of optimization; its passes run once.

    With `merges`, kernels that differ in numbers only are merged however small the model is.
    """
    from mirlo.driver.compiler import Compiler

    request, _ = _request(arguments)
    compiler = Compiler(replace(request, merges=merges), build)
    for compiled in compiler.compile_levels(levels):
        yield load_built(compiled, compiler.model.session.params)


def _request(arguments: CompileArguments) -> tuple[CompileRequest, Callable[[CompiledModel], object]]:
    """Convert a model to a form that the compiler opens; return its request and the wrapper of its executable."""
    args, target = arguments.args, arguments.target
    if args is None and not isinstance(target, str) and hasattr(target, "shape"):
        args, target = (target,), DEFAULT_TARGET
    example = ExampleInputs(args, arguments.kwargs or {}, arguments.dynamic_shapes)
    model, params, wrap = _converted(arguments.model, arguments.params, example)
    request = CompileRequest.of(arguments, model=model, target=target, params=params, args=None)
    if request.invariant:
        from mirlo.driver.invariant import with_invariant_target  # few compilations have it

        request = with_invariant_target(request)
    return request.with_fixed_dims(), wrap


def _converted(
    model: object, params: ParameterStore | None, example: ExampleInputs
) -> tuple[object, ParameterStore | None, Callable[[CompiledModel], object]]:
    """Convert a model to a form that the compiler opens; return it, its weights, and the wrapper of its executable."""
    frontend = None if isinstance(model, (str, os.PathLike, bytes)) else frontend_of(model)
    if frontend is None:
        if example.given:
            raise CompileOptionError(
                f"args, kwargs and dynamic_shapes are for models of other frameworks, found a {type(model).__name__}"
            )
        return model, params, lambda executable: executable
    converted: ConvertedModel = check_result(
        frontend.convert(model, example), frontend.convert, _CONVERTED, "the front end of the model", FrontendError
    )
    return converted.model, params, lambda compiled: _wrapped(converted, compiled)


_CONVERTED = Expected("a ConvertedModel", lambda value: isinstance(value, ConvertedModel))


def _wrapped(converted: ConvertedModel, compiled: CompiledModel) -> object:
    """Apply the front end's wrapper to an executable; leave a model for another machine unchanged."""
    if converted.wrap is None:
        return compiled
    from mirlo.runtime.unloaded import UnloadedModel

    return compiled if isinstance(compiled, UnloadedModel) else converted.wrap(compiled)


def _tune_and_build(request: CompileRequest) -> Executable | Program | UnloadedModel:
    if request.tune_seconds is not None:
        from mirlo.driver.tune.search import tuned_request

        request = tuned_request(request)
    return _with_code(build(request), request)


def _with_code(compiled: M, request: CompileRequest) -> M:
    """Attach the function that recompiles the code of kernels for inspection to a compiled model; return the model."""
    from mirlo.runtime.kernel_code import KernelCodeOwner

    if isinstance(compiled, KernelCodeOwner):
        compiled.code_source = partial(_code_of, replace(request, progress=None))
    return compiled


def _code_of(request: CompileRequest, kernel: str, form: str | None) -> str | bytes:
    from mirlo.driver.code import code_of_kernel

    return code_of_kernel(request, kernel, form)
