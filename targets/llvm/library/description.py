"""The description of a model in a library, from which its object file, headers and build files are made."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from mirlo.passes.memory.packed import PASSES_RECORD
from mirlo.passes.registry import PassError
from mirlo.runtime import archive
from mirlo.runtime.artifact import Artifact, TensorSpec
from mirlo.runtime.dtypes import ELEMENT_TYPES
from mirlo.runtime.elf_linker import BadObject, symbols_of
from mirlo.runtime.external import ExternalArtifact
from mirlo.runtime.fat import LOADER as FAT
from mirlo.runtime.names import c_comment, c_identifier
from mirlo.runtime.native import NativeCode, is_native, native_code
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.records import dataclass
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

    error_code = "MIR0509"
    remedy = "Choose another name or form for the library, as the message says."


@dataclass(frozen=True)
class Weight:
    """A weight at an offset from the first one."""

    offset: int
    array: np.ndarray


@dataclass(frozen=True)
class LinkedCode:
    """The native code of a code generator in a library."""

    target: str
    prefix: str
    """The first letters of its files."""
    code: NativeCode
    renamed: Mapping[str, str]
    """The symbols of functions that its sources define: no other model of a program has them."""


@dataclass(frozen=True)
class LinkedFunction:
    """A function that a model calls: a region of a code generator, or a packed function."""

    name: str
    """The name by which the model calls it."""
    driver: str = ""
    """The name of a region's driver, by which programs register another; empty for a packed function."""
    symbol: str = ""
    """The symbol of the driver in object files."""
    is_defined: bool = False
    """Whether the library has the driver itself."""
    linked: int = -1
    """The position of the native code that the region is of."""
    offsets: tuple[int, ...] = ()
    """The offsets of the constants that a region takes."""
    program: int = 0
    """The offset of its program."""
    program_bytes: int = 0


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
    linked: tuple[LinkedCode, ...] = ()
    functions: tuple[LinkedFunction, ...] = ()
    """What the model calls, in the order of its calls."""

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

    @property
    def drivers(self) -> dict[str, list[str]]:
        """Return the drivers that programs link or register, with their regions."""
        regions: dict[str, list[str]] = {}
        for function in self.functions:
            if function.driver and not function.is_defined:
                regions.setdefault(function.driver, []).append(function.name)
        return regions

    @property
    def passes_record(self) -> bool:
        """Return whether calls of packed functions say which model they are of, as drivers need it."""
        return bool(self.artifact.metadata.get(PASSES_RECORD))

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
    identifier = library_name(name)
    weights_of = _WeightLayout()
    for spec in artifact.params:
        weights_of.add(spec.name, store.get(spec.name))
    linked, regions = _link(artifact, identifier, store, weights_of)
    functions = tuple(regions.get(called) or LinkedFunction(called) for called in artifact.packed)
    at = weights_of.end
    embedded = bool(at) and (weights == "embed" or (weights == "auto" and at <= embed_bytes))
    offsets = tuple(weights_of.places[spec.name] for spec in artifact.params)
    return Description(
        identifier, artifact, Sizes(artifact), tuple(weights_of.weights), offsets, at, _digest(weights_of.weights),
        embedded, linked, functions,
    )  # fmt: skip


class _WeightLayout:
    """The offsets of weights and programs, each once."""

    def __init__(self) -> None:
        self.places: dict[str | bytes, int] = {}
        self.weights: list[Weight] = []
        self.end = 0

    def add(self, key: str | bytes, array: np.ndarray) -> int:
        """Return the offset of an array, by the name of a weight or the bytes of a program."""
        if key not in self.places:
            at = -(-self.end // ALIGNMENT) * ALIGNMENT
            self.places[key] = at
            self.weights.append(Weight(at, array))
            self.end = at + max(array.nbytes, ALIGNMENT)
        return self.places[key]


def _link(
    artifact: Artifact, identifier: str, store: ParameterStore, layout: _WeightLayout
) -> tuple[tuple[LinkedCode, ...], dict[str, LinkedFunction]]:
    """Return the native code of the code generators, and the functions of it that the model calls, by name."""
    linked, functions = [], {}
    for number, external in enumerate(artifact.externals):
        code = _native(external)
        prefix = f"{c_identifier(external.target)}{number}"
        symbols = {
            code.function(name): f"mirlo_{identifier}_{prefix}_{code.function(name)}" for name in external.functions
        }
        in_objects = {symbol for content in code.objects.values() for symbol in defined_symbols(content)}
        renamed = {name: new for name, new in symbols.items() if code.sources and name not in in_objects}
        linked.append(LinkedCode(external.target, prefix, code, renamed))
        offsets = tuple(layout.add(name, store.get(name)) for name in external.stored_params)
        for name in external.functions:
            driver, program = code.function(name), code.programs.get(name, b"")
            place = layout.add(bytes(program), np.frombuffer(program, np.uint8)) if program else 0
            called = external.packed_name(name)
            functions[called] = LinkedFunction(
                called, driver, renamed.get(driver, driver), code.is_defined, number, offsets, place,
                len(program),
            )  # fmt: skip
    return tuple(linked), functions


def _native(external: ExternalArtifact) -> NativeCode:
    if is_native(external):
        return native_code(external)
    if external.format == "c":
        raise LibraryError("the parts of the model in C are those of an older version: compile the model again")
    raise LibraryError(
        f"the code generator of target '{external.target}' compiled parts of the model that only its loader "
        f"'{external.format}' calls, in Python: without it, compile for the other targets alone; with it, its "
        "'codegen' must return NativeCode: C source, object files, or programs and the name of a driver"
    )


def defined_symbols(content: bytes) -> set[str]:
    """Return the symbols that an object file or an archive of them defines; none of forms that are not known."""
    defined: set[str] = set()
    for _, member in object_members("", content):
        try:
            defined |= symbols_of(member).defined
        except BadObject:
            continue
    return defined


def object_members(name: str, content: bytes) -> list[tuple[str, bytes]]:
    """Return the object files of an archive, or the one object file that this is, by name."""
    if not archive.is_archive(content):
        return [(name, content)]
    return [(member, each) for member, each in archive.unpack(content) if member and member != "/SYM64"]


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
    if artifact.externals and not artifact.metadata.get(PASSES_RECORD):
        for external in artifact.externals:
            _native(external)
        raise LibraryError("the model was compiled by an older version, whose code calls no drivers: compile it again")


def _line(spec: TensorSpec) -> str:
    dims = ", ".join(str(dim) for dim in spec.shape)
    return c_comment(f"{spec.name}: {spec.dtype}[{dims}]")
