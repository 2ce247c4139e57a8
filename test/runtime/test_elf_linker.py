"""Linking object files in memory: results are those of LLVM's loader, and damaged files are errors."""

from __future__ import annotations

import ctypes
import random
import subprocess
import sys
from pathlib import Path

import pytest

from mirlo.runtime import elf_linker, object_loader
from mirlo.runtime.elf_linker import BadObject, can_link, link
from mirlo.runtime.object_loader import compile_llvm, define_symbol, find_symbol, load_objects

TRIPLE = "x86_64-unknown-linux-gnu"
pytestmark = pytest.mark.skipif(not can_link(), reason="another loader loads the object files of this machine")

SUMS = """
@table = internal constant [4 x i32] [i32 1, i32 20, i32 300, i32 4000], align 64
@count = global i32 7
@zeros = internal global [5000 x i32] zeroinitializer, align 32
declare i32 @other(i32)
define i32 @sum(i32 %i) {
  %wide = sext i32 %i to i64
  %p = getelementptr i32, ptr @table, i64 %wide
  %v = load i32, ptr %p
  %c = load i32, ptr @count
  %more = add i32 %c, 1
  store i32 %more, ptr @count
  %z = getelementptr i32, ptr @zeros, i64 4999
  %last = load i32, ptr %z
  %a = add i32 %v, %c
  %b = add i32 %a, %last
  %r = call i32 @other(i32 %b)
  ret i32 %r
}
"""
OTHER = """
declare i64 @labs(i64)
@count = external global i32
define i32 @other(i32 %x) {
  %c = load i32, ptr @count
  %y = mul i32 %x, %c
  %n = sub i32 0, %y
  %w = sext i32 %n to i64
  %r = call i64 @labs(i64 %w)
  %t = trunc i64 %r to i32
  ret i32 %t
}
@address = global ptr @other
"""


def as_function(address: int, count: int = 1) -> ctypes._CFunctionType:
    return ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int32] * count)(address)


def test_code_constants_and_data_of_two_files(object_code) -> None:
    linked = link([object_code(SUMS, TRIPLE), object_code(OTHER, TRIPLE)], find_symbol)
    function = as_function(linked.address("sum"))
    assert [function(i) for i in range(4)] == [(1 + 7) * 8, (20 + 8) * 9, (300 + 9) * 10, (4000 + 10) * 11]
    assert ctypes.c_int32.from_address(linked.address("count")).value == 11
    assert ctypes.c_void_p.from_address(linked.address("address")).value == linked.address("other")
    assert linked.address("table") == 0 and linked.address("no_such_symbol") == 0
    assert linked.address("sum") % 16 == 0


def test_each_load_has_data_of_its_own(object_code) -> None:
    codes = [object_code(SUMS, TRIPLE), object_code(OTHER, TRIPLE)]
    first, second = load_objects(codes), load_objects(codes)
    for linked in (first, second):
        assert as_function(linked.address("sum"))(0) == 64


def test_what_nothing_defines(object_code) -> None:
    with pytest.raises(BadObject, match="nothing defines the symbol 'other'"):
        link([object_code(SUMS, TRIPLE)], lambda name: 0)


def test_what_is_defined_twice(object_code) -> None:
    with pytest.raises(BadObject, match="two object files define the symbol '(other|address)'"):
        link([object_code(OTHER, TRIPLE)] * 2, find_symbol)


def test_functions_that_are_far_away(object_code) -> None:
    """An address that no jump of 32 bits reaches is called through a stub, and read through a slot."""
    answer = ctypes.CFUNCTYPE(ctypes.c_int32)(lambda: 42)
    define_symbol("mirlo_test_far", ctypes.cast(answer, ctypes.c_void_p).value or 0)
    text = "declare i32 @mirlo_test_far()\ndefine i32 @near() {\n %r = call i32 @mirlo_test_far()\n ret i32 %r\n}"
    assert as_function(link([object_code(text, TRIPLE)], find_symbol).address("near"), 0)() == 42


def test_data_of_this_process() -> None:
    """Text that declares data of this process gives the same code in each, without and with the cache."""
    number = ctypes.c_int64(5)
    define_symbol("mirlo_test_number", ctypes.addressof(number))
    load = "define i64 @read() {\n %v = load i64, ptr @mirlo_test_number\n ret i64 %v\n}"
    text = f"@mirlo_test_number = external global i64\n{load}"
    for is_kept in (False, True, True):
        code = compile_llvm(text, is_kept=is_kept)
        assert ctypes.CFUNCTYPE(ctypes.c_int64)(code.address("read"))() == 5


def test_other_files() -> None:
    for content in (b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(10) + b"\1\0\xb7\0" + bytes(100), b"MZ" + bytes(100)):
        with pytest.raises(BadObject):
            link([content], find_symbol)


def test_sections_that_are_not_supported(object_code) -> None:
    for text, message in (
        ("@x = thread_local global i32 1", "which is not supported"),
        ("@x = common global i32 0", "in memory that no section has"),
        ("@x = global i32 1, align 8192", "aligned to 8192"),
    ):
        with pytest.raises(BadObject, match=message):
            link([object_code(text, TRIPLE)], find_symbol)


def test_damaged_files_write_nowhere_else(object_code, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever bytes are changed, or missing, the result is code or this error; nothing is called here."""
    code, generator = object_code(SUMS, TRIPLE), random.Random(5)
    other = object_code(OTHER, TRIPLE)
    for length in range(0, len(code), 7):
        with pytest.raises(BadObject):
            link([code[:length], other], find_symbol)
    monkeypatch.setattr(elf_linker, "_MOST_BYTES", 1 << 24)
    for _ in range(3000):
        damaged = bytearray(code)
        for _ in range(generator.randint(1, 4)):
            damaged[generator.randrange(len(code))] = generator.choice((0, 1, 127, 128, 255, generator.randrange(256)))
        try:
            link([bytes(damaged), other], find_symbol)
        except BadObject:
            continue


def test_pages_are_written_or_executed(object_code) -> None:
    linked = link([object_code(SUMS, TRIPLE), object_code(OTHER, TRIPLE)], find_symbol)
    rights = {}
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            span, right = line.split()[:2]
            start, end = (int(part, 16) for part in span.split("-"))
            for name in ("sum", "other", "count"):
                if start <= linked.address(name) < end:
                    rights[name] = right[:3]
    assert rights == {"sum": "r-x", "other": "r-x", "count": "rw-"}


def test_a_cached_model_needs_no_compiler(tmp_path) -> None:
    """A process that opens a compiled model and runs it loads neither MLIR nor LLVM."""
    text = (
        'func.func @main(%x: tensor<4xf32> {relax.name = "x"}) -> (tensor<4xf32> {relax.name = "y"}) {\n'
        '  %y = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n  return %y : tensor<4xf32>\n}\n'
    )
    source, model = tmp_path / "m.mlir", tmp_path / "m.mirlo"
    source.write_text(text, encoding="utf-8")
    program = (
        "import sys, mirlo, numpy\n"
        f"print(mirlo.load({str(model)!r})(numpy.arange(-2, 2, dtype='f')))\n"
        "libraries = open('/proc/self/maps').read()\n"
        "print([name for name in ('llvmlite', 'torch_mlir', 'mlir', 'onnx') if name in sys.modules],\n"
        "      [name for name in ('llvmlite', 'MLIR') if name in libraries])"
    )
    make = f"import mirlo\nmirlo.compile({str(source)!r}, cache=False, threads=2).save({str(model)!r})\n"
    for code in (make, program):  # what `compile` has run to load the model is in the cache then
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[0. 0. 0. 1.]", "[] []"]


def test_where_llvm_loads(object_code, monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems and processors without a linker here load the same files, and compile the same text, by LLVM."""
    monkeypatch.setattr("mirlo.runtime.object_loader.can_link", lambda: False)
    linked = load_objects([object_code(SUMS, TRIPLE), object_code(OTHER, TRIPLE)])
    assert as_function(linked.address("sum"))(0) == 64 and linked.address("no_such_symbol") == 0
    assert ctypes.c_int32.from_address(linked.address("count")).value == 8
    assert find_symbol("labs") and not find_symbol("no_such_symbol")
    test_data_of_this_process()


def test_code_of_each_process_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its object file is in the user's cache, by the text and the level of optimization."""
    compiled: list[int] = []

    def compile_text(text: str, opt: int) -> bytes:
        compiled.append(opt)
        return f"{text} at {opt}".encode()

    monkeypatch.setattr(object_loader, "default_folder", lambda: tmp_path)
    monkeypatch.setattr(object_loader, "_object", compile_text)
    for _ in range(2):
        assert object_loader._kept_object("a", 2) == b"a at 2"
        assert object_loader._kept_object("a", 3) == b"a at 3"
        assert object_loader._kept_object("b", 2) == b"b at 2"
    assert compiled == [2, 3, 2]
