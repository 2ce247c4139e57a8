"""Instructions of AArch64 and Hexagon that a processor lacks are named before LLVM is called, which would abort."""

from __future__ import annotations

import pytest

from mirlo.targets.llvm.intrinsics.dot_instructions import DOTS, HVX_DOTS, LOOKUP, MATRICES, missing_dot_instruction
from mirlo.targets.llvm.processor import Processor

NEEDS = {
    "sdot": "dotprod", "udot": "dotprod", "usdot": "i8mm", "smmla": "i8mm", "ummla": "i8mm", "usmmla": "i8mm",
    "bfdot": "bf16", "bfmmla": "bf16",
}  # fmt: skip
ARM = "aarch64-unknown-linux-gnu"


def call(name: str) -> str:
    """Return the text of a call of an intrinsic."""
    return f'llvm.call_intrinsic "{name}"(%a, %b, %c)'


@pytest.mark.parametrize("name", sorted({*DOTS.values(), *MATRICES.values()}))
def test_the_feature_is_named(name: str) -> None:
    feature = NEEDS[name.split(".")[3]]
    others = tuple(sorted(set(NEEDS.values()) - {feature}))
    text = f"{call(LOOKUP)}\n{call(name)}"
    assert missing_dot_instruction(text, Processor(ARM, "generic", others)) == (name, feature)
    assert missing_dot_instruction(text, Processor(ARM, "generic", (*others, feature))) is None
    x86 = Processor("x86_64-unknown-linux-gnu", "x86-64", (feature,))
    assert missing_dot_instruction(call(name), x86) == (name, "aarch64")


def test_what_every_processor_has() -> None:
    assert missing_dot_instruction(call(LOOKUP), Processor(ARM, "generic")) is None
    assert missing_dot_instruction("", Processor("x86_64-unknown-linux-gnu", "x86-64")) is None


@pytest.mark.parametrize("name", sorted(HVX_DOTS.values()))
def test_vectors_of_hexagon_are_named(name: str) -> None:
    hexagon = "hexagon-unknown-linux-musl"
    assert missing_dot_instruction(call(name), Processor(hexagon, "hexagonv67")) == (name, "hvx-length128b")
    assert missing_dot_instruction(call(name), Processor(hexagon, "hexagonv67", ("hvx-length128b",))) is None
    assert missing_dot_instruction(call(name), Processor(ARM, "generic")) == (name, "hexagon")
