"""Building, editing, printing and running pipelines from Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.instrumentation import Instrument, PassFailed
from mirlo.passes.pipeline import Pipeline, PipelineError
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.session import Session
from mirlo.passes.upstream import UpstreamPass

SOURCE = """
func.func @f() -> i32 {
  %a = arith.constant 1 : i32
  %b = arith.constant 1 : i32
  %c = arith.addi %a, %b : i32
  return %c : i32
}
func.func private @declared()
"""


@register_pass
@dataclass(frozen=True)
class Tag(Pass):
    """Mark every function."""

    name = "pipeline-test-tag"
    anchor = "func.func"
    tag: str = option("seen", "the name of the mark")
    times: int = option(1, "its value")
    names: tuple[str, ...] = option((), "functions to mark; all by default")

    def run(self, op: Any, session: Session) -> None:
        if not self.names or op.name.value in self.names:
            op.attributes[f"test.{self.tag}"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), self.times)
            session.notes.append(op.name.value)


@register_pass
@dataclass(frozen=True)
class Fail(Pass):
    """Always fail."""

    name = "pipeline-test-fail"
    kind: str = option("refuse", "how")

    def run(self, op: Any, session: Session) -> None:
        if self.kind == "refuse":
            raise PassError("no", op.location)
        raise KeyError("oops")


@pytest.fixture
def module():
    with make_context(), ir.Location.unknown():
        yield ir.Module.parse(SOURCE)


TAG = "pipeline-test-tag"


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ("", "builtin.module()"),
        ("cse", "builtin.module(cse)"),
        (" builtin.module( cse , func.func( cse,canonicalize ) ) ", "builtin.module(cse,func.func(cse,canonicalize))"),
        (f"{TAG}{{}}", f"builtin.module({TAG})"),
        (f"{TAG}{{times=1 tag=seen}}", f"builtin.module({TAG})"),
        (f"{TAG}{{times=0x10}}", f"builtin.module({TAG}{{times=16}})"),
        (f"{TAG}{{tag='a b'}}", f'builtin.module({TAG}{{tag="a b"}})'),
        (f'{TAG}{{tag="a\\"}}b"}}', f'builtin.module({TAG}{{tag="a\\"}}b"}})'),
        (f"{TAG}{{tag={{a {{b}}}}}}", f'builtin.module({TAG}{{tag="a {{b}}"}})'),
        (f"{TAG}{{names=f,g}}", f"builtin.module({TAG}{{names={{f,g}}}})"),
        (f'{TAG}{{names={{f,"a,b"}} tag=x}}', f'builtin.module({TAG}{{tag=x names={{f,"a,b"}}}})'),
        (
            "canonicalize{max-iterations=3 region-simplify=normal}",
            "builtin.module(canonicalize{max-iterations=3 region-simplify=normal})",
        ),
        (
            "inline{op-pipelines={func.func(cse,canonicalize)}}",
            "builtin.module(inline{op-pipelines={func.func(cse,canonicalize)}})",
        ),
    ],
)
def test_text_round_trip(given, printed):
    pipeline = Pipeline(given)
    assert str(pipeline) == printed
    assert Pipeline(printed) == pipeline
    assert str(Pipeline(printed)) == printed


def test_from_objects_and_text_mixed():
    pipeline = mirlo.Pipeline(["cse", Tag(times=3), [UpstreamPass("canonicalize"), "func.func(cse)"]])
    assert str(pipeline) == f"builtin.module(cse,{TAG}{{times=3}},canonicalize,func.func(cse))"
    assert pipeline.names() == ["cse", TAG, "canonicalize", "cse"]
    assert len(pipeline) == 4
    assert TAG in pipeline
    assert "symbol-dce" not in pipeline
    assert pipeline[TAG].times == 3


def test_edits_by_name():
    pipeline = Pipeline("cse,canonicalize")
    assert str(pipeline.insert_before("canonicalize", "symbol-dce")) == "builtin.module(cse,symbol-dce,canonicalize)"
    assert str(pipeline.insert_after("cse", [Tag(), "sccp"])) == (
        f"builtin.module(cse,{TAG},sccp,symbol-dce,canonicalize)"
    )
    assert str(pipeline.replace("sccp", "func.func(cse,sroa)").remove("symbol-dce").remove(TAG)) == (
        "builtin.module(cse,func.func(cse,sroa),canonicalize)"
    )
    assert str(pipeline.insert_after("sroa", "mem2reg")) == (
        "builtin.module(cse,func.func(cse,sroa,mem2reg),canonicalize)"
    )
    assert str(pipeline.append("verify").prepend("inline")) == (
        "builtin.module(inline,cse,func.func(cse,sroa,mem2reg),canonicalize,verify)"
    )


def test_a_copy_is_edited_alone():
    pipeline = Pipeline("cse,canonicalize")
    copied = pipeline.copy().remove("cse")
    assert str(copied) == "builtin.module(canonicalize)"
    assert str(pipeline) == "builtin.module(cse,canonicalize)"
    assert copied != pipeline


def test_nothing_is_left_of_an_emptied_nesting():
    assert str(Pipeline("cse,func.func(sroa)").remove("sroa")) == "builtin.module(cse)"


def test_occurrences():
    pipeline = Pipeline("cse,func.func(cse),canonicalize,cse")
    with pytest.raises(PipelineError, match="pass 'cse' occurs 3 times: select one with occurrence=0 to 2"):
        pipeline.remove("cse")
    assert str(pipeline.copy().remove("cse", occurrence=1)) == "builtin.module(cse,canonicalize,cse)"
    assert str(pipeline.copy().remove_all("cse")) == "builtin.module(canonicalize)"
    assert str(pipeline.copy().remove_all("sroa")) == str(pipeline)
    assert str(pipeline.copy().remove("cse", occurrence=2)) == "builtin.module(cse,func.func(cse),canonicalize)"
    with pytest.raises(PipelineError, match="there is no occurrence 3"):
        pipeline.remove("cse", occurrence=3)


def test_edits_that_cannot_be():
    pipeline = Pipeline("func.func(canonicalize)")
    with pytest.raises(PipelineError, match="has no pass 'canonicalise'; did you mean 'canonicalize'"):
        pipeline.remove("canonicalise")
    with pytest.raises(PipelineError, match="'verify' runs on builtin.module, and cannot stand in func.func"):
        pipeline.insert_after("canonicalize", "verify")
    with pytest.raises(PipelineError, match="cannot stand in func.func"):
        pipeline.insert_after("canonicalize", Pipeline("verify")["verify"])
    with pytest.raises(TypeError, match="expected passes or text"):
        pipeline.append(Tag)
    assert str(pipeline) == "builtin.module(func.func(canonicalize))"


def test_run(module):
    session = Session()
    Pipeline(f"{TAG}{{times=2}},func.func(cse),canonicalize").run(module, session)
    assert session.notes == ["f"]
    text = str(module)
    assert "test.seen = 2" in text
    assert "arith.constant 2" in text


def test_run_refuses_what_is_no_module(module):
    with pytest.raises(TypeError, match="a pipeline runs on a module, got str"):
        Pipeline("cse").run("module {}")
    with pytest.raises(TypeError, match="a pipeline runs on a module, got FuncOp"):
        Pipeline("cse").run(module.body.operations[0])


def test_failures(module):
    with pytest.raises(PassFailed, match="pass 'pipeline-test-fail' failed: no") as caught:
        Pipeline("cse,pipeline-test-fail").run(module)
    assert caught.value.pass_name == "pipeline-test-fail"
    assert not caught.value.internal
    with pytest.raises(PassFailed, match="KeyError: 'oops'") as caught:
        Pipeline("pipeline-test-fail{kind=crash}").run(module)
    assert caught.value.internal
    assert isinstance(caught.value.__cause__, KeyError)


@register_pass
@dataclass(frozen=True)
class Break(Pass):
    """Leave IR that does not verify."""

    name = "pipeline-test-break"
    trusted = True

    def run(self, op: Any, session: Any) -> None:
        for function in op.operation.regions[0].blocks[0].operations:
            function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([ir.IndexType.get()], []))


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("pipeline-test-break", "'pipeline-test-break' failed: it left invalid IR"),
        ("pipeline-test-break,strip-debuginfo", "'strip-debuginfo' failed: it, or one of 'pipeline-test-break' before"),
        ("pipeline-test-break,pipeline-test-tag", "'pipeline-test-tag' failed: it, or one of 'pipeline-test-break' be"),
    ],
)
def test_what_trusted_passes_leave_is_verified_later(module, steps, message):
    with pytest.raises(PassFailed, match=message):
        Pipeline(steps).run(module, trusting=True)
    with pytest.raises(PassFailed, match="'pipeline-test-break' failed: it left"):
        Pipeline(steps).run(module)


def test_pipelines_in_a_row_verify_once(module):
    """What trusted passes of the first ones left is verified with the last one, or after another pass."""
    pending = []
    Pipeline("pipeline-test-break").run(module, trusting=True, unverified=pending, is_last=False)
    assert [step.name for step in pending] == ["pipeline-test-break"]
    Pipeline("").run(module, trusting=True, unverified=pending, is_last=False)
    with pytest.raises(PassFailed, match="'pipeline-test-break' failed: it left invalid IR"):
        Pipeline("").run(module, trusting=True, unverified=list(pending))
    with pytest.raises(PassFailed, match="'pipeline-test-tag' failed: it, or one of 'pipeline-test-break' before"):
        Pipeline("pipeline-test-tag").run(module, trusting=True, unverified=pending, is_last=False)


def test_upstream_failure_carries_its_diagnostics():
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(
            'func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> { %0 = "relax.add"(%a, %a) : (tensor<4xf32>, '
            "tensor<4xf32>) -> tensor<4xf32>\n return %0 : tensor<4xf32> }"
        )
        with pytest.raises(PassFailed, match=r"one-shot-bufferize' failed.*\n.*op was not bufferized"):
            Pipeline("one-shot-bufferize{bufferize-function-boundaries}").run(module)


def test_instruments_see_each_pass_in_order(module):
    events = []

    class Log(Instrument):
        def before_pass(self, step, op):
            events.append(f"before {step.name} {op.operation.name}")

        def after_pass(self, step, op):
            events.append(f"after {step.name}")

        def pass_failed(self, step, op, failure):
            events.append(f"failed {step.name}")

        def begin_stage(self, op, remaining):
            events.append(f"stage {len(remaining)}")

    with pytest.raises(PassFailed):
        Pipeline(f"func.func(cse),{TAG},pipeline-test-fail").run(module, instrumentation=[Log()])
    assert events == [
        *("stage 3", "before cse func.func", "after cse", "before cse func.func", "after cse"),
        *("stage 2", f"before {TAG} func.func", f"after {TAG}"),
        *("stage 1", "before pipeline-test-fail builtin.module", "failed pipeline-test-fail"),
    ]
