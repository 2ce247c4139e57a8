"""Native code: what C calls for the regions of a code generator, in Python and on devices without Python.

    NativeCode(sources={"unit.c": text}, params=tuple(module.constants))         # a C function for each region
    NativeCode(objects={"unit.o": content}, triple="aarch64-unknown-linux-gnu")  # the same, compiled
    NativeCode(driver="unit_run", programs={"unit_0": commands})                 # bytes, and a driver that runs them

A function of a region is `int NAME(const mirlo_region *region, DLTensor **tensors, int64_t count)` of `mirlo.h`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from mirlo.runtime import archive
from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.external import ExternalArtifact
from mirlo.runtime.names import c_identifier
from mirlo.runtime.records import dataclass

FORMAT = "c"
"""The loader of external artifacts that are native code."""
KEY = "native"
"""The entry of an artifact's metadata that describes native code."""
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LIBRARY = "library"


@dataclass(frozen=True)
class NativeCode:
    """The functions of regions that C calls: as C source, as object files, or as programs of a driver."""

    functions: Mapping[str, str] = field(default_factory=dict)
    """The C function of each region; by default the region's name."""
    driver: str = ""
    """The C function of all regions that `functions` does not name."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """C files by name, which are compiled with the model and may include `mirlo.h`. Functions other than those of
    regions should be static, so that they clash with none of the user's program."""
    objects: Mapping[str, bytes] = field(default_factory=dict)
    """Object files, or archives of them, by name."""
    triple: str = ""
    """The machine that `objects` are for."""
    programs: Mapping[str, bytes] = field(default_factory=dict)
    """By region: the bytes that its function finds in `region->program`."""
    workspaces: Mapping[str, object] = field(default_factory=dict)
    """By region: the bytes of scratch memory that its function gets as the last tensor, a number or a product of dims
    of its inputs."""
    params: Sequence[str] = ()
    """Names of the constants that the functions find in `region->weights`, in this order."""
    simulator: Mapping[str, str] = field(default_factory=dict)
    """C files that define the driver on the compiling machine, for calls from Python; no library has them."""
    flags: Sequence[str] = ()
    """Further flags for the C compiler."""
    errors: Mapping[int, str] = field(default_factory=dict)
    """What the functions' return codes mean."""
    loader: str = ""
    """The external loader that Python uses in place of these functions, such as a simulator in Python."""
    library: bytes = b""
    """All of it as a shared library of the compiling machine; without it, loading compiles it."""
    library_triple: str = ""
    """The machine of `library`."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Further JSON values for `loader`, and for the generator's `files`."""

    @property
    def is_defined(self) -> bool:
        """Return whether the functions of regions are here, not in a driver that programs link or register."""
        return bool(self.sources or self.objects)

    def function(self, region: str) -> str:
        """Return the C function of a region."""
        return self.functions.get(region) or self.driver or c_identifier(region)

    def problem(self, regions: Sequence[str]) -> str | None:
        """Return what is wrong with this as the native code of these regions, or None."""
        if self.objects and not self.triple:
            return "whose objects have no triple: name the machine that they are for"
        if not (self.is_defined or self.driver or self.functions):
            return "that defines nothing: give it sources, objects, or the name of a driver"
        return self._problem_of_regions(regions) or self._problem_of_contents()

    def _problem_of_regions(self, regions: Sequence[str]) -> str | None:
        for name in ("functions", "programs", "workspaces"):
            for region in getattr(self, name):
                if region not in regions:
                    return f"whose {name} name the region '{region}', which the module does not have"
        for region in regions:
            if not _IDENTIFIER.fullmatch(self.function(region)):
                return f"whose function of the region '{region}' is {self.function(region)!r}: expected a name of C"
        return None

    def _problem_of_contents(self) -> str | None:
        for name in ("sources", "objects", "simulator"):
            for file in getattr(self, name):
                if not _FILE.fullmatch(file):
                    return f"whose {name} have a file {file!r}: expected a file name without a folder"
        for region, program in self.programs.items():
            if not isinstance(program, (bytes, bytearray)):
                return f"whose program of the region '{region}' is a {type(program).__name__}: expected bytes"
        for region, size in self.workspaces.items():
            if not isinstance(size, (int, str)) and not hasattr(size, "symbols"):
                return f"whose workspace of the region '{region}' is {size!r}: expected bytes, or a product of dims"
        return None

    def artifact(self, regions: Sequence[str]) -> ExternalArtifact:
        """Return this as an external artifact."""
        row = {
            "functions": dict(self.functions), "driver": self.driver, "triple": self.triple,
            "workspaces": {region: str(size) for region, size in self.workspaces.items()},
            "flags": list(self.flags), "loader": self.loader,
            "errors": {str(code): text for code, text in self.errors.items()}, "library_triple": self.library_triple,
        }  # fmt: skip
        data = archive.pack(list(self._members()))
        return ExternalArtifact(FORMAT, tuple(regions), data, tuple(self.params), {**self.metadata, KEY: row})

    def _members(self) -> Iterator[tuple[str, bytes]]:
        for kind, texts in (("sources", self.sources), ("simulator", self.simulator)):
            yield from ((f"{kind}:{name}", text.encode()) for name, text in texts.items())
        for kind, contents in (("objects", self.objects), ("programs", self.programs)):
            yield from ((f"{kind}:{name}", bytes(content)) for name, content in contents.items())
        if self.library:
            yield _LIBRARY, self.library


def is_native(artifact: ExternalArtifact) -> bool:
    """Return whether an external artifact is native code."""
    return artifact.format == FORMAT and isinstance(artifact.metadata.get(KEY), Mapping)


def native_code(artifact: ExternalArtifact) -> NativeCode:
    """Return the native code of an external artifact that `NativeCode.artifact` made."""
    row = artifact.metadata.get(KEY)
    members: dict[str, dict[str, bytes]] = {}
    try:
        for name, content in archive.unpack(artifact.data):
            kind, _, file = name.partition(":")
            members.setdefault(kind, {})[file] = content
        if not isinstance(row, Mapping):
            raise TypeError(f"its '{KEY}' is a {type(row).__name__}")
        code = NativeCode(
            dict(row["functions"]), row["driver"], _texts(members, "sources"), members.get("objects", {}),
            row["triple"], members.get("programs", {}), dict(row["workspaces"]),
            artifact.params, _texts(members, "simulator"), tuple(row["flags"]),
            {int(number): text for number, text in row["errors"].items()}, row["loader"],
            members.get(_LIBRARY, {}).get("", b""), row["library_triple"],
            {name: value for name, value in artifact.metadata.items() if name != KEY},
        )  # fmt: skip
    except (archive.BadArchive, UnicodeDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(f"the native code of target '{artifact.target}' is damaged: {error!r}") from None
    problem = code.problem(artifact.functions)
    if problem is not None:
        raise ArtifactError(f"target '{artifact.target}' has native code {problem}")
    return code


def _texts(members: Mapping[str, Mapping[str, bytes]], kind: str) -> dict[str, str]:
    return {name: content.decode() for name, content in members.get(kind, {}).items()}
