"""What the import makes of the node cases of ONNX's own suite, as they are and changed, and of other operators."""

from __future__ import annotations

import onnx
import pytest
from imported_attributes import attributes
from imported_nodes import imported
from imported_programs import models
from onnx_suite import listed_version
from snapshots import assert_snapshot

of_listed_version = pytest.mark.skipif(
    listed_version() != onnx.__version__, reason=f"the tables are of onnx {listed_version()}"
)


@of_listed_version
def test_imported_nodes_are_those_of_the_table() -> None:
    """Compare graphs and errors with the table; internal errors would appear in it."""
    assert_snapshot("frontends/onnx/imported.txt", imported())


@of_listed_version
def test_models_of_other_operators_are_those_of_the_table() -> None:
    """Compare what the first models become that tests of operators compile which ONNX does not have."""
    assert_snapshot("frontends/onnx/imported_models.txt", models())


@of_listed_version
def test_each_attribute_that_is_read_has_an_effect_or_is_refused() -> None:
    """Compare models with another value of one attribute; `same` are those that do not matter for a case."""
    assert_snapshot("frontends/onnx/attributes.txt", attributes())
