"""The document of the endpoints is complete, and requests that it allows, or does not, get what it says."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

for package in ("starlette", "tokenizers", "jinja2", "llguidance"):
    pytest.importorskip(package)
pytest.importorskip("starlette.testclient")

from embedding_folders import write_encoder  # noqa: E402
from mirlo_llm.serve.application import Server  # noqa: E402
from mirlo_llm.serve.openapi import ANSWERS, BODIES, EVENTS, LINES  # noqa: E402
from mirlo_llm.serve.options import ServeOptions  # noqa: E402
from served import serving, write_language_model, write_tensor_model  # noqa: E402


def test_the_document_is_complete() -> None:
    server = Server([], ServeOptions(has_ollama=True))
    document = json.loads(server._document)
    routes = {(route.path, method) for route in server._router.routes for method in route.methods - {"HEAD"}}
    described = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    assert described == routes
    paths = {path for path, _ in routes}
    assert BODIES.keys() <= paths and ANSWERS.keys() <= paths
    assert {path for path, method in routes if method == "POST"} == BODIES.keys()
    for methods in document["paths"].values():
        for operation in methods.values():
            assert operation["summary"].endswith(".") and "200" in operation["responses"]
            for kind, answer in operation["responses"]["200"]["content"].items():
                assert answer.keys() == {"itemSchema" if kind in (EVENTS, LINES) else "schema"}
    text = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
    missing = [path for path in paths - {"/v2/models/{name}/versions/{version}"} if not _is_named(path, text)]
    assert missing == []


def _is_named(path: str, text: str) -> bool:
    return path.replace("{name}", "NAME") in text or "/versions/" in path


@pytest.mark.sample(0)
def test_generated_requests(tmp_path: Path) -> None:
    """No request makes the server fail, and answers have the statuses and types that the document says."""
    pytest.importorskip("schemathesis")
    pytest.importorskip("python_multipart")
    speech = runpy.run_path(str(ROOT / "examples" / "tiny_speech_model.py"))["write"](tmp_path / "speech")
    (tmp_path / "encoder").mkdir()
    write_encoder(tmp_path / "encoder")
    models = (write_language_model(tmp_path / "tiny"), tmp_path / "encoder", speech)
    model = write_tensor_model(tmp_path / "sum.onnx")
    with serving(*models, model, "--max-tokens", 8, "--max-choices", 2) as server:
        checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
        command = [
            sys.executable, "-m", "schemathesis.cli", "run", f"{server.address}/openapi.json", "--checks", checks,
            "--max-examples", "60", "--seed", "1", "--phases", "examples,coverage,fuzzing", "--no-color",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) > 500
