"""How a function is cut into steps: levels, what parts share, blocks, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.driver.programs.partition import ProgramError, partition
from mirlo.passes.session import Session
from mirlo.runtime.compiled_program import HOST, IF, PART, WHILE
from mirlo.runtime.host import host_function

ONE, TWO = "array<i32: 1" + ", 0" * 15 + ">", "array<i32: 2" + ", 0" * 15 + ">"


def call(name: str, operands: str, kinds: str) -> str:
    count = operands.count("%")
    sizes = ONE if count == 1 else TWO
    return (
        f'"relax.call_packed"({operands}) {{function = "{name}", operandSegmentSizes = {sizes}, '
        f"resultSegmentSizes = array<i32: 1, 0, 0, 0>}} : {kinds}"
    )


@host_function("test.doubled", override=True)
def doubled(x: Any) -> Any:
    return x * 2


T = "tensor<2xf32>"
DOUBLE = f"({T}) -> {T}"


def drafted(body: str, results: str = T) -> Any:
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(f"func.func @main(%x: {T}, %flag: tensor<i1>) -> {results} {{\n{body}\n}}")
        return partition(module, Session())


def shown(draft: Any) -> list[str]:
    return [step.kind for step in draft.body.steps]


def test_levels() -> None:
    """Two chains, each of an operator, a host function and an operator: two parts, not four."""
    draft = drafted(
        f"""
      %a = "relax.exp"(%x) : {DOUBLE}
      %b = {call("test.doubled", "%a", DOUBLE)}
      %c = "relax.exp"(%b) : {DOUBLE}
      %d = "relax.negative"(%x) : {DOUBLE}
      %e = {call("test.doubled", "%d", DOUBLE)}
      %f = "relax.negative"(%e) : {DOUBLE}
      return %c, %f : {T}, {T}""",
        f"({T}, {T})",
    )
    assert shown(draft) == [PART, HOST, HOST, PART]
    assert len(draft.body.steps[0].outputs) == 2 and len(draft.parts) == 2


def test_equal_parts_are_one() -> None:
    draft = drafted(f"""
      %a = "relax.exp"(%x) : {DOUBLE}
      %b = {call("test.doubled", "%a", DOUBLE)}
      %c = "relax.exp"(%b) : {DOUBLE}
      return %c : {T}""")
    assert [step.part for step in draft.body.steps if step.kind == PART] == [0, 0] and len(draft.parts) == 1


def test_branches_with_host_functions_are_steps_and_others_are_not() -> None:
    draft = drafted(f"""
      %c = tensor.extract %flag[] : tensor<i1>
      %a = scf.if %c -> ({T}) {{
        %1 = "relax.exp"(%x) : {DOUBLE}
        scf.yield %1 : {T}
      }} else {{
        scf.yield %x : {T}
      }}
      %b = scf.if %c -> ({T}) {{
        %2 = {call("test.doubled", "%a", DOUBLE)}
        scf.yield %2 : {T}
      }} else {{
        %3 = "relax.negative"(%a) : {DOUBLE}
        scf.yield %3 : {T}
      }}
      return %b : {T}""")
    assert shown(draft) == [PART, IF]
    then, otherwise = draft.body.steps[1].blocks
    assert [step.kind for step in then.steps] == [HOST] and [step.kind for step in otherwise.steps] == [PART]


def test_a_loop_with_a_host_function() -> None:
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(f"""
          func.func @main(%x: {T}, %n: tensor<i64>) -> ({T} {{relax.name = "y"}}) {{
            %zero = "relax.constant"() {{value = dense<0> : tensor<i64>}} : () -> tensor<i64>
            %one = "relax.constant"() {{value = dense<1> : tensor<i64>}} : () -> tensor<i64>
            %r:2 = scf.while (%i = %zero, %v = %x) : (tensor<i64>, {T}) -> (tensor<i64>, {T}) {{
              %l = "relax.less"(%i, %n) : (tensor<i64>, tensor<i64>) -> tensor<i1>
              %c = tensor.extract %l[] : tensor<i1>
              scf.condition(%c) %i, %v : tensor<i64>, {T}
            }} do {{
            ^bb0(%i: tensor<i64>, %v: {T}):
              %w = {call("test.doubled", "%v", DOUBLE)}
              %j = "relax.add"(%i, %one) : (tensor<i64>, tensor<i64>) -> tensor<i64>
              scf.yield %j, %w : tensor<i64>, {T}
            }}
            return %r#1 : {T}
          }}""")
        f = mirlo.compile(module)
    assert [step.kind for step in f.compiled.body.steps] == [WHILE]
    x = np.float32([1, 3])
    for n in (0, 1, 5):
        np.testing.assert_array_equal(f(x, np.array(n)), x * 2**n)
    profile = f.profile(x, np.array(3), repeats=2)
    assert [row.kind for row in profile] == ["while"]


def test_constants_go_to_host_functions_and_out() -> None:
    draft = drafted(
        f"""
      %k = "relax.constant"() {{value = dense<[1.0, 2.0]> : {T}}} : () -> {T}
      %a = {call("test.doubled", "%k", DOUBLE)}
      return %a, %k : {T}, {T}""",
        f"({T}, {T})",
    )
    assert shown(draft) == [HOST] and len(draft.constants) == 1


def test_a_host_function_that_lies_is_told() -> None:
    @host_function("test.wrong", override=True)
    def wrong(x: Any) -> Any:
        return x[:1]

    with make_context(), ir.Location.unknown():
        text = f"func.func @main(%x: {T}) -> {T} {{ %a = {call('test.wrong', '%x', DOUBLE)} return %a : {T} }}"
        f = mirlo.compile(ir.Module.parse(text))
    with pytest.raises(mirlo.runtime.errors.PackedFunctionError, match=r"result #0: expected f32\[2\], found f32\[1\]"):
        f(np.ones(2, np.float32))


def test_what_cannot_be_cut() -> None:
    with pytest.raises(ProgramError, match="cannot be handed from a part to a host function"):
        drafted(f"""
          %c = arith.constant 1.0 : f32
          %a = "relax.call_packed"(%c) {{function = "test.doubled", operandSegmentSizes = {ONE},
                resultSegmentSizes = array<i32: 1, 0, 0, 0>}} : (f32) -> {T}
          return %a : {T}""")
