"""`apply_rule` for products and attentions on NVIDIA GPUs: equal choices make the same kernel, others are followed."""

from __future__ import annotations

import re

import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.instrumentation import PassFailed
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.schedule.primitives.trace import PrimitiveCallRecord, Trace
from mirlo.passes.schedule.schedule import SCHEDULES, ScheduleRecord
from mirlo.passes.session import Session

PRODUCT = """
func.func @main(%x: tensor<256x512xf16>, %y: tensor<512x384xf16>) -> tensor<256x384xf16> {
  %0 = "relax.matmul"(%x, %y) : (tensor<256x512xf16>, tensor<512x384xf16>) -> tensor<256x384xf16>
  return %0 : tensor<256x384xf16>
}
"""
ATTENTION = """
func.func @main(%q: tensor<1x2x128x64xf16>, %k: tensor<1x2x256x64xf16>, %v: tensor<1x2x256x64xf16>)
    -> tensor<1x2x128x64xf16> {
  %0 = "relax.attention"(%q, %k, %v)
    {operandSegmentSizes = array<i32: 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} :
    (tensor<1x2x128x64xf16>, tensor<1x2x256x64xf16>, tensor<1x2x256x64xf16>) -> tensor<1x2x128x64xf16>
  return %0 : tensor<1x2x128x64xf16>
}
"""


def scheduled(text: str, given: Trace | None = None) -> tuple[str, PrimitiveCallRecord, str]:
    """Return a module after `schedule`, the primitive that scheduled its function, and the function's name."""
    session = Session()
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        legalized = "legalize{target=nvvm},annotate-kinds,fuse-ops,fuse-tir,schedule{target=nvvm}"
        name = "matmul" if "matmul" in text else "attention"
        session.options[SCHEDULES] = {} if given is None else {name: given}
        Pipeline(f"builtin.module({legalized})").run(module, session)
        (record,) = (note for note in session.notes if isinstance(note, ScheduleRecord))
        code = re.sub(r"tir\.tuned = \{[^}]*\}", "", str(module))
        return re.sub(r", (?=[,}])|(?<=\{), ", "", code), record.trace.calls[0], record.function


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("text", "rule", "other"),
    [(PRODUCT, "products", {"tile": 1}), (ATTENTION, "attention", {"keys": 32})],
    ids=["product", "attention"],
)
def test_primitives_make_the_same_kernel_and_take_other_choices(text: str, rule: str, other: dict[str, int]) -> None:
    code, primitive, _ = scheduled(text)
    assert primitive.arguments == (rule,) and set(other) < set(primitive.named) and "parts" in primitive.named
    assert scheduled(text, Trace([primitive]))[:2] == (code, primitive)
    changed = PrimitiveCallRecord("apply_rule", (rule,), {**primitive.named, **other})
    different, followed, _ = scheduled(text, Trace([changed]))
    assert different != code and followed == changed


def test_a_strategy_that_the_chip_lacks() -> None:
    _, primitive, _ = scheduled(PRODUCT)
    changed = PrimitiveCallRecord("apply_rule", ("products",), {**primitive.named, "way": 0, "tile": 0})
    with pytest.raises(PassFailed, match="the schedule given for '@matmul': .* does not fit this function"):
        scheduled(PRODUCT, Trace([changed]))
