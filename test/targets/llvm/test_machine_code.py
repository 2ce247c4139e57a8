"""The forms of code of a module in the LLVM dialect."""

import re
import struct

import pytest

import mirlo
from mirlo.dialects.bindings import ir, new_context, passmanager
from mirlo.dialects.context import make_context
from mirlo.passes.registry import PassError
from mirlo.passes.schedule.loops import keep_rolled
from mirlo.targets.host.llvm_ir import has_complex_vectors, has_expanded, lower_pipeline, to_llvm_ir
from mirlo.targets.llvm.flat_views import flatten_views
from mirlo.targets.llvm.loop_annotations import SCHEDULED, TILED
from mirlo.targets.llvm.machine_code import FORMS, CodeSettings, generate, generate_from
from mirlo.targets.llvm.object_code import compile_text
from mirlo.targets.llvm.pipeline import lower_to_llvm, shift_quotients
from mirlo.targets.llvm.processor import Processor, host_processor

SCALE = """
llvm.mlir.global internal constant @table(dense<[1.5, -2.25, 0.1]> : tensor<3xf32>) : !llvm.array<3 x f32>
llvm.func @other(f32) -> f32
llvm.func @scale(%i: i64, %x: f32) -> f32 {
  %table = llvm.mlir.addressof @table : !llvm.ptr
  %slot = llvm.getelementptr %table[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
  %factor = llvm.load %slot : !llvm.ptr -> f32
  %y = llvm.fmul %factor, %x : f32
  %z = llvm.call @other(%y) : (f32) -> f32
  %sum = llvm.fadd %z, %y : f32
  llvm.return %sum : f32
}
"""
LINUX = {
    "x86_64": Processor("x86_64-unknown-linux-gnu", "x86-64-v3", ("avx", "avx2", "fma")),
    "aarch64": Processor("aarch64-unknown-linux-gnu", "neoverse-n1"),
    "riscv64": Processor("riscv64-unknown-linux-gnu", "generic-rv64", ("m", "a", "f", "d")),
}


def _code(processor: Processor, form: str, text: str = SCALE) -> bytes:
    with new_context(), ir.Location.unknown():
        return generate(ir.Module.parse(text), CodeSettings(processor, 2, form))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LINUX)
def test_each_form_for_each_processor(name: str, form: str) -> None:
    code = _code(LINUX[name], form)
    if form == "obj":
        machines = {"x86_64": 62, "aarch64": 183, "riscv64": 243}
        assert code[:4] == b"\x7fELF"
        assert struct.unpack_from("<H", code, 18)[0] == machines[name]
    elif form == "asm":
        assert re.search(rb"^scale:", code, re.MULTILINE)
    elif form == "llvm-dialect":
        assert b"llvm.func @scale(" in code
    else:
        assert b"define float @scale(" in code and f'target triple = "{LINUX[name].triple}"'.encode() in code


def _relocations(code: bytes) -> set[int]:
    """Return the types of all relocations of an ELF object file."""
    sections, size, count = struct.unpack_from("<Q", code, 40)[0], *struct.unpack_from("<HH", code, 58)
    found = set()
    for i in range(count):
        kind, offset, length = (
            struct.unpack_from(form, code, sections + i * size + at)[0]
            for form, at in (("<I", 4), ("<Q", 24), ("<Q", 32))
        )
        if kind == 4:
            found |= {struct.unpack_from("<I", code, at + 8)[0] for at in range(offset, offset + length, 24)}
    return found


def test_code_is_position_independent() -> None:
    # R_X86_64_PC32, R_X86_64_PLT32, R_X86_64_REX_GOTPCRELX and its like: none is an absolute address (1, 10, 11).
    found = _relocations(_code(LINUX["x86_64"], "obj"))
    assert found and not found & {1, 10, 11}


def test_products_are_not_fused_into_sums() -> None:
    assert b"vfmadd" not in _code(LINUX["x86_64"], "asm")


def test_host_has_the_features_that_it_names() -> None:
    assert b"scale" in _code(host_processor(), "asm")


ROLLED = """
func.func @double(%a: memref<1024xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %x = memref.load %a[%i] : memref<1024xf32>
    %y = arith.addf %x, %x : f32
    memref.store %y, %a[%i] : memref<1024xf32>
  }
  return
}
"""


@pytest.mark.parametrize("rolled", [False, True])
def test_llvm_is_told_which_loops_stay_as_they_are(rolled: bool) -> None:
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(ROLLED)
        if rolled:
            entry = module.body.operations[0].regions[0].blocks[0]
            keep_rolled(next(op.operation for op in entry.operations if op.operation.name == "scf.for"))
        lower_to_llvm(module, host_processor())
        assert ("llvm.loop.unroll.disable" in to_llvm_ir(module)) == rolled


TRANSFER = """
func.func @copy(%a: memref<4x8xf32>, %b: memref<4x8xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %x = vector.transfer_read %a[%c0, %c0], %zero {in_bounds = [true, true]} : memref<4x8xf32>, vector<4x8xf32>
  vector.transfer_write %x, %b[%c0, %c0] {in_bounds = [true, true]} : vector<4x8xf32>, memref<4x8xf32>
  return
}
"""


@pytest.mark.parametrize("is_given", [False, True])
def test_transfers_of_vectors_are_lowered(is_given: bool) -> None:
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(TRANSFER)
        lower_to_llvm(module, host_processor(), text=TRANSFER if is_given else "")
        assert to_llvm_ir(module).count("store <8 x float>") == 4


VIEWS = """
func.func @add(%a: memref<4x8xf32>, %b: memref<?x8xf32>, %n: index) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %flat = memref.collapse_shape %a [[0, 1]] : memref<4x8xf32> into memref<32xf32>
  {outer}
  scf.for %i = %c0 to %n step %c1 {{
    {inner}
    %x = memref.load %flat[%i] : memref<32xf32>
    %y = memref.load %view[%i] : {kind}
    %z = arith.addf %x, %y : f32
    memref.store %z, %view[%i] : {kind}
  }}
  return
}}
"""
OUTER = "%w = memref.load %a[%c0, %c2] : memref<4x8xf32>"
"""A use of an argument that is no view in one dim."""


@pytest.mark.parametrize("outer", ["", OUTER], ids=["only-views", "others"])
@pytest.mark.parametrize(
    ("inner", "kind", "left"),
    [
        ("%view = memref.collapse_shape %a [[0, 1]] : memref<4x8xf32> into memref<32xf32>", "memref<32xf32>", 1),
        ("%view = memref.collapse_shape %b [[0, 1]] : memref<?x8xf32> into memref<?xf32>", "memref<?xf32>", 1),
        ("%view = memref.cast %flat : memref<32xf32> to memref<?xf32>", "memref<?xf32>", 0),
    ],
)
def test_views_of_buffers_are_lowered(outer: str, inner: str, kind: str, left: int) -> None:
    text = VIEWS.format(outer=outer, inner=inner, kind=kind)
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        remains = left > 0 and (outer != "" or "%b" in inner)
        assert flatten_views(module, text) == remains
        assert str(module).count("memref.reinterpret_cast") == (outer != "")
        assert ("memref<4x8xf32>" in str(module)) == (outer != "")
        lower_to_llvm(module, host_processor(), text=text)
        assert to_llvm_ir(module).count("fadd float") == 1


BYTES = """
{called}
func.func {visibility}@f(%a: memref<64xi8>, %i: index) -> f32 {{
  %at = arith.constant {at} : index
  %x = memref.view %a[%at][] : memref<64xi8> to memref<8xf32>
  {other}
  %y = memref.load %x[%i] : memref<8xf32>
  return %y : f32
}}
"""
CALLED = """func.func @g(%a: memref<64xi8>, %i: index) -> f32 {
  %y = call @f(%a, %i) : (memref<64xi8>, index) -> f32
  return %y : f32
}"""


@pytest.mark.parametrize(
    ("changed", "is_flat"),
    [
        ({}, True),
        ({"at": "8"}, False),
        ({"visibility": "private "}, False),
        ({"called": CALLED}, False),
        ({"other": "%z = memref.view %a[%at][] : memref<64xi8> to memref<8xi32>"}, False),
        ({"other": "%z = memref.view %a[%at][%i] : memref<64xi8> to memref<?xf32>"}, False),
    ],
    ids=["first", "later", "private", "called", "types", "sizes"],
)
def test_an_argument_that_is_one_view_has_its_type(changed: dict[str, str], is_flat: bool) -> None:
    text = BYTES.format(**{"called": "", "visibility": "", "at": "0", "other": "", **changed})
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        assert not flatten_views(module, text)
        assert ("%arg0: memref<8xf32>" in str(module)) == is_flat
        assert module.operation.verify()


SCRATCH = """
func.func @f(%a: memref<512xi8>, %n: index) -> f32 {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %m = {memory}
  scf.for %i = %c0 to %n step %c1 {{
    %flat = memref.collapse_shape %m [[0, 1]] : memref<4x8xf32> into memref<32xf32>
    %x = memref.load %flat[%i] : memref<32xf32>
    %y = arith.addf %x, %x : f32
    memref.store %y, %flat[%i] : memref<32xf32>
  }}
  {other}
  %again = memref.collapse_shape %m [[0, 1]] : memref<4x8xf32> into memref<32xf32>
  %z = memref.load %again[%c1] : memref<32xf32>
  return %z : f32
}}
"""
ON_THE_STACK = "memref.alloca() {alignment = 64 : i64} : memref<4x8xf32>"
OF_THE_CALLER = "memref.view %a[%c64][] : memref<512xi8> to memref<4x8xf32>"


@pytest.mark.parametrize(("memory", "flat"), [
    (ON_THE_STACK, "memref.alloca() {alignment = 64 : i64} : memref<32xf32>"),
    (OF_THE_CALLER, "memref.view %arg0[%c64][] : memref<512xi8> to memref<32xf32>"),
])  # fmt: skip
@pytest.mark.parametrize(("other", "is_flat"), [
    ("", True),
    ("%w = memref.load %m[%c0, %c1] : memref<4x8xf32>", False),
    ("%w = memref.collapse_shape %m [[0, 1]] : memref<4x8xf32> into memref<32xf32>\n%v = "
     "memref.expand_shape %m [[0, 1], [2]] output_shape [2, 2, 8] : memref<4x8xf32> into memref<2x2x8xf32>", False),
], ids=["one-dim", "element", "other-view"])  # fmt: skip
def test_scratch_memory_that_is_one_view_has_its_type(memory: str, flat: str, other: str, is_flat: bool) -> None:
    """Views of scratch memory in loops go with it: then no pass is needed that expands views."""
    text = SCRATCH.format(memory=memory, other=other)
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        assert flatten_views(module, text) == (not is_flat)
        assert (flat in str(module)) == is_flat and ("collapse_shape" not in str(module)) == is_flat
        assert module.operation.verify()
        lower_to_llvm(module, host_processor(), text=text)
        assert to_llvm_ir(module).count("fadd float") == 1


@pytest.mark.parametrize("memory", [ON_THE_STACK, OF_THE_CALLER])
def test_scratch_memory_without_views_stays(memory: str) -> None:
    text = f"""func.func @f(%a: memref<512xi8>, %i: index) -> f32 {{
      %c64 = arith.constant 64 : index
      %m = {memory}
      %x = memref.load %m[%i, %i] : memref<4x8xf32>
      return %x : f32
    }}"""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        assert not flatten_views(module, f"{text} // memref.view") and "memref<4x8xf32>" in str(module)


def test_functions_without_views_or_bodies_stay() -> None:
    text = "func.func private @g(memref<4xf32>)\nfunc.func @f(%a: memref<4xf32>, %b: memref<8xi8>) {\n  return\n}"
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        before = str(module)
        assert not flatten_views(module, f"{text} // memref.view") and str(module) == before


SIMPLE_VECTORS = """
func.func @f(%a: memref<32xf32>, %i: index) {{
  %x = vector.load %a[%i] : memref<32xf32>, vector<8xf32>
  %y = vector.fma %x, %x, %x : vector<8xf32>
  {inner}
  vector.store %y, %a[%i] : memref<32xf32>, vector<8xf32>
  return
}}
"""


@pytest.mark.parametrize(
    ("inner", "is_complex"),
    [
        ("", False),
        ("%z = vector.shuffle %x, %y [0, 8, 1, 9] : vector<8xf32>, vector<8xf32>", False),
        ("%z = vector.bitcast %y : vector<8xf32> to vector<16xi16>", False),
        (
            "%s = vector.extract %y[3] : f32 from vector<8xf32>\n%z = vector.insert %s, %y[1] : f32 into vector<8xf32>",
            False,
        ),
        ("%s = memref.load %a[%i] : memref<32xf32>\n%z = vector.broadcast %s : f32 to vector<8xf32>", False),
        (
            "%m = arith.constant dense<[1, 0, 1, 1, 1, 1, 1, 0]> : vector<8xi1>\n"
            "%z = vector.maskedload %a[%i], %m, %y : memref<32xf32>, vector<8xi1>, vector<8xf32> into vector<8xf32>\n"
            "vector.maskedstore %a[%i], %m, %z : memref<32xf32>, vector<8xi1>, vector<8xf32>",
            False,
        ),
        ("%z = vector.reduction <add>, %y : vector<8xf32> into f32", True),
        ("%z = vector.shape_cast %y : vector<8xf32> to vector<2x4xf32>", True),
        ("%z = vector.broadcast %y : vector<8xf32> to vector<2x8xf32>", True),
        ("%z = vector.load %a[%i] : memref<32xf32>, vector<[4]xf32>", True),
        ("%z = arith.constant dense<0.0> : vector<f32>", True),
    ],
    ids=[
        "none",
        "shuffle",
        "bitcast",
        "elements",
        "broadcast",
        "masks",
        "reduction",
        "cast",
        "dims",
        "scalable",
        "scalar",
    ],
)
def test_only_complex_vectors_take_a_pass_of_their_own(inner: str, is_complex: bool) -> None:
    text = SIMPLE_VECTORS.format(inner=inner)
    assert has_complex_vectors(text) == is_complex
    assert ("convert-vector-to-llvm" in lower_pipeline(transfers=False, vectors=is_complex)) == is_complex
    lowered = []
    for vectors in (is_complex, True):
        with new_context(), ir.Location.unknown():
            module = ir.Module.parse(text)
            passmanager.PassManager.parse(lower_pipeline(transfers=False, vectors=vectors)).run(module.operation)
            lowered.append(to_llvm_ir(module))
    assert lowered[0] == lowered[1]


@pytest.mark.parametrize(
    ("inner", "is_expanded", "is_affine"),
    [
        ("", False, False),
        ("%s = arith.divsi %i, %i : index\n%t = arith.minsi %s, %i : index", False, False),
        ("%s = arith.divf %x, %x : f32\n%t = arith.fptosi %s : f32 to i32", False, False),
        ("%s = arith.ceildivsi %i, %i : index", True, False),
        ("%s = arith.ceildivui %i, %i : index", True, False),
        ("%s = arith.floordivsi %i, %i : index", True, False),
        ("%s = arith.maximumf %x, %x : f32", True, False),
        ("%s = arith.minnumf %x, %x : f32", True, False),
        ("%s = affine.apply affine_map<(d0) -> (d0 floordiv 3)>(%i)", False, True),
        ("%s = affine.max affine_map<(d0) -> (d0, 3)>(%i)", False, True),
    ],
)
def test_only_what_is_expanded_takes_passes_of_its_own(inner: str, is_expanded: bool, is_affine: bool) -> None:
    text = f"func.func @f(%i: index, %x: f32) {{\n{inner}\nreturn\n}}"
    assert has_expanded(text) == is_expanded
    lowered = []
    for arithmetic, affine in ((is_expanded, is_affine), (True, True)):
        pipeline = lower_pipeline(transfers=False, views=False, arithmetic=arithmetic, affine=affine)
        assert ("arith-expand" in pipeline) == arithmetic and ("lower-affine" in pipeline) == affine
        with new_context(), ir.Location.unknown():
            module = ir.Module.parse(text)
            passmanager.PassManager.parse(pipeline).run(module.operation)
            lowered.append(to_llvm_ir(module))
    assert lowered[0] == lowered[1]
    assert "lower-affine" in lower_pipeline(transfers=False, views=True, affine=False)  # views become affine operations


def test_a_strided_view_is_not_taken_for_a_contiguous_one() -> None:
    kind = "memref<4x8xf32, strided<[16, 2]>>"
    text = f"""func.func @f(%a: {kind}, %i: index) -> f32 {{
      %flat = memref.collapse_shape %a [[0, 1]] : {kind} into memref<32xf32, strided<[2]>>
      %x = memref.load %flat[%i] : memref<32xf32, strided<[2]>>
      return %x : f32
    }}"""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        assert flatten_views(module, text) and "reinterpret_cast" not in str(module)


QUOTIENTS = """
func.func @quotients(%a: memref<3xindex>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c8 = arith.constant 8 : index
  %c12 = arith.constant 12 : index
  %x = arith.floordivsi %n, %c8 : index
  %y = arith.floordivsi %n, %c12 : index
  %z = arith.floordivsi %c8, %n : index
  memref.store %x, %a[%c0] : memref<3xindex>
  memref.store %y, %a[%c1] : memref<3xindex>
  memref.store %z, %a[%c2] : memref<3xindex>
  return
}
"""


def test_quotients_by_powers_of_two_are_shifts() -> None:
    """A shift rounds down, as a floor division does, also below zero."""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(QUOTIENTS)
        shift_quotients(module)
        module.operation.verify()
        text = str(module)
    assert text.count("arith.floordivsi") == 2
    (shift,) = re.findall(r"arith.shrsi %arg1, (%\w+) : index", text)
    assert f"{shift} = arith.constant 3 : index" in text


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ('%0 = "tir.tanh"(%x) : (f32) -> f32', "'tir.tanh' is not lowered .*: the pass lower-intrinsics lowers it"),
        ("%0 = math.tanh %x : f32", "'math.tanh' is not lowered to the LLVM dialect"),
        (
            "%0 = builtin.unrealized_conversion_cast %x : f32 to i32",
            "'builtin.unrealized_conversion_cast' is not lowered to the LLVM dialect",
        ),
    ],
)
def test_what_is_left_unlowered_is_an_error(operation: str, message: str) -> None:
    """LLVM's translation would end the process."""
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(f"llvm.func @f(%x: f32) {{\n  {operation}\n  llvm.return\n}}")
        with pytest.raises(PassError, match=message):
            to_llvm_ir(module)


def test_a_pipeline_that_lowers_too_little() -> None:
    graph = mirlo.parse_script("@R.function\ndef main(x: R.Tensor[(4,), 'f32']):\n    return R.tanh(x)\n")
    with pytest.raises(mirlo.MirloError, match="'tir.tanh' is not lowered to the LLVM dialect"):
        mirlo.compile(graph, pipeline="legalize,schedule,plan-memory", cache=False)


_KERNEL = """func.func{visibility} @{name}(%x: memref<64xf32>) attributes {{tir.prim_func}} {{
  %zero = arith.constant 0 : index
  %step = arith.constant 16 : index
  %end = arith.constant {end} : index
  scf.for %i = %zero to %end step %step {{
    %v = vector.load %x[%i] : memref<64xf32>, vector<16xf32>
    %w = arith.{operation} %v, %v : vector<16xf32>
    vector.store %w, %x[%i] : memref<64xf32>, vector<16xf32>
  }}
  return
}}
"""


def _bodies(text: str) -> dict[str, str]:
    """Return the functions of optimized LLVM IR for a processor with AVX2 by name, without numbers of attributes."""
    with make_context():
        code = compile_text(text, CodeSettings(LINUX["x86_64"], form="llvm-ir")).decode()
    return {name: body for name, body in re.findall(r"^define [^@]*@(\w+)\([^)]*\)[^{]*(\{.*?^\})", code, re.M | re.S)}


def test_kernels_that_share_a_module_have_the_code_of_each_alone() -> None:
    kernels = [
        _KERNEL.format(visibility="", name=name, end=end, operation=operation)
        for name, end, operation in (("added", 64, "addf"), ("multiplied", 32, "mulf"), ("one", 16, "subf"))
    ]
    alone = {name: body for kernel in kernels for name, body in _bodies(kernel).items()}
    assert list(alone) == ["added", "multiplied", "one"] and "br i1" in alone["added"]
    assert _bodies("".join(kernels)) == alone


def test_functions_that_call_others_take_the_pipeline_of_modules() -> None:
    inner = _KERNEL.format(visibility=" private", name="inner", end=64, operation="addf")
    caller = "func.func @caller(%x: memref<64xf32>) {\n  call @inner(%x) : (memref<64xf32>) -> ()\n  return\n}\n"
    settings = CodeSettings(LINUX["x86_64"], form="llvm-ir")
    with make_context():
        called, alone = (
            compile_text(text, settings).decode() for text in (f"{inner}{caller}", inner.replace(" private", ""))
        )
    assert SCHEDULED in alone and SCHEDULED not in called and re.search("call .*void @inner", called)


_STRIDED = """
define void @kernel(ptr %x, i64 %n) "ATTRIBUTE" {
start:
  br label %loop
loop:
  %i = phi i64 [ 0, %start ], [ %next, %loop ]
  %a = mul i64 %i, 7
  %at = getelementptr float, ptr %x, i64 %a
  %value = load float, ptr %at
  %b = mul i64 %i, 11
  %other = getelementptr float, ptr %x, i64 %b
  store float %value, ptr %other
  %next = add nuw nsw i64 %i, 1
  %more = icmp ne i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""


@pytest.mark.parametrize(
    ("name", "level", "attributes", "multiplies"),
    [
        ("x86_64", 2, (TILED, "none", TILED), (False, True, False)),
        ("x86_64", 3, ("none", TILED), (False, False)),
        ("aarch64", 2, ("none", TILED), (False, False)),
    ],
)
def test_addresses_stay_as_written_in_loops_without_register_tiles(
    name: str, level: int, attributes: tuple[str, ...], multiplies: tuple[bool, ...]
) -> None:
    """On x86; the code of other modules, which are compiled afterwards, has its induction variables again."""
    settings = CodeSettings(LINUX[name], level, "asm")
    codes = [generate_from(_STRIDED.replace("ATTRIBUTE", each), settings).decode() for each in attributes]
    loops = [code.partition("BB0_1:")[2] for code in codes]
    assert [re.search(r"\b(imul|leaq|mul|madd)", loop) is not None for loop in loops] == list(multiplies)


def test_a_module_without_bodies_has_no_code() -> None:
    with new_context(), ir.Location.unknown():
        code = generate(ir.Module.parse("llvm.func @other(f32) -> f32"), CodeSettings(LINUX["x86_64"], form="llvm-ir"))
    assert b"define" not in code
