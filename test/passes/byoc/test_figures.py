"""The figures of a code generator may be an attribute, a property or a method."""

from __future__ import annotations

import pytest

from mirlo.extend.codegen import CodeGenerator, Figures

FIGURES = Figures(gflops=10.0, gbytes=5.0)


class ByAttribute(CodeGenerator):
    name = "figures_by_attribute"
    figures = FIGURES


class ByProperty(CodeGenerator):
    name = "figures_by_property"

    @property
    def figures(self) -> Figures:
        return FIGURES


class ByMethod(CodeGenerator):
    name = "figures_by_method"

    def figures(self) -> Figures:
        return FIGURES


@pytest.mark.parametrize("generator", [ByAttribute(), ByProperty(), ByMethod()], ids=lambda each: each.name)
def test_figures(generator: CodeGenerator) -> None:
    assert generator.figures_beside("llvm", "") == FIGURES
