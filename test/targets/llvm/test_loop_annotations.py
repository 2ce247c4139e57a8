"""Loops that schedules leave as they are: when they end, and how many of LLVM's passes they go through."""

import re
from dataclasses import replace

import pytest

from mirlo.dialects.bindings import ir, new_context
from mirlo.dialects.context import make_context
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.targets.host.llvm_ir import to_llvm_ir
from mirlo.targets.llvm.emit import prepare_module
from mirlo.targets.llvm.loop_annotations import ONCE, SCHEDULED, TILED, mark_once
from mirlo.targets.llvm.machine_code import ASSEMBLY, CodeSettings, generate_from, optimized
from mirlo.targets.llvm.object_code import lower_module
from mirlo.targets.llvm.options import parse_options
from mirlo.targets.llvm.pipeline import compile_pipeline, lower_to_llvm
from mirlo.targets.llvm.processor import host_processor
from mirlo.targets.llvm.units import split

ROLLED = "{llvm.loop_annotation = #llvm.loop_annotation<unroll = <disable = true>>}"
OTHER = """
func.func @other() {
  return
}"""
BRANCHES = f"""
func.func @kernel(%x: memref<64xf32>) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %y = arith.constant 1.0 : f32
  scf.for %i = %c0 to %c8 step %c1 {{
    %is_one = arith.cmpi eq, %i, %c1 : index
    scf.if %is_one {{
      scf.for %j = %c0 to %c8 step %c1 {{
        scf.for %k = %c0 to %c8 step %c1 {{
          memref.store %y, %x[%k] : memref<64xf32>
        }} {ROLLED}
      }}
    }} else {{
      scf.for %j = %c0 to %c8 step %c1 {{
        memref.store %y, %x[%j] : memref<64xf32>
      }} {ROLLED}
    }}
  }}
  return
}}"""
"""The end of the second `scf.if` is a block above its loop, to which the exit of the loop branches."""


def _loop(start: str, end: str, step: str, annotation: str = ROLLED) -> str:
    return f"""
func.func @kernel(%x: memref<64xf32>, %n: index) {{
  %start = arith.constant {start} : index
  %end = {"arith.addi %n, %n" if end == "n" else f"arith.constant {end}"} : index
  %step = arith.constant {step} : index
  %y = arith.constant 1.0 : f32
  scf.for %i = %start to %end step %step {{
    memref.store %y, %x[%i] : memref<64xf32>
  }} {annotation}
  return
}}"""


def _of_vectors(carried: bool) -> str:
    body = "%x[%i] : memref<64xf32>, vector<8xf32>"
    head = "%sum = scf.for %i = %start to %end step %step iter_args(%s = %zero) -> (vector<8xf32>)"
    loop = f"""
  {head} {{
    %v = vector.load {body}
    %next = arith.addf %s, %v : vector<8xf32>
    scf.yield %next : vector<8xf32>
  }}
  vector.store %sum, %x[%start] : memref<64xf32>, vector<8xf32>"""
    other = f"""
  scf.for %i = %start to %end step %step {{
    %v = vector.load {body}
    %next = arith.addf %v, %v : vector<8xf32>
    vector.store %next, {body}
  }}"""
    return f"""
func.func @kernel(%x: memref<64xf32>) {{
  %start = arith.constant 0 : index
  %end = arith.constant 64 : index
  %step = arith.constant 8 : index
  %zero = arith.constant dense<0.0> : vector<8xf32>
  {loop if carried else other}
  return
}}"""


def _llvm_ir(text: str) -> str:
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        lower_to_llvm(module, host_processor())
        return to_llvm_ir(module)


@pytest.mark.parametrize(
    ("start", "end", "step", "predicate"),
    [
        ("0", "8", "1", "ne"),
        ("0", "8", "4", "ne"),
        ("2", "14", "3", "ne"),
        ("0", "0", "4", "ne"),
        ("0", "10", "4", "slt"),
        ("8", "0", "4", "slt"),
        ("1", "8", "2", "slt"),
        ("0", "n", "1", "slt"),
    ],
)
def test_loops_whose_index_reaches_the_end_compare_by_inequality(
    start: str, end: str, step: str, predicate: str
) -> None:
    text = _llvm_ir(_loop(start, end, step))
    assert re.findall(r"icmp (\w+) i64", text) == [predicate]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (_loop("0", "8", "1"), True),
        (_loop("0", "8", "1", ""), False),
        (_loop("0", "n", "1"), True),
        (BRANCHES, True),
        (BRANCHES.replace(ROLLED, "", 1), False),
        (BRANCHES[::-1].replace(ROLLED[::-1], "", 1)[::-1], False),
        (_loop("0", "8", "1") + OTHER, True),
        (_loop("0", "8", "1") + OTHER.replace("@", "private @"), False),
        (_of_vectors(carried=False), True),
        (_of_vectors(carried=True), False),
    ],
)
def test_kernels_whose_innermost_loops_are_left_as_they_are_are_marked(text: str, expected: bool) -> None:
    code = _llvm_ir(text)
    assert (SCHEDULED in code) == expected
    assert expected or "icmp ne" not in code
    assert (TILED in code) == ("llvm.loop_annotation" in text)


@pytest.mark.parametrize("level", [1, 2])
def test_marked_loops_test_their_end_at_the_bottom(level: int) -> None:
    code = str(optimized(_llvm_ir(_loop("0", "8", "1")), CodeSettings(host_processor(), level)))
    assert "insertvalue" not in code and code.count("phi") == code.count("br i1") == 1


STRAIGHT = """
llvm.func @entry() { llvm.call @main() : () -> ()
  llvm.return }
llvm.func @main() { llvm.return }
"""
LOOP = """
llvm.func @loop(%c: i1) { llvm.br ^head
^head:
  llvm.cond_br %c, ^head, ^end
^end:
  llvm.return }
"""


FLOATS = """
llvm.func @kernel(%a: f32) -> f32 {
  %b = llvm.fmul %a, %a {fastmathFlags = #llvm.fastmath<contract>} : f32
  llvm.return %b : f32 }
"""
EXACT_FLOATS = FLOATS.replace(" {fastmathFlags = #llvm.fastmath<contract>}", "")


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        (STRAIGHT, 2), (STRAIGHT + LOOP, 0), (LOOP, 0), ("", 0), (STRAIGHT + FLOATS, 2), (FLOATS, 0),
        (EXACT_FLOATS, 1), (STRAIGHT + EXACT_FLOATS, 3), (EXACT_FLOATS + LOOP, 0),
    ],
)  # fmt: skip
def test_modules_without_loops(text: str, marked: int) -> None:
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        mark_once(module)
        module.operation.verify()
        assert str(module).count(f'passthrough = ["{ONCE}"]') == marked


@pytest.mark.parametrize("level", [0, 2, 3])
def test_code_without_loops_is_not_optimized(level: int) -> None:
    settings = CodeSettings(parse_options("cpu=x86-64-v3").processor, opt_level=level, form=ASSEMBLY)
    text = (
        "define i64 @f(i64 %a) #0 {{ %b = add i64 %a, 0\n %c = mul i64 %b, 8\n ret i64 %c }}\nattributes #0 = {{ {} }}"
    )
    plain, once = (generate_from(text.format(name), settings) for name in ("nounwind", f'"{ONCE}"'))
    zero = generate_from(text.format("nounwind"), replace(settings, opt_level=0))
    assert _instructions(once) == _instructions(zero if level == 2 else plain)
    assert _instructions(zero) != _instructions(plain) or level == 0


_FUSED = """define void @f(ptr %p) {{
  %a = load float, ptr %p
  %b = fmul contract float %a, %a
  %c = fadd contract float %b, %a
  store float %c, ptr %p
  ret void
}}
"""
_CALLER = 'define void @entry(ptr %p) #0 {{ call void @f(ptr %p)\n ret void }}\nattributes #0 = {{ "{}" }}\n'


@pytest.mark.parametrize("level", [0, 2, 3])
@pytest.mark.parametrize("texts", [(_FUSED, _CALLER), (_CALLER, _FUSED)])
def test_a_function_without_loops_leaves_the_code_of_those_with_it(texts: tuple[str, str], level: int) -> None:
    """A library is one module: its kernels have the code, and the fused products and sums, of each alone."""
    settings = CodeSettings(parse_options("cpu=x86-64-v3").processor, opt_level=level, form=ASSEMBLY)
    alone = _instructions(generate_from(_FUSED.format(), settings))
    both = generate_from("".join(text.format(ONCE) for text in texts), settings).decode()
    body = both[both.index("\nf:\n") : both.index("\n.Lfunc_end", both.index("\nf:\n"))]
    assert _instructions(body.encode()) == alone
    assert any("vfmadd" in line for line in alone) == (level > 0)


def test_a_module_of_declarations_has_the_level_of_its_settings() -> None:
    settings = CodeSettings(parse_options("cpu=x86-64-v3").processor, form=ASSEMBLY)
    marked = f'declare void @f() #0\nattributes #0 = {{ "{ONCE}" }}'
    assert not _instructions(generate_from(marked, settings))


def test_a_name_that_reads_like_the_mark_is_none() -> None:
    """The attributes of functions decide, not what is in the text."""
    settings = CodeSettings(parse_options("cpu=x86-64-v3").processor, form=ASSEMBLY)
    text = 'define i64 @"NAME"(i64 %a) { %b = add i64 %a, 0\n %c = mul i64 %b, 8\n ret i64 %c }'
    named, plain = (generate_from(text.replace("NAME", name), settings) for name in (ONCE, "f"))
    assert _instructions(named) == _instructions(plain)


def _instructions(code: bytes) -> list[str]:
    return [line for line in code.decode().splitlines() if line.startswith("\t") and not line.startswith("\t.")]


def test_calls_and_sizes_of_a_model_with_dynamic_dims_are_not_optimized() -> None:
    """Sizes are multiplied in f64, too, to find those that overflow: neither function depends on the level."""
    relax = """
    func.func @main(%x: tensor<?x?x40xf32, #relax.dims<["n", "m", 40]>>)
        -> tensor<?x?x40xf32, #relax.dims<["n", "m", 40]>> attributes {relax.entry} {
      %y = "relax.softmax"(%x) {axis = 2 : i64} : (tensor<?x?x40xf32, #relax.dims<["n", "m", 40]>>)
        -> tensor<?x?x40xf32, #relax.dims<["n", "m", 40]>>
      %z = "relax.softmax"(%y) {axis = 1 : i64} : (tensor<?x?x40xf32, #relax.dims<["n", "m", 40]>>)
        -> tensor<?x?x40xf32, #relax.dims<["n", "m", 40]>>
      return %z : tensor<?x?x40xf32, #relax.dims<["n", "m", 40]>>
    }"""
    settings = CodeSettings(parse_options("cpu=znver4").processor)
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(relax)
        Pipeline(compile_pipeline()).run(module, Session())
        main = split(module, prepare_module(module).entry, settings, apart=True)[0]
        lowered = ir.Module.parse(main.text)
        lower_module(lowered, settings.processor, main.entry, main.text)
        functions = [op.operation for op in lowered.body.operations if op.operation.name == "llvm.func"]
        defined = [function for function in functions if len(function.regions[0].blocks)]
        assert len(defined) >= 3
        assert all(ONCE in str(function.attributes["passthrough"]) for function in defined)
        assert "llvm.fmul" in str(lowered)
