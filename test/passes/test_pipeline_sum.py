"""`+` of pipelines."""

from mirlo.passes.pipeline import Pipeline


def test_sums_are_new_pipelines() -> None:
    first = Pipeline("simplify,fold-constant")
    both = first + "cse" + Pipeline("remove-dead")
    assert both.names() == ["simplify", "fold-constant", "cse", "remove-dead"]
    assert ("cse" + first).names() == ["cse", "simplify", "fold-constant"]
    assert first.names() == ["simplify", "fold-constant"]
