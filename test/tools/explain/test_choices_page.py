"""The page of what schedule rules choose."""

from pathlib import Path

import pytest

from mirlo.passes.schedule.tuned import declared_choices
from mirlo.passes.targets import Target, operator_choices
from mirlo.tools.explain.choices_page import TARGETS, page

PAGE = Path(__file__).parents[3] / "docs" / "choices.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python -m mirlo.tools.explain.choices_page > docs/choices.md"
    for target in TARGETS:
        assert all(f"| `{name}` |" in PAGE.read_text() for name in declared_choices(target))


@pytest.mark.parametrize("target", ["c"])
def test_other_targets_choose_nothing(target: str) -> None:
    assert not declared_choices(target) and target not in TARGETS


def test_choices_for_operators_are_those_of_the_parents_too() -> None:
    from mirlo.passes.targets import register_target
    from mirlo.targets.llvm.choices import BlockChoices, ConvolutionChoices
    from mirlo.testing import temporary_registrations

    with temporary_registrations(__name__):

        class Choosing(Target):
            def operator_choices(self) -> dict[str, type]:
                return {"relax.exp": BlockChoices}

        register_target(Choosing("choosing", "", parent="llvm"))
        register_target(Target("silent", "", parent="choosing"))
        assert operator_choices("silent") == {"relax.conv": ConvolutionChoices, "relax.exp": BlockChoices}
        assert declared_choices("silent").keys() >= {"winograd", "block_rows", "tile_rows"}
