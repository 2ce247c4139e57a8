"""Builds of a model for given sizes beside the general one: `mirlo.compile(..., specialize=...)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.driver.options import CompileOptionError
from mirlo.driver.request import CompiledResult, CompileFunction, CompileRequest
from mirlo.runtime.artifact import Artifact, TensorSpec
from mirlo.runtime.errors import nearest
from mirlo.runtime.executable import Executable
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.program import Program
from mirlo.runtime.specialized import Specialized
from mirlo.runtime.unloaded import UnloadedModel

Shapes = dict[str, list[int | str]]


def compile_specialized(
    request: CompileRequest, wanted: Sequence[Mapping[str, int]], compile_request: CompileFunction
) -> Specialized:
    """Compile a request for any sizes, and once more for each of these sizes of its symbols."""

    def build(shapes: Mapping[str, Sequence[int | str] | None] | None, number: int | None = None) -> CompiledResult:
        name = "any" if number is None else f"specialized{number}"
        folder = None if request.save_ir is None else Path(request.save_ir) / name
        return compile_request(replace(request, shapes=shapes, save_ir=folder))

    return specialized(build(request.shapes), wanted, build)


def specialized(
    general: CompiledResult, wanted: Sequence[Mapping[str, int]], build: Callable[[Shapes, int], CompiledResult]
) -> Specialized:
    """Return the model `general` with a build for each set of sizes; `build(shapes, number)` makes one."""
    if not isinstance(general, Executable):
        raise CompileOptionError(
            "specialize: expected a model of tensors for this machine; programs have parts of their own, and what is "
            "for other machines is not loaded: compile such a model for each size with shapes="
        )
    chosen = [dict(sizes) for i, sizes in enumerate(wanted) if sizes not in wanted[:i]]
    shapes = [shapes_for(general.inputs, sizes) for sizes in chosen]  # all of them are checked before any is compiled
    builds = [build(each, number) for number, each in enumerate(shapes)]
    store = ParameterStore()
    digests: dict[object, str] = {}
    first, *others = (sharing(each, store, digests) for each in (general, *builds) if not isinstance(each, Program))
    return Specialized(first, store, others)


def shapes_for(inputs: Sequence[TensorSpec], sizes: Mapping[str, int]) -> Shapes:
    """Return the shapes of the inputs with values for some symbols."""
    dims = {dim: D.parse(dim) for spec in inputs for dim in spec.shape if isinstance(dim, str)}
    symbols = sorted({name for dim in dims.values() for name in D.symbols_of(dim)})
    for name, size in sizes.items():
        if name not in symbols:
            hint = nearest(name, symbols)
            known = f"those of the inputs are {', '.join(symbols)}" if symbols else "the inputs have none"
            raise CompileOptionError(f"specialize: '{name}' is not a symbolic dim of the model: {known}{hint}")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise CompileOptionError(f"specialize: the size of '{name}' must be a number, found {size!r}")
    shapes: Shapes = {}
    for spec in inputs:
        row: list[int | str] = []
        for dim in spec.shape:
            fixed = D.substitute(dims[dim], sizes) if isinstance(dim, str) else dim
            if isinstance(fixed, int) and fixed < 0:
                raise CompileOptionError(f"specialize: with {dict(sizes)} the dim '{dim}' of input {spec} is {fixed}")
            row.append(fixed if isinstance(fixed, int) else str(fixed))
        shapes[spec.name] = row
    return shapes


def sharing(model: Executable | UnloadedModel, store: ParameterStore, digests: dict[object, str]) -> Artifact:
    """Return the artifact with its weights in the store, where each is kept once whatever the builds call it."""

    def shared(name: str) -> str:
        array = model.weight(name)
        content = np.ascontiguousarray(array).reshape(-1).view("u1").data
        key = (array.dtype, array.shape, blake2b(content, digest_size=32).digest())
        if key not in digests:
            digests[key] = store.add_unique(name, array)
        return digests[key]

    specs = [replace(spec, name=shared(spec.name)) for spec in model.artifact.params]
    externals = [replace(e, stored=_renamed(e.params, map(shared, e.stored_params))) for e in model.artifact.externals]
    return replace(model.artifact, params=tuple(specs), externals=tuple(externals))


def _renamed(names: Sequence[str], stored: Iterable[str]) -> dict[str, str]:
    """Return the names that constants have in the store where those differ."""
    return {name: other for name, other in zip(names, stored, strict=True) if name != other}
