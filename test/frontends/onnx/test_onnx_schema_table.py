"""The file of signatures says what the `onnx` package says."""

from __future__ import annotations

import onnx
import pytest

from mirlo.frontends.onnx import schema_table
from mirlo.frontends.onnx.schema_table import defined, signature

SCHEMAS = onnx.defs.get_all_schemas_with_history()
NAMES = sorted({(found.domain, found.name) for found in SCHEMAS} | {("", "Nope"), ("", "Ad"), ("nowhere", "Add")})


def _table() -> schema_table.SchemaTable:
    return schema_table.SchemaTable(schema_table.written(SCHEMAS, onnx.__version__))


def test_every_operator_in_every_version() -> None:
    table = _table()
    newest = onnx.defs.onnx_opset_version() + 1
    wrong = [
        (domain, operator, version)
        for domain, operator in NAMES
        for version in range(newest + 1)
        if table.find(domain, operator, version) != defined(domain, operator, version)
    ]
    assert not wrong
    assert table.find("", "Add", 14) is not None and table.find("", "Nope", 14) is None


def test_the_file_is_what_would_be_written() -> None:
    text = schema_table.FILE.read_text(encoding="utf-8")
    made_from = schema_table.SchemaTable(text).version
    if made_from == onnx.__version__:
        assert text == schema_table.written(SCHEMAS, onnx.__version__), (
            "write it anew: python -m mirlo.frontends.onnx.schema_table"
        )
    else:
        assert schema_table.table() is None


def test_another_release_is_asked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_table, "installed_version", lambda name: "0.0")
    schema_table.table.cache_clear()
    signature.cache_clear()
    asked = []
    monkeypatch.setattr(schema_table, "schema_of", lambda *key: asked.append(key))
    assert signature("", "Add", 14) is None and asked == [("", "Add", 14)]
    monkeypatch.undo()
    schema_table.table.cache_clear()
    signature.cache_clear()
