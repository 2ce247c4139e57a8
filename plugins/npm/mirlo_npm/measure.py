"""Packages beside onnxruntime-web: `python -m mirlo_npm.measure --peer NODE_MODULES [--browser NAME] MODEL.onnx...`.

`npm install onnxruntime-web` makes the folder `node_modules`. Calls alternate, with a pause before each, in which the
threads of the other engine go to sleep; dynamic sizes are 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from mirlo_npm.browsers import PROGRAMS, find_browser, visit
from mirlo_npm.server import IsolatedHandler, served

MOST_SECONDS = 300
PAUSE_MS = 20
"""Pause before each call: thread pools poll after a call, and would take cores from the other engine."""
PROGRAM = """
import * as ort from "PEER";
import { load, signature } from "PACKAGE";
const model = await load();
if (model.threads !== THREADS) throw new Error(model.reason);
ort.env.wasm.numThreads = THREADS;
const session = await ort.InferenceSession.create(MODEL, { executionProviders: ["wasm"] });
const kinds = { f32: ["float32", Float32Array], i64: ["int64", BigInt64Array], i32: ["int32", Int32Array] };
const ours = {}, theirs = {};
for (const { name, type, dims } of signature.inputs) {
  const sizes = dims.map((dim) => (typeof dim === "number" ? dim : 1));
  const [other, kind] = kinds[type];
  const data = new kind(sizes.reduce((product, dim) => product * dim, 1));
  const element = { f32: (i) => Math.sin(i * 0.37), i64: (i) => BigInt(i % 7), i32: (i) => i % 7 }[type];
  for (let i = 0; i < data.length; ++i) data[i] = element(i);
  ours[name] = { data, dims: sizes };
  theirs[name] = new ort.Tensor(other, data, sizes);
}
const times = [[], []];
let difference = 0;
const timed = async (run) => {
  await new Promise((resolve) => setTimeout(resolve, PAUSE));
  const begin = performance.now();
  const result = await run();
  return [result, performance.now() - begin];
};
for (let call = 0; call < CALLS + 1; ++call) {
  const [found, ms] = await timed(() => model.run(ours));
  const [expected, otherMs] = await timed(() => session.run(theirs));
  if (call) [ms, otherMs].forEach((each, i) => times[i].push(each));
  for (const { name, type } of call || signature.outputs.some(({ type }) => type !== "f32") ? [] : signature.outputs) {
    const [a, b] = [found[name].data, expected[name].data];
    const largest = b.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-6);
    difference = a.reduce((most, value, i) => Math.max(most, Math.abs(value - b[i]) / largest), difference);
  }
}
const [mine, other] = times.map((list) => list.sort((a, b) => a - b)[list.length >> 1]);
await (REPORT)({ mine, other, difference });
"""
REPORT_ERRORS = """<script>
const report = (problem) => fetch("/", { method: "POST", body: JSON.stringify({ problem: String(problem) }) });
addEventListener("error", ({ message }) => report(message));
addEventListener("unhandledrejection", ({ reason }) => report(reason));
</script>"""


def measure(
    package: Path, model: Path, modules: Path, calls: int, browser: str = "", threads: int = 1
) -> dict[str, float]:
    """Return the medians of calls of the package and of onnxruntime-web, in ms, and the largest difference."""
    peer = modules / "onnxruntime-web"
    if not browser:
        text = _program(
            peer=(peer / "dist" / "ort.node.min.mjs").as_uri(), package=(package / "index.js").as_uri(), calls=calls,
            threads=threads,
            model=f'(await import("node:fs")).readFileSync({json.dumps(str(model))})',
            report="(result) => console.log(JSON.stringify(result))",
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "program.mjs"
            path.write_text(text)
            done = subprocess.run(["node", path], capture_output=True, text=True, check=True)
        result: dict[str, float] = json.loads(done.stdout)
        return result
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        root = Path(name)
        os.symlink(package, root / "package")
        os.symlink(peer, root / "peer")
        os.symlink(model, root / "model.onnx")
        text = _program(
            peer="./peer/dist/ort.wasm.min.mjs", package="./package/index.js", calls=calls,
            threads=threads, model='"./model.onnx"',
            report='(result) => fetch("/", { method: "POST", body: JSON.stringify(result) })',
        )  # fmt: skip
        (root / "index.html").write_text(f'<!doctype html>{REPORT_ERRORS}<script type="module">{text}</script>')
        return _visited(root, browser)


def _program(**values: Any) -> str:
    text = PROGRAM
    for name, value in {**values, "pause": PAUSE_MS}.items():
        text = text.replace(name.upper(), str(value))
    return text


def _visited(root: Path, browser: str) -> dict[str, float]:
    """Open the page of a folder in a browser and return what it posts."""
    results: list[dict[str, float]] = []
    finished = threading.Event()

    class Handler(IsolatedHandler):
        def do_POST(self) -> None:
            results.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            finished.set()

    with served(root, Handler) as address, visit(browser, address):
        is_done = finished.wait(MOST_SECONDS)
    if not is_done:
        raise TimeoutError(f"the page gave no result within {MOST_SECONDS} s")
    if "problem" in results[0]:
        raise RuntimeError(f"the page ended with: {results[0]['problem']}")
    return results[0]


def main() -> None:
    parser = argparse.ArgumentParser(prog="mirlo_npm.measure", description=__doc__)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL.onnx")
    parser.add_argument("--peer", type=Path, required=True, metavar="NODE_MODULES")
    parser.add_argument("--browser", choices=tuple(PROGRAMS), default="", help="in this browser, not in Node.js")
    parser.add_argument("--target", help="of `mirlo compile`")
    parser.add_argument("--threads", type=int, default=1, help="of both (default: 1)")
    parser.add_argument("--calls", type=int, default=15)
    arguments = parser.parse_args()
    if (find_browser(arguments.browser) if arguments.browser else shutil.which("node")) is None:
        parser.error(f"install {arguments.browser or 'node'}")
    print("| model | ms | onnxruntime-web | ratio | difference |\n| --- |" + " ---: |" * 4)
    for model in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            words = ["compile", str(model), "--emit", "npm", "-o", folder]
            words += ["--threads", str(arguments.threads)]
            words += ["--target", arguments.target] if arguments.target else []
            command = [sys.executable, "-m", "mirlo.tools.cli", *words]
            if subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode:
                sys.exit(1)  # the command has said why
            peer = arguments.peer.resolve()
            found = measure(Path(folder), model.resolve(), peer, arguments.calls, arguments.browser, arguments.threads)
        ratio = found["mine"] / found["other"]
        times = f"{found['mine']:.1f} | {found['other']:.1f} | {ratio:.2f}"
        print(f"| {model.stem} | {times} | {found['difference']:.1g} |", flush=True)


if __name__ == "__main__":
    main()
