"""Compilation of a request to an executable, through the model cache."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from mirlo.driver import model_cache
from mirlo.driver.model_cache import MIN_COMPILE_SECONDS, CacheKey, Uncacheable, cache_key
from mirlo.driver.request import CompileRequest
from mirlo.passes.targets import declared_target
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.errors import NotForThisMachine
from mirlo.runtime.interpreter import make_old
from mirlo.runtime.model_runner import model_runner

if TYPE_CHECKING:
    from mirlo.runtime.compiled_program import CompiledProgram
    from mirlo.runtime.executable import Executable
    from mirlo.runtime.params import ParameterStore
    from mirlo.runtime.program import Program
    from mirlo.runtime.unloaded import UnloadedModel


def build(request: CompileRequest) -> Executable | Program | UnloadedModel:
    """Compile a request, or load its result from the model cache."""
    if request.opened_cache is not None:
        request.report("cache")
    key = _key_of(request)
    cached = key.lookup() if isinstance(key, CacheKey) else None
    if cached is not None:
        return _placed(cached)
    # Imported here: a model that the cache has needs nothing of the compiler.
    is_imported = "mirlo.driver.compiler" in sys.modules
    from mirlo.driver.compiler import Compiler

    if not is_imported:
        make_old()
    start = time.perf_counter()
    compiler = Compiler(request, build)
    compiled, session = compiler.run()
    seconds = time.perf_counter() - start
    if isinstance(key, CacheKey) and seconds >= MIN_COMPILE_SECONDS:
        request.report("keep")
        reason = key.store(compiled, session.params, session.params.files)
        if reason is not None:
            session.warning(f"the compiled model was not kept in the cache: {reason}")
        cached = None if compiler.is_loaded else key.lookup()
    if request.opened_cache is not None and request.opened_cache.problem is not None:
        session.warning(f"nothing was kept in the cache: {request.opened_cache.problem}")
    if cached is not None:
        return _placed(cached)  # the file has the weights in the order in which the code reads them
    if isinstance(compiled, Artifact) and not compiler.is_loaded and model_runner() is None:
        from mirlo.runtime.unloaded import UnloadedModel

        return UnloadedModel(compiled, session.params, "it was compiled to be saved, with 'load=False'")
    request.report("load")
    return load_built(compiled, session.params)


def load_built(compiled: Artifact | CompiledProgram, params: ParameterStore) -> Executable | Program | UnloadedModel:
    """Load the result of the compiler."""
    if isinstance(compiled, Artifact):
        return load_compiled(compiled, params)
    from mirlo.runtime.program import Program  # five modules, for models with sequences, optional values or strings

    return _placed(Program(compiled, params))


def load_compiled(artifact: Artifact, params: ParameterStore) -> Executable | UnloadedModel:
    """Load a compiled model, here or on a board; if neither is possible, return one whose call raises the reason."""
    from mirlo.runtime.executable import Executable

    runner = model_runner()
    if runner is not None:
        return runner.load(artifact, params)
    try:
        return Executable(artifact, params)
    except NotForThisMachine as problem:
        from mirlo.runtime.unloaded import UnloadedModel

        return UnloadedModel(artifact, params, str(problem))


def _placed(model: Executable | Program | UnloadedModel) -> Executable | Program | UnloadedModel:
    """Load a model on the selected board, or in this process if there is none."""
    runner = model_runner()
    if runner is None:
        return model
    from mirlo.runtime.program import Program
    from mirlo.runtime.remote.wire import RemoteError

    if isinstance(model, Program):
        raise RemoteError(
            "a model with sequences, optional values or strings is a program of Python, which no board runs"
        )
    return runner.load(model.artifact, model.stored_weights)


def _key_of(request: CompileRequest) -> CacheKey | Uncacheable:
    target = request.single_target
    if target is not None:
        name = target.partition("{")[0].strip()
        return cache_key(request.opened_cache, request.model, declared_target(name), request.key_options())
    return _key_of_list(request)


def _key_of_list(request: CompileRequest) -> CacheKey | Uncacheable:
    """Return the cache key for several targets, which contains the fingerprints of their code generators."""
    from mirlo.passes.byoc.target_list import Targets

    if request.placement == "measured":
        return Uncacheable("placement is measured anew")
    targets = Targets.parse(request.target)
    if targets.host is None:
        return Uncacheable("no target compiles the rest")  # an error, which the compilation tells
    for chosen in targets.generators:
        added = model_cache.extended(declared_target(chosen.name))
        if added is not None:
            return Uncacheable(added)
    generators = [[str(chosen), chosen.generator.fingerprint()] for chosen in targets.generators]
    options = {**request.key_options(), "target": str(targets.host), "generators": generators}
    return cache_key(request.opened_cache, request.model, targets.host_target, options)
