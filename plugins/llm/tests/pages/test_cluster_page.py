"""What the page about several machines shows works as it stands there, on a node of Ray in this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from repository import ROOT

from mirlo.testing.commands import ENVIRONMENT, output_of
from mirlo.testing.pages import code_block, code_blocks

for package in ("starlette", "uvicorn", "tokenizers", "jinja2"):
    pytest.importorskip(package)

from mirlo_llm.serve.ray.options import FleetOptions  # noqa: E402
from served import (  # noqa: E402
    LOOPBACK,
    START_RAY,
    free_port,
    serving,
    write_language_model,
    write_tensor_model,
)

from mirlo.extend.options import declared_options  # noqa: E402

TEXT = (ROOT / "docs" / "beyond-one-machine.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="servers end by signals")


def test_options_are_listed() -> None:
    rows = re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", TEXT, re.MULTILINE)
    listed = {}
    for names, defaults in rows:
        values = [value.strip("` ") for value in defaults.split(",")]
        listed.update(zip(re.findall(r"`(\w+)`", names), values, strict=True))
    options = FleetOptions()
    values = {name: getattr(options, name) for name in declared_options(FleetOptions)}
    assert listed == {n: "slots" if n == "load" else v if isinstance(v, str) else f"{v:g}" for n, v in values.items()}


@pytest.mark.sample(0)
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'mirlo-llm[ray]'")
def test_python(tmp_path: Path) -> None:
    write_language_model(tmp_path / "tiny"), write_tensor_model(tmp_path / "sum.onnx")
    serve, ask, batches, triton = code_blocks(TEXT, "python")
    port = free_port()
    blocks = [START_RAY.format(port=port), serve, ask, batches]
    blocks += [triton] if find_spec("tritonclient") else []
    blocks += ["from ray import serve", "serve.shutdown(), ray.shutdown()"]
    scratch = tempfile.mkdtemp(prefix="ray-")
    try:
        code = "\n".join(blocks).replace("127.0.0.1:8000", f"127.0.0.1:{port}")
        environment = {**ENVIRONMENT, **LOOPBACK, "RAY_TMPDIR": scratch}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    assert str([9.0 * row for row in range(10)]) in output_of(done)


@pytest.mark.sample(0)
def test_the_service_of_kserve(tmp_path: Path) -> None:
    """The command of the container starts a server that is ready where the probes look."""
    yaml = pytest.importorskip("yaml")
    (container,) = yaml.safe_load(code_block(TEXT, "yaml"))["spec"]["predictor"]["containers"]
    command = container["command"]
    assert command[:2] == ["mirlo", "serve"] and command[4] == "0.0.0.0" and command[6] == "8080"
    model = command[2].replace("/mnt/models", str(tmp_path))
    write_tensor_model(tmp_path / "sum.onnx")
    import urllib.request

    with serving(model, *command[7:]) as server:
        for probe in ("readinessProbe", "livenessProbe"):
            get = container[probe]["httpGet"]
            assert get["port"] == container["ports"][0]["containerPort"]
            assert urllib.request.urlopen(server.address + get["path"]).status == 200
