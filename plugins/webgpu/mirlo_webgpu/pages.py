"""`mirlo compile MODEL --emit webgpu`: a folder for pages: kernels in WGSL, their steps, weights, JavaScript."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from pathlib import Path

from mirlo.extend.gpu import CallFrame, Frames, LaunchStep, Region, StepRange, constants_of
from mirlo.extend.runtime import ArtifactError, ModelArtifact, ParameterStore, TensorSpec
from mirlo.extend.target import LibraryForm
from mirlo_webgpu.ranges import bound_size, resolve, words

SCRIPT = Path(__file__).parent / "page" / "index.js"
ARRAYS = frozenset({"f32", "f16", "bf16", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool"})
"""Element types with a JavaScript array type; `index.js` has the same list."""
ARENA, TENSORS, SCRATCH, WEIGHTS = range(4)
"""Buffer numbers; the weights, then the constants, come last."""
BoundRange = tuple[int, int, int]
"""The number of a buffer, an offset and a size in bytes."""


def write_pages(
    artifact: ModelArtifact, store: ParameterStore, folder: Path, name: str, weights: str = "auto"
) -> Sequence[Path]:
    """Write a compiled model for pages; return the files."""
    if artifact.loader != "webgpu":
        raise ArtifactError("pages run kernels in WGSL: leave out --target, or name --target webgpu")
    if weights == "embed":
        raise ArtifactError("models of pages have their weights in a file: leave out --weights")
    facts, content = describe(artifact, store, name)
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "index.js": SCRIPT.read_bytes(), "model.json": json.dumps(facts).encode(), "model.weights": content,
    }  # fmt: skip
    for each, data in files.items():
        (folder / each).write_bytes(data)
    return [folder / each for each in files]


def describe(artifact: ModelArtifact, store: ParameterStore, name: str) -> tuple[dict[str, object], bytes]:
    """Return the description that `index.js` reads, and the bytes of the weights."""
    frames = Frames(artifact)
    if frames.host is not None or not frames.is_straight:
        raise ArtifactError(
            "pages run models whose sizes are known: name those that are open, for example --dim batch=1; sizes that "
            "data determine need the host's functions, which browsers do not run"
        )
    other = [spec.name for spec in (*artifact.inputs, *artifact.outputs) if str(spec.dtype) not in ARRAYS]
    if other:
        raise ArtifactError(f"'{other[0]}' has elements that JavaScript has no arrays of")
    frame = frames.of((ctypes.c_int64 * max(frames.sizes.words, 1))())
    weights = [store.get(spec.name).tobytes() for spec in artifact.params]
    table = _Table(artifact, frame, [*weights, *constants_of(artifact)], len(weights))
    steps = [each for step in frame.steps or () for each in table.steps(step)]
    places, content = _concatenate(table.weights)
    inputs = len(artifact.inputs)
    return {
        "name": name, "inputs": _tensors(artifact.inputs, frame.regions[:inputs]),
        "outputs": _tensors(artifact.outputs, frame.regions[inputs:]), "tensors": frame.total, "arena": frame.arena,
        "scratch": table.scratch, "weights": places, "weightsBytes": len(content), "kernels": table.kernels,
        "steps": steps, "limits": table.limits(),
    }, content  # fmt: skip


class _Table:
    """The kernels and steps of a model in the form that `index.js` reads."""

    def __init__(self, artifact: ModelArtifact, frame: CallFrame, weights: Sequence[bytes], params: int) -> None:
        self.weights = weights
        self.scratch = 0
        self.kernels: list[dict[str, object]] = []
        self._artifact = artifact
        self._frame = frame
        self._params = params
        self._numbers: dict[str, int] = {}
        self._buffers = self._largest = 0

    def steps(self, step: LaunchStep) -> list[dict[str, object]]:
        """Return the steps of a launch; copies within a buffer and ranges bound twice use scratch memory."""
        if "copy" in step:
            source, target = (self._range(where) for where in step["copy"])
            return self._copies(source, target)
        arguments = [(i, each) for i, each in enumerate(step["arguments"]) if isinstance(each, tuple)]
        ranges = [self._range(where) for _, where in arguments]
        is_written = [i in step["writes"] for i, _ in arguments]
        copies, free = self._separate(ranges, is_written)
        self.scratch = max(self.scratch, free)
        scalars = [each for each in step["arguments"] if isinstance(each, int)]
        bound = [(number, offset, bound_size(size)) for number, offset, size in ranges]
        self._buffers = max(self._buffers, len(bound) + bool(scalars))
        self._largest = max([self._largest, *(size for *_, size in bound)])
        kernel = self._kernel(step["kernel"], len(bound) + bool(scalars), bool(scalars))
        return [*copies, {"kernel": kernel, "grid": step["grid"], "ranges": bound, "scalars": scalars}]

    @staticmethod
    def _separate(ranges: list[BoundRange], is_written: Sequence[bool]) -> tuple[list[dict[str, object]], int]:
        """Replace read-only ranges that overlap others by copies in scratch; return the steps of these copies.

        Browsers refuse two bindings of memory of which a kernel may write one.
        """
        copies: list[dict[str, object]] = []
        free = 0
        for position, place in enumerate(ranges):
            other = next((i for i in range(position) if _overlap(place, ranges[i])), None)
            if other is None:
                continue
            read = other if is_written[position] else position
            number, offset, size = ranges[read]
            copies.append({"copy": [(number, offset, size), (SCRATCH, free, size)]})
            ranges[read] = (SCRATCH, free, size)
            free += -(-size // 256) * 256
        return copies, free

    def _copies(self, source: BoundRange, target: BoundRange) -> list[dict[str, object]]:
        size = source[2]
        if source[0] != target[0]:
            return [{"copy": [source, target[:2] + (size,)]}]
        self.scratch = max(self.scratch, words(size))
        return [{"copy": [source, (SCRATCH, 0, size)]}, {"copy": [(SCRATCH, 0, size), target[:2] + (size,)]}]

    def _range(self, where: StepRange) -> BoundRange:
        space, number, offset, size = resolve(where, self._frame, [len(data) for data in self.weights], self._params)
        buffer = {"arena": ARENA, "tensor": TENSORS}.get(space, WEIGHTS + number)
        return buffer, offset, size

    def _kernel(self, name: str, bindings: int, reads_scalars: bool) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self.kernels)
            entry = self._artifact.metadata["kernels"][name]
            at, size = entry["code"]
            self.kernels.append({
                "code": self._artifact.code[at : at + size].decode(), "entry": entry["entry"], "bindings": bindings,
                "scalars": reads_scalars,
            })  # fmt: skip
        return self._numbers[name]

    def limits(self) -> dict[str, int]:
        """Return the limits that the model needs beyond the guaranteed ones."""
        buffers = [self._frame.arena, self._frame.total, self.scratch, *map(len, self.weights)]
        needed = {
            "maxStorageBuffersPerShaderStage": (self._buffers, 8), "maxBufferSize": (max(buffers), 1 << 28),
            "maxStorageBufferBindingSize": (self._largest, 1 << 27),
        }  # fmt: skip
        return {name: number for name, (number, default) in needed.items() if number > default}


def _overlap(one: BoundRange, other: BoundRange) -> bool:
    return one[0] == other[0] and one[1] < other[1] + other[2] and other[1] < one[1] + one[2]


def _tensors(specs: Sequence[TensorSpec], regions: Sequence[Region]) -> list[dict[str, object]]:
    return [
        {"name": spec.name, "type": str(spec.dtype), "dims": list(spec.shape), "offset": r.offset, "bytes": r.size}
        for spec, r in zip(specs, regions, strict=True)
    ]


def _concatenate(parts: Sequence[bytes]) -> tuple[list[tuple[int, int]], bytes]:
    """Return the offsets of parts in a file, and its bytes."""
    places, at = [], 0
    for part in parts:
        places.append((at, len(part)))
        at += words(len(part))
    return places, b"".join(part.ljust(words(len(part)), b"\0") for part in parts)


FORM = LibraryForm(
    "webgpu", "a folder for pages: kernels in WGSL, their steps, weights, JavaScript", write_pages, as_loaded=True,
    target="webgpu",
)  # fmt: skip
