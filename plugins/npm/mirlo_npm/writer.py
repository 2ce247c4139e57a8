"""The npm package of a model: its module, linked by Zig; its weights; JavaScript, types and a page."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mirlo.extend.codegen import Artifact
from mirlo.extend.target import write_library

CACHE_RANK = 4
"""The rank of key/value caches: [batch, heads, rows, size]."""
SCRIPTS = ("index.js", "state.js", "generate.js", "generate.d.ts", "sample.js", "threads.js", "thread.js", "worker.js")
"""Files that are the same in each package."""
SOURCES = Path(__file__).parent / "package"
TYPES = {
    "f32": "Float32Array", "f64": "Float64Array", "f16": "Uint16Array", "bf16": "Uint16Array", "i8": "Int8Array",
    "u8": "Uint8Array", "i16": "Int16Array", "u16": "Uint16Array", "i32": "Int32Array", "u32": "Uint32Array",
    "i64": "BigInt64Array", "u64": "BigUint64Array", "bool": "Uint8Array",
}  # fmt: skip
FLAGS = (
    "-target", "wasm32-wasi", "-O2", "-msimd128", "-mexec-model=reactor", "-fvisibility=hidden",
    "-Wl,--max-memory=4294901760", "-Wl,--strip-all", "-D_WASI_EMULATED_MMAN", "-lwasi-emulated-mman",
)  # fmt: skip
THREAD_FEATURES = ("atomics", "bulk-memory")
"""Target features of all object files of a module with shared memory."""
THREAD_FLAGS = (
    "-mcpu=generic+simd128+atomics+bulk_memory", "-Wl,--import-memory", "-Wl,--shared-memory",
    "-Wl,--initial-memory=67108864", "-Wl,--export=__stack_pointer",
)  # fmt: skip
"""Linker flags of a module that imports its memory, with the pages that `threads.js` requests."""
MODULES = ("model.wasm", "model-threads.wasm")


def write_package(artifact: Artifact, store: Any, folder: Path, name: str, weights: str = "auto") -> list[Path]:
    """Write a compiled model as a package of npm; return the files."""
    from mirlo import MirloError

    if weights == "embed":
        raise MirloError(
            "packages of npm have their weights in a file, which is loaded with progress: leave out --weights"
        )
    if "wasm32" not in str(artifact.metadata.get("triple", "")):
        raise MirloError("packages of npm are WebAssembly: leave out --target, or name triple=wasm32-unknown-unknown")
    if importlib.util.find_spec("ziglang") is None:
        raise MirloError("the module is linked by Zig: pip install ziglang")
    other = [spec.name for spec in (*artifact.inputs, *artifact.outputs) if str(spec.dtype) not in TYPES]
    if other:
        raise MirloError(f"'{other[0]}' has elements that JavaScript has no arrays of")
    if artifact.threads > 1 and not set(THREAD_FEATURES) <= set(artifact.metadata["features"]):
        raise MirloError(f"threads need the features {' and '.join(THREAD_FEATURES)}: name them in --target")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mirlo-npm-") as temporary:
        parts = Path(temporary)
        written = write_library(artifact, store, parts, "model", shared=False, weights="beside")
        modules = [folder / name for name in MODULES[: 1 + (artifact.threads > 1)]]
        for module in modules:
            _link(parts, [path for path in written if path.suffix == ".o"], module)
        files = list(modules)
        file = parts / "model.weights"
        if file.exists():
            shutil.copyfile(file, folder / file.name)
            files.append(folder / file.name)
    facts = {
        "name": name, "inputs": _specs(artifact.inputs), "outputs": _specs(artifact.outputs),
        "weights": "model.weights",
        "weightsBytes": files[-1].stat().st_size if files[-1] not in modules else 0,
        "modules": [{"name": module.name, "bytes": module.stat().st_size} for module in modules],
        "threads": artifact.threads, "needs": artifact.metadata["features"],
        "caches": _caches(artifact), "windows": list(artifact.windows),
    }  # fmt: skip
    texts = {
        **{each: _source(each) for each in SCRIPTS},
        "call.js": _source("call.js").replace("/* SIGNATURE */ null", json.dumps(facts)),
        "index.d.ts": declarations(facts),
        "demo.html": _source("demo.html").replace("NAME", name.replace("&", "&amp;").replace("<", "&lt;")),
    }  # fmt: skip
    texts["package.json"] = json.dumps(_manifest(name, [*(file.name for file in files), *texts]), indent=2) + "\n"
    for each, text in texts.items():
        (folder / each).write_text(text, encoding="utf-8")
        files.append(folder / each)
    return files


def _source(name: str) -> str:
    return (SOURCES / name).read_text(encoding="utf-8")


def _link(folder: Path, objects: Sequence[Path], module: Path) -> None:
    from mirlo import MirloError

    is_shared = module.name == MODULES[1]
    linked = [path for path in objects if is_shared or path.name != "mirlo_pool.o"]
    words = [sys.executable, "-m", "ziglang", "cc", *FLAGS, *(THREAD_FLAGS if is_shared else ())]
    words += [f"-I{folder}", "-DMODEL=mirlo_model_model"]
    words += [str(SOURCES / "module.c"), str(folder / "mirlo.c"), *map(str, linked), "-o", str(module)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MirloError(f"Zig does not link the module:\n{done.stderr}")


def _specs(specs: Sequence[Any]) -> list[dict[str, object]]:
    return [
        {
            "name": spec.name, "type": str(spec.dtype),
            "dims": [dim if isinstance(dim, int) else str(dim) for dim in spec.shape],
        }
        for spec in specs
    ]  # fmt: skip


def _caches(artifact: Artifact) -> list[tuple[str, str]]:
    """Return the caches that calls update in place: inputs, and the outputs with their next values."""
    ranks = {spec.name: len(spec.shape) for spec in artifact.inputs}
    return [(source, output) for output, source in artifact.aliases.items() if ranks[source] == CACHE_RANK]


def _manifest(name: str, files: Sequence[str]) -> dict[str, object]:
    return {
        "name": re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._") or "model", "version": "1.0.0",
        "description": f"The model {name}, compiled by Mirlo.", "type": "module", "main": "index.js",
        "types": "index.d.ts", "exports": {".": {"types": "./index.d.ts", "default": "./index.js"}, "./*": "./*"},
        "files": list(files), "sideEffects": False,
    }  # fmt: skip


def declarations(facts: dict[str, Any]) -> str:
    """Return the TypeScript declarations of a package."""

    def lines(specs: Sequence[dict[str, Any]], is_input: bool) -> str:
        rows = []
        for spec in specs:
            array = TYPES[spec["type"]]
            kind = f"{array} | Tensor<{array}>" if is_input else f"Tensor<{array}>"
            rows.append(
                f"  /** {spec['type']}[{', '.join(map(str, spec['dims']))}] */\n  {json.dumps(spec['name'])}: {kind};"
            )
        return "\n".join(rows)

    cached, updated = (" | ".join(json.dumps(pair[i]) for pair in facts["caches"]) or "never" for i in range(2))
    types = {
        "INPUTS": lines(facts["inputs"], True), "OUTPUTS": lines(facts["outputs"], False), "CACHED": cached,
        "UPDATED": updated,
    }  # fmt: skip
    return re.sub(r"\b(INPUTS|OUTPUTS|CACHED|UPDATED)\b", lambda match: types[match[1]], _source("index.d.ts"))
