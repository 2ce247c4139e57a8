"""Placed is not computed: a code generator that gives all regions back is known to compute nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mirlo.extend.codegen import CodeGenerator, DeclinedRegions, is_op, wildcard
from mirlo.extend.rules import decline
from mirlo.extend.target import Target, register_target
from mirlo.testing import temporary_registrations
from mirlo.tools.cli import main


class Returning(CodeGenerator):
    name = "returning"

    def patterns(self) -> Any:
        return [("relu", is_op("relax.relu")(wildcard()))]

    def codegen(self, module: Any) -> DeclinedRegions:
        return DeclinedRegions({function.name: decline("not today") for function in module.functions})


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with temporary_registrations(__name__):
        register_target(Target("returning", "gives all regions back", codegen=Returning))
        yield


def test_given_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-target", "returning,llvm", "--operator", "returning.relu"]) == 1
    printed = capsys.readouterr()
    assert "cases were placed, and none was computed by it: it gives regions back: not today" in printed.out
    assert "no case took 1 patterns of 'returning,llvm'" in printed.err
