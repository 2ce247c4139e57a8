"""What the page about serving shows works as it stands there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from repository import ROOT

from mirlo.testing.commands import output_of, run_script
from mirlo.testing.pages import code_block

for package in ("starlette", "uvicorn", "tokenizers", "jinja2"):
    pytest.importorskip(package)

from mirlo_llm.commands.serving import LIMITS  # noqa: E402
from mirlo_llm.serve.metrics import ServerMetrics  # noqa: E402
from mirlo_llm.serve.options import ServeOptions  # noqa: E402
from served import serving, write_tensor_model  # noqa: E402

TEXT = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")


@pytest.mark.sample(0)
@pytest.mark.skipif(sys.platform == "win32", reason="servers end by signals")
def test_commands(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    write, serve = code_block(TEXT, "sh").splitlines()
    output_of(run_script(*write.partition("#")[0].split()[1:], cwd=tmp_path))
    command = serve.split()
    assert command[:2] == ["mirlo", "serve"]
    model = write_tensor_model(tmp_path / "sum.onnx")
    with serving(tmp_path / command[2], model) as server:
        out = output_of(run_script("-c", f"address = {server.address!r}\n{code_block(TEXT, 'python')}", cwd=tmp_path))
        assert out.strip().endswith("20")
        assert server.end() == 0


def test_tables_are_complete() -> None:
    section = TEXT.partition("## Limits")[2].partition("\n##")[0]
    listed = dict(re.findall(r"^\| `--([\w-]+)` \| (\S+) \|", section, re.MULTILINE))
    numbers = {name.replace("_", "-"): getattr(ServeOptions(), name) for name in LIMITS}
    defaults = {name: f"{number:.12g}" for name, number in numbers.items() if number is not None}
    defaults |= {"memory": "none", "health-port": "none", "chunk-size": "512", "pages": "none"}
    assert listed == {name: value for name, value in defaults.items() if name not in ("port", "batch", "batch-delay")}
    assert all(f"`--{name}`" in TEXT for name in defaults if name != "port")
    for line in ServerMetrics().text().splitlines():
        if line.startswith("# TYPE"):
            assert f"`{line.split()[2]}`" in TEXT
