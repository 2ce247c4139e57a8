"""Loading object files, and compiling LLVM IR that is part of the run time.

Object files are linked by `elf_linker` where it can, and by LLVM's MCJIT elsewhere.
"""

from __future__ import annotations

import ctypes
import platform
import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.runtime import system
from mirlo.runtime.cache import OBJECTS, Cache, default_folder, digest_of
from mirlo.runtime.elf_linker import ObjectsInMemory, can_link, link
from mirlo.runtime.locks import UNCUT
from mirlo.runtime.sources import library_versions
from mirlo.runtime.system import OBJECT_FORMAT

if TYPE_CHECKING:
    from types import ModuleType

    from llvmlite.binding import ExecutionEngine, ModuleRef, TargetMachine

_MACHINES = {"x86_64": 62, "aarch64": 183}
"""Numbers in ELF of processors whose code and data are loaded into one block of memory."""
_ROOM = 1 << 20
"""Bytes for the code of text that LLVM compiles, and for what alignment takes."""
_IR = Path(__file__).with_name("ir")
_LINKERS_OWN = "_GLOBAL_OFFSET_TABLE_"
_defined: dict[str, int] = {}
"""What `define_symbol` defined."""


class ObjectsOfEngine(ObjectsInMemory):
    """Functions and data that LLVM loaded."""

    def __init__(self, engine: ExecutionEngine, codes: Sequence[bytes] = ()) -> None:
        """Keep an engine with the object files that it reads in place."""
        super().__init__((engine, codes), {})
        self._engine = engine

    def address(self, name: str) -> int:
        """Return the address of a global symbol, 0 if there is none of this name."""
        return int(self._engine.get_function_address(name) or self._engine.get_global_value_address(name))


def define_symbol(name: str, address: int) -> None:
    """Define a function or datum of this process under a name for code loaded from now on."""
    _defined[name] = address
    if not can_link():
        llvm_binding().add_symbol(name, address)


def find_symbol(name: str) -> int:
    """Return the address of a symbol that `define_symbol` or the process defines, or 0."""
    if name in _defined:
        return _defined[name]
    if not can_link():
        # The linker defines this symbol; LLVM searches the process for the others as it does when it links.
        return int(name == _LINKERS_OWN or llvm_binding().address_of_symbol(name) or 0)
    try:
        return ctypes.cast(getattr(_process(), name), ctypes.c_void_p).value or 0
    except AttributeError:
        return int(name == _LINKERS_OWN)


def load_objects(codes: Sequence[bytes]) -> ObjectsInMemory:
    """Load object files that were compiled for this machine, whose symbols were checked."""
    if can_link():
        return link(codes, find_symbol)
    llvm = llvm_binding()
    with UNCUT:
        machine = llvm.Target.from_default_triple().create_target_machine()
        engine = make_engine(llvm.parse_assembly(""), machine, sum(map(len, codes)))
        # LLVM reads the bytes in place for as long as the engine lives.
        for code in codes:
            engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
    return ObjectsOfEngine(engine, codes)


def compile_llvm(text: str, opt: int = 2, is_kept: bool = False) -> ObjectsInMemory:
    """Compile LLVM IR for this machine; its functions live as long as the result.

    What the text declares is searched as `find_symbol` does. Text that is the same in each process has `is_kept`: its
    object file is in the user's cache, and its code in memory until the process ends, as threads may be in it then.
    """
    if not can_link():
        with UNCUT:
            llvm = llvm_binding()
            machine = llvm.Target.from_default_triple().create_target_machine(opt=opt)
            engine = make_engine(llvm.parse_assembly(text), machine)
            engine.finalize_object()
        return ObjectsOfEngine(engine)
    return compile_kept([text], opt) if is_kept else link([_object(text, opt)], find_symbol)


def compile_kept(texts: Sequence[str], opt: int = 2) -> ObjectsInMemory:
    """Compile texts that are the same in each process, as `compile_llvm` does, and load them at once.

    A text may declare what another one defines. Each is in the user's cache by itself.
    """
    result = load_objects([_kept_object(text, opt) for text in texts])
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(result.keep))
    return result


def runtime_ir(name: str) -> str:
    """Return LLVM IR that `make runtime-ir` translated from C (`runtime/c`)."""
    return (_IR / f"{name}.ll").read_text(encoding="utf-8")


def has_runtime_ir(name: str) -> bool:
    """Return whether there is such LLVM IR."""
    return (_IR / f"{name}.ll").exists()


@cache
def llvm_binding() -> ModuleType:
    """Return llvmlite's binding, ready to compile for this machine."""
    import llvmlite.binding as llvm

    with UNCUT:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()
    binding: ModuleType = llvm
    system.register_code(Path(llvm.__file__).parent)
    return binding


@cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _kept_object(text: str, opt: int) -> bytes:
    """Return the object file of LLVM IR, from the user's cache if it is there."""
    kept = Cache(default_folder())
    machine = f"{platform.machine()} {OBJECT_FORMAT}"
    key = digest_of("\n".join((f"run time {machine} {opt}", *library_versions(), text)).encode())
    code = kept.get(OBJECTS, key)
    if code is None:
        code = _object(text, opt)
        kept.put(OBJECTS, key, code)
    return code


def _object(text: str, opt: int) -> bytes:
    llvm = llvm_binding()
    with UNCUT:
        # A context of its own, which is freed with the module.
        return emit_object(llvm.parse_assembly(text, llvm.create_context()), opt)


def emit_object(module: ModuleRef, opt: int) -> bytes:
    """Return an object file of a module, of position-independent code for this machine."""
    code: bytes = _target_machine(opt).emit_object(module)
    return code


@cache
def _target_machine(opt: int) -> TargetMachine:
    """Return LLVM's back end for this machine, which takes longer to make than a small object file.

    llvmlite calls LLVM in one thread at a time.
    """
    target = llvm_binding().Target.from_default_triple()
    return target.create_target_machine(opt=opt, reloc="pic", codemodel="default")


def make_engine(module: ModuleRef, machine: TargetMachine, size: int = 0) -> ExecutionEngine:
    """Return an engine of MCJIT with a module, and room for objects of this many bytes in one block of memory.

    By itself LLVM takes blocks for code and for data where the process has memory free. If they are more than 2 GiB
    apart, which relocations do not reach, LLVM ends the process. llvmlite's memory manager takes one block, of the
    size of the first object's sections without their alignment: the first object here asks for more than all need.
    """
    llvm = llvm_binding()
    number = _MACHINES.get(platform.machine().lower()) if OBJECT_FORMAT == "elf" else None
    if number is None or struct.calcsize("P") != 8:
        return llvm.create_mcjit_compiler(module, machine)
    engine = llvm.create_mcjit_compiler(module, machine, use_lmm=True)
    engine.add_object_file(llvm.ObjectFileRef.from_data(_empty_object(number, 2 * size + _ROOM)))
    return engine


def _empty_object(machine: int, size: int) -> bytes:
    """Return an ELF object with sections for code, constants and data that have a size and no content."""
    names = b"\0.text\0.rodata\0.data\0.shstrtab\0"
    allocated, written, executed = 2, 1, 4
    sections = [(b".text", allocated | executed), (b".rodata", allocated), (b".data", allocated | written)]
    table = struct.pack("<IIQQQQIIQQ", *[0] * 10)
    for name, flags in sections:
        # 8: no content in the file.
        table += struct.pack("<IIQQQQIIQQ", names.index(name), 8, flags, 0, 64, size, 0, 0, 64, 0)
    table += struct.pack("<IIQQQQIIQQ", names.index(b".shstrtab"), 3, 0, 0, 64, len(names), 0, 0, 1, 0)
    count, start = len(sections) + 2, 64 + len(names)
    identification = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    header = struct.pack("<HHIQQQIHHHHHH", 1, machine, 1, 0, 0, start, 0, 64, 0, 0, 64, count, count - 1)
    return identification + header + names + table
