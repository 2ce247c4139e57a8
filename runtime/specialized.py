"""A model compiled for dynamic sizes and its specializations: a call runs the build that fits its arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mirlo.runtime import artifact as artifacts
from mirlo.runtime.arena import ArenaPool
from mirlo.runtime.artifact import Artifact, TensorSpec
from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.executable import Executable
from mirlo.runtime.fields import Fields
from mirlo.runtime.inputs import GivenOutputs, bind
from mirlo.runtime.locks import make_lock
from mirlo.runtime.memory import MemoryUse
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.profile import Profile
from mirlo.runtime.program_file import artifact_row, read_artifact
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.runtime.device_array import DeviceArray

LOADER = "specialized"
MAX_COUNTED_SHAPES = 1024
"""Maximum number of combinations of shapes that are counted; beyond it the least frequent are dropped."""
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class ShapeCount:
    """The number of calls of a model with inputs of these sizes."""

    dims: Mapping[str, int]
    """The sizes of the model's symbolic dims."""
    count: int
    specialized: bool
    """Whether a specialization ran."""


@dataclass
class _InputShapes:
    """The shapes of all inputs of a call."""

    build: Executable | None
    call: Callable[..., np.ndarray | tuple[np.ndarray, ...]]
    """The call of the specialization or of the general build."""
    count: int = 0


class Specialized(Executable):
    """An `Executable` for dynamic sizes that dispatches calls to its specializations where they fit.

    It counts the calls by their shapes: `shape_counts`. A build that fixes more dims comes before one that fixes
    fewer.
    """

    def __init__(
        self, artifact: Artifact, store: ParameterStore, builds: Sequence[Artifact], device: int | None = None
    ) -> None:
        super().__init__(artifact, store, device)
        for build in builds:
            _check_build(artifact, build)
        ordered = sorted(builds, key=lambda build: -sum(isinstance(d, int) for s in build.inputs for d in s.shape))
        self.builds = tuple(Executable(build, store, device) for build in ordered)
        """The specializations, in the order in which they are tried."""
        self._seen: dict[Shapes, _InputShapes] = {}
        self._lock = make_lock()

    def __call__(
        self, *arrays: np.ndarray, out: GivenOutputs = None, **named: np.ndarray
    ) -> np.ndarray | tuple[np.ndarray, ...]:
        values = bind(self.inputs, arrays, named) if named else arrays
        call = self._call_for(values)
        return call(*values) if out is None else call(*values, out=out)

    def run(self, inputs: Mapping[str, np.ndarray], out: GivenOutputs = None) -> dict[str, np.ndarray]:
        values = bind(self.inputs, (), inputs)
        outputs = self._call_for(values)(*values, out=out)
        results = outputs if isinstance(outputs, tuple) else (outputs,)
        return {spec.name: array for spec, array in zip(self.outputs, results, strict=True)}

    def profile(
        self, *arrays: np.ndarray, repeats: int = 10, dims: Mapping[str, int] | None = None, **named: np.ndarray
    ) -> Profile:
        if not arrays and not named:
            named = self.random_inputs(dims=dims)
        values = bind(self.inputs, arrays, named)
        build = self._find(_shapes(values))
        return super().profile(*values, repeats=repeats) if build is None else build.profile(*values, repeats=repeats)

    def on_device(
        self, *arrays: object, stream: object = None, out: object = None, **named: object
    ) -> DeviceArray | tuple[DeviceArray, ...]:
        values = bind(self.inputs, arrays, named)
        build = self._find(_shapes(values))
        runner = super().on_device if build is None else build.on_device
        return runner(*values, stream=stream, out=out)

    def to(self, device: int) -> Specialized:
        return Specialized(self.artifact, self._weights(), [build.artifact for build in self.builds], device)

    @property
    def shape_counts(self) -> list[ShapeCount]:
        """Return the sizes that the model was called with, the most frequent first."""
        with self._lock:
            seen = [(shapes, entry.build, entry.count) for shapes, entry in self._seen.items()]
        totals: dict[tuple[tuple[str, int], ...], tuple[int, bool]] = {}
        for shapes, build, count in seen:
            dims = tuple(self._dims(shapes).items())
            totals[dims] = (totals.get(dims, (0, False))[0] + count, build is not None)
        counts = [ShapeCount(dict(dims), count, special) for dims, (count, special) in totals.items()]
        return sorted(counts, key=lambda each: -each.count)

    def hot_shapes(self, most: int) -> list[dict[str, int]]:
        """Return the most frequent sizes, as `mirlo.compile(..., specialize=...)` takes them."""
        return [dict(each.dims) for each in self.shape_counts[:most]]

    @property
    def memory(self) -> MemoryUse:
        """Return the memory of all builds: the weights, each once, and the largest arena."""
        every = [super().memory, *(build.memory for build in self.builds)]
        return MemoryUse(
            self._weights().nbytes,
            max(each.arena_bytes for each in every),
            sum(each.device_arena_bytes for each in every),
            any(each.is_dynamic for each in every),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        rows, code = [], []
        for artifact in self._artifacts():
            row, own = artifact_row(artifact)
            rows.append(row)
            code.append(own)
        store = self._weights()
        names = [TensorSpec(name, *store.spec(name)) for name in store]
        whole = Artifact(
            target=self.artifact.target, loader=LOADER, code=b"".join(code), entry="", inputs=self.artifact.inputs,
            outputs=self.artifact.outputs, params=tuple(names), arena_bytes=self.artifact.arena_bytes,
            threads=self.artifact.threads, kernels=self.artifact.kernels, metadata={"parts": rows},
        )  # fmt: skip
        artifacts.save(path, whole, store)

    def share_arenas(self, pool: ArenaPool) -> None:
        super().share_arenas(pool)
        for build in self.builds:
            build.share_arenas(pool)

    def release_arenas(self) -> None:
        super().release_arenas()
        for build in self.builds:
            build.release_arenas()

    def __repr__(self) -> str:
        count = len(self.builds)
        return f"{super().__repr__()[:-1]}; {count} specialized build{'s' if count != 1 else ''}>"

    def _artifacts(self) -> list[Artifact]:
        return [self.artifact, *(build.artifact for build in self.builds)]

    def _weights(self) -> ParameterStore:
        """Return the weights of all builds, each once."""
        store = ParameterStore()
        for each in (self, *self.builds):
            externals = [name for external in each.artifact.externals for name in external.stored_params]
            for name in (*(spec.name for spec in each.artifact.params), *externals):
                if name not in store:
                    store.add(name, each.weight(name))
        return store

    def _call_for(self, values: Sequence[np.ndarray]) -> Callable[..., np.ndarray | tuple[np.ndarray, ...]]:
        """Return the call of the build for these arrays, and count it."""
        try:
            seen = self._seen.get(tuple([value.shape for value in values]))
        except (AttributeError, TypeError):  # not arrays, or shapes that are not hashable
            return super().__call__
        if seen is None:
            seen = self._meet(_shapes(values))
            if seen is None:
                return super().__call__
        seen.count += 1
        return seen.call

    def _meet(self, shapes: Shapes | None) -> _InputShapes | None:
        """Choose the build for new shapes; return None if they fit no input."""
        if shapes is None or not _fits(self.artifact, shapes):
            return None
        build = self._find(shapes)
        seen = _InputShapes(build, super().__call__ if build is None else build.__call__)
        with self._lock:
            if len(self._seen) >= MAX_COUNTED_SHAPES:
                kept = sorted(self._seen.items(), key=lambda item: -item[1].count)[: MAX_COUNTED_SHAPES // 2]
                self._seen = dict(kept)
            return self._seen.setdefault(shapes, seen)

    def _find(self, shapes: Shapes | None) -> Executable | None:
        if shapes is None:
            return None
        return next((build for build in self.builds if _fits(build.artifact, shapes)), None)

    def _dims(self, shapes: Shapes) -> dict[str, int]:
        """Return the sizes of the symbolic dims; those of expressions follow from them."""
        dims: dict[str, int] = {}
        for spec, shape in zip(self.inputs, shapes, strict=True):
            for dim, size in zip(spec.shape, shape, strict=True):
                if isinstance(dim, str) and _is_name(dim):
                    dims[dim] = size
        return dims


def _shapes(values: Sequence[Any]) -> Shapes | None:
    try:
        return tuple(tuple(int(size) for size in value.shape) for value in values)
    except (AttributeError, TypeError, ValueError):
        return None


def _fits(artifact: Artifact, shapes: Shapes) -> bool:
    """Return whether the inputs may have these shapes, as far as their dims are integers or plain symbols."""
    if len(shapes) != len(artifact.inputs):
        return False
    sizes: dict[str, int] = {}
    for spec, shape in zip(artifact.inputs, shapes, strict=True):
        if len(shape) != len(spec.shape):
            return False
        for dim, size in zip(spec.shape, shape, strict=True):
            if isinstance(dim, int) and dim != size:
                return False
            if isinstance(dim, str) and _is_name(dim) and sizes.setdefault(dim, size) != size:
                return False
    return True


def _is_name(dim: str) -> bool:
    return dim.replace("_", "").replace(".", "").isalnum()


def _check_build(artifact: Artifact, build: Artifact) -> None:
    """Check that the builds are of one model: their inputs and outputs have the same names and types."""
    for own, other in ((artifact.inputs, build.inputs), (artifact.outputs, build.outputs)):
        if [(s.name, s.dtype, len(s.shape)) for s in own] != [(s.name, s.dtype, len(s.shape)) for s in other]:
            raise ArtifactError("the specialized builds of a model must have its inputs and outputs")


def read_builds(path: str | os.PathLike[str], artifact: Artifact, store: ParameterStore) -> list[Artifact]:
    """Return the artifacts in a file that was read: the general one, then the specializations."""
    fields = Fields(Path(path), "metadata", artifact.metadata, ArtifactError)
    parts, start = [], 0
    for row in fields.each("parts"):
        size = row.count("bytes")
        parts.append(read_artifact(row, artifact.target, artifact.code[start : start + size], store))
        start += size
    if not parts or start != len(artifact.code):
        raise fields.fail("parts", f"parts that fill the {len(artifact.code)} bytes of code in the file", start)
    return parts


def specialized_of(
    path: str | os.PathLike[str], artifact: Artifact, store: ParameterStore, device: int | None = None
) -> Specialized:
    """Return the model in a file that was read."""
    parts = read_builds(path, artifact, store)
    return Specialized(parts[0], store, parts[1:], device)
