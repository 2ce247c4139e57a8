"""The description of a model in a library, from which its object file, headers and build files are made."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mirlo.passes.registry import PassError
from mirlo.runtime.artifact import Artifact, TensorSpec
from mirlo.runtime.dtypes import ELEMENT_TYPES
from mirlo.runtime.external import ExternalArtifact
from mirlo.runtime.fat import LOADER as FAT
from mirlo.runtime.names import c_comment, c_identifier
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.sizes import Sizes
from mirlo.runtime.specialized import LOADER as SPECIALIZED

ALIGNMENT = 64
"""Bytes whose multiples weights are on: a cache line, and the largest vector."""
EMBED_BYTES = 64 << 20
"""Most bytes of weights that go into an object file where nothing else is asked for: more take long to link."""
HEADER_BYTES = 64
MAGIC = b"MIRLOWT1"
"""First bytes of a file of weights; its digest and zeros fill the header."""


class LibraryError(PassError):
    """Raised for a model, or options, of which no library can be made."""


@dataclass(frozen=True)
class Weight:
    """A weight at an offset from the first one."""

    offset: int
    array: np.ndarray


@dataclass(frozen=True)
class CPart:
    """What target `c` compiled of a model: a source file, whose functions the model calls."""

    source: str
    functions: tuple[tuple[str, str], ...]
    """The name by which the model calls a function, and its name in the source."""
    offsets: tuple[int, ...]
    """The offsets of the weights that its functions take."""


@dataclass(frozen=True)
class Description:
    """A model in a library."""

    name: str
    """An identifier of C."""
    artifact: Artifact
    sizes: Sizes
    weights: tuple[Weight, ...]
    """The distinct weights, by offset."""
    offsets: tuple[int, ...]
    """The offset of each parameter of the entry function."""
    weights_bytes: int
    digest: bytes
    embedded: bool
    parts: tuple[CPart, ...] = ()

    @property
    def symbol(self) -> str:
        """Return the name of the descriptor, the only symbol that a library exports."""
        return f"mirlo_model_{self.name}"

    @property
    def weights_symbol(self) -> str:
        """Return the name of the first byte of embedded weights."""
        return f"mirlo_weights_{self.name}"

    @property
    def weights_file(self) -> str:
        """Return the name of the file of weights."""
        return f"{self.name}.weights"

    def in_place(self, output: TensorSpec) -> int:
        """Return 1 + the number of the input whose memory an output may have, which updates it; 0 for none."""
        source = self.artifact.aliases.get(output.name)
        names = [spec.name for spec in self.artifact.inputs]
        return names.index(source) + 1 if source is not None else 0

    def part_symbol(self, number: int, function: str) -> str:
        """Return the symbol of a function of a part in C, which no other model of a program has."""
        return f"mirlo_{self.name}_part{number}_{c_identifier(function)}"

    def signature(self) -> list[str]:
        """Return the inputs and outputs as lines for a comment."""
        rows = [("input", self.artifact.inputs), ("output", self.artifact.outputs)]
        return [f"{kind} {i}: {_line(spec)}" for kind, specs in rows for i, spec in enumerate(specs)]


def describe(
    artifact: Artifact, store: ParameterStore, name: str, weights: str = "auto", embed_bytes: int = EMBED_BYTES
) -> Description:
    """Describe a model; `weights` are to be embedded ("embed"), in a file ("beside"), or either ("auto").

    For "auto" at most `embed_bytes` are embedded.
    """
    if artifact.loader in (FAT, SPECIALIZED):
        several = "processors" if artifact.loader == FAT else "sizes"
        raise LibraryError(f"the model has builds for several {several}, and a library has one: compile it for one")
    if artifact.loader not in ("llvm", "source"):
        raise LibraryError(
            f"a library is made of models for target 'llvm', found one for '{artifact.target}' (loader "
            f"'{artifact.loader}')"
        )
    _require_supported(artifact)
    places: dict[str, int] = {}
    weight_list: list[Weight] = []
    at = 0
    names = [spec.name for spec in artifact.params]
    names += [name for external in artifact.externals for name in external.params]
    for param in dict.fromkeys(names):
        array = store.get(param)
        at = -(-at // ALIGNMENT) * ALIGNMENT
        places[param] = at
        weight_list.append(Weight(at, array))
        at += max(array.nbytes, ALIGNMENT)
    embedded = bool(at) and (weights == "embed" or (weights == "auto" and at <= embed_bytes))
    identifier = library_name(name)
    offsets = tuple(places[spec.name] for spec in artifact.params)
    parts = tuple(_part(external, places) for external in artifact.externals)
    return Description(
        identifier, artifact, Sizes(artifact), tuple(weight_list), offsets, at, _digest(weight_list), embedded, parts
    )


def _part(external: ExternalArtifact, places: Mapping[str, int]) -> CPart:
    symbols = external.metadata.get("symbols")
    if not isinstance(symbols, Mapping) or not all(
        isinstance(symbols.get(name), str) and c_identifier(symbols[name]) == symbols[name]
        for name in external.functions
    ):
        raise LibraryError("the parts of the model in C do not name their functions: compile the model again")
    functions = tuple((external.packed_name(name), str(symbols[name])) for name in external.functions)
    return CPart(str(external.metadata["source"]), functions, tuple(places[name] for name in external.params))


def type_code(dtype: str) -> int | None:
    """Return DLPack's code of an element type; integers of a few bits are bytes, one for each."""
    code = ELEMENT_TYPES[dtype].dlpack_code
    if code is None and dtype[0] in "iu":
        return ELEMENT_TYPES[f"{dtype[0]}8"].dlpack_code
    return code


def library_name(text: str) -> str:
    """Return the identifier of a model with this name."""
    name = c_identifier(text)
    if len(name) > 128:
        raise LibraryError(
            f"the name of the library is longer than 128 characters: name it with --name, found {text!r}"
        )
    return name


def padded(weights: Sequence[Weight], total: int) -> Iterator[bytes | memoryview]:
    """Yield the bytes of the weights in order, with zeros between and after them."""
    at = 0
    for weight in weights:
        yield bytes(weight.offset - at)
        content = np.ascontiguousarray(weight.array).reshape(-1).view(np.uint8)
        yield content.data
        at = weight.offset + content.nbytes
    yield bytes(total - at)


def _digest(weights: Sequence[Weight]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for weight in weights:
        digest.update(f"{weight.offset} {weight.array.nbytes}\n".encode())
        digest.update(np.ascontiguousarray(weight.array).reshape(-1).view(np.uint8).data)
    return digest.digest()


def _require_supported(artifact: Artifact) -> None:
    for spec in (*artifact.inputs, *artifact.outputs):
        if type_code(spec.dtype) is None:
            raise LibraryError(
                f"'{c_comment(spec.name)}' has elements of type {spec.dtype}, which DLPack packs and Mirlo does not: "
                "cast it to another type in the model"
            )
    for external in artifact.externals:
        if external.format == "c" and isinstance(external.metadata.get("source"), str):
            continue
        raise LibraryError(
            f"target '{external.target}' compiled parts of the model, which its loader '{external.format}' calls from "
            "Python: compile the whole model for 'llvm', or for 'c,llvm'"
        )


def _line(spec: TensorSpec) -> str:
    dims = ", ".join(str(dim) for dim in spec.shape)
    return c_comment(f"{spec.name}: {spec.dtype}[{dims}]")
