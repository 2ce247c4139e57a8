"""Functions for kernels to call: files of LLVM bitcode or PTX that the target names, `nvvm{library=FILE}`.

Functions of bitcode are linked into the kernels and optimized with them; those of PTX are merged into the kernels' PTX
text. Files are read once, bitcode for the first time in a fork, because LLVM may end the process on a broken one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from mirlo.dialects.bindings import arith, func, ir
from mirlo.dialects.core.surgery import replace_op
from mirlo.dialects.core.symbols import symbol_name
from mirlo.passes.byoc.generator_errors import Crash
from mirlo.passes.byoc.guard import guarded
from mirlo.passes.lower.calls import find
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.runtime.errors import nearest
from mirlo.runtime.files import read_regular
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.outline import ON_DEVICE
from mirlo.targets.host.llvm_ir import llvmlite
from mirlo.targets.nvvm.chips import Chip, ChipError
from mirlo.targets.nvvm.libdevice import find_libdevice

if TYPE_CHECKING:
    from mirlo.passes.session import Session

MAX_BYTES = 256 << 20
_BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
_FUNCTION = re.compile(r"\.func\s*(?:\(([^)]*)\)\s*)?([\w$%.]+)\s*(?:\(([^)]*)\))?[^;{]*([;{])")
_DEFINED = re.compile(r"\.entry\s+([\w$%.]+)")
_VERSION = re.compile(r"^\s*\.version\s+(\d+)\.(\d+)", re.MULTILINE)
_TARGET = re.compile(r"^\s*\.target\s+sm_(\d+)[af]?[^\n]*$", re.MULTILINE)
_ADDRESS = re.compile(r"^\s*\.address_size\s+(\d+)[^\n]*$", re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_BITS = re.compile(r"\.[busf](8|16|32|64|128)\b")


@dataclass(frozen=True)
class DeviceLibrary:
    """A file of device functions."""

    path: Path
    is_ptx: bool
    functions: Mapping[str, str]
    """The types of the functions that it defines, by name."""
    content: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """Return the text of PTX without comments."""
        return _COMMENT.sub("", self.content.decode("ascii", "replace"))


def open_library(name: str) -> DeviceLibrary:
    """Return the library in a file; `libdevice` is that of CUDA or of a wheel."""
    path = find_libdevice("true") if name == "libdevice" else Path(name)
    try:
        state = path.stat()
        if state.st_size > MAX_BYTES:
            raise ChipError(f"library '{path}' of target 'nvvm' has more than {MAX_BYTES >> 20} MiB")
        return _read(path, state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise ChipError(f"library '{path}' of target 'nvvm' cannot be read: {error.strerror or error}") from error


@cache
def _read(path: Path, changed: int, size: int) -> DeviceLibrary:
    content = read_regular(path)
    if content.startswith(_BITCODE):
        return DeviceLibrary(path, False, _functions_of_bitcode(path, content), content)
    text = _COMMENT.sub("", content[: 1 << 20].decode("ascii", "replace"))
    if not text.lstrip().startswith(".version"):
        raise ChipError(f"library '{path}' of target 'nvvm' is neither LLVM bitcode nor PTX")
    library = DeviceLibrary(path, True, {}, content)
    functions = {
        name: _signature(result, parameters)
        for result, name, parameters, end in _FUNCTION.findall(library.text)
        if end == "{"
    }
    return DeviceLibrary(path, True, functions, content)


def _functions_of_bitcode(path: Path, content: bytes) -> dict[str, str]:
    def read() -> dict[str, str] | str:
        try:
            module = llvmlite().parse_bitcode(content)
            module.verify()
        except RuntimeError as error:
            return " ".join(str(error).split())
        return {f.name: str(f.global_value_type) for f in module.functions if not f.is_declaration}

    try:
        result = guarded(read, quiet=True)
    except Crash as crash:
        result = f"LLVM {crash}"
    if isinstance(result, str):
        raise ChipError(f"library '{path}' of target 'nvvm' cannot be read: {result}")
    return result


def _signature(result: str, parameters: str) -> str:
    """Return the types of a PTX function by their bits, `b32 (b32, b64)`."""

    def bits(part: str) -> str:
        match = _BITS.search(part)
        size = re.search(r"\[(\d+)\]", part)
        return f"b{match[1]}{f'[{size[1]}]' if size else ''}" if match else "?"

    parts = [bits(part) for part in parameters.split(",") if part.strip()]
    return f"{bits(result) if result.strip() else 'void'} ({', '.join(parts)})"


def digest_of(names: Iterable[str]) -> str:
    """Return a digest of the contents of libraries; empty for none."""
    digest = hashlib.blake2b(digest_size=8)
    contents = [open_library(name).content for name in names]
    for content in contents:
        digest.update(hashlib.blake2b(content).digest())
    return digest.hexdigest() if contents else ""


@register_pass
@dataclass(frozen=True)
class FindDeviceFunctions(Pass):
    """Find the C functions that kernels call in libraries of device code; one that none defines is an error."""

    name = "find-device-functions"
    libraries: tuple[str, ...] = option((), "files of LLVM bitcode or PTX, or 'libdevice'")

    def run(self, op: ir.OpView, session: Session) -> None:
        libraries = [open_library(name) for name in self.libraries]
        known = {name for library in libraries for name in library.functions}
        functions = [f.operation for f in op.regions[0].blocks[0].operations if f.operation.name == "func.func"]
        declared = {symbol_name(f): f for f in functions if not len(f.regions[0].blocks)}
        for call in find(op, "func.call"):
            name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
            if name not in declared or ON_DEVICE in declared[name].attributes:
                continue
            if name not in known:
                listed = ", ".join(f"'{library.path}'" for library in libraries)
                raise PassError(
                    f"a kernel calls '{name}', which no library of target 'nvvm' defines{nearest(name, known)}; "
                    f"the libraries are: {listed}",
                    call.location,
                )
            declared[name].attributes[ON_DEVICE] = ir.UnitAttr.get()
        for call in find(op, "func.call"):
            name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
            if name in known and name in declared:
                _pass_words(call, declared[name])


def _pass_words(call: ir.Operation, function: ir.Operation) -> None:
    """Pass indices as i64, which they are to C; in a kernel they may have 32 bits."""
    i64 = ir.IntegerType.get_signless(64)
    if not any(isinstance(value.type, ir.IndexType) for value in (*call.operands, *call.results)):
        return
    with ir.InsertionPoint(call), call.location:
        operands = [arith.IndexCastOp(i64, v).result if isinstance(v.type, ir.IndexType) else v for v in call.operands]
        results = [i64 if isinstance(result.type, ir.IndexType) else result.type for result in call.results]
        call_results = func.CallOp(results, ir.FlatSymbolRefAttr(call.attributes["callee"]), operands).operation.results
        kinds = ir.FunctionType.get([value.type for value in operands], results)
        function.attributes["function_type"] = ir.TypeAttr.get(kinds)
        indices = [
            arith.IndexCastOp(old.type, new).result if isinstance(old.type, ir.IndexType) else new
            for old, new in zip(call.results, call_results, strict=True)
        ]
    replace_op(call, indices)


class LlvmFunction(Protocol):
    """A function of LLVM IR, as llvmlite has it."""

    name: str
    linkage: str
    global_value_type: object
    is_declaration: bool


class LlvmMachine(Protocol):
    """A target machine of LLVM, as llvmlite has it."""

    target_data: object

    def emit_assembly(self, module: LlvmModule) -> str:
        """Return the assembly of a module."""


class LlvmModule(Protocol):
    """A module of LLVM IR, as llvmlite has it."""

    triple: str
    data_layout: str

    @property
    def functions(self) -> Iterable[LlvmFunction]:
        """Return its functions."""

    def verify(self) -> None:
        """Raise an error if the module is not valid."""

    def get_function(self, name: str) -> LlvmFunction:
        """Return a function by its name."""

    def link_in(self, other: LlvmModule) -> None:
        """Add another module, which is consumed."""


def link_bitcode(binding: ModuleType, module: LlvmModule, libraries: Sequence[DeviceLibrary]) -> set[str]:
    """Link libraries of bitcode to the LLVM IR of kernels; return the names of the functions of all libraries.

    Later passes remove unused functions.
    """
    wanted = {f.name: str(f.global_value_type) for f in module.functions if f.is_declaration}
    names: set[str] = set()
    for library in libraries:
        _check_types(library, wanted)
        twice = sorted(names & set(library.functions) & set(wanted))
        if twice:
            raise ChipError(f"library '{library.path}' of target 'nvvm' defines '{twice[0]}', as another library does")
        names.update(library.functions)
        if library.is_ptx:
            continue
        try:
            linked = binding.parse_bitcode(library.content)
            linked.triple, linked.data_layout = module.triple, module.data_layout
            module.link_in(linked)
        except RuntimeError as error:
            raise ChipError(f"library '{library.path}' of target 'nvvm' cannot be linked: {error}") from error
        for name in library.functions:
            module.get_function(name).linkage = "internal"
    return names


def _check_types(library: DeviceLibrary, wanted: Mapping[str, str]) -> None:
    for name, kind in wanted.items():
        signature = library.functions.get(name)
        if signature is not None and not library.is_ptx and signature != kind:
            where = f"library '{library.path}' of target 'nvvm'"
            raise ChipError(f"a kernel calls '{name}' as {kind}, but {where} defines it as {signature}")


def merge_ptx(ptx: str, chip: Chip, libraries: Iterable[DeviceLibrary]) -> str:
    """Return the PTX of kernels with the functions of libraries in it that are PTX."""
    for library in libraries:
        if library.is_ptx:
            ptx = _merged(ptx, chip, library)
    return ptx


def _merged(ptx: str, chip: Chip, library: DeviceLibrary) -> str:
    text, where = library.text, f"library '{library.path}' of target 'nvvm'"
    version, target, address = _VERSION.search(text), _TARGET.search(text), _ADDRESS.search(text)
    own, head = _VERSION.search(ptx), _ADDRESS.search(ptx)
    assert own is not None
    assert head is not None
    if version is None or target is None:
        raise ChipError(f"{where} is PTX without '.version' and '.target'")
    if address is not None and address[1] != "64":
        raise ChipError(f"{where} has addresses of {address[1]} bits: expected 64")
    if int(target[1]) > chip.version[0] * 10 + chip.version[1]:
        raise ChipError(f"{where} is for sm_{target[1]}, which '{chip.name}' does not run")
    called = False
    for matches in [*_FUNCTION.finditer(ptx)][::-1]:
        name, is_definition = matches[2], matches[4] == "{"
        if name not in library.functions:
            continue
        if is_definition:
            raise ChipError(f"{where} defines '{name}', as the kernels or another library do")
        kind = _signature(matches[1] or "", matches[3] or "")
        if kind != library.functions[name]:
            raise ChipError(f"a kernel calls '{name}' as {kind}, but {where} defines it as {library.functions[name]}")
        begin = ptx.rindex(".extern", 0, matches.start())
        ptx = ptx[:begin] + ptx[matches.end() :]
        called = True
    if not called:
        return ptx
    for name in _DEFINED.findall(text):
        if re.search(rf"\.entry\s+{re.escape(name)}\b", ptx):
            raise ChipError(f"{where} has a kernel '{name}', as the model does")
    for pattern in (_VERSION, _TARGET, _ADDRESS):
        text = pattern.sub("", text)
    newest = max((int(own[1]), int(own[2])), (int(version[1]), int(version[2])))
    version_line, rest = f".version {newest[0]}.{newest[1]}", ptx[own.end() : head.end()]
    return f"{ptx[: own.start()]}{version_line}{rest}\n{text}\n{ptx[head.end() :]}"
