"""The artifact: a compiled model as data, and its `.mirlo` file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirlo.runtime.container import FileKind, read_file, write_file
from mirlo.runtime.errors import ArtifactError, ParameterError
from mirlo.runtime.fields import Fields, Json
from mirlo.runtime.names import PAGE_ROLES, is_printable, terminal
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.runtime.external import ExternalArtifact

CACHE_RANK = 4
"""Dims of a cache: [batch, heads, rows, size]."""
MAX_WINDOW = 1 << 40
"""Most tokens of a window; what is larger is not a number of tokens."""
MODEL_FILE = FileKind(b"EXEC", "compiled model (.mirlo)", version=3, error=ArtifactError)


@dataclass(frozen=True)
class TensorSpec:
    """The name and type of an input, an output or a parameter; a symbolic dim is a string."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    @property
    def static_shape(self) -> tuple[int, ...]:
        """Return the shape, all of whose dims must be static."""
        return tuple(int(dim) for dim in self.shape)

    def __str__(self) -> str:
        return f"{terminal(self.name)}: {describe(self.dtype, self.shape)}"


@dataclass(frozen=True)
class KernelInfo:
    """One kernel call of the entry function, in call order."""

    symbol: str
    source: str
    """The names of the user's nodes that the kernel computes."""
    kind: str
    flops: int
    bytes: int
    """Lower bound of the bytes read and written."""
    cycles: int = 0
    """Cycles of a core that the target's cost model expects; 0 where it has no estimate."""
    inside: int = 0
    """How many of the next calls are inside of it, if it is control flow."""


@dataclass
class Artifact:
    """A compiled model without its parameters."""

    target: str
    loader: str
    """Name of the loader of `code`."""
    code: bytes
    entry: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    params: tuple[TensorSpec, ...]
    """Names in the parameter store, in the order of the entry function's params array."""
    arena_bytes: int
    kernels: tuple[KernelInfo, ...] = ()
    threads: int = 1
    metadata: dict[str, Any] = field(default_factory=dict)
    """JSON values for loaders and tools. `packed`: names of the packed functions that the model calls."""
    externals: tuple[ExternalArtifact, ...] = ()
    """The external modules, compiled by other code generators."""

    @property
    def packed(self) -> tuple[str, ...]:
        """Return the names of the packed functions that the model calls."""
        names = self.metadata.get("packed", [])
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
            raise ArtifactError(f"metadata 'packed': expected a list of function names, found {names!r}")
        return tuple(names)

    @property
    def late(self) -> tuple[str, ...]:
        """Return the data-dependent dims of the outputs."""
        names = self.metadata.get("late", [])
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
            raise ArtifactError(f"metadata 'late': expected a list of texts, found {names!r}")
        return tuple(names)

    @property
    def aliases(self) -> dict[str, str]:
        """Return the inputs whose memory outputs may have, by the names of the outputs."""
        declared = self.metadata.get("aliases", {})
        inputs = {spec.name: spec for spec in self.inputs}
        outputs = {spec.name: spec for spec in self.outputs}
        if not isinstance(declared, dict):
            raise ArtifactError(f"metadata 'aliases': expected inputs by outputs, found {declared!r}")
        for output, source in declared.items():
            if output not in outputs or not isinstance(source, str) or source not in inputs:
                raise ArtifactError(
                    f"metadata 'aliases': {output!r} and {source!r} are no output and input of the model"
                )
            if (inputs[source].dtype, len(inputs[source].shape)) != (outputs[output].dtype, len(outputs[output].shape)):
                raise ArtifactError(
                    f"metadata 'aliases': output {outputs[output]} cannot have the memory of input {inputs[source]}"
                )
        if len(set(declared.values())) != len(declared):
            raise ArtifactError("metadata 'aliases': two outputs have the memory of one input")
        return dict(declared)

    @property
    def windows(self) -> dict[str, int]:
        """Return the inputs that are caches of windows, rings of rows, with the tokens of a window."""
        declared = self.metadata.get("windows", {})
        inputs = {spec.name: spec for spec in self.inputs}
        if not isinstance(declared, dict):
            raise ArtifactError(f"metadata 'windows': expected tokens by inputs, found {declared!r}")
        for name, tokens in declared.items():
            if name not in inputs or len(inputs[name].shape) != CACHE_RANK:
                raise ArtifactError(f"metadata 'windows': {name!r} is not an input that is a cache")
            if not isinstance(tokens, int) or isinstance(tokens, bool) or not 1 <= tokens <= MAX_WINDOW:
                raise ArtifactError(f"metadata 'windows': expected a number of tokens for {name!r}, found {tokens!r}")
        return dict(declared)

    @property
    def pages(self) -> dict[str, str]:
        """Return the roles of inputs in attentions with caches in pages, by their names: one of `PAGE_ROLES`."""
        declared = self.metadata.get("pages", {})
        names = {spec.name for spec in self.inputs}
        if not isinstance(declared, dict) or not all(n in names and declared[n] in PAGE_ROLES for n in declared):
            raise ArtifactError(
                f"metadata 'pages': expected one of {', '.join(PAGE_ROLES)} by inputs, found {declared!r}"
            )
        return dict(declared)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Return the symbolic dims in the order of their first use by the inputs."""
        dims = (dim for spec in self.inputs for dim in spec.shape if isinstance(dim, str))
        return tuple(dict.fromkeys(dims))


def describe(dtype: str, shape: Sequence[int | str]) -> str:
    """Format a type for messages and listings: `f32[batch, 128]`."""
    return f"{dtype}[{terminal(', '.join(map(str, shape)))}]"


def check_caches(artifact: Artifact) -> None:
    """Raise an error if the metadata name caches that the model does not have."""
    _ = artifact.windows, artifact.pages


def check_params(artifact: Artifact, store: ParameterStore) -> None:
    """Raise an error if the store lacks a parameter of the artifact or holds it with another type."""
    for spec in artifact.params:
        try:
            dtype, shape = store.spec(spec.name)
        except ParameterError as missing:
            raise ArtifactError(f"the compiled model's weights are not in the store: {missing}") from None
        if (dtype, shape) != (spec.dtype, spec.shape):
            expected, actual = describe(spec.dtype, spec.shape), describe(dtype, shape)
            raise ArtifactError(f"parameter '{spec.name}': compiled for {expected}, the store has {actual}")
    for external in artifact.externals:
        for name in external.stored_params:
            if name not in store:
                raise ArtifactError(
                    f"target '{external.target}' compiled a part of the model that takes the parameter '{name}', which "
                    "is not in the store"
                )


def save(path: str | os.PathLike[str], artifact: Artifact, store: ParameterStore) -> None:
    """Write a compiled model and its parameters to one file."""
    check_params(artifact, store)
    header = asdict(replace(artifact, code=b"", externals=()))
    del header["code"], header["externals"]
    header["params"] = [spec.name for spec in artifact.params]
    # The params array may name a parameter twice; the file stores it once.
    names = dict.fromkeys(spec.name for spec in artifact.params)
    code = artifact.code
    if artifact.externals:
        rows, code = with_externals(artifact)
        header.update(rows)
        names |= dict.fromkeys(name for external in artifact.externals for name in external.stored_params)
    _check_names(os.fspath(path), artifact, names)
    tensors = [(name, *store.spec(name)) for name in names]
    code += seal(_header(path, header), tensors)
    write_file(path, MODEL_FILE, header, code, tensors, store.reader_in_turn())


def _header(path: str | os.PathLike[str], header: Mapping[str, object]) -> dict[str, Json]:
    """Return the header as a reader of the file parses it."""
    try:
        result: dict[str, Json] = json.loads(json.dumps(header))
    except (TypeError, ValueError) as failure:
        what = f"the header of the {MODEL_FILE.noun} cannot be written as JSON"
        raise ArtifactError(f"{os.fspath(path)}: {what}: {failure}") from None
    return result


def _check_names(path: str, artifact: Artifact, params: Iterable[str]) -> None:
    """Reject names that a reader would refuse."""
    specs = (*artifact.inputs, *artifact.outputs)
    for name in (
        *(spec.name for spec in specs),
        *(d for spec in specs for d in spec.shape if isinstance(d, str)),
        *params,
    ):
        if not is_printable(name):
            raise ArtifactError(f"{path}: the name {name!a} cannot be saved: it is not printable; give it another one")


def load(path: str | os.PathLike[str]) -> tuple[Artifact, ParameterStore]:
    """Read a compiled model; its parameters stay memory-mapped."""
    target = Path(path)
    opened = read_file(target, MODEL_FILE)
    header = opened.header
    content, sealed = split_seal(opened.code)
    store = ParameterStore()
    store.add_file(opened)
    code, externals = split_externals(header, content, store)
    artifact = Artifact(
        target=header.name("target"),
        loader=header.name("loader"),
        code=code,
        entry=header.name("entry"),
        inputs=tuple(spec_of(row) for row in header.each("inputs")),
        outputs=tuple(spec_of(row) for row in header.each("outputs")),
        params=_params(header, store),
        arena_bytes=header.count("arena_bytes"),
        kernels=tuple(kernel_of(row) for row in header.each("kernels")),
        threads=header.threads("threads"),
        metadata=checked_metadata(header),
        externals=externals,
    )
    # Files of formats 1 and 2 have no seal; those of this one always do.
    rows = ((tensor.name, tensor.dtype, tensor.shape) for tensor in opened.tensors)
    if (opened.version >= 3 or sealed is not None) and sealed != seal(header.content, rows):
        raise ArtifactError(
            f"{target}: the file is damaged: its header does not describe its code: a field was changed after the "
            "model was compiled; compile the model again"
        )
    return artifact, store


def checked_metadata(row: Fields) -> dict[str, Any]:
    """Return the metadata of an artifact that a row of a header describes."""
    check_facts(row.object("metadata"))
    return row.mapping("metadata")


def spec_of(row: Fields) -> TensorSpec:
    """Return the input or output that a row of a header describes."""
    return TensorSpec(row.name("name"), row.dtype("dtype"), row.symbolic_shape("shape"))


def kernel_of(row: Fields) -> KernelInfo:
    """Return the call of a kernel that a row of a header describes."""
    cycles, inside = (row.count(name) if name in row.content else 0 for name in ("cycles", "inside"))
    return KernelInfo(
        row.text("symbol"), row.text("source"), row.text("kind"), row.count("flops"), row.count("bytes"), cycles, inside
    )


def _params(header: Fields, store: ParameterStore) -> tuple[TensorSpec, ...]:
    specs = []
    for index, name in enumerate(header.texts("params")):
        if name not in store:
            raise header.fail(f"params[{index}]", "the name of a tensor in the file", name)
        specs.append(TensorSpec(name, *store.spec(name)))
    return tuple(specs)


def with_externals(artifact: Artifact) -> tuple[dict[str, object], bytes]:
    """Return an artifact's code and that of its external artifacts, and the header fields to split them."""
    rows = [_external_row(external) for external in artifact.externals]
    code = b"".join([artifact.code, *(external.data for external in artifact.externals)])
    return {"externals": rows, "code_bytes": len(artifact.code)}, code


def _external_row(external: ExternalArtifact) -> dict[str, object]:
    return {
        "target": external.target,
        "format": external.format,
        "functions": list(external.functions),
        "params": list(external.params),
        "metadata": dict(external.metadata),
        "bytes": len(external.data),
        **({"stored": dict(external.stored)} if external.stored else {}),
    }


def split_externals(header: Fields, code: bytes, store: ParameterStore) -> tuple[bytes, tuple[ExternalArtifact, ...]]:
    """Split what `with_externals` returned into the code and the external artifacts."""
    if not header.has("externals"):
        return code, ()
    from mirlo.runtime.external import ExternalArtifact  # few models have parts that other compilers made

    start = own = header.count("code_bytes")
    externals = []
    for row in header.each("externals"):
        size = row.count("bytes")
        if start + size > len(code):
            raise row.fail(f"{row.place}.bytes", f"at most the {len(code)} bytes of code in the file", start + size)
        external = ExternalArtifact(
            format=row.name("format"), functions=row.texts("functions"), data=code[start : start + size],
            params=row.texts("params"), metadata=row.mapping("metadata"), target=row.name("target"),
            stored={name: str(stored) for name, stored in row.mapping("stored").items()} if row.has("stored") else {},
        )  # fmt: skip
        for name in external.stored_params:
            if name not in store:
                raise row.fail(f"{row.place}.params", "names of tensors in the file", name)
        externals.append(external)
        start += size
    if start != len(code):
        raise header.fail("externals", f"parts that fill the {len(code)} bytes of code in the file", start)
    return code[:own], tuple(externals)


TEXTS = ("symbols", "sizes", "checks", "shown", "late", "packed", "approximations", "activations")
"""Lists of texts: dims, what is checked of them, functions of the run time, and deviations from the model."""
FLAGS = ("allocates", "passes_record")
DIMS = ("symbols", "sizes", "late")
"""Those of them that are dims: none is empty."""


def check_facts(metadata: Fields) -> None:
    """Raise an error where metadata are not what the run time and the reports expect.

    Loaders check what only they read.
    """
    for name in TEXTS:
        if metadata.has(name) and not all(metadata.texts(name)) and name in DIMS:
            raise metadata.fail(f"{metadata.place}.{name}", "dims that are not empty", "")
    if metadata.has("memory"):
        plan = metadata.object("memory")
        plan.count("bound"), plan.count("in_place")
        if plan.has("buffers"):
            for buffer in plan.each("buffers"):
                [buffer.count(name) for name in ("offset", "bytes", "first", "last")]
    if metadata.has("placement"):
        placement = metadata.object("placement")
        placement.name("by"), placement.name("taken")
    if metadata.has("regions"):
        for region in metadata.each("regions"):
            _check_region(region)
    for name in FLAGS:
        if metadata.has(name):
            metadata.flag(name)


def _check_region(region: Fields) -> None:
    region.name("name"), region.name("target"), region.text("loader"), region.texts("needs")
    if region.has("operators"):
        region.count("operators")
    share = region.content.get("share", 0)
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise region.fail(f"{region.place}.share", "a number from 0 to 1", share)


SEAL_MAGIC = b"MIRLOABI"
SEAL_DIGEST_BYTES = 16


def seal(header: Mapping[str, object], tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> bytes:
    """Return the seal of a header and of the names and types of its tensors, but not of their offsets.

    Code reads and writes memory by the sizes that it was compiled for. The checksum of a file detects damage; the seal,
    a digest that is stored with the code, checks that the header describes this code, even if the checksum was
    recomputed after a change. It is not a signature: an author of machine code can write its seal.
    """
    facts = {name: value for name, value in header.items() if name != "tensors"}
    rows = [[name, dtype, list(shape)] for name, dtype, shape in tensors]
    text = json.dumps([facts, rows], sort_keys=True, separators=(",", ":"))
    return SEAL_MAGIC + hashlib.blake2b(text.encode(), digest_size=SEAL_DIGEST_BYTES).digest()


def split_seal(code: bytes) -> tuple[bytes, bytes | None]:
    """Return the code, and the seal after it, if there is one."""
    at = len(code) - len(SEAL_MAGIC) - SEAL_DIGEST_BYTES
    return (code[:at], code[at:]) if at >= 0 and code[at : at + len(SEAL_MAGIC)] == SEAL_MAGIC else (code, None)
