"""The native code of code generators in a library: its C files compiled, its object files as they are."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from mirlo.runtime.files import write_regular
from mirlo.targets.c.compiler import FLAGS
from mirlo.targets.llvm.cpus import arch_of, system_of
from mirlo.targets.llvm.library.description import (
    Description,
    LibraryError,
    LinkedCode,
    defined_symbols,
    object_members,
)
from mirlo.targets.llvm.library.link import find_toolchain, run
from mirlo.targets.llvm.library.sources import RUN_TIME_FOLDER


def write_native_objects(folder: Path, description: Description, linked: LinkedCode, triple: str) -> list[Path]:
    """Write the object files of a code generator's native code for a machine; return them."""
    code = linked.code
    stem = f"{description.name}_{linked.prefix}"
    written = []
    if code.objects and (arch_of(code.triple), system_of(code.triple)) != (arch_of(triple), system_of(triple)):
        raise LibraryError(
            f"the code generator of target '{linked.target}' returned object files for {code.triple}, and the library "
            f"is for {triple}: let it return those, or C source"
        )
    for file, content in code.objects.items():
        for member, each in object_members(file, content):
            written.append(folder / f"{stem}_{Path(member).stem}.o")
            write_regular(written[-1], each)
    units = [file for file in code.sources if file.endswith(".c")]
    if units:
        toolchain = find_toolchain(triple, f"the C source of target '{linked.target}'")
        with tempfile.TemporaryDirectory(prefix="mirlo-link-") as name:
            place = Path(name)
            for file, text in renamed_sources(linked).items():
                write_regular(place / file, text)
            for file in units:
                written.append(folder / f"{stem}_{Path(file).stem}.o")
                flags = [*FLAGS, *code.flags, "-fvisibility=hidden", f"-I{RUN_TIME_FOLDER}"]
                run([*toolchain.command, *flags, "-c", str(place / file), "-o", str(written[-1])])
    _require_defined(description, linked, written)
    return written


def renamed_sources(linked: LinkedCode) -> Mapping[str, str]:
    """Return the C files, with symbols for the functions of regions that no other model of a program has."""
    head = "".join(f"#define {name} {symbol}\n" for name, symbol in linked.renamed.items())
    return {file: head + text if file.endswith(".c") else text for file, text in linked.code.sources.items()}


def _require_defined(description: Description, linked: LinkedCode, written: list[Path]) -> None:
    """Require the functions of the regions among the object files, whose linker names symbols only."""
    if not linked.code.is_defined:
        return
    defined: set[str] = set()
    for path in written:
        defined |= defined_symbols(path.read_bytes())
    for function in description.functions:
        own = function.linked >= 0 and description.linked[function.linked] is linked
        if own and defined and function.symbol not in defined:
            raise LibraryError(
                f"the code generator of target '{linked.target}' returned C source or object files that do not define "
                f"'{function.driver}', the function of its region '{function.name}'"
            )
