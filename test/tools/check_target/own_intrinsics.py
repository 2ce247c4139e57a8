"""`mirlo check-target` on intrinsics of plug-ins: those that declare a meaning are compared with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mirlo.extend.ops import define_intrinsic, register_dialect
from mirlo.extend.rules import INTRINSIC, decline, intrinsic
from mirlo.extend.target import LlvmTarget, Target, register_target  # fmt: skip
from mirlo.passes.pipeline import Pipeline
from mirlo.tools.cli import main
from mirlo.tools.conformance.check import DECLINED, OK, WRONG, check_target, names
from mirlo.tools.conformance.matrix import text_lines

DIALECT = register_dialect("ckunit")
define_intrinsic(DIALECT, "halved", "f", meaning=lambda x: x / 2)
define_intrinsic(DIALECT, "larger", "ff", "bool", meaning=lambda x, y: x > y)
define_intrinsic(DIALECT, "mixed", "ii", meaning=lambda x, y: x * 2 + y)
define_intrinsic(DIALECT, "coarse", "f", meaning=np.sqrt, near=((0.0, 9.0),), ulp=1000.0)
define_intrinsic(DIALECT, "silent", "f")
define_intrinsic(DIALECT, "sync", "i", None, pure=False)


class ChipTarget(Target):
    emit = LlvmTarget.emit

    def pipeline(self, options: Any) -> str:
        return str(Pipeline.named("llvm", options).for_target("ckchip"))


register_target(ChipTarget("ckchip", "for tests", parent="llvm"))


@intrinsic("ckunit.halved", target="ckchip")
def halved(op: Any, b: Any) -> Any:
    return decline("the unit has no bf16") if op.dtype == "bf16" else op.nums[0] * 0.5


@intrinsic("ckunit.larger", target="ckchip")
def larger(op: Any, b: Any) -> Any:
    return op.nums[0] > op.nums[1]


@intrinsic("ckunit.mixed", target="ckchip")
def mixed(op: Any, b: Any) -> Any:
    return op.nums[0] + op.nums[0] + op.nums[1]


@intrinsic("ckunit.coarse", target="ckchip")
def coarse(op: Any, b: Any) -> Any:
    return b.sqrt(op.nums[0])


@intrinsic("ckunit.silent", target="ckchip")
def silent(op: Any, b: Any) -> Any:
    return op.nums[0]


@intrinsic("ckunit.sync", target="ckchip")
def sync(op: Any, b: Any) -> None:
    b.call_extern("CkSync", None, *op.nums)


MINE = ["ckunit.coarse", "ckunit.halved", "ckunit.larger", "ckunit.mixed"]


def test_they_are_among_what_is_checked() -> None:
    assert [name for name in names() if name.startswith("ckunit.")] == MINE


@pytest.mark.sample(0)
def test_they_are_computed() -> None:
    matrix = check_target("ckchip", MINE)
    assert not matrix.unreached
    verdicts = {entry.name: {kind: v.status for kind, v in entry.verdicts.items()} for entry in matrix.entries}
    assert verdicts["ckunit.halved"] == {"f16": OK, "bf16": DECLINED, "f32": OK, "f64": OK}
    assert verdicts["ckunit.mixed"] == dict.fromkeys(("i8", "i32", "i64"), OK)
    assert {status for name in MINE[::2] for status in verdicts[name].values()} == {OK}


def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    define_intrinsic(DIALECT, "halved", "f", meaning=lambda x: x / 2 + 1)
    try:
        matrix = check_target("ckchip", ["ckunit.halved"])
        assert {v.status for v in matrix.entries[0].verdicts.values()} == {WRONG, DECLINED}
        assert "ulp, at most 4.0 are allowed" in "\n".join(text_lines(matrix))
        assert main(["check-target", "ckchip", "--operator", "ckunit.halved"]) == 1
    finally:
        define_intrinsic(DIALECT, "halved", "f", meaning=lambda x: x / 2)


def test_what_cannot_be_checked_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    import mirlo.tools.conformance.check as check

    monkeypatch.setattr(check, "names", lambda: [])
    monkeypatch.setattr(check, "own_rules", lambda *_, **__: [])
    lines = list(text_lines(check_target("ckchip")))
    assert "ckunit.silent: not checked: it declares no meaning" in lines
    assert "ckunit.sync: not checked: it does not compute one element of others" in lines
    assert INTRINSIC.foreign() is not None
