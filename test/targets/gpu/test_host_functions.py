"""Host functions of GPU models: compiled arithmetic, commands and their errors, without a device."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.loaders import compile_bitcode
from mirlo.targets.gpu.commands import CommandReader
from mirlo.targets.gpu.host import CAPACITY, CallEnded, HostFunctions
from mirlo.targets.gpu.host_code import compile_host
from mirlo.targets.gpu.host_functions import build_host_program
from mirlo.targets.gpu.program import HostProgram

WORDS = 16
LEAST = -(1 << 63)


def _truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _unsigned(function: Callable[[int, int], int]) -> Callable[[int, int], int]:
    return lambda a, b: function(a % (1 << 64), b % (1 << 64))


BINARY: dict[str, Callable[[int, int], int]] = {
    "addi": operator.add, "subi": operator.sub, "muli": operator.mul, "andi": operator.and_, "ori": operator.or_,
    "xori": operator.xor, "minsi": min, "maxsi": max, "minui": _unsigned(min), "maxui": _unsigned(max),
    "divsi": _truncated, "remsi": lambda a, b: a - b * _truncated(a, b), "floordivsi": operator.floordiv,
    "ceildivsi": lambda a, b: -(-a // b), "divui": _unsigned(operator.floordiv), "remui": _unsigned(operator.mod),
    "ceildivui": _unsigned(lambda a, b: -(-a // b)),
}  # fmt: skip
"""Operations on i64, in Python's integers."""
DIVISIONS = ("divsi", "remsi", "floordivsi", "ceildivsi", "divui", "remui", "ceildivui")
CORNERS = (0, 1, -1, 2, -2, 7, -7, (1 << 63) - 1, LEAST, LEAST + 1, 1 << 40)


@pytest.fixture(scope="module", autouse=True)
def context() -> Iterator[None]:
    with make_context(), ir.Location.unknown():
        yield


def program_of(body: str, arguments: str = "") -> HostProgram:
    """Return the host program of a planned function over the call record `%record` and tensors."""
    text = f"""
    func.func @main({arguments}%record: memref<{WORDS}xi64> {{relax.record}}) {{
      {body}
      return
    }}"""
    module = ir.Module.parse(text)
    return build_host_program(module, module.body.operations[0].operation)


def compiled(program: HostProgram) -> HostFunctions:
    code = compile_host(program)
    metadata = {"program": program.as_json([0, len(code)])}
    artifact: Any = SimpleNamespace(code=code, metadata=metadata)
    return HostFunctions(artifact)


def record_of(*words: int) -> Any:
    return (np.ctypeslib.ctypes.c_int64 * WORDS)(0, 0, *words)


def _word(name: str, at: int) -> str:
    return f"%c{name} = arith.constant {at} : index\n%{name} = memref.load %record[%c{name}] : memref<{WORDS}xi64>\n"


@pytest.fixture(scope="module")
def functions(context: None) -> dict[str, HostFunctions]:
    """Functions that write what an operation gives on words 2 and 3 into word 4."""
    store = f"%at = arith.constant 4 : index\nmemref.store %r, %record[%at] : memref<{WORDS}xi64>"
    load = _word("a", 2) + _word("b", 3)
    return {op: compiled(program_of(f"{load}%r = arith.{op} %a, %b : i64\n{store}")) for op in BINARY}


def _check(functions: dict[str, HostFunctions], op: str, a: int, b: int) -> None:
    record = record_of(a, b)
    overflows = op.endswith("si") and a == LEAST and b == -1
    if op in DIVISIONS and (b == 0 or overflows):
        with pytest.raises(ArtifactError, match="divided by zero"):
            functions[op].run(record, lambda words: 0)
        return
    assert functions[op].run(record, lambda words: 0)
    wanted = BINARY[op](a, b) % (1 << 64)
    assert record[4] % (1 << 64) == wanted, f"{op} {a} {b}"


@pytest.mark.parametrize("op", BINARY)
def test_arithmetic_of_corners(functions: dict[str, HostFunctions], op: str) -> None:
    for a in CORNERS:
        for b in CORNERS:
            _check(functions, op, a, b)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(BINARY)), st.integers(LEAST, -LEAST - 1), st.integers(-20, 20))
def test_arithmetic(functions: dict[str, HostFunctions], op: str, a: int, b: int) -> None:
    _check(functions, op, a, b)


def test_narrow_divisions_do_not_end_the_process() -> None:
    body = (
        _word("a", 2)
        + _word("b", 3)
        + f"""
      %x = arith.trunci %a : i64 to i32
      %y = arith.trunci %b : i64 to i32
      %q = arith.divsi %x, %y : i32
      %r = arith.extsi %q : i32 to i64
      %at = arith.constant 4 : index
      memref.store %r, %record[%at] : memref<{WORDS}xi64>"""
    )
    function = compiled(program_of(body))
    record = record_of(-7, 2)
    assert function.run(record, lambda words: 0) and record[4] == -3
    for a, b in ((1, 0), (-(1 << 31), -1)):
        with pytest.raises(ArtifactError, match="divided by zero"):
            function.run(record_of(a, b), lambda words: 0)


COPIES = (
    _word("n", 2)
    + """
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %count = arith.index_cast %n : i64 to index
  scf.for %i = %zero to %count step %one {
    %part = memref.view %x[%i][] : memref<100xi8> to memref<4xi8>
    memref.copy %part, %y : memref<4xi8> to memref<4xi8>
  }"""
)
TENSORS = (
    '%x: memref<100xi8> {relax.name = "x", relax.type = tensor<100xi8>}, '
    '%y: memref<4xi8> {relax.name = "y", relax.type = tensor<4xi8>}, '
)


def test_more_commands_than_there_is_room_for() -> None:
    program = program_of(COPIES, TENSORS)
    assert program.sites == [{"copy": (("tensor", 0), ("tensor", 1)), "row": 0}]
    function = compiled(program)
    for count in (0, 1, CAPACITY // 5, CAPACITY // 5 + 1, CAPACITY):
        found: list[Any] = []
        batches: list[int] = []

        def receive(words: list[int], found: list[Any] = found, batches: list[int] = batches) -> int:
            batches.append(len(words))
            found += CommandReader(program.sites).steps(words)
            return 0

        assert function.run(record_of(count), receive)
        assert [step["copy"] for step in found] == [(("tensor", 0, i, 4), ("tensor", 1, 0, 4)) for i in range(count)]
        assert len(batches) == -(-5 * count // (CAPACITY // 5 * 5))


def test_exceptions_end_a_call_and_reach_the_caller() -> None:
    function = compiled(program_of(COPIES, TENSORS))

    def interrupted(words: list[int]) -> int:
        raise KeyboardInterrupt

    def ended(words: list[int]) -> int:
        raise CallEnded

    with pytest.raises(KeyboardInterrupt):
        function.run(record_of(CAPACITY), interrupted)
    assert not function.run(record_of(CAPACITY), ended)
    assert function.run(record_of(CAPACITY), lambda words: 0), "the next call is one of its own"


def test_answers_decide() -> None:
    """The value that is read decides, for each type; values are written with their bytes."""
    for kind, answer, wanted in (("i8", 5, 1), ("i8", 0, 0), ("i64", -3, 1), ("i32", 1 << 32, 0)):
        body = f"""
          %none = arith.constant 0 : {kind}
          %found = memref.load %x[] : memref<{kind}>
          %go = arith.cmpi ne, %found, %none : {kind}
          scf.if %go {{
            memref.store %found, %y[] : memref<{kind}>
          }}"""
        tensors = (
            f'%x: memref<{kind}> {{relax.name = "x", relax.type = tensor<{kind}>}}, '
            f'%y: memref<{kind}> {{relax.name = "y", relax.type = tensor<{kind}>}}, '
        )
        program = program_of(body, tensors)
        written: list[bytes] = []

        def receive(
            words: list[int], program: HostProgram = program, written: list[bytes] = written, answer: int = answer
        ) -> int:
            (step,) = CommandReader(program.sites).steps(words)
            written += [step["value"]] if "write" in step else []
            return answer

        assert compiled(program).run(record_of(), receive)
        size = int(kind[1:]) // 8
        assert written == [(answer % (1 << 8 * size)).to_bytes(size, "little")] * wanted


def test_what_is_static_needs_no_code() -> None:
    body = """
      %at = arith.constant 8 : index
      %part = memref.view %x[%at][] : memref<100xi8> to memref<4xi8>
      memref.copy %part, %y : memref<4xi8> to memref<4xi8>"""
    program = program_of(body, TENSORS)
    assert program.is_static and compile_host(program) == b""
    assert program.as_json(None)["commands"] == [[0, 8, 4, 0, 4]]


@pytest.mark.parametrize("damaged", [[0, 8, 4, 0], [0, 8, 4, 0, 4, 4], [1, 8, 4, 0, 4], [-1, 8, 4, 0, 4]])
def test_commands_that_fit_no_site_are_errors(damaged: list[int]) -> None:
    reader = CommandReader([{"copy": [["tensor", 0], ["tensor", 1]], "row": 0}])
    assert len(reader.static_steps([[0, 8, 4, 0, 4]])) == 1
    with pytest.raises(ArtifactError, match="fits no site"):
        reader.static_steps([[0, 8, 4, 0, 4], damaged])
    with pytest.raises(ArtifactError, match="a site of an unknown kind"):
        CommandReader([{"jump": 0}])


def test_code_is_of_no_machine() -> None:
    module = llvm.parse_bitcode(compile_host(program_of(COPIES, TENSORS)))
    assert not module.triple
    assert all(not f.is_declaration or f.name.startswith("llvm.") for f in module.functions)


@pytest.mark.parametrize("damaged", [b"", b"BC", b"\0" * 64])
def test_damaged_code_is_an_error(damaged: bytes) -> None:
    with pytest.raises(ArtifactError, match="compile the model again"):
        compile_bitcode(damaged)


def test_code_that_needs_others_is_an_error() -> None:
    text = "declare void @system(ptr)\ndefine void @mirlo_host(ptr %a, ptr %b) { call void @system(ptr %a) ret void }"
    with pytest.raises(ArtifactError, match="needs system, which it does not define"):
        compile_bitcode(llvm.parse_assembly(text).as_bitcode())


def test_each_allocation_and_slot_is_a_memory_of_its_own() -> None:
    """Memory of the run time has a number, by which commands reach it; a slot keeps its number when it grows."""
    n = WORDS
    body = f"""
      %a = func.call @mirlo_allocate(%record, %eight, %eight) : (memref<{n}xi64>, index, index) -> memref<?xi8>
      %b = func.call @mirlo_allocate(%record, %eight, %eight) : (memref<{n}xi64>, index, index) -> memref<?xi8>
      %first = memref.alloca() : memref<2xi64>
      %second = memref.alloca() : memref<2xi64>
      %c = func.call @mirlo_grow(%record, %first, %eight) : (memref<{n}xi64>, memref<2xi64>, index) -> memref<?xi8>
      %d = func.call @mirlo_grow(%record, %second, %eight) : (memref<{n}xi64>, memref<2xi64>, index) -> memref<?xi8>
      %e = func.call @mirlo_grow(%record, %first, %eight) : (memref<{n}xi64>, memref<2xi64>, index) -> memref<?xi8>
      %f = func.call @mirlo_slot(%second) : (memref<2xi64>) -> memref<?xi8>
    """
    copies = "".join(
        f"%{name}4 = memref.view %{name}[%zero][] : memref<?xi8> to memref<4xi8>\n"
        f"memref.copy %{name}4, %y : memref<4xi8> to memref<4xi8>\n"
        for name in "abcdef"
    )
    module = ir.Module.parse(f"""
      func.func @main({TENSORS}%record: memref<{n}xi64> {{relax.record}}) {{
        %zero = arith.constant 0 : index
        %eight = arith.constant 8 : index
        {body}{copies}
        return
      }}
      func.func private @mirlo_allocate(memref<{n}xi64>, index, index) -> memref<?xi8>
      func.func private @mirlo_grow(memref<{n}xi64>, memref<2xi64>, index) -> memref<?xi8>
      func.func private @mirlo_slot(memref<2xi64>) -> memref<?xi8>""")
    sites = build_host_program(module, module.body.operations[0].operation).sites
    asked = [site for site in sites if "copy" not in site]
    assert asked == [{"allocate": 0}, {"allocate": 1}, {"grow": 2}, {"grow": 3}, {"grow": 2}]
    copied = [site["copy"][0] for site in sites if "copy" in site]
    assert copied == [("late", number) for number in (0, 1, 2, 3, 2, 3)]


def test_calls_and_loops_of_the_entry_function_have_rows_of_a_profile() -> None:
    """What is inside of a call, or of a loop, belongs to its row."""
    call = "func.call @part(%x, %y) : (memref<100xi8>, memref<4xi8>) -> ()\n"
    module = ir.Module.parse(f"""
      func.func @main({TENSORS}%record: memref<{WORDS}xi64> {{relax.record}}) {{
        %one = arith.constant 1 : index
        %two = arith.constant 2 : index
        {_word("n", 2)}
        %count = arith.index_cast %n : i64 to index
        {call}
        scf.for %i = %one to %count step %one {{
          {call * 2}
        }}
        {call}
        return
      }}
      func.func private @part(%x: memref<100xi8>, %y: memref<4xi8>) attributes {{tir.prim_func}} {{
        %at = arith.constant 8 : index
        %part = memref.view %x[%at][] : memref<100xi8> to memref<4xi8>
        memref.copy %part, %y : memref<4xi8> to memref<4xi8>
        return
      }}""")
    program = build_host_program(module, module.body.operations[0].operation)
    assert [program.sites[command.site]["row"] for command in program.commands] == [0, 1, 1, 2]
