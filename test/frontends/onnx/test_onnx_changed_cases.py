"""The node cases of ONNX's own suite, as they are and each changed in one place: what the import makes of them."""

from __future__ import annotations

import onnx
import pytest
from imported_nodes import imported
from onnx_suite import listed_version
from snapshots import assert_snapshot


@pytest.mark.skipif(listed_version() != onnx.__version__, reason=f"the cases are of onnx {listed_version()}")
def test_imported_nodes_are_those_of_the_table() -> None:
    """Compare graphs, errors and what becomes of graphs; what is no error for users would be in the table as such."""
    assert_snapshot("frontends/onnx/imported.txt", imported())
