"""Code for cores without an operating system: one function without a linker, and objects of models."""

from __future__ import annotations

import struct

import pytest
from llvmlite import binding

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.registry import PassError
from mirlo.targets.llvm.bare_code import bare_code
from mirlo.targets.llvm.options import parse_options

RISCV64 = "cpu=generic-rv64 triple=riscv64-unknown-elf"
ADD = "define i32 @f(i32 %a, i32 %b) {\n  %c = add i32 %a, %b\n  ret i32 %c\n}"
"""Its code is `add a0, a1, a0; ret` (addw for 64 bits, where an instruction may have two bytes)."""


def test_the_function_begins_at_the_first_byte() -> None:
    assert struct.unpack("<2I", bare_code(ADD)) == (0x00A58533, 0x00008067)
    assert bare_code(ADD, RISCV64)[-2:] == struct.pack("<H", 0x8082)


def test_a_module_of_the_llvm_dialect() -> None:
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(
            "llvm.func @f(%a: i32, %b: i32) -> i32 { %c = llvm.add %a, %b : i32  llvm.return %c : i32 }"
        )
        assert bare_code(module) == bare_code(ADD)


REFUSED = {
    "declare void @g()\ndefine void @f() {\n  call void @g()\n  ret void\n}": "refers to 'g', which only a linker",
    "define float @f(float %a) {\n  %c = fdiv float %a, %a\n  ret float %c\n}": "refers to '__divsf3'",
    "@x = global i32 3\ndefine i32 @f() {\n  ret i32 0\n}": "has 4 bytes of data in '.*data': compute constants",
    "declare void @g()": "expected one function, found none",
    f"{ADD}\n{ADD.replace('@f', '@g')}": "expected one function, found 'f', 'g': inline the others",
}


@pytest.mark.parametrize("text", REFUSED)
@pytest.mark.parametrize("options", ["", RISCV64])
def test_what_needs_a_linker_is_refused(text: str, options: str) -> None:
    if options and "fdiv" in text:
        text = text.replace("float", "fp128")
        with pytest.raises(PassError, match="refers to '__divtf3'"):
            bare_code(text, options)
        return
    with pytest.raises(PassError, match=REFUSED[text]):
        bare_code(text, *([options] if options else []))


def test_other_formats_are_refused() -> None:
    with pytest.raises(PassError, match="a system with ELF object files, such as riscv32-unknown-elf"):
        bare_code(ADD, "cpu=x86-64 triple=x86_64-w64-windows-gnu")


def test_a_model_for_a_core_without_a_system() -> None:
    options = "cpu=generic-rv32 triple=riscv32-unknown-elf"
    processor = parse_options(options).processor
    assert processor.is_bare and not processor.has_fma
    module = """func.func @main(%x: tensor<4x8xi32> {relax.name = "x"}) -> (tensor<4x8xi32> {relax.name = "y"}) {
      %y = "relax.multiply"(%x, %x) : (tensor<4x8xi32>, tensor<4x8xi32>) -> tensor<4x8xi32>
      return %y : tensor<4x8xi32>
    }"""
    with make_context(), ir.Location.unknown():
        model = mirlo.compile(ir.Module.parse(module), f"llvm{{{options}}}", cache=False, load=False)
    assert model.artifact.metadata["triple"] == processor.triple
    assert binding.Target.from_triple(processor.triple).name == "riscv32"
