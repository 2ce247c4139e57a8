"""Names, their definitions and types in texts of IR, without a server."""

from __future__ import annotations

import pytest
from mirlo_editor.document import Name
from mirlo_editor.mlir_index import index_of_ir, without_locations

LOOPS = """\
func.func @main(%x: index) -> index {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %s:2 = scf.for %i = %c0 to %x step %c1 iter_args(%a = %c0, %b = %c1) -> (index, index) {
    scf.yield %b, %a : index, index
  }
  cf.br ^last(%s#1 : index)
^last(%r: index):
  return %r : index
}
"""
ALIASES = """\
#loc1 = loc("model.py":3:5)
func.func @main(%x: tensor<4xf32> loc("x")) -> tensor<4xf32> {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32> loc(#loc2)
  return %0 : tensor<4xf32> loc(#loc1)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc(fused["a ( name", "b"(#loc1)])
"""


def _named(text: str) -> list[Name]:
    index = index_of_ir(text, "file.mlir")
    assert index.problems == []
    return index.names


def test_every_value_has_a_definition_and_a_type() -> None:
    values = [name for name in _named(LOOPS) if name.kind == "value"]
    lines = {name.text: name.definition.line for name in values if name.definition is not None}
    assert lines == {"%x": 0, "%c0": 1, "%c1": 2, "%s": 3, "%i": 3, "%a": 3, "%b": 3, "%r": 7}
    assert {name.type for name in values} == {"index", "index, index"}
    (use,) = [name for name in _named(LOOPS) if name.kind == "block" and name.span.line == 6]
    assert use.definition is not None and use.definition.line == 7


@pytest.mark.parametrize("text", [ALIASES])
def test_locations_of_the_text_do_not_hide_where_operations_are(text: str) -> None:
    """Printed IR has the locations of its sources; an editor needs those in the text."""
    plain = without_locations(text)
    assert [len(line) for line in plain.split("\n")] == [len(line) for line in text.split("\n")]
    assert "#loc1 = loc(" in plain and "loc(#loc2)" not in plain
    values = [name for name in _named(text) if name.kind == "value"]
    assert {(name.text, name.type) for name in values} == {("%x", "tensor<4xf32>"), ("%0", "tensor<4xf32>")}
