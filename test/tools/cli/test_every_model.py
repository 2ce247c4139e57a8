"""Commands over models of all kinds: each ends with a result, or with an error that is the user's."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import onnx
import pytest
from every_command import internal_errors, run_command
from onnx import parser

from mirlo.benchmarks.client_commands import COMMANDS

OBJECTS = {
    "strings and tensors": """
      <ir_version: 9, opset_import: ["": 20]>
      g (float[3] x, float[3] s, string[3] y) => (float[3] t, string[3] u) { t = Add(x, s)  u = StringConcat(y, y) }""",
    "strings only": """
      <ir_version: 8, opset_import: ["": 17]>
      g (string[3] x) => (string[a] y) { y = StringNormalizer<case_change_action = "LOWER">(x) }""",
    "sequences": """
      <ir_version: 8, opset_import: ["": 17]>
      g (float[3] x, float[n] y) => (float[m] z, int64 n) {
        a = Exp(x)  s = SequenceConstruct(a, y)  n = SequenceLength(s)  i = Constant<value_int = 1>()
        e = SequenceAt(s, i)  z = Relu(e)
      }""",
    "optional values": """
      <ir_version: 8, opset_import: ["": 17]>
      g (float[3] x) => (float[3] z, bool h) {
        o = Optional(x)  h = OptionalHasElement(o)  e = OptionalGetElement(o)  z = Neg(e)
      }""",
}  # fmt: skip
REFUSED = {
    "partition": "works on strings, sequences or optional values",
    "run": "of which there are no random values: call it from Python",
    "quantize": "no product to quantize",
}
"""Errors of commands that do not take such models, or not all of them."""


@pytest.mark.parametrize("kind", OBJECTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_models_on_objects(command: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(parser.parse_model(OBJECTS[kind]).SerializeToString())
    code, errors = run_command(command, path, tmp_path, capsys)
    assert code == 0 or (code == 1 and command in REFUSED and re.search(REFUSED[command], errors)), errors


@cache
def node_cases() -> dict[str, onnx.ModelProto]:
    """Return the models of ONNX's suite of operators, by name."""
    from onnx.backend.test.case.node import collect_testcases

    return {case.name: case.model for case in collect_testcases(None) if case.model is not None}


def commands_of_cases() -> dict[str, tuple[str, ...]]:
    """Return the commands for each case: all of them for the operators of a case, two for one of five or more cases.

    Functions that are expanded are left out: their operators are those of other cases.
    """
    cases: dict[frozenset[str], list[str]] = defaultdict(list)
    for name, model in node_cases().items():
        if "_expanded" not in name:
            cases[frozenset(each.op_type for each in model.graph.node)].append(name)
    result = {}
    for names in cases.values():
        shares = min(len(names), SHARES)
        for number, name in enumerate(names):
            result[name] = tuple(COMMANDS)[number % shares :: shares]
    return result


PARTS, SHARES = 16, 5


@pytest.mark.sample(0)
@pytest.mark.parametrize("part", range(PARTS))
def test_models_of_the_suite(part: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {}
    for name, commands in list(commands_of_cases().items())[part::PARTS]:
        path = tmp_path / "m.onnx"
        path.write_bytes(node_cases()[name].SerializeToString())
        wrong |= {(name, command): text for command, text in internal_errors(path, tmp_path, capsys, commands)}
    assert not wrong, wrong


@pytest.mark.sample(0)
def test_each_operator_has_each_command() -> None:
    seen: dict[frozenset[str], set[str]] = defaultdict(set)
    for name, commands in commands_of_cases().items():
        seen[frozenset(each.op_type for each in node_cases()[name].graph.node)] |= set(commands)
    assert len(seen) > 150 and all(commands == set(COMMANDS) for commands in seen.values())
