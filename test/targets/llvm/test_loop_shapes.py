"""Which code gets LLVM's whole pipeline, by what its innermost loops compute."""

import pytest

from mirlo.targets.llvm.loop_shapes import needs_whole_pipeline
from mirlo.targets.llvm.machine_code import CodeSettings, optimized
from mirlo.targets.llvm.processor import host_processor

SCALAR = """
  %p{n} = getelementptr float, ptr %x, i64 %i{n}
  %a{n} = load float, ptr %p{n}
  %b{n} = fadd float %a{n}, %a{n}
  store float %b{n}, ptr %p{n}"""
VECTOR = """
  %p{n} = getelementptr float, ptr %x, i64 %i{n}
  %a{n} = load <4 x float>, ptr %p{n}, align 4
  %b{n} = fadd <4 x float> %a{n}, %a{n}
  store <4 x float> %b{n}, ptr %p{n}, align 4"""
CALL = "\n  call void @other(ptr %x)"
MASKED = "\n  call void @llvm.masked.store.v4f32.p0(<4 x float> zeroinitializer, ptr %x, i32 4, <4 x i1> %m)"
FMA = "\n  %f{n} = call <4 x float> @llvm.fma.v4f32(<4 x float> %a{n}, <4 x float> %a{n}, <4 x float> %a{n})"
SHUFFLE = "\n  %s{n} = shufflevector <4 x float> %b{n}, <4 x float> poison, <4 x i32> "
EVEN, FIRST = SHUFFLE + "<i32 0, i32 2, i32 0, i32 2>", SHUFFLE + "zeroinitializer"
BRANCH = """
  br i1 %c{n}, label %then{n}, label %rest{n}

then{n}:                                            ; preds = %body{n}
  store <4 x float> %b{n}, ptr %x, align 4
  br label %rest{n}

rest{n}:                                            ; preds = %then{n}, %body{n}"""


def _loop(body: str, number: int, before: str, after: str) -> str:
    """Return a loop as MLIR's translation prints it, and the label behind it."""
    n = number
    return f"""
  br label %head{n}

head{n}:                                            ; preds = %{before}
  %i{n} = phi i64 [ 0, %{before} ], [ %next{n}, %body{n} ]
  %c{n} = icmp slt i64 %i{n}, 1024
  br i1 %c{n}, label %body{n}, label %{after}

body{n}:                                            ; preds = %head{n}{body.format(n=n)}
  %next{n} = add i64 %i{n}, 8
  br label %head{n}

{after}:                                            ; preds = %head{n}"""


def _function(*bodies: str) -> str:
    text = "declare void @other(ptr)\ndefine void @kernel(ptr %x) {\nstart:"
    before = "start"
    for number, body in enumerate(bodies):
        text += _loop(body, number, before, f"end{number}")
        before = f"end{number}"
    return f"{text}\n  ret void\n}}\n"


NESTED = """define void @kernel(ptr %x) {
start:
  br label %outer

outer:                                            ; preds = %start, %last
  %o = phi i64 [ 0, %start ], [ %o1, %last ]
  br label %inner

inner:                                            ; preds = %outer, %inner
  %i = phi i64 [ 0, %outer ], [ %i1, %inner ]
  %p = getelementptr float, ptr %x, i64 %i
  store KIND zeroinitializer, ptr %p, align 4
  %i1 = add i64 %i, 4
  %c = icmp slt i64 %i1, 64
  br i1 %c, label %inner, label %last

last:                                             ; preds = %inner
  %o1 = add i64 %o, 1
  %d = icmp slt i64 %o1, 64
  br i1 %d, label %outer, label %end

end:                                              ; preds = %last
  ret void
}
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (_function(), False),
        (_function(VECTOR), False),
        (_function(SCALAR), True),
        (_function(VECTOR, VECTOR), False),
        (_function(VECTOR, SCALAR), True),
        (_function(SCALAR, VECTOR), True),
        (_function(VECTOR + CALL), True),
        (_function(VECTOR + MASKED), True),
        (_function(VECTOR + FMA), False),
        (_function(VECTOR + EVEN), True),
        (_function(VECTOR + FIRST), False),
        (_function(VECTOR + BRANCH), True),
        (_function(VECTOR, VECTOR + BRANCH), True),
        (_function(VECTOR) + _function(SCALAR).replace("@kernel", "@second"), True),
        (NESTED.replace("KIND", "<4 x float>"), False),
        (NESTED.replace("KIND", "[1 x float]"), True),
    ],
)
def test_innermost_loops(text, expected):
    assert needs_whole_pipeline(text) is expected


def _of_kernel(text: str, level: int) -> str:
    settings = CodeSettings(host_processor(), level)
    return str(next(f for f in optimized(text, settings).functions if f.name == "kernel"))


def test_loops_over_scalars_are_vectorized():
    text = _function(SCALAR.replace("float", "double")).replace("add i64 %i0, 8", "add i64 %i0, 1")
    assert " x double>" in _of_kernel(text, 2)


def test_loops_over_vectors_are_unrolled_and_lose_what_is_computed_twice():
    twice = VECTOR + VECTOR.replace("%p{n}", "%q{n}").replace("%a{n}", "%e{n}").replace("%b{n}", "%f{n}")
    code = _of_kernel(_function(twice), 2)
    assert code.count("getelementptr") == code.count("store <4 x float>") == 4
    assert code.count("phi") == 1
