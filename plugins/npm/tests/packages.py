"""npm packages in tests: compiled, run in Node.js, served to browsers."""

from __future__ import annotations

import http.server
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import pytest
from mirlo_npm.browsers import PROGRAMS, find_browser, visit
from mirlo_npm.server import served as serve_folder

NODE = shutil.which("node")
TOOLS = {"node": NODE, "ziglang": importlib.util.find_spec("ziglang")}
LACKED = [name for name, found in TOOLS.items() if found is None]
REQUIRES_TOOLS = pytest.mark.skipif(bool(LACKED), reason=f"install {', '.join(LACKED)}")
BROWSERS = [
    pytest.param(name, marks=pytest.mark.skipif(find_browser(name) is None, reason=f"install {name}"))
    for name in PROGRAMS
]


def compiled(made: onnx.ModelProto, folder: Path, *flags: str) -> Path:
    """Compile a model to a package, and return its folder."""
    onnx.save(made, folder / "model.onnx")
    words = [
        "compile",
        folder / "model.onnx",
        "--emit",
        "npm",
        "--name",
        "Some Model",
        "-o",
        folder / "package",
        *flags,
    ]
    command = [sys.executable, "-m", "mirlo.tools.cli", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "package"


def in_node(package: Path, code: str, check: bool = True, flags: Sequence[str] = ()) -> Any:
    """Run a module that imports the package, and return the JSON that it prints."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.mjs"
        path.write_text(
            f"import {{ load, signature, ModelError }} from {json.dumps((package / 'index.js').as_uri())};\n"
            + code.replace("PACKAGE", package.as_uri())
        )
        done = subprocess.run([str(NODE), *flags, str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == check, done.stderr
    return json.loads(done.stdout) if check else done.stderr


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a package and receives the result of a page; the first response for weights is cut off."""

    results: list[str] = []
    finished = threading.Event()
    broken = False

    def do_POST(self) -> None:
        self.results.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(204)
        self.end_headers()
        self.finished.set()

    def do_GET(self) -> None:
        if not self.path.endswith(".weights"):
            super().do_GET()
            return
        content = (Path(self.directory) / "model.weights").read_bytes()
        begin = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-")) if "Range" in self.headers else 0
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        part = content[begin:]
        if not Handler.broken:
            Handler.broken, part = True, part[: len(part) // 2]
        self.wfile.write(part)

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def served(package: Path, handler: type[Handler] = Handler) -> Iterator[str]:
    """Serve a package, with new results; yield its address."""
    Handler.results, Handler.broken = [], False
    Handler.finished.clear()
    with serve_folder(package, handler) as address:
        yield address


def in_browser(browser: str, package: Path, address: str, page: str) -> Any:
    """Open a page beside the files of a package, and return the JSON that it posts."""
    path = package / "test.html"
    path.write_text(page)
    try:
        with visit(browser, f"{address}/{path.name}"):
            assert Handler.finished.wait(60), "the page did not answer within a minute"
    finally:
        path.unlink()
    return json.loads(Handler.results[0])
