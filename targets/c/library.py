"""Writing of a whole model as C: a source file with its descriptor, header, weights, run time and build file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from mirlo.runtime.artifact import Artifact, TensorSpec
from mirlo.runtime.dtypes import ELEMENT_TYPES
from mirlo.runtime.files import write_regular
from mirlo.runtime.names import c_comment
from mirlo.runtime.params import ParameterStore
from mirlo.targets.c.bare import LARGEST, bare_files
from mirlo.targets.c.model import HEAD
from mirlo.targets.c.weights import weights_text
from mirlo.targets.llvm.library.build import WEIGHTS
from mirlo.targets.llvm.library.description import (
    Description,
    LibraryError,
    describe,
    object_members,
    type_code,
)
from mirlo.targets.llvm.library.descriptor import ABI
from mirlo.targets.llvm.library.native import renamed_sources
from mirlo.targets.llvm.library.objects import write_weights_file
from mirlo.targets.llvm.library.sources import model_header, run_time_files

EMBED_BYTES = 1 << 20
"""Most bytes of weights that go into the source where nothing else is asked for: each takes four characters."""
NO_POOL = b"#define MIRLO_NO_POOL 1 /* models in C run on their caller's thread */\n"


def write_source(
    artifact: Artifact, store: ParameterStore, folder: Path, name: str, weights: str = "auto"
) -> list[Path]:
    """Write a model in C with all that a program needs to run it; return the files.

    `weights` is "embed" for numbers in the source, "beside" for a file that programs map, "auto" for either by size.
    """
    if weights not in WEIGHTS:
        raise LibraryError(f"weights: expected {', '.join(WEIGHTS)}, found '{weights}'")
    processor = artifact.metadata.get("processor")
    most = EMBED_BYTES if processor is None else LARGEST
    description = describe(artifact, store, name, weights, most)
    if processor is not None:
        return _written(folder, bare_files(description, processor, weights))
    name = description.name
    native = native_files(description)
    run_time = run_time_files()
    run_time["mirlo.c"] = NO_POOL + run_time["mirlo.c"]
    files = {
        f"{name}.c": model_source(description).encode(),
        f"{name}.h": model_header(description).encode(),
        **run_time,
        **native,
        "CMakeLists.txt": _cmake(name, [file for file in native if file.endswith((".c", ".o"))]).encode(),
    }
    written = _written(folder, files)
    if description.weights_bytes and not description.embedded:
        written.append(folder / description.weights_file)
        write_weights_file(written[-1], description)
    return written


def _written(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write files to a folder; return their paths."""
    written = []
    for file, content in files.items():
        written.append(folder / file)
        written[-1].parent.mkdir(parents=True, exist_ok=True)
        write_regular(written[-1], content)
    return written


def native_files(description: Description) -> dict[str, bytes]:
    """Return the C and object files of code generators, in a folder for each."""
    files = {}
    for linked in description.linked:
        folder = f"{description.name}_{linked.prefix}"
        for file, text in renamed_sources(linked).items():
            files[f"{folder}/{file}"] = text.encode()
        for file, content in linked.code.objects.items():
            for member, each in object_members(file, content):
                files[f"{folder}/{Path(member).stem}.o"] = each
    return files


def model_source(description: Description) -> str:
    """Return the source file of a model: its functions, its weights if they are embedded, and its descriptor."""
    lines = [f"Model {description.name} in C99, written by Mirlo.", *description.signature()]
    comment = "/* " + "\n * ".join(c_comment(line) for line in lines) + " */\n"
    texts = [comment + HEAD, description.artifact.code.decode()]
    if description.embedded:
        texts.append(weights_text(description))
    return "\n".join([*texts, _descriptor(description)])


def _descriptor(description: Description) -> str:
    """Return the definition of the descriptor, the only visible symbol of the file."""
    artifact, sizes = description.artifact, description.sizes
    late = set(artifact.late)
    specs = [*artifact.inputs, *artifact.outputs]
    is_late = [False] * len(artifact.inputs) + [bool(late & set(map(str, s.shape))) for s in artifact.outputs]
    arrays = _values(description, specs, is_late)
    arrays.append(_array("char *const", "model_checks", map(c_string, sizes.checks), "\n  "))
    arrays += _functions(description)
    arrays.append(_array("uint64_t", "model_offsets", map(str, description.offsets)))
    allocates = bool(artifact.metadata.get("allocates")) or any(is_late)
    counts = [
        *map(len, (artifact.inputs, artifact.outputs, artifact.params, artifact.packed)), 1,
        int(allocates), sizes.words, sizes.arena_word, len(sizes.checks), 0,
    ]  # fmt: skip
    first, second = (int.from_bytes(description.digest[i : i + 8], "little") for i in (0, 8))

    def named(name: str, members: Sequence[object]) -> str:
        return name if members else "NULL"

    fields = [
        f"{ABI}, {int(sizes.is_dynamic)}",
        f'{c_string(description.name)}, {c_string(str(artifact.metadata["triple"]))}, ""',
        "mirlo_entry, NULL",
        ", ".join(map(str, counts)),
        f"{named('model_values', specs)}, {named('model_checks', sizes.checks)}, "
        f"{named('model_functions', artifact.packed)}, {named('model_offsets', description.offsets)}",
        f"{'model_weights.bytes' if description.embedded else 'NULL'}",
        f"{description.weights_bytes}u, {{UINT64_C({first}), UINT64_C({second})}}, {artifact.arena_bytes}u",
    ]
    listed = ",\n  ".join(fields)
    return "\n".join([
        *filter(None, arrays),
        f"extern const mirlo_code {description.symbol};",
        f"const mirlo_code {description.symbol} = {{\n  {listed}}};\n",
    ])  # fmt: skip


def _functions(description: Description) -> list[str]:
    """Return the declarations of drivers, functions that call them, and the array of functions that the model calls."""
    drivers = {f.symbol: f.is_defined for f in description.functions if f.driver}
    parameters = "(const mirlo_region *region, DLTensor **tensors, int64_t count)"
    texts = [] if all(drivers.values()) else [_WEAK]
    texts += [f"{'' if defined else 'MIRLO_WEAK '}int {symbol}{parameters};" for symbol, defined in drivers.items()]
    texts += [_CALL] if drivers else []
    rows = []
    for i, function in enumerate(description.functions):
        call = "NULL"
        if drivers or description.linked:
            call = f"model_call{i}"
            texts.append(
                f"static int {call}(DLTensor **tensors, int64_t count) {{ return model_call({i}, tensors, count); }}"
            )
        offsets = _array("uint64_t", f"function{i}_weights", [f"{offset}u" for offset in function.offsets])
        texts.append(offsets)
        driver = function.symbol if function.is_defined else f"MIRLO_LINKED({function.symbol})"
        rows.append(
            f"{{{c_string(function.name)}, {c_string(function.driver) if function.driver else 'NULL'}, "
            f"{driver if function.driver else 'NULL'}, {call}, {f'function{i}_weights' if offsets else 'NULL'}, "
            f"{function.program}u, {function.program_bytes}u, {len(function.offsets)}, 0}}"
        )
    return [*texts, _array("mirlo_callee", "model_functions", rows, "\n  ")]


_WEAK = """
/* Drivers that may be missing: programs link them where the linker knows such symbols, or register them. */
#if defined(__ELF__) && defined(__GNUC__)
#define MIRLO_WEAK __attribute__((weak))
#define MIRLO_LINKED(driver) driver
#else
#define MIRLO_WEAK
#define MIRLO_LINKED(driver) NULL
#endif"""
_CALL = """
/* Calls the driver of a region; the call record follows the tensors, and the regions are two words before it. */
static int model_call(int32_t number, DLTensor **tensors, int64_t count) {
  const int64_t *record = (const int64_t *)(void *)tensors[count];
  const mirlo_region *regions;
  memcpy(&regions, record - 2, sizeof regions);
  return regions[number].driver(&regions[number], tensors, count);
}"""


def _values(description: Description, specs: Sequence[TensorSpec], is_late: Sequence[bool]) -> list[str]:
    """Return the definitions of the arrays of dims, and that of the inputs and outputs."""
    arrays, values = [], []
    for i, (spec, each) in enumerate(zip(specs, is_late, strict=True)):
        dims = [_dim(description, dim) for dim in spec.shape]
        if dims:
            arrays.append(f"static const int64_t dims{i}[] = {{{', '.join(dims)}}};")
        in_place = description.in_place(spec) if i >= len(description.artifact.inputs) else 0
        values.append(_value(spec, f"dims{i}" if dims else "NULL", each, in_place))
    return [*arrays, _array("mirlo_value", "model_values", values, "\n  ")]


def _array(kind: str, name: str, members: Iterable[str], separator: str = " ") -> str:
    """Return the definition of a constant array; nothing if it is empty."""
    listed = f",{separator}".join(members)
    return f"static const {kind} {name}[] = {{{separator.strip(' ')}{listed}}};" if listed else ""


def _dim(description: Description, dim: int | str) -> str:
    if isinstance(dim, int):
        return str(dim)
    word = description.sizes.word(dim)
    assert word is not None  # `Executable` checks it too
    return str(-word)


def _value(spec: TensorSpec, dims: str, is_late: bool, in_place: int) -> str:
    kind = f"{{{type_code(spec.dtype)}, {ELEMENT_TYPES[spec.dtype].dlpack_bits}, 1}}"
    return f"{{{c_string(spec.name)}, {kind}, {len(spec.shape)}, {dims}, {int(is_late)}, {in_place}}}"


def c_string(text: str) -> str:
    """Return a string of C, in which all but plain letters, digits and spaces are octal escapes."""
    raw = text.encode("utf-8", "surrogatepass").replace(b"\0", b"?")
    plain = frozenset(b" abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.,:;()[]+-*/=<>'")
    return '"' + "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in raw) + '"'


def _cmake(name: str, native: Sequence[str]) -> str:
    files = "".join(f" ${{CMAKE_CURRENT_LIST_DIR}}/{file}" for file in (f"{name}.c", *native))
    return f"""# The model `{name}` for CMake: add_subdirectory(this folder), then link with mirlo_{name}.
cmake_minimum_required(VERSION 3.13)
project(mirlo_{name} C)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
if(NOT TARGET mirlo)
  add_library(mirlo STATIC ${{CMAKE_CURRENT_LIST_DIR}}/mirlo.c)
  set_target_properties(mirlo PROPERTIES C_STANDARD 99 POSITION_INDEPENDENT_CODE ON)
  target_include_directories(mirlo PUBLIC ${{CMAKE_CURRENT_LIST_DIR}})
  target_link_libraries(mirlo PUBLIC ${{CMAKE_DL_LIBS}} $<$<NOT:$<PLATFORM_ID:Windows>>:m>)
endif()
add_library(mirlo_{name} STATIC{files})
set_target_properties(mirlo_{name} PROPERTIES C_STANDARD 99 POSITION_INDEPENDENT_CODE ON)
target_include_directories(mirlo_{name} PUBLIC ${{CMAKE_CURRENT_LIST_DIR}})
target_link_libraries(mirlo_{name} PUBLIC mirlo)
"""
