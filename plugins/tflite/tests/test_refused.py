"""Which operator of a model the conversion to TOSA refuses, found by conversions of its beginnings."""

from __future__ import annotations

from pathlib import Path

import pytest
from mirlo_tflite.flatbuffer import Table
from mirlo_tflite.refused import describe_refused, operator_name
from mirlo_tflite.schema import GRAPH_OPERATORS, GRAPH_OUTPUTS, MODEL_GRAPHS
from models import CUSTOM, NEG, Graph, Node, TensorSpec, model

import mirlo

COUNT = 9


def chain(refused: int | None) -> bytes:
    """Return a model of negations in a row, one of which is a custom operator."""
    nodes = [
        Node(CUSTOM, [i], [i + 1], custom="Unknown") if i == refused else Node(NEG, [i], [i + 1]) for i in range(COUNT)
    ]
    return model(Graph([TensorSpec([2]) for _ in range(COUNT + 1)], [0], [COUNT], nodes))


def has_no_custom(content: bytes) -> bool:
    """Return whether a converter that knows no custom operator converts a model; it removes what nothing reads."""
    root = Table.root(content)
    (graph,) = root.tables(MODEL_GRAPHS)
    operators = graph.tables(GRAPH_OPERATORS)
    made = [each.vector(2, "<i4").tolist() for each in operators]
    needed = set(graph.vector(GRAPH_OUTPUTS, "<i4").tolist())
    for operator, outputs in zip(reversed(operators), reversed(made), strict=True):
        if needed & set(outputs):
            needed |= set(operator.vector(1, "<i4").tolist())
    live = [operator for operator, outputs in zip(operators, made, strict=True) if needed & set(outputs)]
    return not any("custom" in operator_name(root, each) for each in live)


@pytest.mark.parametrize("refused", range(COUNT))
def test_the_operator_is_named(refused: int) -> None:
    tried: list[bytes] = []
    found = describe_refused(
        Table.root(chain(refused)), lambda content: not tried.append(content) and has_no_custom(content)
    )
    assert found == f"operator {refused} of {COUNT}, the custom operator 'Unknown', which makes 'main_{refused + 1}'"
    assert len(tried) <= 5


def test_several_results_that_nothing_reads_are_kept() -> None:
    nodes = [Node(NEG, [0], [1]), Node(CUSTOM, [0], [2], custom="Unknown"), Node(NEG, [1], [3])]
    root = Table.root(model(Graph([TensorSpec([2]) for _ in range(4)], [0], [2, 3], nodes)))
    assert "operator 1 of 3" in str(describe_refused(root, has_no_custom))


def test_what_is_refused_whole_or_empty_names_no_operator() -> None:
    assert describe_refused(Table.root(chain(2)), lambda content: False) is None
    assert describe_refused(Table.root(model(Graph([], [], [], []))), lambda content: True) is None


def test_names_of_operators() -> None:
    root = Table.root(model(Graph([TensorSpec([2])], [0], [0], [Node(NEG, [0], [0]), Node(126, [0], [0])])))
    first, second = root.tables(MODEL_GRAPHS)[0].tables(GRAPH_OPERATORS)
    assert (operator_name(root, first), operator_name(root, second)) == ("NEG", "BATCH_MATMUL")


def test_the_error_of_the_converter_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool, path = tmp_path / "tosa-converter-for-tflite", tmp_path / "model.tflite"
    # A converter that fails where the graph has more than four operators.
    tool.write_text('#!/bin/sh\nif [ "$(od -An -tu4 -j"$(cat "$0.at")" -N4 "$1" | tr -d " ")" -gt 4 ]; then\n'
                    'echo "error: no"; exit 1; fi\nfor last; do :; done; echo "module {}" > "$last"\n')  # fmt: skip
    tool.chmod(0o755)
    content = chain(4)
    path.write_bytes(content)
    graph = Table.root(content).tables(MODEL_GRAPHS)[0]
    position = graph.position(GRAPH_OPERATORS)
    assert position is not None
    (tmp_path / f"{tool.name}.at").write_text(
        str(position + int.from_bytes(content[position : position + 4], "little"))
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(mirlo.MirloError, match=r"does not convert it: error: no: operator 4 of 9, the custom operator"):
        mirlo.compile(path, cache=False)
